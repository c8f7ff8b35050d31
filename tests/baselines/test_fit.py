"""Which baselines are fitted to a split, and how they are chosen."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor

from dglcell.baselines import fit, kernel_ridge
from dglcell.baselines.fit import ALL_BASELINES, best_of, fit_families, left_out_baselines
from dglcell.baselines.kernel_ridge import KernelRidge
from dglcell.baselines.problem import MORE, SIMULATED
from dglcell.baselines.simple import AdditiveRidge
from dglcell.baselines.trees import TREES, BoostedTrees, Features
from dglcell.data.columns import COMPUTED, COVARIATE, Column, Provenance
from dglcell.data.strains import Strains
from dglcell.errors import DataError
from tests.baselines.invented import low_rank_pairs, pairs_of, problem_of, strains_of
from tests.baselines.test_kernel_ridge import growth

OF_DELETIONS = {name for name, family in ALL_BASELINES.items() if family.about not in (MORE, SIMULATED)}
NO_REACTIONS = dict.fromkeys(("untrained bound", "reaction kernel ridge"), "needs a cell graph with reactions")


def test_every_baseline_ignores_missing_labels() -> None:
    pairs, y = low_rank_pairs(5, genes=15)
    y = np.abs(y)
    y[::3] = np.nan
    measured, strains = ~np.isnan(y), pairs_of(pairs, 15)
    models = fit_families(problem_of(strains, y, strains, y))
    only = strains.take(np.flatnonzero(measured))
    alone = fit_families(problem_of(only, y[measured], only, y[measured]))
    assert set(models) == set(alone) == OF_DELETIONS - NO_REACTIONS.keys()
    for name, model in models.items():
        np.testing.assert_allclose(model.predict(strains), alone[name].predict(strains), atol=1e-6, err_msg=name)


def test_every_baseline_survives_a_constant_label() -> None:
    strains = strains_of([[0], [1], [0, 1], [1, 2], [0, 1, 2]], 3)
    y = np.full(5, 2.5)
    for name, model in fit_families(problem_of(strains, y, strains, y)).items():
        np.testing.assert_allclose(model.predict(strains), 2.5, err_msg=name)


def test_no_label_at_all_is_refused() -> None:
    strains = strains_of([[0], [1]], 2)
    with pytest.raises(DataError, match=r"no training strain has a label[\s\S]*another phenotype"):
        fit_families(problem_of(strains, np.full(2, np.nan), strains, np.ones(2)))


def test_what_does_not_apply_is_left_out_with_a_reason() -> None:
    triples, scores = strains_of([[0, 1, 2], [1, 2, 3], [0, 2, 3]], 4), np.array([-1.0, 0.0, 1.0])
    problem = problem_of(triples, scores, triples, scores)
    fitness = "is for fitness-like phenotypes, and 33.3% of the labels are negative (at most 1%)"
    assert left_out_baselines(problem) == {"multiplicative": fitness, **NO_REACTIONS}
    assert list(fit_families(problem)) == ["training mean", "additive ridge", "kernel ridge", "boosted trees"]
    singles = strains_of([[0], [1]], 4)
    assert left_out_baselines(problem_of(singles, scores[:2], triples, scores)) == {
        "multiplicative": fitness.replace("33.3", "50.0"),
        "kernel ridge": "needs strains with two or more deletions (found 1 at most)",
        **NO_REACTIONS,
    }
    assert left_out_baselines(problem_of(singles, scores[1:], triples, scores)).keys() == {
        "kernel ridge",
        *NO_REACTIONS,
    }


PAIRS = Strains.from_names([{"g0": 0.5, "g1": 0.2}])
MANY = strains_of([[gene, gene + 1] for gene in range(9_999)], 10_000)
COST = Provenance("csv", parameters={COMPUTED: {"cost": {"simulator": "Cost"}}})


def in_media(*media: str, name: str = "medium") -> Strains:
    return Strains.from_names([{"a": 0.1}] * len(media), covariates={name: [*media]})


GUIDED = in_media("glucose", "acetate")
REASONS: list[tuple[str, Strains, Strains | None, str | None]] = [
    ("kernel ridge", strains_of([[0], [1]], 3), None, "needs strains with two or more deletions (found 1 at most)"),
    ("kernel ridge", strains_of([[0, 1], [1, 2]], 3), None, None),
    ("kernel ridge", MANY, None, "would need 1.9 GiB of memory, and is limited to 1"),
    ("kernel ridge", PAIRS, None, "knows deletions only, and the strains have activities"),
    ("kernel ridge", strains_of([[0, 1]], 2), PAIRS, "knows deletions only, and the strains have activities"),
    ("multiplicative", GUIDED, None, "knows deletions only, and the strains have activities and covariates"),
    ("kernel ridge over strains", PAIRS, None, None),
    ("kernel ridge over strains", strains_of([[0]], 1), None, "needs strains with activities or covariates"),
    ("same strain in other media", in_media("glucose", "glucose"), None, "needs strains in several media"),
    ("same strain in other media", in_media("no", "yes", name="drug"), None, "needs strains in several media"),
    ("same strain in other media", in_media("glucose", "acetate"), None, None),
    ("FBA", in_media("a").with_(provenance=COST), None, "needs the growth that `data.fba` computes"),
]


@pytest.mark.parametrize(("name", "train", "others", "reason"), REASONS)
def test_where_they_apply(name: str, train: Strains, others: Strains | None, reason: str | None) -> None:
    others = train if others is None else others
    problem = problem_of(train, np.ones(len(train)), others, np.ones(len(others)))
    assert ALL_BASELINES[name].why_not(problem) == reason


def test_too_many_pairs_of_genes_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_ridge, "MOST_PAIRS", 3)
    said = "would compare 4e+00 pairs of genes, and is limited to 3e+00"
    assert ALL_BASELINES["kernel ridge over strains"].why_not(problem_of(PAIRS, np.ones(1))) == said


def test_hyperparameters_are_chosen_on_the_validation_part() -> None:
    rng = np.random.default_rng(0)
    genotypes = [[0], *([int(a), int(b)] for a, b in rng.integers(0, 200, (400, 2)) if a != b)]
    strains = strains_of(genotypes, 200)
    y, other = rng.normal(size=len(strains)), rng.normal(size=len(strains))
    alphas = []
    for labels in (y, other, np.full_like(y, np.nan)):
        model = best_of(ALL_BASELINES["additive ridge"], problem_of(strains, y, strains, labels))
        assert isinstance(model, AdditiveRidge)
        alphas.append(model.alpha)
    # Without a validation part, a fold of the training part is noise to the rest of it.
    assert alphas == [0.1, 1000.0, 1000.0]


def test_without_a_validation_part_settings_are_chosen_on_a_fold_and_fitted_to_all() -> None:
    pairs, y = low_rank_pairs(1, genes=40)
    train, test = pairs_of(pairs[:600], 40), pairs_of(pairs[600:], 40)
    empty = train.take(np.zeros(0, np.int64))
    without, labels = problem_of(train, y[:600], train.take(np.arange(1)), np.full(1, np.nan)), y[600:]
    problem = replace(without, validation=empty, y_validation=np.zeros(0))
    family = ALL_BASELINES["kernel ridge"]
    errors = [float(np.square(model.predict(test) - labels).mean()) for model in family.fitted(problem)]
    chosen = best_of(family, problem)
    assert isinstance(chosen, KernelRidge)
    assert len(chosen.coefficients) == 600, "it is fitted to all strains"
    found = float(np.square(chosen.predict(test) - labels).mean())
    assert found in errors
    assert found < 1.1 * min(errors) < 0.5 * errors[len(errors) // 2]
    fold = problem.with_validation()
    assert (len(fold.train), len(fold.validation)) == (480, 120)
    assert problem_of(train, y[:600], test, labels).with_validation().train is train


def test_predictions_for_deletions_stay_as_they_were() -> None:
    problem = growth(60)
    found = {name: model.predict(problem.validation)[:3] for name, model in fit_families(problem).items()}
    expected = {
        "training mean": [0.564804, 0.564804, 0.564804],
        "additive ridge": [0.462381, 0.564574, 0.530001],
        "multiplicative": [0.430579, 0.549446, 0.529654],
        "untrained bound": [1.0, 1.0, 1.0],
        "reaction kernel ridge": [0.560109, 0.549792, 0.543438],
        "kernel ridge": [0.545886, 0.564804, 0.561417],
    }
    assert found.keys() == {*expected, "boosted trees"}
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, atol=1e-6, err_msg=name)


def test_a_covariate_that_was_computed_keeps_the_baselines_of_deletions() -> None:
    problem = growth(60)
    computed = np.random.default_rng(0).random((2, 60)).astype(np.float32)
    train, validation = (
        of.with_(columns={Column(COVARIATE, "fba_growth"): values})
        for of, values in zip((problem.train, problem.validation), computed, strict=True)
    )
    seen = replace(problem, train=train, validation=validation)
    made = train.provenance
    made = replace(made, parameters={**made.parameters, COMPUTED: {"fba_growth": {}}})
    assert left_out_baselines(seen)["kernel ridge"] == "knows deletions only, and the strains have covariates"
    found = fit_families(replace(seen, train=train.with_(provenance=made)))
    plain = fit_families(problem)
    assert found.keys() == {*plain, "kernel ridge over strains"}
    for name in ("multiplicative", "kernel ridge", "untrained bound"):
        np.testing.assert_array_equal(found[name].predict(validation), plain[name].predict(problem.validation))


def test_a_long_fit_says_so(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(fit, "SILENCE", 0.01)
    with caplog.at_level("DEBUG", "dglcell"):
        fit_families(growth(60))
    said = "\n".join(caplog.messages)
    assert "fitting 'boosted trees' to 60 strains takes a while\n" in said
    assert re.search(r"^fitted 'training mean' to 60 strains in \d+\.\d s$", said, re.MULTILINE)


def test_arrays_predict_what_scikit_learn_does() -> None:
    rng = np.random.default_rng(0)
    numbers, labels = rng.normal(size=(500, 6)), rng.normal(size=500)
    fitted = HistGradientBoostingRegressor(max_leaf_nodes=7, max_iter=20, early_stopping=False).fit(numbers, labels)
    problem = growth(60)
    trees = BoostedTrees.of(fitted, Features.of(problem))
    new = rng.normal(size=(200, 6))
    np.testing.assert_allclose(trees.of_features(new), fitted.predict(new), atol=1e-12)
    few = replace(trees, trees=5, roots=trees.roots[:5])
    expected = next(itertools.islice(fitted.staged_predict(new), 4, None))
    np.testing.assert_allclose(few.of_features(new), expected, atol=1e-12)


def test_a_training_strain_is_not_among_those_that_its_additive_effects_are_fitted_to() -> None:
    rng = np.random.default_rng(0)
    strains, y = strains_of([[gene] for gene in range(50)], 50), rng.normal(size=50)
    problem = problem_of(strains, y)
    features = Features.of(problem)
    own, others = features(strains)[:, 0], features.without_own(problem)[:, 0]
    assert np.corrcoef(own, y)[0, 1] > 0.98
    assert np.corrcoef(others, y)[0, 1] < 0.1


def test_lost_reactions_are_seen() -> None:
    problem = growth(300)
    assert problem.reactions is not None
    y = [1 - 0.2 * problem.reactions.lost(of).sum(axis=1) for of in (problem.train, problem.validation)]
    found = best_of(TREES, replace(problem, y_train=y[0], y_validation=y[1])).predict(problem.validation)
    assert np.corrcoef(found, y[1])[0, 1] > 0.98

"""The best null models, and their bytes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dglcell.api import load_cell
from dglcell.baselines.fit import (
    MEAN_OF_TWO,
    NULL_MODELS,
    STRENGTH_MODELS,
    MeanOfTwo,
    Problem,
    best_of,
    fit_null_models,
)
from dglcell.baselines.packed import FEW, PackedNulls, fit_best
from dglcell.baselines.reactions import Reactions
from dglcell.baselines.simple import AdditiveRidge, SameStrain
from dglcell.data.columns import condition_columns
from dglcell.data.strains import Strains
from dglcell.errors import ConfigError
from tests.baselines.invented import low_rank_pairs, pairs_of, problem_of, strains_of, unlike

CELL = load_cell("quickstart")


def growth(strains: int, seed: int = 0) -> Problem:
    """Pairs of the genes of *E. coli* core, whose effects multiply."""
    genes, rng = len(CELL.genes), np.random.default_rng(seed)
    effects = rng.uniform(0.5, 1, genes)
    pairs = rng.permutation(np.stack(np.triu_indices(genes, 1), axis=1))[: 2 * strains]
    y = effects[pairs].prod(1)
    train, validation = pairs_of(pairs[:strains], genes), pairs_of(pairs[strains:], genes)
    return replace(problem_of(train, y[:strains], validation, y[strains:]), reactions=Reactions(CELL))


def arrays(strains: Strains) -> tuple[np.ndarray, np.ndarray]:
    return strains.targets.astype(np.int64), strains.offsets


@pytest.mark.parametrize("name", NULL_MODELS)
def test_what_is_unpacked_predicts_the_same(name: str) -> None:
    problem = growth(300)
    assert NULL_MODELS[name].why_not(problem) is None or name == "smallest subset"
    model = best_of(NULL_MODELS[name], problem)[1]
    packed = PackedNulls([model, model], problem.train.names)
    again = PackedNulls.unpack(packed.pack(), CELL)
    found = again(*arrays(problem.validation))
    np.testing.assert_array_equal(found, packed(*arrays(problem.validation)))
    np.testing.assert_array_equal(found[:, 1], model.predict(problem.validation))
    assert packed.pack() == again.pack()


@pytest.mark.parametrize(("noise", "expected"), [(0.0, "additive ridge"), (0.15, MEAN_OF_TWO)])
def test_the_mean_of_two_is_taken_where_it_errs_less(noise: float, expected: str) -> None:
    problem, draw = growth(FEW), np.random.default_rng(0)
    y_train, y_validation = (y + noise * draw.normal(size=FEW) for y in (problem.y_train, problem.y_validation))
    problem = replace(problem, y_train=y_train, y_validation=y_validation)
    models = {of: best_of(NULL_MODELS[of], problem)[1] for of in ("additive ridge", "untrained bound", "kernel ridge")}
    first, second = sorted(models, key=lambda of: problem.error(models[of]))[:2]
    models[MEAN_OF_TWO] = MeanOfTwo((first, second), (models[first], models[second]))
    name, chosen = fit_best(problem, ["additive ridge", "untrained bound", "kernel ridge"])
    assert name == expected
    assert problem.error(chosen) == pytest.approx(min(map(problem.error, models.values())))


def test_with_many_validation_strains_it_is_the_null_model_of_that_name() -> None:
    problem = growth(FEW)
    name, best = fit_best(problem)
    expected = fit_null_models(problem)[name]
    np.testing.assert_array_equal(best.predict(problem.validation), expected.predict(problem.validation))


def test_strains_with_strengths_have_null_models_of_their_own() -> None:
    draw = np.random.default_rng(0)
    strengths = draw.uniform(0.05, 0.95, 240).astype(np.float32)
    strains = replace(strains_of([[number % 12] for number in range(240)], 12), strengths=strengths)
    y = 1 - np.exp(-8 * strengths.astype(np.float64))  # far from additive in what is lost
    problem = Problem(
        strains.take(np.arange(120)), strains.take(np.arange(120, 240)), y[:120], y[120:], lambda: unlike(12), 1
    )
    name, best = fit_best(problem)
    assert name in STRENGTH_MODELS
    np.testing.assert_array_equal(
        best.predict(problem.validation), fit_null_models(problem)[name].predict(problem.validation)
    )
    packed = PackedNulls([best], strains.names)
    found = PackedNulls.unpack(packed.pack(), CELL)(*arrays(problem.validation), problem.validation.strengths)
    np.testing.assert_array_equal(found[:, 0], best.predict(problem.validation))


def in_two_media(genes: int = 12) -> tuple[Strains, np.ndarray]:
    """Return two guides of each gene in two media, and growth, which does not depend on the medium."""
    conditions = {"medium": np.repeat(["acetate", "glucose"], 2 * genes), "guide": np.tile(np.repeat([0, 1], genes), 2)}
    own = np.random.default_rng(0).normal(size=2 * genes)
    targets = np.tile(np.arange(genes), 4)
    columns = condition_columns(conditions)
    return Strains(CELL.genes.names, targets, np.arange(len(targets) + 1), columns), np.tile(own, 2)


def test_null_models_can_be_chosen_by_name_and_are_packed() -> None:
    strains, y = in_two_media()
    train, test = np.arange(24), np.arange(24, 48)
    problem = Problem(strains.take(train), strains.take(test[:0]), y[train], y[:0], lambda: unlike(len(CELL.genes)), 1)
    name, model = fit_best(problem, ["same strain in other media"])
    assert name == "same strain in other media"
    assert isinstance(model, SameStrain)
    assert np.corrcoef(model.predict(strains.take(test)), y[test])[0, 1] > 0.999
    packed, found = PackedNulls([model], strains.names), strains.take(test)
    conditions = {(c.name, c.categories): values for c, values in found.columns.items()}
    restored = PackedNulls.unpack(packed.pack(), CELL)(*arrays(found), None, conditions)
    np.testing.assert_array_equal(restored[:, 0], model.predict(found))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "same strains in other media",
            "is unknown\n  expected: among .*\n  do:       did you mean same st",
        ),
        ("kernel ridge", "knows deletions only, and the strains have conditions\n.*\n  do:       leave it out"),
    ],
)
def test_names_of_null_models_that_do_not_apply_are_refused(name: str, said: str) -> None:
    strains, y = in_two_media()
    problem = Problem(strains, strains, y, y, lambda: unlike(12), 1)
    with pytest.raises(ConfigError, match=f"`model.null_names`: the null model '{name}' {said}"):
        fit_best(problem, [name])


def test_of_few_validation_strains_the_training_part_is_asked_as_well() -> None:
    pairs, y = low_rank_pairs(0, genes=40)
    train, few = pairs_of(pairs[4:], 40), pairs_of(pairs[:4], 40)
    misleading = AdditiveRidge(1.0).fit(train, y[4:]).predict(few)  # as if effects were additive
    problem = problem_of(train, y[4:], few, misleading)
    models, name = fit_null_models(problem), fit_best(problem)[0]
    assert min(models, key=lambda of: problem.error(models[of])) == "additive ridge"
    assert name == "kernel ridge and low rank"


def test_without_a_validation_part_folds_alone_choose() -> None:
    pairs, y = low_rank_pairs(1, genes=40)
    train = pairs_of(pairs, 40)
    name, best = fit_best(problem_of(train, y, pairs_of(pairs[:1], 40), np.full(1, np.nan)))
    assert name != "additive ridge"
    assert np.corrcoef(best.predict(train), y)[0, 1] > 0.9


def test_where_one_null_model_applies_it_stands_alone() -> None:
    singles = strains_of([[gene] for gene in range(12)], 12)
    y = np.linspace(-1, 1, 12)
    problem = Problem(singles, singles, y, y, lambda: unlike(12), 1)
    assert isinstance(fit_best(problem)[1], AdditiveRidge)


@pytest.mark.parametrize("packed", [b"", b"PK", b"nothing of the kind" * 10])
def test_other_bytes_are_refused(packed: bytes) -> None:
    with pytest.raises(ValueError, match="its null models are damaged"):
        PackedNulls.unpack(packed, CELL)

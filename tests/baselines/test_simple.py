"""Baselines of genes and of computed growth, and those in which effects multiply."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dglcell.baselines.fit import families_of, fit_families
from dglcell.baselines.simple import AdditiveRidge, AsComputed, Multiplicative, SameStrain, not_fitness_like
from dglcell.data.columns import COMPUTED, COVARIATE, Column, Provenance
from dglcell.data.strains import Strains
from dglcell.errors import DataError
from tests.baselines.invented import problem_of, strains_of


def test_additive_ridge_gives_unseen_genes_no_effect() -> None:
    model = AdditiveRidge(1.0).fit(strains_of([[0], [1], [0, 1]], 4), np.array([1.0, 2.0, 3.0]))
    assert model.predict(strains_of([[2, 3]], 4)) == pytest.approx(model.predict(strains_of([[]], 4)))


def test_a_strain_is_expected_to_do_in_a_new_medium_what_it_did_in_others() -> None:
    draw = np.random.default_rng(0)
    once = [{"a": 0.1}, {"a": 0.5}, {"b": 0.1}, {"a": 0.1, "b": 0.1, "c": 1.0}] * 3
    guides = np.repeat([1.0, 2.0, 3.0], 4)
    own, of_medium = draw.normal(size=12), {"glucose": 2.0, "acetate": -1.0}
    media = ["glucose"] * 12 + ["acetate"] * 12
    train = Strains.from_names(once * 2, covariates={"guide": np.tile(guides, 2), "medium": media})
    y = np.concatenate([own + shift for shift in of_medium.values()])
    model = SameStrain().fit(train, y)
    # The categories of a table are numbered otherwise if it has other media.
    shuffled = draw.permutation(12)
    covariates = {"guide": guides[shuffled], "medium": ["zymosterol"] * 12}
    test = Strains.from_names([once[i] for i in shuffled], covariates=covariates)
    found = model.predict(test)
    np.testing.assert_allclose(found - found.mean(), own[shuffled] - own.mean(), atol=1e-6)
    # Additive effects predict what was never measured: another activity, another guide, another gene.
    covariates = {"guide": np.array([1.0, 1.5, 1.0]), "medium": ["glucose"] * 3}
    others = Strains.from_names([{"a": 0.3}, {"a": 0.1}, {"b": 0.1, "c": 0.0}], covariates=covariates)
    np.testing.assert_array_equal(model.predict(others), AdditiveRidge().fit(train, y).predict(others))
    shrunk = SameStrain(2.0).fit(train, y)
    expected = (model.predict(test) + shrunk.ridge.predict(test)) / 2  # two measurements, and two fictitious ones
    np.testing.assert_allclose(shrunk.predict(test), expected, atol=1e-9)


GENES = 12


@pytest.mark.parametrize(
    ("train", "labels", "expected"),
    [
        ([[], [0], [1], [2], [0, 1]], [2.0, 1.0, 1.6, 0.0, 0.3], {(0, 1): 0.8, (1, 2): 0, (): 2, (3,): 2, (0, 3): 1}),
        # Without a wild type most single deletions are without effect.
        ([[0], [1], [2], [0, 1]], [0.9, 0.9, 0.45, 0.9], {(1, 2): 0.45, (2,): 0.45}),
        # Noise takes a single deletion below zero.
        ([[0], [1], [2], *[[0, 1]] * 300], [-0.01, 0.5, 0.9, *[0.5] * 300], {(0, 2): 0.0, (1, 2): 0.9}),
        # A wild type that is not positive is not believed.
        ([[0], *([a, b] for a in range(20) for b in range(a))], [-0.004, *[0.8] * 190], {(5, 6): 0.8, (7, 8): 0.8}),
    ],
)
def test_effects_that_are_measured_are_multiplied(
    train: list[list[int]], labels: list[float], expected: dict[tuple[int, ...], float]
) -> None:
    model = Multiplicative().fit(strains_of(train, 20), np.array(labels))
    found = model.predict(strains_of([list(genes) for genes in expected], 20))
    np.testing.assert_allclose(found, [*expected.values()], atol=1e-9 if len(train) < 100 else 0.01)


@pytest.mark.parametrize("measured", [0, 5])
def test_effects_that_are_not_measured_are_estimated_from_larger_strains(measured: int) -> None:
    rng = np.random.default_rng(0)
    effects = rng.uniform(0.3, 1.0, GENES)
    effects[7] = 0.0
    strains: list[list[int]] = [[]]
    for size in (2, 3):
        strains += [list(genes) for genes in itertools.combinations(range(GENES), size)]
    train = [[gene] for gene in range(measured)] + strains[:-40]
    labels = np.array([np.prod(effects[genes]) for genes in train])
    model = Multiplicative(1e-6).fit(strains_of(train, GENES), labels)
    expected = [np.prod(effects[genes]) for genes in strains[-40:]]
    np.testing.assert_allclose(model.predict(strains_of(strains[-40:], GENES)), expected, atol=2e-3)


def test_scores_and_rare_classes_are_no_fitness() -> None:
    said = "is for fitness-like phenotypes, and "
    negative = said + "33.3% of the labels are negative (at most 1%)"
    assert not_fitness_like(np.array([0.1, -0.2, 0.3])) == negative
    assert not_fitness_like(np.array([0.0, 0.0, np.nan, 1.0])) == said + "the median of the labels is not positive"
    assert not_fitness_like(np.array([1.0, 0.4, np.nan, 0.0])) is None
    assert not_fitness_like(np.append(np.ones(200), -0.01)) is None


def with_growth(strains: Strains, growth: np.ndarray) -> Strains:
    provenance = Provenance("csv", parameters={COMPUTED: {"fba_growth": {"simulator": "FbaGrowth"}}})
    columns = {**strains.columns, Column(COVARIATE, "fba_growth"): growth.astype(np.float32)}
    return strains.with_(columns=columns, provenance=provenance)


def test_growth_is_a_baseline_where_the_column_is() -> None:
    strains, y = strains_of([[gene] for gene in range(20)], 20), np.arange(20.0)
    assert "FBA" not in families_of(problem_of(strains, y))
    found = fit_families(problem_of(with_growth(strains, y), y - 1))["FBA"]
    np.testing.assert_array_equal(found.predict(with_growth(strains, 2 * y)), 2 * y)
    with pytest.raises(DataError, match="FBA: the strains have no column 'fba_growth'"):
        AsComputed("fba_growth").predict(strains)

"""Null models of fitness: products of effects, and the smallest of the measured subsets."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dglcell.baselines.composition import Multiplicative, SmallestSubset, not_fitness_like
from tests.baselines.invented import strains_of

GENES = 12


def test_effects_that_are_measured_are_multiplied() -> None:
    train = strains_of([[], [0], [1], [2], [2], [0, 1]], 4)
    model = Multiplicative().fit(train, np.array([2.0, 1.0, 1.6, 0.0, np.nan, 0.3]))
    assert model.wild_type == 2.0
    test = strains_of([[0, 1], [1, 2], [0], [], [3], [0, 3]], 4)
    np.testing.assert_allclose(model.predict(test), [0.8, 0.0, 1.0, 2.0, 2.0, 1.0])


def test_without_a_wild_type_most_single_deletions_are_without_effect() -> None:
    model = Multiplicative().fit(strains_of([[0], [1], [2], [0, 1]], 3), np.array([0.9, 0.9, 0.45, 0.9]))
    np.testing.assert_allclose(model.predict(strains_of([[1, 2], [2]], 3)), [0.45, 0.45])


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


def test_the_smallest_of_the_measured_subsets_decides() -> None:
    train = strains_of([[0], [1], [1, 0], [2, 3], [3, 2], [0, 1, 2], []], 6)
    model = SmallestSubset().fit(train, np.array([0.9, 0.8, 0.5, 0.6, 0.4, 0.1, 1.0]))
    test = strains_of([[2, 1, 0], [3, 1, 2], [0, 1], [4, 5], [5], [0, 1, 2, 3]], 6)
    # The subset {2, 3} has replicates. A strain itself is no subset of it; {4, 5} has none, nor {5}.
    expected = [0.5, 0.5, 0.8, 0.5, 0.85, 0.1]
    np.testing.assert_allclose(model.predict(test), expected)


def test_a_number_of_deletions_that_is_new_has_the_mean_of_all_where_nothing_is_measured() -> None:
    model = SmallestSubset().fit(strains_of([[0], [1]], 6), np.array([0.5, 1.0]))
    assert model.predict(strains_of([[2, 3, 4]], 6)).tolist() == [0.75]


def test_subsets_of_more_than_three_genes_are_not_looked_up() -> None:
    model = SmallestSubset().fit(strains_of([[0], [0, 1, 2], [0, 1, 2, 3]], 6), np.array([0.9, 0.7, 0.1]))
    assert model.predict(strains_of([[0, 1, 2, 3, 4]], 6)).tolist() == [0.7]


def test_scores_and_rare_classes_are_no_fitness() -> None:
    said = "is for fitness-like phenotypes, and "
    negative = said + "33.3% of the labels are negative (at most 1%)"
    assert not_fitness_like(np.array([0.1, -0.2, 0.3])) == negative
    assert not_fitness_like(np.array([0.0, 0.0, np.nan, 1.0])) == said + "the median of the labels is not positive"
    assert not_fitness_like(np.array([1.0, 0.4, np.nan, 0.0])) is None
    assert not_fitness_like(np.append(np.ones(200), -0.01)) is None


def test_a_single_deletion_that_noise_takes_below_zero_scales_by_zero() -> None:
    strains = strains_of([[0], [1], [2], *[[0, 1]] * 300], 4)
    model = Multiplicative().fit(strains, np.array([-0.01, 0.5, 0.9, *[0.5] * 300]))
    assert model.predict(strains_of([[0, 2], [1, 2]], 4)) == pytest.approx([0.0, 0.9])


def test_a_wild_type_that_is_not_positive_is_not_believed() -> None:
    pairs = [[a, b] for a in range(20) for b in range(a)]
    model = Multiplicative().fit(strains_of([*pairs, [0]], 20), np.array([*[0.8] * 190, -0.004]))
    assert model.predict(strains_of([[5, 6], [7, 8]], 20)) == pytest.approx([0.8, 0.8], rel=0.01)

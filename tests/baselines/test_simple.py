"""Strains, and null models of single genes and of query pairs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dglcell.baselines.simple import AdditiveRidge, QueryPairMean, TrainingMean
from dglcell.data.strains import Strains
from dglcell.errors import ConfigError, DataError
from tests.baselines.invented import strains_of
from tests.examples import examples

genotypes_of_nine = st.lists(st.lists(st.integers(0, 8), max_size=4, unique=True), min_size=1, max_size=25)


def test_strains_refuse_genes_outside_the_vocabulary() -> None:
    with pytest.raises(DataError, match=r"outside their names[\s\S]*1 … 7[\s\S]*0 … 4"):
        strains_of([[1, 7]], 5)


def test_strains_refuse_offsets_that_do_not_cover_the_genes() -> None:
    with pytest.raises(DataError, match="offsets do not cover"):
        Strains(tuple("abcde"), np.array([0, 1, 2]), np.array([0, 2]))


@given(genotypes_of_nine, st.data())
def test_take_keeps_the_genes_of_each_strain(genotypes: list[list[int]], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(genotypes) - 1), max_size=10))
    taken = strains_of(genotypes, 9).take(np.array(rows, dtype=np.int64))
    expected = strains_of([genotypes[row] for row in rows], 9)
    assert taken.targets.tolist() == expected.targets.tolist()
    assert taken.offsets.tolist() == expected.offsets.tolist()


def test_training_mean_ignores_missing_labels() -> None:
    model = TrainingMean().fit(strains_of([[0], [1], [2]], 3), np.array([1.0, np.nan, 2.0]))
    assert model.predict(strains_of([[0, 1], []], 3)).tolist() == [1.5, 1.5]


@given(genotypes_of_nine, st.floats(0.1, 100), st.integers(0, 2**32 - 1))
@examples(25)
def test_additive_ridge_solves_the_penalised_least_squares(genotypes: list[list[int]], alpha: float, seed: int) -> None:
    strains = strains_of(genotypes, 9)
    y = np.random.default_rng(seed).normal(3, 1, len(strains))
    model = AdditiveRidge(alpha).fit(strains, y)
    design = np.zeros((len(strains), 9))
    for row, genotype in enumerate(genotypes):
        design[row, genotype] = 1
    centred = design - design.mean(0)
    effects = np.linalg.solve(centred.T @ centred + alpha * np.eye(9), centred.T @ (y - y.mean()))
    expected = y.mean() + centred @ effects
    np.testing.assert_allclose(model.predict(strains), expected, atol=1e-5)


def test_additive_ridge_recovers_gene_effects_from_mixed_numbers_of_deletions() -> None:
    rng = np.random.default_rng(0)
    effects = rng.normal(size=30)
    genotypes = [rng.permutation(30)[: rng.integers(0, 6)].tolist() for _ in range(2000)]
    y = np.array([0.7 + effects[g].sum() for g in genotypes])
    model = AdditiveRidge(1e-3).fit(strains_of(genotypes[:1500], 30), y[:1500])
    np.testing.assert_allclose(model.predict(strains_of(genotypes[1500:], 30)), y[1500:], atol=1e-3)


def test_additive_ridge_gives_unseen_genes_no_effect() -> None:
    model = AdditiveRidge(1.0).fit(strains_of([[0], [1], [0, 1]], 4), np.array([1.0, 2.0, 3.0]))
    assert model.predict(strains_of([[2, 3]], 4)) == pytest.approx(model.predict(strains_of([[]], 4)))


def test_query_pair_mean_by_hand() -> None:
    train = strains_of([[3, 1, 0], [1, 3, 2], [4, 2, 0], [0, 1], [2]], 5)
    model = QueryPairMean(1.0).fit(train, np.array([2.0, 4.0, 1.0, 3.0, 5.0]))
    # Mean 3; the query pair {1, 3} was seen twice, with 2 and 4; {2, 4} once, with 1; {0, 1} once, with 3.
    test = strains_of([[1, 3, 4], [2, 4, 3], [1, 0, 3], [0, 4, 2], [2], []], 5)
    assert model.predict(test).tolist() == [3.0, 2.0, 3.0, 3.0, 3.0, 3.0]
    assert QueryPairMean(0.0).fit(train, np.array([2.0, 5.0, 1.0, 3.0, 4.0])).predict(test)[0] == 3.5


def test_query_pair_mean_without_any_pair_is_the_training_mean() -> None:
    model = QueryPairMean().fit(strains_of([[0], [1]], 3), np.array([1.0, 3.0]))
    assert model.predict(strains_of([[0, 1], [2]], 3)).tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    ("build", "word"),
    [(lambda: AdditiveRidge(0), "alpha"), (lambda: QueryPairMean(-1), "pseudo_count")],
)
def test_hyperparameters_out_of_range_are_refused(build: Callable[[], object], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        build()

"""Strains, and null models of single genes and of query pairs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dglcell.baselines.simple import SAME_STRAIN, AdditiveRidge, QueryPairMean, SameStrain, TrainingMean
from dglcell.data.strains import Strains
from dglcell.errors import DataError
from tests.baselines.invented import problem_of, strains_of
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


def test_a_strain_is_expected_to_do_in_a_new_medium_what_it_did_in_others() -> None:
    draw = np.random.default_rng(0)
    once = [{"a": 0.1}, {"a": 0.5}, {"b": 0.1}, {"a": 0.1, "b": 0.1, "c": 1.0}] * 3
    guides = np.repeat([1.0, 2.0, 3.0], 4)
    own, of_medium = draw.normal(size=12), {"glucose": 2.0, "acetate": -1.0}
    media = ["glucose"] * 12 + ["acetate"] * 12
    train = Strains.from_names(once * 2, conditions={"guide": np.tile(guides, 2), "medium": media})
    y = np.concatenate([own + shift for shift in of_medium.values()])
    model = SameStrain().fit(train, y)
    # The categories of a table are numbered otherwise if it has other media.
    shuffled = draw.permutation(12)
    conditions = {"guide": guides[shuffled], "medium": ["zymosterol"] * 12}
    test = Strains.from_names([once[i] for i in shuffled], conditions=conditions)
    found = model.predict(test)
    np.testing.assert_allclose(found - found.mean(), own[shuffled] - own.mean(), atol=1e-6)
    # Additive effects predict what was never measured: another strength, another guide, another gene.
    conditions = {"guide": np.array([1.0, 1.5, 1.0]), "medium": ["glucose"] * 3}
    others = Strains.from_names([{"a": 0.3}, {"a": 0.1}, {"b": 0.1, "c": 0.0}], conditions=conditions)
    np.testing.assert_array_equal(model.predict(others), AdditiveRidge().fit(train, y).predict(others))
    shrunk = SameStrain(2.0).fit(train, y)
    expected = (model.predict(test) + shrunk.ridge.predict(test)) / 2  # two measurements, and two fictitious ones
    np.testing.assert_allclose(shrunk.predict(test), expected, atol=1e-9)


def test_sites_of_guides_are_told_apart_by_name() -> None:
    sites = {"site": ["first", "second"], "medium": ["glucose", "glucose"]}
    train = Strains.from_names([{"a": 0.1}, {"a": 0.1}], conditions=sites)
    model = SameStrain().fit(train, np.array([1.0, 3.0]))
    test = Strains.from_names([{"a": 0.1}], conditions={"site": ["second"], "medium": ["acetate"]})
    assert model.predict(test) == pytest.approx(3.0)


@pytest.mark.parametrize("conditions", [{"medium": ["glucose"] * 2}, {"drug": ["none", "rapamycin"]}])
def test_it_needs_strains_in_several_media(conditions: dict[str, list[str]]) -> None:
    strains = Strains.from_names([{"a": 0.1}, {"a": 0.1}], conditions=conditions)
    assert SAME_STRAIN.why_not(problem_of(strains, np.ones(2))) == "needs strains in several media"
    several = Strains.from_names([{"a": 0.1}, {"a": 0.1}], conditions={"medium": ["glucose", "acetate"]})
    assert SAME_STRAIN.why_not(problem_of(several, np.ones(2))) is None

"""Null models: they recover what they can express, ignore missing labels, and agree with known accuracies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dglcell.baselines import (
    NULL_MODELS,
    AdditiveRidge,
    LowRankProfiles,
    QueryPairMean,
    Strains,
    TrainingMean,
    fit_null_models,
    left_out_null_models,
)
from dglcell.errors import ConfigError, DataError
from dglcell.metrics import regression_metrics


def strains_of(genotypes: list[list[int]], num_genes: int) -> Strains:
    offsets = np.concatenate([[0], np.cumsum([len(g) for g in genotypes])]).astype(np.int64)
    genes = np.array([gene for genotype in genotypes for gene in genotype], dtype=np.int32)
    return Strains(genes, offsets, num_genes)


def pairs_of(pairs: NDArray[np.int64], num_genes: int) -> Strains:
    return Strains(pairs.ravel().astype(np.int32), np.arange(len(pairs) + 1, dtype=np.int64) * 2, num_genes)


genotypes_of_nine = st.lists(st.lists(st.integers(0, 8), max_size=4, unique=True), min_size=1, max_size=25)


def test_strains_refuse_genes_outside_the_vocabulary() -> None:
    with pytest.raises(DataError, match=r"outside the vocabulary[\s\S]*1 … 7[\s\S]*0 … 4"):
        strains_of([[1, 7]], 5)


def test_strains_refuse_offsets_that_do_not_cover_the_genes() -> None:
    with pytest.raises(DataError, match="offsets do not cover"):
        Strains(np.array([0, 1, 2]), np.array([0, 2]), 5)


@given(genotypes_of_nine, st.data())
def test_take_keeps_the_genes_of_each_strain(genotypes: list[list[int]], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(genotypes) - 1), max_size=10))
    taken = strains_of(genotypes, 9).take(np.array(rows, dtype=np.int64))
    expected = strains_of([genotypes[row] for row in rows], 9)
    assert taken.genes.tolist() == expected.genes.tolist()
    assert taken.offsets.tolist() == expected.offsets.tolist()


def test_training_mean_ignores_missing_labels() -> None:
    model = TrainingMean().fit(strains_of([[0], [1], [2]], 3), np.array([1.0, np.nan, 2.0]))
    assert model.predict(strains_of([[0, 1], []], 3)).tolist() == [1.5, 1.5]


@given(genotypes_of_nine, st.floats(0.1, 100), st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
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


def low_rank_pairs(seed: int, genes: int = 60, rank: int = 3) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    factors = rng.normal(size=(genes, rank))
    signs = np.array([1, -1, 1])[:rank]
    pairs = rng.permutation(np.stack(np.triu_indices(genes, 1), axis=1))
    swap = rng.random(len(pairs)) < 0.5
    pairs[swap] = pairs[swap][:, ::-1]
    y = (factors[pairs[:, 0]] * signs * factors[pairs[:, 1]]).sum(1) + 0.1 * rng.normal(size=len(pairs))
    return pairs, y


@pytest.mark.parametrize("seed", [0, 1])
def test_low_rank_profiles_recover_a_low_rank_matrix_that_ridge_cannot(seed: int) -> None:
    pairs, y = low_rank_pairs(seed)
    train, test = pairs_of(pairs[:1200], 60), pairs_of(pairs[1200:], 60)
    profiles = LowRankProfiles(0.5).fit(train, y[:1200]).predict(test)
    ridge = AdditiveRidge(1.0).fit(train, y[:1200]).predict(test)
    assert regression_metrics(profiles, y[1200:])["pearson"] > 0.95
    assert regression_metrics(ridge, y[1200:])["pearson"] < 0.5


def test_low_rank_profiles_equal_dense_soft_impute() -> None:
    pairs, y = low_rank_pairs(3, genes=20)
    train = pairs_of(pairs[:150], 20)
    model = LowRankProfiles(0.5, rank=20, max_rounds=1000).fit(train, y[:150])
    residual = y[:150] - model.additive.predict(train)
    threshold = 0.5 * residual.std() * np.sqrt(2 * 150 / 20)
    matrix, known = np.zeros((20, 20)), np.zeros((20, 20), dtype=bool)
    for (a, b), value in zip(pairs[:150], residual, strict=True):
        matrix[a, b] = matrix[b, a] = value
        known[a, b] = known[b, a] = True
    filled = np.zeros((20, 20))
    for _ in range(3000):
        values, vectors = np.linalg.eigh(np.where(known, matrix, filled))
        filled = (vectors * np.sign(values) * np.maximum(np.abs(values) - threshold, 0)) @ vectors.T
    test = pairs_of(pairs[150:], 20)
    expected = model.additive.predict(test) + filled[pairs[150:, 0], pairs[150:, 1]]
    assert np.abs(model.predict(test) - expected).max() < 0.1 * np.abs(expected).max()


def test_low_rank_profiles_ignore_the_order_of_genes_and_average_replicates() -> None:
    pairs, y = low_rank_pairs(1, genes=20)
    once = LowRankProfiles(0.5).fit(pairs_of(pairs, 20), y)
    twice = LowRankProfiles(0.5, alpha=20.0).fit(pairs_of(np.concatenate([pairs, pairs[:, ::-1]]), 20), np.tile(y, 2))
    np.testing.assert_allclose(once.predict(pairs_of(pairs, 20)), twice.predict(pairs_of(pairs, 20)), atol=1e-4)


def test_low_rank_profiles_refuse_triples() -> None:
    with pytest.raises(DataError, match=r"exactly two deletions \(found 2, 3\)"):
        LowRankProfiles().fit(strains_of([[0, 1], [0, 1, 2]], 3), np.ones(2))


@pytest.mark.parametrize(
    ("build", "word"),
    [
        (lambda: AdditiveRidge(0), "alpha"),
        (lambda: QueryPairMean(-1), "pseudo_count"),
        (lambda: LowRankProfiles(rank=0), "rank"),
    ],
)
def test_hyperparameters_out_of_range_are_refused(build: Callable[[], object], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        build()


@pytest.mark.parametrize("name", sorted(NULL_MODELS))
def test_every_null_model_ignores_missing_labels(name: str) -> None:
    pairs, y = low_rank_pairs(5, genes=15)
    y[::3] = np.nan
    measured = ~np.isnan(y)
    everything, test = NULL_MODELS[name]()[0], pairs_of(pairs, 15)
    only_measured = NULL_MODELS[name]()[0].fit(pairs_of(pairs[measured], 15), y[measured])
    prediction = everything.fit(test, y).predict(test)
    np.testing.assert_allclose(prediction, only_measured.predict(test), atol=1e-10)
    assert np.isfinite(prediction).all()


@pytest.mark.parametrize("name", sorted(NULL_MODELS))
def test_every_null_model_survives_a_constant_label(name: str) -> None:
    test = pairs_of(low_rank_pairs(5, genes=15)[0], 15)
    for model in NULL_MODELS[name]():
        np.testing.assert_allclose(model.fit(test, np.full(len(test), 2.5)).predict(test), 2.5)


def test_labels_of_the_wrong_length_and_no_label_at_all_are_refused() -> None:
    strains = strains_of([[0], [1]], 2)
    with pytest.raises(DataError, match="labels do not match"):
        TrainingMean().fit(strains, np.ones(3))
    with pytest.raises(DataError, match=r"no training strain has a label[\s\S]*another phenotype"):
        fit_null_models(strains, strains, np.full(2, np.nan), np.ones(2))


def test_the_low_rank_model_is_left_out_of_triples_with_a_reason() -> None:
    train = strains_of([[0, 1, 2], [1, 2, 3], [0, 2, 3]], 4)
    fitted = fit_null_models(train, train, np.arange(3.0), np.arange(3.0))
    assert [null.name for null in fitted] == ["training mean", "additive ridge", "query-pair mean"]
    assert left_out_null_models(train) == {"low-rank profiles": "needs strains with exactly two deletions (found 3)"}
    assert left_out_null_models(strains_of([[0, 1]], 2)) == {}


def test_hyperparameters_are_chosen_on_the_validation_part() -> None:
    rng = np.random.default_rng(0)
    genotypes = [[int(a), int(b)] for a, b in rng.integers(0, 200, (400, 2)) if a != b]
    strains = strains_of(genotypes, 200)
    y = rng.normal(size=len(strains))
    additive = {null.name: null.model for null in fit_null_models(strains, strains, y, y)}["additive ridge"]
    other = rng.normal(size=len(strains))
    shrunk = {null.name: null.model for null in fit_null_models(strains, strains, y, other)}["additive ridge"]
    unknown = {null.name: null.model for null in fit_null_models(strains, strains, y, np.full_like(y, np.nan))}[
        "additive ridge"
    ]
    assert [m.alpha for m in (additive, shrunk, unknown)] == [0.1, 1000.0, 10.0]


@pytest.mark.raw
def test_collins_2007_agrees_with_the_reference_accuracies(raw: Path) -> None:
    table = pd.read_csv(raw / "interactions" / "collins2007_emap.csv.gz").query("gene_a != gene_b")
    names, codes = np.unique(table[["gene_a", "gene_b"]].to_numpy(str), return_inverse=True)
    keys = np.sort(codes.reshape(-1, 2), axis=1) @ np.array([len(names), 1])
    keys, replicate_of = np.unique(keys, return_inverse=True)
    y = np.bincount(replicate_of, weights=table["s_score"]) / np.bincount(replicate_of)
    pairs = np.stack(np.divmod(keys, len(names)), axis=1)
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[: int(0.8 * len(y))], order[int(0.9 * len(y)) :]
    pearson = {
        model.__class__.__name__: regression_metrics(
            model.fit(pairs_of(pairs[train], len(names)), y[train]).predict(pairs_of(pairs[test], len(names))),
            y[test],
        )["pearson"]
        for model in (AdditiveRidge(10.0), LowRankProfiles(1.0, rank=40))
    }
    assert pearson["AdditiveRidge"] == pytest.approx(0.26, abs=0.03)
    assert pearson["LowRankProfiles"] == pytest.approx(0.56, abs=0.03)

"""The null model of low rank: it recovers what it can express, and agrees with known accuracies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from dglcell.baselines.low_rank import LowRankProfiles, fit_ridge_and_low_rank
from dglcell.baselines.similarity import GeneSimilarity
from dglcell.baselines.simple import AdditiveRidge
from dglcell.errors import DataError
from dglcell.metrics import regression_metrics
from tests.baselines.invented import low_rank_pairs, pairs_of, strains_of


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


def test_what_networks_do_not_say_is_completed() -> None:
    """Pairs whose scores have a part that networks know and a part of low rank that they do not."""
    pairs, low_rank = low_rank_pairs(0, genes=50)
    group = np.arange(50) % 5
    block = np.random.default_rng(2).normal(size=(5, 5))
    y = low_rank + 2 * (block + block.T)[group[pairs[:, 0]], group[pairs[:, 1]]]
    similarity = GeneSimilarity(np.arange(50), (group[:, None] == group).astype(np.float32))
    train, test = pairs_of(pairs[:800], 50), pairs_of(pairs[800:], 50)
    (found,) = fit_ridge_and_low_rank(train, y[:800], similarity, (1.0,), (0.7,))

    def r(predicted: NDArray[np.float64]) -> float:
        return regression_metrics(predicted, y[800:])["pearson"]

    assert r(found.predict(test)) > r(found.ridge.predict(test)) + 0.02

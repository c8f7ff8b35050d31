"""Leads in values of nodes, against drawing strains and genes one by one."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from dglcell.data.strains import Strains
from dglcell.metrics import pearson
from dglcell.uncertainty.paired import FEWEST_GENES, INTERVAL, RESAMPLES
from dglcell.uncertainty.paired_nodes import FEWEST, LARGEST, LARGEST_PRODUCT, DrawnNodes, node_draws, terms

NAMES = "ahead", "ahead_low", "ahead_high", "ahead_genes_low", "ahead_genes_high"

Values = NDArray[np.float64]


def singles(number: int, genes: int) -> Strains:
    return Strains.from_indices(tuple(f"g{i}" for i in range(genes)), [[i % genes] for i in range(number)])


def drawn(draws: Mapping[str, NDArray[np.floating]], predicted: Values, target: Values) -> DrawnNodes:
    """Scores of predictions that are taken in by three batches."""
    found = DrawnNodes(draws, target.shape[1])
    for rows in np.array_split(np.arange(len(target)), 3):
        found.add(terms(predicted[rows], target[rows]))
    return found


def mean_correlation(predicted: Values, target: Values) -> float:
    """The mean over nodes that vary; a constant prediction counts as 0."""
    found = []
    for p, t in zip(predicted.T, target.T, strict=True):
        known = ~np.isnan(t)
        if known.sum() > 1 and np.ptp(t[known]) > 0:
            found.append(np.nan_to_num(pearson(p[known], t[known])))
    return float(np.mean(found)) if found else math.nan


def test_leads_are_those_of_strains_and_genes_that_are_drawn() -> None:
    rng, strains = np.random.default_rng(0), singles(36, 12)
    target = rng.normal(size=(36, 6))
    model, null = target + rng.normal(size=target.shape), target + 2 * rng.normal(size=target.shape)
    target[rng.random(target.shape) < 0.2] = math.nan
    null[:, 3], target[:, 4] = 0.0, 0.5  # a constant prediction, and a value that does not vary
    target[:, 5] = np.where(np.arange(36) == 7, 2.0, 0.0)  # one that varies only in draws with this strain
    draws = node_draws(strains, 6)
    found = drawn(draws, model, target).ahead_of(drawn(draws, null, target))
    assert tuple(found) == NAMES
    assert found["ahead"] == pytest.approx(mean_correlation(model, target) - mean_correlation(null, target), abs=1e-12)
    for over, weights in draws.items():
        assert len(weights) == RESAMPLES + 1
        leads = []
        for times in weights[1:].astype(int):
            rows = np.repeat(np.arange(36), times)
            leads.append(mean_correlation(model[rows], target[rows]) - mean_correlation(null[rows], target[rows]))
        expected = np.quantile(leads, INTERVAL)
        assert [found[f"{over}_low"], found[f"{over}_high"]] == pytest.approx(expected.tolist(), abs=1e-9)


def test_fewer_draws_of_many_values_and_none_of_very_many_strains() -> None:
    strains = singles(50, 20)
    assert {len(weights) for weights in node_draws(strains, LARGEST_PRODUCT // 50 // 300).values()} == {301}
    assert {len(weights) for weights in node_draws(strains, LARGEST_PRODUCT).values()} == {FEWEST + 1}
    assert list(node_draws(singles(50, FEWEST_GENES - 1), 5)) == ["ahead"]
    assert node_draws(singles(1, 1), 5) == {}
    assert node_draws(singles(LARGEST // FEWEST + 1, 20), 5) == {}


def test_without_draws_or_a_value_that_varies_nothing_is_said() -> None:
    values = np.ones((12, 2))
    assert drawn({}, values, values).ahead_of(drawn({}, values, values)) == {}
    draws = node_draws(singles(12, 12), 2)
    assert drawn(draws, values, values).ahead_of(drawn(draws, values, values)) == {}

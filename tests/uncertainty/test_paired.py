"""How far a model is ahead, and how far it could be."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from dglcell.data.columns import columns_of
from dglcell.data.strains import Strains
from dglcell.data.table import CLASSIFICATION, REGRESSION
from dglcell.metrics import (
    ResultRow,
    ahead,
    average_precisions,
    ceilings,
    pearson,
    pearsons,
    replicate_correlation,
    times_drawn,
)
from dglcell.report.page import lines_below

GENES = tuple(f"g{i}" for i in range(30))


def pairs(number: int, genes: int = 30) -> Strains:
    rng = np.random.default_rng(1)
    return Strains.from_indices(GENES, [sorted(rng.choice(genes, 2, replace=False).tolist()) for _ in range(number)])


def test_scores_are_those_of_strains_that_are_drawn() -> None:
    rng = np.random.default_rng(0)
    measured, predicted = rng.normal(size=50), rng.normal(size=(3, 50)).round(1)
    predicted[2] = 1.0
    weights = next(times_drawn(50, 50))[:20]
    assert (weights.sum(1) == 50).all()
    with np.errstate(invalid="ignore", divide="ignore"):
        found = pearsons(predicted, measured, weights)
        classes = average_precisions(predicted, (measured > 0.5).astype(float), weights)
    for r, times in enumerate(weights):
        drawn = np.repeat(np.arange(50), times)
        for p in range(3):
            assert found[r, p] == pytest.approx(pearson(predicted[p, drawn], measured[drawn]), abs=1e-12, nan_ok=True)
            expected = average_precision_score(measured[drawn] > 0.5, predicted[p, drawn])
            assert classes[r, p] == pytest.approx(expected, abs=1e-12)


def test_leads_and_their_intervals() -> None:
    rng, strains = np.random.default_rng(2), pairs(400)
    measured = rng.normal(size=400)
    model, null = measured + rng.normal(size=400), measured + 2 * rng.normal(size=400)
    measured[::7] = math.nan
    others = {"null": null, "same": model, "constant": np.ones(400)}
    found = ahead(REGRESSION, model, others, measured, strains)
    known = ~np.isnan(measured)
    plain = pearson(model[known], measured[known]) - pearson(null[known], measured[known])
    assert found["null"]["ahead"] == pytest.approx(plain, abs=1e-12)
    assert 0 < found["null"]["ahead_low"] < plain < found["null"]["ahead_high"]
    assert found["null"]["ahead_genes_low"] < found["null"]["ahead_low"]
    assert set(found["same"].values()) == {0.0}
    assert "constant" not in found
    assert found == ahead(REGRESSION, model, others, measured, strains)
    label = (rng.random(400) < 0.2).astype(float)
    model, null = label + rng.normal(size=400), rng.normal(size=400)
    of_class = ahead(CLASSIFICATION, model, {"null": null}, label, strains)["null"]
    expected = average_precision_score(label, model) - average_precision_score(label, null)
    assert of_class["ahead"] == pytest.approx(expected, abs=1e-12)
    assert of_class["ahead_low"] < expected < of_class["ahead_high"]
    model[0] = math.nan
    assert ahead(CLASSIFICATION, model, {"null": null}, label, strains) == {}


@pytest.mark.parametrize("lead", [(0.03, 0.01, 0.05, 0.001, 0.06), (-0.03, -0.05, -0.01, -0.06, -0.001)])
def test_the_line_has_the_wider_interval(lead: tuple[float, ...]) -> None:
    names = "ahead", "ahead_low", "ahead_high", "ahead_genes_low", "ahead_genes_high"
    metrics = dict(zip(names, lead, strict=True))
    rows = [
        ResultRow("set_operator", "test", "fitness", {"pearson": 0.5}),
        ResultRow("weak", "test", "fitness", {"pearson": 0.1, **dict.fromkeys(names, 0.4)}, is_baseline=True),
        ResultRow("low-rank ridge", "test", "fitness", {"pearson": 0.47, **metrics}, is_baseline=True),
        ResultRow("undefined", "test", "fitness", {}, is_baseline=True),
    ]
    (line,) = lines_below(rows, "random")
    (low, high), (of_genes_low, of_genes_high) = lead[1:3], lead[3:5]
    verdict = "no difference is shown between set_operator and 'low-rank ridge'"
    if min(low, of_genes_low) > 0 or max(high, of_genes_high) < 0:
        verdict = f"set_operator is {'better' if low > 0 else 'worse'} than 'low-rank ridge'"
    wider = f"{min(low, of_genes_low):+.3f} to {max(high, of_genes_high):+.3f}"
    assert line == f"fitness: {verdict} (Pearson {lead[0]:+.3f}, 95 % interval {wider})"
    assert lines_below(rows[:1], "random") == []
    assert lines_below([rows[0].with_metrics({"n": 3}), *rows[1:]], "random") == []  # too few strains for a correlation


@given(st.floats(0.2, 1.5), st.integers(0, 2**16))
def test_it_is_the_correlation_with_the_true_values(noise: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    true = rng.normal(size=20_000)
    replicates = rng.integers(1, 4, size=len(true)).astype(float)
    drawn = np.where(
        np.arange(3) < replicates[:, None], true[:, None] + noise * rng.normal(size=(len(true), 3)), np.nan
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.nanmean(drawn, axis=1)
        sd = np.sqrt(np.nansum((drawn - mean[:, None]) ** 2, 1) / (replicates - 1))
    spread = np.where(replicates > 1, sd, np.nan)
    assert replicate_correlation(mean, spread, replicates) == pytest.approx(1 / (1 + noise**2), abs=0.03)
    columns = columns_of(phenotype={"y": mean}, sd={"y": spread}, replicates={"y": replicates})
    measured = Strains.from_indices(GENES, [[]] * len(true)).with_(columns=columns)
    found = ceilings(measured, np.arange(len(true)))
    assert found == {"y": pytest.approx(pearson(mean, true), abs=0.03)}


def test_a_line_states_it() -> None:
    row = ResultRow("set_operator", "test", "s_score", {"pearson": 0.6, "ceiling": 0.758})
    rows = [replace(row, part="validation", metrics={"pearson": 0.6}), row]
    assert lines_below(rows, "random") == ["s_score: Pearson of a model without error, by replicates: about 0.758"]
    assert lines_below(rows[:1], "random") == []

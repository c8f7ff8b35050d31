"""The scores of ``benchmarks.explain_fba``, and the table that the guide has of its results."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.explain_fba import auroc, interval, nearness, precision, within_reactions

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "explain-fba.json"
GUIDE = ROOT / "docs" / "guides" / "explanations.md"


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=2, max_size=12))
def test_auroc_is_the_share_of_pairs_in_order(rows: list[tuple[int, bool]]) -> None:
    score, truth = np.array([row[0] for row in rows], float), np.array([row[1] for row in rows])
    if not 0 < truth.sum() < len(truth):
        return
    pairs = [(a > b) + 0.5 * (a == b) for a in score[truth] for b in score[~truth]]
    assert auroc(score, truth) == pytest.approx(np.mean(pairs))


def test_precision_shares_the_places_of_ties() -> None:
    score, truth = np.array([3.0, 2, 2, 2, 0]), np.array([True, True, False, False, True])
    assert precision(score, truth, 1) == 1
    assert precision(score, truth, 2) == pytest.approx((1 + 1 / 3) / 2)
    assert precision(score, truth, 4) == pytest.approx(0.5)


def test_nearness_counts_steps() -> None:
    neighbours = {"a": {"b"}, "b": {"a", "c"}, "c": {"b"}, "d": set[str]()}
    assert nearness(neighbours, ["a"], ["a", "b", "c", "d"]).tolist() == [0, -1, -2, -4]


def test_what_is_the_same_in_every_strain_tells_no_strains_apart() -> None:
    rng = np.random.default_rng(0)
    changed, kept = rng.random((40, 6)) < 0.4, np.ones((40, 6), bool)
    degree = np.tile(np.arange(1.0, 7), (40, 1))
    assert within_reactions(degree, changed, kept) == 0.5
    told = np.where(changed, 1.0, 0.1)
    assert within_reactions(told, changed, kept) > 0.8


def test_an_interval_holds_the_mean() -> None:
    values = np.array([0.2, 0.4, np.nan, 0.6, 0.8])
    low, high = interval(values)
    assert 0.2 <= low < 0.5 < high <= 0.8


def test_the_guide_has_the_committed_numbers() -> None:
    truths = json.loads(RESULTS.read_text())["truths"]
    text = GUIDE.read_text()
    rows = dict(re.findall(r"^\| ([^|]+?) \| (.*) \|$", text, flags=re.MULTILINE))
    for name in next(iter(truths.values())):
        shown = [float(cell) for cell in rows[name].split(" | ")]
        expected = [truths[truth][name][metric] for truth in truths for metric in ("auroc", "precision_10")]
        assert shown == pytest.approx(expected, abs=5e-4 + 1e-9), name

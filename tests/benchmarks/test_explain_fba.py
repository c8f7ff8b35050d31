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
RESULTS = ROOT / "benchmarks" / "results"
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


SECTIONS = {
    "Messages": "explain-fba",
    "Flux rounds": "explain-fba-rounds",
    "Messages on iMM904": "explain-fba-imm904",
    "Messages on yeast-GEM": "explain-fba-yeast-gem",
    "Messages on yeast-GEM, by ranges": "explain-fba-yeast-gem-ranges",
    "Flux rounds on iJO1366": "explain-fba-ijo1366",
    "Flux rounds on iJO1366, by ranges": "explain-fba-ijo1366-ranges",
}
"""Sections of the guide, and the file that each has its table from."""


def rows_of(section: str) -> dict[str, list[str]]:
    """The rows of a section's table: name → cells."""
    text = GUIDE.read_text()
    text = text[text.index(f"### {section}\n") :]
    text = text[: text.index("\n##", 1)]
    found = re.findall(r"^\| ([^|]+?) \| (.*) \|$", text, flags=re.MULTILINE)
    return {name: cells.split(" | ") for name, cells in found if name not in ("score", "named")}


@pytest.mark.parametrize("section", SECTIONS)
def test_the_guide_has_the_committed_numbers(section: str) -> None:
    truths = json.loads((RESULTS / f"{SECTIONS[section]}.json").read_text())["truths"]
    for name, cells in rows_of(section).items():
        first, *others = (by_score[name] for by_score in truths.values())
        numbers = [*map(float, re.findall(r"\d\.\d+", cells[0])), *map(float, cells[1:3])]
        assert numbers == pytest.approx(
            [first["auroc"], *first["auroc_interval"], first["precision_10"], first["precision_50"]], abs=6e-4
        )
        if cells[3] != "\N{EN DASH}":
            assert float(cells[3]) == pytest.approx(first["within_reactions"], abs=6e-4)
        for cell, other in zip(cells[4:], others, strict=True):
            shown = [*map(float, re.findall(r"\d\.\d+", cell))]
            assert shown == pytest.approx([other["auroc"], *other["auroc_interval"]], abs=6e-4)


def test_the_guide_has_the_scores_of_metabolites() -> None:
    found = json.loads((RESULTS / "explain-fba.json").read_text())
    text = " ".join(GUIDE.read_text().split())
    shown = [
        f"{of['auroc']:.3f} ({of['auroc_interval'][0]:.3f}\N{EN DASH}{of['auroc_interval'][1]:.3f})"
        for of in (found["metabolites"][name] for name in ("explanation", "untrained network"))
    ]
    assert f"which {100 * found['changed_prices']:.0f} % of them do: AUROC {shown[0]}" in text
    assert f"untrained network {shown[1]}" in text


def test_the_guide_has_the_shares_of_triples() -> None:
    names = [name for name in SECTIONS.values() if not name.endswith("-ranges")]  # the triples are the same
    found = [json.loads((RESULTS / f"{name}.json").read_text())["triples"] for name in names]
    rows = rows_of("Which deletions are responsible")
    for name, key in {
        "the model's predictions for subsets": "predictions, trained",
        "the same, trained on permuted labels": "predictions, permuted labels",
        "any one gene": "any gene",
    }.items():
        shown = [None if cell == "\N{EN DASH}" else float(cell) for cell in rows[name]]
        assert shown == [pytest.approx(one[key], abs=6e-4) if key in one else None for one in found]


def test_the_guide_has_the_medians_of_integrated_gradients() -> None:
    found = json.loads((RESULTS / "integrated-gradients.json").read_text())
    medians, text = found["medians"], GUIDE.read_text()
    text = " ".join(text[text.index("## A second opinion") :].split())
    assert f"first in {100 * found['shares']['same_first_16']:.0f} % of the strains" in text
    assert f"lost reactions is {medians['correlation_16']:.3f}" in text
    assert f"a median of {medians['error_16']:.0e} of it".replace("e-0", "e-") in text
    assert f"with 4 steps by {100 * medians['error_4']:.1f} %" in text
    assert medians["seconds_16"] / medians["seconds_explanation"] > 9

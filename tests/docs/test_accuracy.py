"""The page on accuracy, and README, say what the committed records say."""

from __future__ import annotations

import functools
import json
import re
import statistics
from collections.abc import Sequence

import pytest
from scipy.stats import t

from tests.docs.pages import ROOT

CONTROL = "without messages"
COLUMNS = ("additive ridge", "low-rank profiles", "multiplicative", "smallest subset")


def lines(page: str) -> list[str]:
    return (ROOT / page).read_text(encoding="utf-8").splitlines()


def cells(line: str) -> list[str]:
    return [cell.strip().replace("**", "") for cell in line.strip("|").split("|")]


@functools.cache
def scores(name: str) -> dict[str, list[float]]:
    """Model → its test correlations with the seeds of the committed runs; the experiment's own model comes first."""
    found: dict[str, list[float]] = {}
    for path in sorted((ROOT / "docs" / "results" / name).glob("seed-*/results.json")):
        for row in json.loads(path.read_text())["rows"]:
            if row["part"] == "test" and row["metrics"].get("pearson") is not None:
                found.setdefault(row["model"], []).append(row["metrics"]["pearson"])
    return found


def in_words(values: Sequence[float]) -> str:
    mean = f"{statistics.fmean(values):.3f}"
    return f"{mean} ± {statistics.stdev(values):.3f}" if len(values) > 1 else mean


def paired(name: str, other: str) -> str:
    """Return how far the model is ahead of another one with the same seeds: mean, and Student's interval at 95 %."""
    own, theirs = next(iter(scores(name).values())), scores(name)[other]
    values = [a - b for a, b in zip(own, theirs, strict=True)]
    mean, half = statistics.fmean(values), t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    return f"{mean:.3f} ({mean - half:.3f} to {mean + half:.3f})".replace("-", "\N{MINUS SIGN}")


ROWS = {
    match[1]: cells(line)
    for line in lines("docs/accuracy.md")
    if (match := re.match(r"\| `conf/(\S+)\.yaml`", line)) and scores(match[1])
}
CONTROLLED = {
    match[1]: cells(line)
    for line in lines("docs/accuracy.md")
    if (match := re.match(r"\| `(\S+)`", line)) and CONTROL in scores(match[1]) and len(cells(line)) == 5
}


@pytest.mark.parametrize("name", ROWS)
def test_models_and_null_models(name: str) -> None:
    row, found = ROWS[name], scores(name)
    model, *nulls = found
    assert row[2] == in_words(found[model])
    assert row[4:] == [in_words(found[null]) if null in found else "\N{EN DASH}" for null in COLUMNS]
    stated, _, named = row[3].partition(", ")
    assert stated == in_words(found[named])
    best = max(statistics.fmean(found[null]) for null in nulls if null != CONTROL)
    assert statistics.fmean(found[named]) == pytest.approx(best, abs=5e-4)


@pytest.mark.parametrize("name", CONTROLLED)
def test_what_messages_add(name: str) -> None:
    found = scores(name)
    model = next(iter(found))
    assert CONTROLLED[name][2:] == [in_words(found[model]), in_words(found[CONTROL]), paired(name, CONTROL)]


def test_every_control_of_several_seeds_is_shown() -> None:
    records = (ROOT / "docs" / "results").glob("*/*/seed-1/results.json")
    names = {path.parents[1].relative_to(ROOT / "docs" / "results").as_posix() for path in records}
    assert CONTROLLED.keys() == {name for name in names if CONTROL in scores(name)}

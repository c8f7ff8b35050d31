"""The table of a suite, against numbers computed apart from it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dglcell.metrics import NODES, ResultRow
from dglcell.suites.suite import Entry, Suite, read_suite
from dglcell.suites.table import as_json, as_markdown, first_controls, table_rows
from dglcell.uncertainty.paired import student
from tests.config_files import write


def rows_of(model: float, *, null: float, other: float = 0.1, **metrics: float) -> list[ResultRow]:
    """Return the results of a run: its model, two null models, a control, and the validation part."""
    return [
        ResultRow("hetero_cell", "test", "fitness", {"pearson": model}, False),
        ResultRow("without messages", "test", "fitness", {"pearson": 1.0}, True),
        ResultRow("ridge", "test", "fitness", {"pearson": null, **metrics}, True),
        ResultRow("mean", "test", "fitness", {"pearson": other}, True),
        ResultRow("hetero_cell", "validation", "fitness", {"pearson": 0.0}, False),
    ]


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    text = "experiments: [quickstart]\nmodels: {shipped: {}, short: {trainer.epochs: 1}}\nseeds: [0, 1, 2]\n"
    return read_suite(write(tmp_path, "mine.yaml", text))


@pytest.fixture
def entries(suite: Suite) -> list[Entry]:
    return suite.entries()


def test_only_an_interval_above_zero_makes_a_model_better(suite: Suite, entries: list[Entry]) -> None:
    clear = {("quickstart", seed): rows_of(0.9 + 0.01 * seed, null=0.7 + 0.01 * seed) for seed in suite.seeds}
    unclear = {("quickstart/short", seed): rows_of(model, null=0.7) for seed, model in enumerate((0.6, 0.9, 0.75))}
    better, unknown = table_rows(entries, suite.seeds, clear | unclear)
    assert better.null == "ridge"
    assert better.verdict == "better"
    assert better.difference == pytest.approx(0.2)
    assert unknown.verdict == "not told apart"
    text = as_markdown(suite, [better, unknown])
    (line,) = [line for line in text.splitlines() if line.startswith("| `quickstart` | random | hetero_cell")]
    assert line.endswith("**0.910 ± 0.010** | 0.710 ± 0.010, ridge | 0.200 (0.200 to 0.200) | better |")
    assert "short (hetero_cell)" in text
    assert "Of 2 rows: 1 better, 1 not told apart." in text


def test_values_of_nodes_have_a_row_of_their_own(suite: Suite, entries: list[Entry]) -> None:
    found = {("quickstart", seed): [*rows_of(0.9, null=0.7), *of_nodes(0.9 + 0.01 * seed)] for seed in suite.seeds}
    _, fluxes, _ = table_rows(entries, suite.seeds, found)
    assert (fluxes.phenotype, fluxes.measure, fluxes.null) == ("flux", "Pearson", "nearest training strain")
    assert (fluxes.verdict, fluxes.difference) == ("better", pytest.approx(0.11))
    growth, same = first_controls(entries, suite.seeds, found)
    assert (growth.seed, same.null, same.null_score, same.is_compared) == (0, "nearest training strain", 0.8, False)


def of_nodes(model: float) -> list[ResultRow]:
    """Return results of values of nodes."""
    scores = {"hetero_cell": model, "nearest training strain": 0.8, "mean of training strains": 0.1}
    return [ResultRow(name, "test", "flux", {"pearson": r}, name != "hetero_cell", NODES) for name, r in scores.items()]


def test_one_seed_takes_the_widest_interval_of_its_run(suite: Suite, entries: list[Entry]) -> None:
    ends = {"ahead_low": 0.01, "ahead_high": 0.05, "ahead_genes_low": -0.02, "ahead_genes_high": 0.04}
    row, missing = table_rows(entries, suite.seeds, {("quickstart", 1): rows_of(0.73, null=0.7, **ends)})
    assert (row.low, row.high, row.seeds, row.verdict) == (-0.02, 0.05, (1,), "not told apart")
    assert missing.why == "no results"
    assert "no results |" in as_markdown(suite, [row, missing])


def test_what_is_undefined_is_a_dash_and_null(suite: Suite, entries: list[Entry]) -> None:
    row, _ = table_rows(entries, suite.seeds, {("quickstart", 0): rows_of(math.nan, null=math.nan, other=math.nan)})
    assert (row.null, row.verdict) == ("", "not measured")
    (line,) = [line for line in as_markdown(suite, [row]).splitlines() if line.startswith("| `quickstart`")]
    assert line.count("\N{EN DASH}") == 3
    (found,) = json.loads(as_json(suite, [row]))["rows"]
    assert found["scores"] == [None]
    assert found["low"] is None


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=8).filter(lambda values: np.std(values) > 1e-6))
def test_students_interval(values: list[float]) -> None:
    expected = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))
    assert student(values) == pytest.approx(expected, rel=1e-9, abs=1e-12)

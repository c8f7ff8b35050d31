"""The picture of a run: drawn for every shape of data, with the numbers behind it in a CSV file."""

from __future__ import annotations

import csv
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dglcell.errors import DataError
from dglcell.plots import Predictions, overview
from dglcell.plots.distributions import pearson_by_deletions
from dglcell.plots.regression import calibration
from dglcell.plots.style import shorten
from tests.plots.invented import CONSTANT, NOTHING, RUNS, png_size, predictions, run_of

pytestmark = pytest.mark.filterwarnings("error")


def lines_of(path: Path) -> list[dict[str, str]]:
    """Return rows of a CSV file."""
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


OF_OVERVIEWS = (
    "one phenotype, many strains",
    "several numbers of deletions",
    "no history",
    "empty test part",
    "long names",
    "metrics only",
    "nothing at all",
)
"""What other shapes of data have is drawn by the same functions as the panels of `test_panels`."""


@pytest.mark.parametrize("name", OF_OVERVIEWS)
def test_every_shape_of_data_is_drawn_without_a_warning(name: str, tmp_path: Path) -> None:
    path = overview(RUNS[name], tmp_path / "report.png")
    width, height = png_size(path.read_bytes())
    assert width == 1600
    assert height >= 900
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report.csv", "report.png"]


def test_a_row_for_each_of_at_most_three_phenotypes(tmp_path: Path) -> None:
    heights = []
    for count in (1, 5):
        run = run_of({f"y{i}": predictions(20) for i in range(count)})
        heights.append(png_size(overview(run, tmp_path / f"{count}.png").read_bytes())[1])
    assert heights[1] - heights[0] == pytest.approx(880 + 24, abs=2)  # two rows, and a line that says what is not shown


def test_the_csv_file_has_the_numbers_behind_the_picture(tmp_path: Path) -> None:
    run = run_of({"fitness": predictions(400, (2, 3))})
    lines = lines_of(overview(run, tmp_path / "report.png").with_suffix(".csv"))
    chosen = [
        line for line in lines if (line["panel"], line["series"], line["x"]) == ("pearson", "additive ridge", "test")
    ]
    expected = next(row for row in run.rows if row.model == "additive ridge" and row.part == "test")
    assert float(chosen[0]["value"]) == pytest.approx(expected.metrics["pearson"])
    assert int(chosen[0]["n"]) == expected.metrics["n"]
    undefined = [line for line in lines if (line["panel"], line["series"]) == ("pearson", "mean")]
    assert [line["value"] for line in undefined] == ["", ""]
    losses = [float(line["value"]) for line in lines if line["series"] == "validation loss"]
    assert losses == pytest.approx(run.history.curve("validation/loss"))
    assert sum(line["panel"] == "calibration" for line in lines) == 12
    assert [line["x"] for line in lines if line["panel"] == "pearson by number of deletions"] == ["2", "3"]


def test_calibration_bins_hold_every_measured_strain_in_order() -> None:
    p = predictions(500)
    bins = calibration(p)
    used = p.usable
    assert sum(b.n for b in bins) == len(used.measured) == np.isfinite(p.measured).sum()
    assert max(b.n for b in bins) - min(b.n for b in bins) <= 2
    assert [b.predicted for b in bins] == sorted(b.predicted for b in bins)
    assert sum(b.n * b.measured for b in bins) == pytest.approx(used.measured.sum())
    lowest = np.sort(used.predicted)[bins[0].n - 1]
    first = used.measured[used.predicted <= lowest]
    assert bins[0].standard_error == pytest.approx(first.std(ddof=1) / math.sqrt(len(first)))


def test_calibration_keeps_equal_predictions_together() -> None:
    p = Predictions(np.arange(100.0), np.repeat([0.0, 1.0], [90, 10]), np.full(100, 2))
    assert [(b.predicted, b.n) for b in calibration(p)] == [(0.0, 90), (1.0, 10)]
    assert len(calibration(CONSTANT)) == 1
    assert calibration(NOTHING) == []


def test_pearson_by_deletions_leaves_out_groups_without_a_correlation() -> None:
    measured = np.array([1.0, 2.0, 4.0, 1.0, 2.0, 5.0, 6.0, 7.0])
    predicted = np.array([1.0, 2.0, 4.0, 2.0, 1.0, 3.0, 3.0, 3.0])
    p = Predictions(measured, predicted, np.array([1, 1, 1, 2, 2, 3, 3, 3]))
    assert [(k, n) for k, _, n in pearson_by_deletions(p)] == [(1, 3)]
    assert pearson_by_deletions(p)[0][1] == pytest.approx(1)


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(DataError, match="differ in shape"):
        Predictions(np.zeros(3), np.zeros(2), np.zeros(3, dtype=int))


def test_long_names_keep_both_ends_and_dollars_are_escaped() -> None:
    assert shorten("abcdefghij", 5) == "ab…ij"
    assert shorten("a$b") == r"a\$b"


def test_importing_the_module_does_not_import_matplotlib() -> None:
    code = "import sys, dglcell.plots; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

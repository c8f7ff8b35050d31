"""The report picture: drawn for every shape of data, with the numbers behind it in a CSV file."""

from __future__ import annotations

import csv
import math
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dglcell.errors import DataError, MissingDependencyError
from dglcell.plots import EpochRecord, Predictions, ReportData, report_figure
from dglcell.plots.data import calibration, pearson_by_deletions
from dglcell.plots.panels import shorten
from dglcell.training.metrics import ResultRow, regression_metrics

pytest.importorskip("matplotlib", reason="needs the extra 'plot'")
pytestmark = pytest.mark.filterwarnings("error")


def predictions(n: int, numbers: tuple[int, ...] = (2,), seed: int = 0) -> Predictions:
    rng = np.random.default_rng(seed)
    measured = -np.exp(rng.normal(size=n))
    measured[::7] = np.nan
    predicted = 0.5 * np.nan_to_num(measured) + rng.normal(size=n)
    return Predictions(measured, predicted, rng.choice(numbers, n))


def run_of(phenotypes: dict[str, Predictions], epochs: int = 5, model: str = "dglcell") -> ReportData:
    rows = [
        ResultRow(name, part, phenotype, regression_metrics(factor * p.predicted, p.measured), is_null)
        for phenotype, p in phenotypes.items()
        for name, factor, is_null in ((model, 1.0, False), ("additive ridge", -0.5, True), ("mean", 0.0, True))
        for part in ("validation", "test")
    ]
    history = [EpochRecord(e, 2.0 / (e + 1), 3.0 / (e + 1), dict.fromkeys(phenotypes, 0.1 * e)) for e in range(epochs)]
    return ReportData("demo", rows, phenotypes, ("seed 0",), history, best_epoch=2 if epochs else None)


def png_size(path: Path) -> tuple[int, int]:
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", data[16:24])


def lines_of(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


CONSTANT = Predictions(np.arange(20.0), np.full(20, 0.3), np.full(20, 2))
NOTHING = Predictions(np.zeros(0), np.zeros(0), np.zeros(0, dtype=int))
UNMEASURED = Predictions(np.full(9, np.nan), np.zeros(9), np.full(9, 2))
LONG = "a_very_long_name_" * 8
RUNS = {
    "one phenotype, few strains": run_of({"fitness": predictions(20)}),
    "one phenotype, many strains": run_of({"s_score": predictions(5000)}),
    "several numbers of deletions": run_of({"fitness": predictions(400, (1, 2, 3))}),
    "three phenotypes": run_of({name: predictions(60, (2, 3)) for name in ("fitness", "epsilon", "tau")}),
    "no history": run_of({"fitness": predictions(50)}, epochs=0),
    "one epoch": run_of({"fitness": predictions(50)}, epochs=1),
    "empty test part": run_of({"fitness": NOTHING}),
    "nothing measured": run_of({"fitness": UNMEASURED}),
    "constant prediction": run_of({"fitness": CONSTANT}),
    "long names": run_of({LONG: predictions(40)}, model=LONG),
    "dollar signs": run_of({"cost $x^$_{": predictions(40)}, model="$\\frac"),
    "metrics only": ReportData("demo", run_of({"fitness": CONSTANT}).rows, {}),
    "nothing at all": ReportData("", [], {}),
    "epochs without values": ReportData("demo", [], {"y": predictions(9)}, history=[EpochRecord(0), EpochRecord(1)]),
}


@pytest.mark.parametrize("name", RUNS)
def test_every_shape_of_data_is_drawn_without_a_warning(name: str, tmp_path: Path) -> None:
    path = report_figure(RUNS[name], tmp_path / "report.png")
    width, height = png_size(path)
    assert width == 1600
    assert height >= 900
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report.csv", "report.png"]


def test_a_row_for_each_of_at_most_three_phenotypes(tmp_path: Path) -> None:
    heights = []
    for count in (1, 3, 5):
        run = run_of({f"y{i}": predictions(20) for i in range(count)})
        heights.append(png_size(report_figure(run, tmp_path / f"{count}.png"))[1])
    assert heights[1] - heights[0] == pytest.approx(880, abs=2)
    assert heights[2] - heights[1] == pytest.approx(24, abs=2)  # the line that says what is not shown


def test_the_csv_file_has_the_numbers_behind_the_picture(tmp_path: Path) -> None:
    run = run_of({"fitness": predictions(400, (2, 3))})
    lines = lines_of(report_figure(run, tmp_path / "report.png").with_suffix(".csv"))
    chosen = [
        line for line in lines if (line["panel"], line["series"], line["x"]) == ("pearson", "additive ridge", "test")
    ]
    expected = next(row for row in run.rows if row.model == "additive ridge" and row.part == "test")
    assert float(chosen[0]["value"]) == pytest.approx(expected.metrics["pearson"])
    assert int(chosen[0]["n"]) == expected.metrics["n"]
    undefined = [line for line in lines if (line["panel"], line["series"]) == ("pearson", "mean")]
    assert [line["value"] for line in undefined] == ["", ""]
    losses = [float(line["value"]) for line in lines if line["series"] == "validation loss"]
    assert losses == [record.validation_loss for record in run.history]
    assert sum(line["panel"] == "calibration" for line in lines) == 12
    assert [line["x"] for line in lines if line["panel"] == "pearson by number of deletions"] == ["2", "3"]


def test_calibration_bins_hold_every_measured_strain_in_order() -> None:
    p = predictions(500)
    bins = calibration(p)
    used = p.usable()
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


def test_a_missing_matplotlib_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'dglcell\[plot\]'"):
        report_figure(RUNS["no history"], tmp_path / "report.png")
    assert list(tmp_path.iterdir()) == []


def test_importing_the_module_does_not_import_matplotlib() -> None:
    code = "import sys, dglcell.plots; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

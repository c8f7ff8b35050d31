"""The picture of a run, and that of several: drawn for every shape of data, the same each time, with right numbers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dglcell.data.table import REGRESSION
from dglcell.report.pictures import (
    STYLE,
    draw_agreement,
    draw_models,
    draw_validation_score,
    new_figure,
    overview,
    shorten,
)
from tests.report.invented import RUNS, png_size, predictions, run_of

pytestmark = pytest.mark.filterwarnings("error")


def drawn(draw: Callable[..., Any], *arguments: Any) -> Any:
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        axes = new_figure(5, 3).subplots()
        draw(axes, *arguments)
    return axes


@pytest.mark.parametrize("name", RUNS)
def test_every_shape_of_data_is_drawn_without_a_warning(name: str) -> None:
    width, height = png_size(overview(RUNS[name]))
    assert width == 1600
    assert height >= 900


def test_a_row_for_each_of_at_most_three_phenotypes_and_the_same_bytes_again() -> None:
    runs = [run_of({f"y{i}": predictions(20) for i in range(count)}) for count in (1, 5)]
    pictures = [overview(run) for run in runs]
    first, second = (png_size(picture)[1] for picture in pictures)
    assert second - first == pytest.approx(960 + 26, abs=3)  # two rows, and a line that says what is not shown
    assert overview(runs[0]) == pictures[0]


def test_the_model_stands_beside_baselines_the_best_on_top() -> None:
    run = run_of({"fitness": predictions(100)})
    axes = drawn(draw_models, run.rows, "fitness")
    test = {row.model: row.metrics["pearson"] for row in run.rows if row.part == "test"}
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["additive ridge", "dglcell"]  # that of a constant prediction is undefined
    assert [bar.get_width() for bar in axes.patches] == [test[name] for name in names]


def test_panels_say_what_predicts_and_where_the_best_baseline_is() -> None:
    run = run_of({"fitness": predictions(100)}, predicts={"fitness": "kernel ridge"})
    assert drawn(draw_agreement, run, "fitness").get_xlabel() == "fitness predicted by kernel ridge"
    curve, *lines = drawn(draw_validation_score, run, ["fitness"], REGRESSION).lines
    assert curve.get_ydata().tolist() == run.curve("validation/fitness/pearson").tolist()
    best = max(r.metrics["pearson"] for r in run.rows if r.is_baseline and np.isfinite(r.metrics["pearson"]))
    assert best in [line.get_ydata()[0] for line in lines]
    axes = drawn(draw_validation_score, run_of({"fitness": predictions(100)}, epochs=1), ["fitness"], REGRESSION)
    low, high = axes.get_xlim()
    assert [tick for tick in axes.get_xticks() if low <= tick <= high] == [1], "one epoch is one tick"


def test_names_are_shortened_in_the_middle_and_start_no_formula() -> None:
    assert shorten("abcdefghij", 5) == "ab…ij"
    assert shorten("cost $x^$") == r"cost \$x^\$"


def test_a_report_imports_no_window_system() -> None:
    code = "import dglcell.report.page, sys; assert not {'tkinter', 'matplotlib.pyplot'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)

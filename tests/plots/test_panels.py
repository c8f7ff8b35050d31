"""Every panel: drawn for every shape of data, all its text inside the picture, with caption and numbers."""

from __future__ import annotations

import csv
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.text import Text

from dglcell.data.table import CLASSIFICATION, REGRESSION
from dglcell.metrics import ResultRow
from dglcell.plots import Predictions, epoch_picture, run_panels, write_panel
from dglcell.plots.comparison import SCORES, comparison_panels, models_panel
from dglcell.plots.style import DPI, STYLE, Panel, Table, draw_nothing, fit_margins, new_figure
from tests.plots.invented import RUNS, embedding, png_size, predictions, run_of, subject

pytestmark = pytest.mark.filterwarnings("error")
DRAWN = (
    "five strains",
    "one strain",
    "an interaction",
    "yes and no",
    "nothing measured",
    "constant prediction",
    "long names",
    "dollar signs",
    "embeddings and relations",
    "epochs without values",
)
COMPARISON = comparison_panels(
    {
        "fitness": (
            SCORES[REGRESSION],
            {"one": (False, [0.5, 0.6]), "two": (False, [0.4, np.nan]), "mean": (True, [np.nan])},
        ),
        "y": (SCORES[CLASSIFICATION], {}),
    },
    {"one": [([1, 2], [0.1, 0.5]), ([1, 2], [0.2, np.nan])], "two": [([], [])]},
)


def texts_outside(panel: Panel, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return texts of a drawn panel that reach out of the picture by more than a pixel."""
    drawn: list[Text] = []
    draw = Text.draw

    def spy(text: Text, renderer: object) -> None:
        drawn.append(text)
        draw(text, renderer)  # type: ignore[arg-type]

    figure = new_figure(panel.width, panel.height, 80)
    with mpl.rc_context(STYLE), monkeypatch.context() as patch:
        panel.draw(figure.subplots())
        fit_margins(figure)
        patch.setattr(Text, "draw", spy)
        figure.canvas.draw()
    width, height = figure.canvas.get_width_height()
    found = []
    for text in drawn:
        box = text.get_window_extent()
        if text.get_text().strip() and (min(box.x0, box.y0) < -1 or box.x1 > width + 1 or box.y1 > height + 1):
            found.append(text.get_text())
    assert len(drawn) > 1
    return found


@pytest.mark.parametrize("name", DRAWN)
def test_every_panel_is_drawn_within_its_picture(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    panels = [panel for section in run_panels(RUNS[name]).values() for panel in section]
    keys = [panel.key for panel in panels]
    assert len(set(keys)) == len(keys)
    for panel in panels:
        assert panel.caption.endswith((".", ".)")), panel.key
        assert all(len(row) == len(panel.table.columns) for row in panel.table.rows)
        if not panel.key.startswith("validation"):  # the same as those of the test part
            assert texts_outside(panel, monkeypatch) == [], panel.key


@pytest.mark.parametrize("panel", COMPARISON, ids=lambda panel: panel.key)
def test_runs_are_compared_within_the_picture(panel: Panel, monkeypatch: pytest.MonkeyPatch) -> None:
    assert texts_outside(panel, monkeypatch) == []


def test_what_is_shown_of_whom() -> None:
    sections = run_panels(RUNS["several numbers of deletions"])
    assert list(sections) == ["fitness: test part", "fitness: validation part", "Training"]
    kinds = [panel.key.removeprefix("test-fitness-") for panel in sections["fitness: test part"]]
    both = ["agreement", "calibration", "residuals", "residual-histogram", "distributions", "score-bins", "deletions"]
    assert kinds == [*both, "fitness-models"]
    assert [p.key.removeprefix("validation-fitness-") for p in sections["fitness: validation part"]] == both
    binary = run_panels(RUNS["yes and no"])
    keys = [panel.key for panel in binary["negative_interaction: test part"]]
    assert "test-negative_interaction-precision-recall" in keys
    assert "test-negative_interaction-score-bins" not in keys
    assert [panel.key for panel in binary["Training"]] == ["learning-loss", "learning-average-precision"]
    assert "Average precision" in binary["negative_interaction: test part"][-1].caption
    assert [panel.key for panel in run_panels(RUNS["nothing measured"])["fitness: test part"]] == [
        "test-fitness-agreement",
        "fitness-models",
    ]
    assert run_panels(RUNS["nothing at all"]) == {}
    last = run_panels(RUNS["embeddings and relations"])
    assert [panel.key for panel in last["Relations"]] == ["relations", "relations-layer-2"]
    assert [panel.key for panel in last["Embeddings"]] == ["test-fitness-embedding"]


def test_captions_say_how_many_strains() -> None:
    for section in run_panels(RUNS["an interaction"]).values():
        for panel in section:
            if panel.key.startswith("test"):
                assert "3,428" in panel.caption or "n = " in panel.caption, panel.key


def test_names_never_share_a_file() -> None:
    names = ["a b", "a_b", "a/b", "a%20b", "ä", "A b"]
    keys = {subject(3, name).key("x") for name in names}
    assert len(keys) == len(names)
    assert not any(set("/ \\") & set(key) for key in keys)


def test_a_panel_is_written_in_three_forms_and_twice_the_same(tmp_path: Path) -> None:
    panel = run_panels(RUNS["an interaction"])["digenic_interaction: test part"][0]
    png = write_panel(panel, tmp_path / "a")
    write_panel(panel, tmp_path / "b")
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == [f"{panel.key}.{kind}" for kind in ("csv", "png", "svg")]
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    assert (tmp_path / "a" / names[1]).read_bytes() == png
    assert png_size(png) == (round(panel.width * DPI), round(panel.height * DPI))
    root = ElementTree.fromstring((tmp_path / "a" / names[2]).read_bytes())
    assert root.tag.endswith("svg")
    with open(tmp_path / "a" / names[0], newline="") as file:
        rows = list(csv.DictReader(file))
    assert sum(int(row["strains"]) for row in rows) + 2 * 4 >= 3428  # but for the few beyond the axes


def test_undefined_numbers_are_empty_cells(tmp_path: Path) -> None:
    Table(("a", "b", "c"), [(float("nan"), 1 / 3, "x,y"), (float("inf"), -0.0, 2)]).write(tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == 'a,b,c\n,0.3333333,"x,y"\n,-0,2\n'


def test_an_epoch_is_drawn_with_and_without_embeddings(tmp_path: Path) -> None:
    subjects = [subject(40, name, part="validation") for name in ("fitness", "tau", "s_score", "more")]
    wide = png_size(epoch_picture(tmp_path / "a.png", "run, epoch 5", subjects, embedding(40)).read_bytes())
    narrow = png_size(epoch_picture(tmp_path / "b.png", "run $5", subjects[:1]).read_bytes())
    none = png_size(epoch_picture(tmp_path / "c.png", "", [], embedding(40)).read_bytes())
    assert wide[0] == pytest.approx(narrow[0] * 4 / 3, abs=2)
    assert wide[1] > 2 * narrow[1]  # the first three phenotypes
    assert none == narrow


def test_an_empty_panel_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "there is nothing"
    panel = Panel("x", "x", "x", Table((), ()), lambda axes: draw_nothing(axes, "Title", reason))
    assert texts_outside(panel, monkeypatch) == []
    reason = "there is nothing, " * 9
    assert texts_outside(panel, monkeypatch) == [reason]


def test_a_model_without_a_score_has_no_bar() -> None:
    rows = [
        ResultRow("dglcell", "test", "fitness", {"pearson": 0.5, "n": 9}, False),
        ResultRow("training mean", "test", "fitness", {"pearson": np.nan, "n": 9}, True),
    ]
    panel = models_panel(rows, "fitness")
    axes = new_figure(panel.width, panel.height, 80).subplots()
    panel.draw(axes)
    said = [text.get_text() for text in axes.texts]
    assert "dglcell" in said
    assert "training mean" not in said
    assert [row[0] for row in panel.table.rows] == ["dglcell", "training mean"]
    assert "A model that predicts the same for all strains has none, and no bar." in panel.caption


@pytest.mark.parametrize("scale", [1e-12, 1e9])
def test_values_of_any_size_have_numbers_that_say_something(scale: float) -> None:
    p = predictions(400)
    sized = Predictions(p.measured * scale, p.predicted * scale, p.num_deletions)
    sections = run_panels(run_of({"flux": sized})).values()
    panels = {panel.key: panel for section in sections for panel in section}
    for key in ("test-flux-agreement", "test-flux-distributions", "test-flux-residual-histogram"):
        axes = new_figure(4, 3, 80).subplots()
        panels[key].draw(axes)
        (line,) = axes.texts
        axes.figure.canvas.draw()
        assert "0.000" not in line.get_text()
        assert len(line.get_text()) < 60
        # A power of ten above the vertical axis ends before this line begins.
        power = axes.yaxis.get_offset_text()
        assert not power.get_text() or power.get_window_extent().x1 < line.get_window_extent().x0

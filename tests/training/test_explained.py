"""Explanations of the most extreme test strains, in the report of a run."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dglcell
from dglcell.errors import CheckpointError
from dglcell.report.run_files import read_run
from dglcell.runs.directory import RunDirectory
from dglcell.training.evaluate import MISSED, SHOWN, STRONGEST, extremes


def test_a_report_shows_why_strains_are_extreme(tiny_run: RunDirectory) -> None:
    strains = json.loads(tiny_run.explanations.read_text())["strains"]
    assert [strain["why"] for strain in strains] == [STRONGEST] * SHOWN + [MISSED] * SHOWN
    predictor = dglcell.load(tiny_run.path)
    for strain in strains:
        assert sum(strain["parts"].values()) + strain["rest"] == pytest.approx(strain["change"])
        predicted = predictor.predict([strain["genes"].split(";")])["predicted_fitness"][0]
        assert predicted == pytest.approx(strain["predicted"], abs=1e-5)
    page = tiny_run.page.read_text()
    section = page[page.index('<section id="explained">') :]
    section = section[: section.index("</section>")]
    assert len(re.findall("<svg", section)) == 2 * SHOWN
    assert "Strongest prediction. The model predicts fitness" in section
    assert "Largest error. The model predicts fitness" in section
    assert read_run(tiny_run.path).explanations == strains


@pytest.mark.parametrize("damage", ["an edge of nothing", "another type of node"])
def test_a_damaged_network_is_refused(tiny_run: RunDirectory, tmp_path: Path, damage: str) -> None:
    run = RunDirectory(tmp_path / "run")
    shutil.copytree(tiny_run.path, run.path, ignore=shutil.ignore_patterns("figures", "checkpoints", "report.*"))
    content = json.loads(run.explanations.read_text())
    elements = next(one["elements"] for one in content["strains"] if one["elements"]["nodes"])
    if damage == "an edge of nothing":
        elements["edges"] = [{"data": {"source": "gene a", "target": "gene b", "relation": "physical"}}]
    else:
        elements["nodes"][0]["data"]["node_type"] = "organ"
    run.explanations.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=r"explanations_test\.json' is damaged"):
        read_run(run.path)


@given(st.lists(st.tuples(st.floats(-2, 2), st.one_of(st.just(np.nan), st.floats(-2, 2))), min_size=1, max_size=12))
def test_extremes_are_the_largest_and_each_strain_is_shown_once(values: list[tuple[float, float]]) -> None:
    predicted, measured = (np.array(column, np.float32) for column in zip(*values, strict=True))
    found = list(extremes(predicted, measured))
    places = [place for place, _ in found]
    assert len(set(places)) == len(places)
    strength = np.abs(predicted - np.median(predicted))
    strongest = [place for place, why in found if why == STRONGEST]
    others = [strength[place] for place in range(len(values)) if place not in strongest]
    assert not strongest or max(others, default=-1) <= min(strength[strongest])
    assert all(np.isfinite(measured[place]) for place, why in found if why == MISSED)

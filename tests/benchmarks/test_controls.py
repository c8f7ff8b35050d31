"""Results of runs are collected for the table of controls."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.controls import main
from dglcell.report.run_files import result_rows
from dglcell.runs.directory import RunDirectory
from dglcell.suites.controls import controls_of


def test_a_run_takes_the_place_of_an_earlier_one(tiny_run: RunDirectory, tmp_path: Path) -> None:
    out = tmp_path / "controls.json"
    out.write_text(json.dumps({"experiments": {"another": {"seed": 1}, "tiny": {"seed": 1}}}))
    main(str(out), str(tiny_run.path))
    experiments = json.loads(out.read_text())["experiments"]
    assert experiments["another"] == {"seed": 1}
    found = experiments["tiny"]
    assert (found["seed"], found["devices"]) == (0, ["cpu"])
    assert "paths." not in found["command"]
    (own,) = controls_of("tiny", 0, result_rows(found["rows"]))
    test = next(row for row in json.loads(tiny_run.results.read_text())["rows"] if row["part"] == "test")
    assert abs(own.score - test["metrics"]["pearson"]) < 1e-6
    assert own.is_compared

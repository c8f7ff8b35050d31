"""Results of runs are collected for the table of controls."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from benchmarks.controls import main
from dglcell.errors import DataError
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


def test_the_command_does_not_say_where_files_lay(tiny_run: RunDirectory, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "tiny/seed-0")
    shutil.copytree(tiny_run.path, run.path)
    about = json.loads(run.environment.read_text())
    about["command"] = "dglcell train /home/me/tree/conf/101/random.yaml seed=0 paths.data=/home/me/data"
    run.environment.write_text(json.dumps(about))
    main(str(tmp_path / "controls.json"), str(run.path))
    found = json.loads((tmp_path / "controls.json").read_text())["experiments"]["tiny"]
    assert found["command"] == "dglcell train conf/101/random.yaml seed=0"


def test_controls_beside_a_run_count(tiny_run: RunDirectory, tmp_path: Path) -> None:
    run = tmp_path / "tiny/seed-0"
    shutil.copytree(tiny_run.path, run)
    shutil.copytree(tiny_run.path, tmp_path / "tiny-permuted-labels/1/seed-0")
    main(str(tmp_path / "controls.json"), str(run))
    rows = json.loads((tmp_path / "controls.json").read_text())["experiments"]["tiny"]["rows"]
    (own,) = controls_of("tiny", 0, result_rows(rows))
    assert (own.permuted, own.permutations) == (own.score, 1)


def test_controls_are_added_to_what_is_known_of_a_run_that_is_gone(
    tiny_run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, runs = tmp_path / "records/a/tiny/seed-0", tmp_path / "runs/a"
    records.mkdir(parents=True)
    for path in (tiny_run.results, tiny_run.environment):
        shutil.copy(path, records / path.name)
    shutil.copytree(tiny_run.path, runs / "tiny-permuted-labels/1/seed-0")
    monkeypatch.setattr("benchmarks.controls.RECORDS", tmp_path / "records")
    out = tmp_path / "controls.json"
    main(str(out), str(runs / "tiny/seed-0"))
    shutil.copytree(tiny_run.path, runs / "tiny-permuted-labels/2/seed-0")
    shutil.rmtree(tmp_path / "records")
    main(str(out), str(runs / "tiny/seed-0"))
    found = json.loads(out.read_text())["experiments"]["a/tiny"]
    (own,) = controls_of("a/tiny", 0, result_rows(found["rows"]))
    assert (own.permuted, own.permutations) == (own.score, 2)
    assert own.is_compared
    with pytest.raises(DataError, match=r"(?s)no run in .*other/seed-0.*run with a record.*RUNS/EXPERIMENT"):
        main(str(out), str(runs / "other/seed-0"))


def test_a_run_without_intervals_is_compared_by_its_predictions(tiny_run: RunDirectory, tmp_path: Path) -> None:
    main(str(tmp_path / "now.json"), str(tiny_run.path))
    shutil.copytree(tiny_run.path, tmp_path / "tiny/seed-0")
    before = RunDirectory(tmp_path / "tiny/seed-0")
    results = json.loads(before.results.read_text())
    for row in results["rows"]:
        row["metrics"] = {name: value for name, value in row["metrics"].items() if not name.startswith("ahead")}
    before.results.write_text(json.dumps(results))
    main(str(tmp_path / "before.json"), str(before.path))
    now, again = (
        controls_of("tiny", 0, result_rows(json.loads((tmp_path / name).read_text())["experiments"]["tiny"]["rows"]))
        for name in ("now.json", "before.json")
    )
    assert again[0].null == now[0].null
    assert again[0].over_strains == pytest.approx(now[0].over_strains, abs=1e-4)
    assert again[0].over_genes == pytest.approx(now[0].over_genes, abs=1e-4)

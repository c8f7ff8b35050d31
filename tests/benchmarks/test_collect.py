"""What finished runs say, in the tables of results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks import collect


def write_run(folder: Path, name: str, seed: int, pearson: float | None, **metrics: float) -> Path:
    """The files of a run that are read."""
    run = folder / name / f"seed-{seed}"
    run.mkdir(parents=True)
    about: dict[str, Any] = {
        "command": f"dglcell train x.yaml seed={seed} paths.runs=/somewhere",
        "python": "3.11",
        "packages": {"torch": "2.13"},
        "git": {"commit": f"{seed}" * 40},
        "devices": ["a GPU that was not used"],
        "threads": 1,
        "parameters": 3,
        "strains": {"train": 8, "validation": 1, "test": 1},
        "hashes": {"split": "s" * 64, "store": "t" * 64, "cell": "c" * 64},
    }
    score: dict[str, float | None] = {"pearson": pearson, "n": 1, **metrics}
    rows = [
        {"model": "set_operator", "part": "validation", "metrics": score, "is_null": False},
        {"model": "set_operator", "part": "test", "metrics": score, "is_null": False},
        {"model": "network + ridge (0.25)", "part": "test", "metrics": score, "is_null": False},
        {"model": "training mean", "part": "test", "metrics": {"r2": -0.1, "pearson": None}, "is_null": True},
    ]
    usage = {"device": "cpu", "epochs": 2, "wall_seconds": 9.4 + seed, "peak_resident_bytes": 100, "processes": 1}
    (run / "config.yaml").write_text(yaml.safe_dump({"experiment": {"name": name}, "seed": seed}))
    (run / "environment.json").write_text(json.dumps(about))
    (run / "usage.json").write_text(json.dumps(usage))
    (run / "metrics.jsonl").write_text('{"seconds": 1.5}\n{"seconds": 2.0}\n')
    (run / "predictions_test.csv").write_text("genes,predicted_x\nb0008,0.5\n")
    (run / "results.json").write_text(json.dumps({"epoch": 1, "rows": rows}))
    return run


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of results."""
    monkeypatch.setattr(collect, "RESULTS", tmp_path)
    monkeypatch.setattr(collect, "USAGE", tmp_path / "usage.yaml")
    return tmp_path


def run(monkeypatch: pytest.MonkeyPatch, *runs: Path) -> None:
    """The command."""
    monkeypatch.setattr("sys.argv", ["collect", *map(str, runs)])
    collect.main()


def test_runs_become_rows_and_later_ones_take_the_place_of_earlier_ones(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(monkeypatch, *(write_run(results / "a", "101-x/y", seed, 0.5 + seed / 8) for seed in (1, 0)))
    run(monkeypatch, write_run(results / "b", "101-x/y", 1, 0.123456789, covered=0.9))
    rows = collect.read(results / "101.csv")
    assert [(row["seed"], row["model"], row["pearson"]) for row in rows] == [
        ("0", "set_operator", "0.5"),
        ("0", "network + baseline", "0.5"),
        ("0", "training mean", ""),
        ("1", "set_operator", "0.12346"),
        ("1", "network + baseline", "0.12346"),
        ("1", "training mean", ""),
    ]
    assert [row["covered"] for row in rows] == ["", "", "", "0.9", "0.9", ""]
    assert "auroc" not in rows[0]
    (first, second) = collect.read(results / "runs.csv")
    assert first["command"] == "dglcell train x.yaml seed=0"
    assert (first["device"], first["training_seconds"], first["best_epoch"]) == ("cpu", "3.5", "2")
    assert second["commit"] == "1" * 12
    assert yaml.safe_load((results / "usage.yaml").read_text()) == {
        "101-x/y": {
            "device": "cpu", "processes": 1, "epochs": 2, "seconds": 4, "wall_seconds": 10, "peak_resident_bytes": 100
        }
    }  # fmt: skip


def test_other_numbers_have_tables_of_their_own(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(monkeypatch, write_run(results, "101-x/y", 0, 0.5), write_run(results, "quickstart", 0, None, auroc=0.75))
    assert {path.name for path in results.glob("*.csv")} == {"101.csv", "quickstart.csv", "runs.csv"}
    assert collect.read(results / "quickstart.csv")[0]["auroc"] == "0.75"

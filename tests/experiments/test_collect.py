"""What finished runs say, in one file."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "collect.py"


@pytest.fixture(scope="module")
def collect() -> ModuleType:
    """Return the script."""
    spec = importlib.util.spec_from_file_location("collect", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_run(folder: Path, name: str, seed: int, pearson: float | None, **metrics: float) -> Path:
    """The files of a run that are read."""
    run = folder / name / f"seed-{seed}"
    run.mkdir(parents=True)
    config = {"experiment": {"name": name}, "seed": seed, "split": {"kind": "random", "seed": seed}}
    about: dict[str, Any] = {
        "command": f"dglcell train x.yaml seed={seed} paths.runs=/somewhere",
        "hashes": {"split": f"hash {seed}"},
        "strains": {"train": 8, "test": 1},
        "parameters": 3,
        "python": "3.11",
        "git": {"commit": f"commit {seed}", "dirty": False},
        "threads": 1,
    }
    score: dict[str, float | None] = {"pearson": pearson, "n": 1, **metrics}
    rows = [
        {"model": "set_operator", "part": "validation", "metrics": score},
        {"model": "set_operator", "part": "test", "metrics": score},
        {"model": "training mean", "part": "test", "metrics": {"r2": -0.1, "pearson": None}},
    ]
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    (run / "environment.json").write_text(json.dumps(about))
    (run / "metrics.jsonl").write_text('{"seconds": 1.5}\n{"seconds": 2.0}\n')
    (run / "results.json").write_text(json.dumps({"epoch": 1, "rows": rows}))
    return run


def collected(
    collect: ModuleType, monkeypatch: pytest.MonkeyPatch, out: Path, runs: list[Path], *options: str
) -> dict[str, Any]:
    """Return the file that the script writes."""
    monkeypatch.setattr("sys.argv", ["collect.py", *options, str(out), *map(str, runs)])
    collect.main()
    content: dict[str, Any] = json.loads(out.read_text())
    return content


def test_seeds_are_summed_up(collect: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runs = [write_run(tmp_path, "a/x", seed, value) for seed, value in enumerate([0.5, 0.6, 0.7])]
    content = collected(collect, monkeypatch, tmp_path / "out.json", runs)
    assert content["environment"] == {"python": "3.11", "threads": 1}
    (row,) = content["summary"]
    assert row["seeds"] == [0, 1, 2]
    assert row["test"]["set_operator"]["pearson"] == {"mean": 0.6, "sd": 0.1}
    assert row["test"]["training mean"] == {"r2": {"mean": -0.1, "sd": 0.0}}
    first = content["runs"][0]
    assert first["command"] == "dglcell train x.yaml seed=0"
    assert [run["commit"] for run in content["runs"]] == ["commit 0", "commit 1", "commit 2"]
    assert first["training_seconds"] == 3.5
    assert first["reported_epoch"] == 2


def test_parts_left_out_are_compared_seed_by_seed(
    collect: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = [write_run(tmp_path, "a/x/whole", seed, value) for seed, value in ((0, 0.2), (1, 0.6))]
    without = [write_run(tmp_path, "a/x/no-graph", seed, value) for seed, value in ((1, 0.5), (0, 0.12))]
    content = collected(collect, monkeypatch, tmp_path / "out.json", [*whole, *without])
    assert "test_minus_whole" not in content["summary"][0]
    assert content["summary"][1]["test_minus_whole"]["set_operator"]["pearson"] == {"mean": -0.09, "sd": 0.0141}


def test_the_whole_may_have_a_name(collect: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runs = [write_run(tmp_path, name, 0, value) for name, value in (("a/x", 0.5), ("a/y", 0.4), ("b/x/no-head", 0.3))]
    content = collected(collect, monkeypatch, tmp_path / "out.json", runs, "--whole", "a/x")
    found = [row.get("test_minus_whole", {}).get("set_operator", {}).get("pearson") for row in content["summary"]]
    assert found == [None, {"mean": -0.1, "sd": None}, {"mean": -0.2, "sd": None}]


def test_every_split_may_have_a_whole(collect: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = (("a/x", 0, 0.5), ("a/x_genes", 0, 0.4), ("a/y", 1, 0.9), ("a/y_genes", 1, 0.6))
    runs = [write_run(tmp_path, name, seed, value) for name, seed, value in made]
    content = collected(collect, monkeypatch, tmp_path / "out.json", runs, "--whole", "a/x", "--whole", "a/y")
    found = [row.get("test_minus_whole", {}).get("set_operator", {}).get("pearson") for row in content["summary"]]
    assert found == [None, {"mean": -0.1, "sd": None}, None, {"mean": -0.3, "sd": None}]


def test_other_strains_are_not_compared(collect: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runs = [write_run(tmp_path, "a/x/whole", 0, 0.2), write_run(tmp_path, "a/x/no-graph", 1, 0.5)]
    content = collected(collect, monkeypatch, tmp_path / "out.json", runs)
    assert all("test_minus_whole" not in row for row in content["summary"])


def test_classes_keep_their_own_scores(collect: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = write_run(tmp_path, "a/x", 0, 0.1, average_precision=0.25, auroc=0.75)
    content = collected(collect, monkeypatch, tmp_path / "out.json", [run], "--what", "which pairs interact")
    assert content["what"] == "which pairs interact"
    assert content["summary"][0]["test"]["set_operator"]["auroc"] == {"mean": 0.75, "sd": None}
    assert content["runs"][0]["scores"]["set_operator"]["test"] == {
        "pearson": 0.1,
        "average_precision": 0.25,
        "auroc": 0.75,
    }

"""The scripts of `benchmarks`: tables of results, generated cells, tables of users, and the measurement on a GPU."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks import collect, gpu_once
from benchmarks.cells import GENES, PUBLISHED, generated_cell
from benchmarks.own_tables import CLASSES, CORE, TABLES, OwnTable, interacting, measure, viable
from dglcell.errors import ConfigError
from dglcell.graph.schema import gene_relation
from dglcell.new_experiment.experiment import GROWTH, PAIRS, choose_settings
from dglcell.training.run import train


def write_run(folder: Path, name: str, seed: int, pearson: float | None, **metrics: float) -> Path:
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
        {"model": "set_operator", "part": "validation", "metrics": score, "is_baseline": False},
        {"model": "set_operator", "part": "test", "metrics": score, "is_baseline": False},
        {"model": "network + ridge (0.25)", "part": "test", "metrics": score, "is_baseline": False},
        {"model": "training mean", "part": "test", "metrics": {"r2": -0.1, "pearson": None}, "is_baseline": True},
    ]
    usage = {"device": "cpu", "epochs": 2, "wall_seconds": 9.4 + seed, "peak_resident_bytes": 100, "processes": 1}
    (run / "config.yaml").write_text(yaml.safe_dump({"experiment": {"name": name}, "seed": seed}))
    (run / "environment.json").write_text(json.dumps(about))
    (run / "usage.json").write_text(json.dumps(usage))
    (run / "metrics.jsonl").write_text('{"seconds": 1.5}\n{"seconds": 2.0}\n')
    (run / "predictions_test.csv").write_text("genes,predicted_x\nb0008,0.5\n")
    (run / "results.json").write_text(json.dumps({"epoch": 1, "rows": rows}))
    return run


def test_runs_become_rows_and_later_ones_take_the_place_of_earlier_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "RESULTS", tmp_path)
    earlier = [write_run(tmp_path / "a", "101-x/y", seed, 0.5 + seed / 8) for seed in (1, 0)]
    later = [write_run(tmp_path / "b", "101-x/y", 1, 0.123456789, covered=0.9)]
    for runs in (earlier, [*later, write_run(tmp_path, "quickstart", 0, None, auroc=0.75)]):
        monkeypatch.setattr("sys.argv", ["collect", *map(str, runs)])
        collect.main()
    rows = collect.read(tmp_path / "101.csv")
    models = ("set_operator", "network + baseline", "training mean")
    assert [(row["seed"], row["model"]) for row in rows] == [(seed, model) for seed in "01" for model in models]
    assert [row["pearson"] for row in rows] == ["0.5", "0.5", "", "0.12346", "0.12346", ""]
    assert [row["covered"] for row in rows] == ["", "", "", "0.9", "0.9", ""]
    assert {path.name for path in tmp_path.glob("*.csv")} == {"101.csv", "quickstart.csv", "runs.csv"}
    assert collect.read(tmp_path / "quickstart.csv")[0]["auroc"] == "0.75"
    assert "auroc" not in rows[0], "other numbers have tables of their own"
    first, second, _ = collect.read(tmp_path / "runs.csv")
    assert first["command"] == "dglcell train x.yaml seed=0"
    assert (first["device"], first["training_seconds"], first["best_epoch"]) == ("cpu", "3.5", "2")
    assert second["commit"] == "1" * 12


def test_cells_keep_the_density_of_published_networks() -> None:
    one, same, other, both = (generated_cell(scale=0.1, **more) for more in ({}, {}, {"seed": 1}, {"symmetrise": True}))
    assert one.sha256 == same.sha256 != other.sha256
    number = len(one.genes)
    share = (len(one.edges(gene_relation("coexpression"))) - number) / number**2
    assert share == pytest.approx(996_199 / GENES**2, rel=0.01)
    for size in PUBLISHED:
        relation = gene_relation(size.name)
        pairs, factor = len(one.edges(relation)) - number, 2 if size.regulators is None else 1
        assert len(both.edges(relation)) == factor * pairs + number, "regulation stays directed"
    with pytest.raises(ConfigError, match=r"`scale` is out of range\n  got:      0.001"):
        generated_cell(scale=0.001)


OF_CORE = {table.name: table for table in TABLES if table.cell == CORE}

ROWS = {
    "growth-60": (60, {1, 2}),
    "growth-144": (144, {1, 2}),
    "singles-137": (137, {1}),
    "growth-3000": (3000, {1, 2}),
    "pairs-3000": (3000, {2}),
    "growth-30000": (29453, {1, 2, 3}),
    "viable-1000": (1000, {1, 2}),
    "epsilon-5000": (5000, {2}),
}


@pytest.mark.parametrize("name", ROWS)
def test_tables_are_what_they_are_called_and_the_same_each_time(name: str, tmp_path: Path) -> None:
    rows = OF_CORE[name].make()
    assert (len(rows), {len(genes) for genes, _ in rows}) == ROWS[name]
    assert len({genes for genes, _ in rows}) == len(rows)
    assert {label for _, label in rows} <= {0.0, 1.0} if name in CLASSES else True
    assert OF_CORE[name].make() == rows
    assert OF_CORE[name].write(tmp_path / "table.csv") == len(rows)
    assert len((tmp_path / "table.csv").read_text().splitlines()) == len(rows) + 1


def test_there_are_twelve_and_scores_become_classes() -> None:
    assert len({table.name for table in TABLES}) == 12
    assert set(ROWS) == set(OF_CORE)
    assert set(CLASSES) < {table.name for table in TABLES}
    rows = [((str(i),), float(i)) for i in range(10)]
    assert [label for _, label in interacting(rows, 0.2)] == [1.0, 1.0, *[0.0] * 8]
    assert [label for _, label in viable(rows, 7.5)] == [*[0.0] * 8, 1.0, 1.0]


def test_a_table_is_given_to_init_and_train(monkeypatch: pytest.MonkeyPatch) -> None:
    def quick(*arguments: Any) -> object:
        chosen = choose_settings(*arguments)
        chosen.keys["trainer"]["epochs"] = 2
        return chosen

    monkeypatch.setattr("dglcell.new_experiment.experiment.choose_settings", quick)
    monkeypatch.setattr("benchmarks.own_tables.train", lambda config: train(replace(config, plot=False)))
    few = OwnTable("few", CORE, "growth", lambda: OF_CORE["growth-144"].make()[::3])
    found = measure(few, seeds=2)
    assert (found["rows"], found["splits"], found["chosen"]["model"]) == (48, 2, GROWTH)
    assert max(found["score"], found["best_baseline_score"]) <= 1
    assert len(found["each_split"][GROWTH]) == 2
    assert PAIRS not in found["each_split"]


@pytest.mark.slow
def test_all_stages_come_to_their_end(tmp_path: Path) -> None:
    pytest.importorskip("torch_geometric", reason="the peer is not installed")
    words = [str(tmp_path), "--device", "cpu", "--tiny", "--tests", "tests/gpu/test_model.py::test_made_like_others"]
    assert gpu_once.main(words) == 0
    stages = json.loads((tmp_path / "results.json").read_text())["stages"]
    assert list(stages) == list(gpu_once.LIMITS)
    assert {stage["status"] for stage in stages.values()} == {"done"}
    rows = [row for stage in stages.values() for row in stage["found"].get("rows", [])]
    assert len(rows) == 20
    assert all(row["least_ms"] <= row["ms"] <= row["largest_ms"] and "failed" not in row for row in rows)
    assert max(row["error"] for row in rows if "float32" in row["method"] and "error" in row) < 1e-5
    assert "080" in (tmp_path / "table.md").read_text()

"""``python -m benchmarks.bench`` from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.bench import _plan, main
from benchmarks.workload import BenchOptions
from tests.tiny import Tiny, process_environment

QUICK = ["--scale", "0.01", "--hidden", "8", "--layers", "1", "--seconds-per-row", "0.01", "--threads", "1"]


def run(*arguments: object) -> int:
    """In this process, where other tests have computed gradients already: forks could compute none."""
    return main([*map(str, arguments), "--in-process"])


def test_a_tiny_cell_graph_gives_a_table_and_a_file(tmp_path: Path, capsys) -> None:
    pytest.importorskip("torch_geometric")
    target = tmp_path / "bench.json"
    methods = ["pyg_replicated", "node_mask", "dango"]
    asked = [*QUICK, "--batch", 2, "--deletions", 1, 2, "--methods", *methods, "--output", target]
    assert run(*asked) == 0
    printed = capsys.readouterr().out
    assert printed.count("x pyg_replicated") == 2
    content = json.loads(target.read_text())
    about = content["environment"]
    assert about["packages"]["torch"] == torch.__version__
    assert about["relations"]["physical"] == 66 + 14
    assert about["ceilings"]["copy_bytes_per_second"] > 1e8
    assert 0 <= about["largest_difference"] < 1e-10
    assert {"processor", "memory_available_bytes", "threads", "command", "cell", "device"} <= set(about)
    assert len(content["rows"]) == 6
    for row in content["rows"]:
        assert row["status"] == "ok"
        base = next(r for r in content["rows"] if r["method"] == methods[0] and _same(r, row))
        assert row["ratio_to_pyg_replicated"] == pytest.approx(base["seconds_per_step"] / row["seconds_per_step"])
    assert run(*asked, "--resume") == 0
    assert json.loads(target.read_text())["rows"] == content["rows"]


def _same(one: dict, other: dict) -> bool:
    return all(one[key] == other[key] for key in ("batch", "deletions", "hidden", "layers", "conv"))


def test_an_experiment_is_measured_on_its_own_cell_and_strains(tiny: Tiny, tmp_path: Path, capsys) -> None:
    target = tmp_path / "bench.json"
    asked = [tiny.file, f"data.store={tiny.store}", "--batch", 3, "--seconds-per-row", 0.01, "--output", target]
    assert run(*asked, "--methods", "pyg_replicated", "edge_subgraph", "node_mask") == 0
    rows = json.loads(target.read_text())["rows"]
    assert [row["method"] for row in rows] == ["pyg_replicated", "dgl_edge_subgraph", "node_mask:auto"]
    assert {(row["batch"], row["hidden"], row["layers"], row["deletions"]) for row in rows} == {(3, 8, 1, None)}
    assert rows[1]["status"] == rows[2]["status"] == "ok"
    assert rows[0]["status"].startswith(("unsupported: the PyG methods do not compute relations", "missing"))


def test_a_batch_larger_than_the_training_part_is_refused(tiny: Tiny, capsys) -> None:
    assert run("--config", tiny.file, f"data.store={tiny.store}", "--batch", 241, *QUICK[6:]) == 2
    assert "smaller than the batch\n  got:      240\n  expected: 241 or more" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--batch", "--threads"])
@pytest.mark.parametrize("wrong", ["0", "many"])
def test_numbers_are_checked(option: str, wrong: str, capsys) -> None:
    with pytest.raises(SystemExit):
        main(["tiny.yaml", option, wrong])
    assert f"argument {option}: '{wrong}' is not a number of 1 or more" in capsys.readouterr().err


def test_too_little_memory_is_a_row(tmp_path: Path) -> None:
    target = tmp_path / "bench.json"
    asked = ["--scale", 0.15, "--hidden", 64, "--layers", 1, "--batch", 28, "--memory-limit", 0.25, "--threads", 1]
    asked += ["--methods", "node_mask:reference", "difference", "--seconds-per-row", 0.01, "--output", target]
    command = [sys.executable, "-m", "benchmarks.bench", *map(str, asked)]
    done = subprocess.run(command, cwd=tmp_path, env=process_environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = {row["method"]: row for row in json.loads(target.read_text())["rows"]}
    assert rows["node_mask:reference"]["status"] == "out_of_memory"
    assert rows["node_mask:reference"]["seconds_per_step"] is None
    assert rows["difference:auto"]["status"] == "ok"


def test_products_are_written_too(tmp_path: Path, capsys) -> None:
    target = tmp_path / "products.json"
    assert run(*QUICK, "--products", "--batch", 2, "--output", target) == 0
    assert "of copy" in capsys.readouterr().out
    assert {row["kernel"] for row in json.loads(target.read_text())["products"]} >= {"auto", "reference", "csr", "dgl"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--resume"], "`--resume` needs a file"),
        (["--resume", "--products", "--output", "x.json"], "`--resume` continues steps"),
        (["--metabolism"], "`--metabolism` needs real genes"),
        (["--methods", "magic"], "unknown method"),
        ([*QUICK, "--deletions", 100], "`--deletions` is more than there are genes"),
    ],
)
def test_options_that_make_no_sense_are_refused(arguments: list[object], message: str, capsys) -> None:
    assert run(*arguments) == 2
    assert message in capsys.readouterr().err


def test_the_headline_leaves_slow_methods_out_of_large_batches() -> None:
    plan = {(s.batch, s.layers): [m.name for m in members] for s, members in _plan(BenchOptions("bench"), None)}
    assert set(plan) == {(8, 2), (8, 3), (28, 2), (28, 3)}
    assert set(plan[28, 3]) < set(plan[8, 3])
    assert all(names[0] == "pyg_replicated" for names in plan.values())


def test_the_grid_has_every_method_and_size() -> None:
    plan = _plan(BenchOptions("bench", grid=True), None)
    assert {s.batch for s, _ in plan} == {8, 16, 28, 64, 256}
    assert {(s.hidden, s.layers, s.conv) for s, _ in plan} == {
        (h, n, c) for h in (64, 128) for n in (2, 3) for c in ("gin", "sage")
    }
    assert "dgl_edge_subgraph" in {m.name for m in plan[0][1]}

"""Rows of results and their table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.methods import MethodSpec
from benchmarks.results_file import OK, BenchRow, Results, format_table
from benchmarks.workload import Setting, settings
from dglcell.errors import ConfigError, DataError

ABOUT = {"cell_sha256": "abc", "threads": 1, "devices": ["cpu"]}
SETTING = Setting("gin", batch=4, hidden=8, layers=2, deletions=3)


def row(name: str, seconds: float | None, status: str = OK, setting: Setting = SETTING) -> BenchRow:
    made = BenchRow.start(MethodSpec(name, lambda *_: None, strategy="s", kernel="k"), setting, edges=1234)
    made.status, made.seconds_per_step = status, seconds
    if seconds:
        made.samples_per_second, made.peak_memory_bytes, made.steps = setting.batch / seconds, 10**9, 7
    return made


def test_ratios_are_to_pyg_replicated_under_the_same_setting(tmp_path: Path) -> None:
    other = Setting("gin", batch=8, hidden=8, layers=2, deletions=3)
    results = Results(ABOUT, tmp_path / "r.json")
    results.rows = [row("pyg_replicated", 2.0), row("fast", 0.5), row("dead", None, "out_of_memory")]
    results.rows.append(row("fast", 0.5, setting=other))
    results.write()
    content = json.loads((tmp_path / "r.json").read_text())
    assert content["environment"] == ABOUT
    assert [r["ratio_to_pyg_replicated"] for r in content["rows"]] == [1.0, 4.0, None, None]
    assert content["rows"][1] == {
        "method": "fast",
        "strategy": "s",
        "kernel": "k",
        "device": "cpu",
        "dtype": "float32",
        "conv": "gin",
        "batch": 4,
        "hidden": 8,
        "layers": 2,
        "deletions": 3,
        "edges": 1234,
        "seconds_per_step": 0.5,
        "seconds_best": None,
        "seconds_first": None,
        "samples_per_second": 8.0,
        "peak_memory_bytes": 10**9,
        "ratio_to_pyg_replicated": 4.0,
        "share_of_ideal": None,
        "status": "ok",
        "steps": 7,
        "warm_up": 0,
    }


def test_a_row_that_killed_the_process_is_not_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    first = Results(ABOUT, path)
    first.begin(row("fast", 0.5))
    first.begin(row("killer", None, "running"))
    second = Results(ABOUT, path)
    second.resume()
    assert [r.status for r in second.rows] == ["ok", "crashed: the process ended while this ran"]
    assert second.has(MethodSpec("killer", lambda *_: None), SETTING)
    assert not second.has(MethodSpec("new", lambda *_: None), SETTING)


def test_the_largest_difference_of_all_runs_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    first = Results(dict(ABOUT), path)
    first.agreed_within(3e-12)
    first.write()
    second = Results(dict(ABOUT), path)
    second.resume()
    second.agreed_within(0.0)  # a single method, which agrees with itself
    assert second.environment["largest_difference"] == 3e-12


def test_other_subjects_and_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    Results(ABOUT, path).write()
    with pytest.raises(ConfigError, match="was measured on something else"):
        Results({**ABOUT, "cell_sha256": "def"}, path).resume()
    path.write_text('{"rows": 3}')
    with pytest.raises(DataError, match="holds no results of this benchmark"):
        Results(ABOUT, path).resume()


def test_the_table_has_a_block_per_setting_fastest_first() -> None:
    small = Setting("gin", batch=2, hidden=8, layers=2, deletions=3)
    rows = [row("slow", 2.0), row("dead", None, "out_of_memory"), row("fast", 0.5), row("only", 0.25, setting=small)]
    blocks = format_table(rows).split("\n\n")
    assert [block.splitlines()[0] for block in blocks] == [
        "gin  B = 2  H = 8  L = 2  deletions = 3  float32 on cpu  1,234 edges",
        "gin  B = 4  H = 8  L = 2  deletions = 3  float32 on cpu  1,234 edges",
    ]
    lines = blocks[1].splitlines()[2:]
    assert [line.split()[0] for line in lines] == ["fast", "slow", "dead"]
    assert lines[0].split() == ["fast", "500.0", "8.0", "-", "-", "1,000", "7"]
    assert lines[2].split() == ["dead", "out_of_memory"]


def test_settings_go_from_large_to_small_and_come_once() -> None:
    made = settings(
        convs=["gin"], batches=[8, 64, 8], hidden=[64, 128], layers=[2, 3], deletions=[3], device="cpu", dtype="float32"
    )
    sizes = [(s.batch * s.hidden, s.layers) for s in made]
    assert len(made) == 8
    assert sizes == sorted(sizes, reverse=True)

"""Two profiles side by side, or the reason why not."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from dglcell.cli import main
from dglcell.profiling.profile import Profile

BASE = Profile(
    experiment="a",
    model="hetero_cell",
    strategy="node_mask",
    device="cpu: X",
    threads=1,
    world_size=1,
    batch_size=28,
    dtype="32-true",
    nodes={"gene": 5},
    edges={"physical": 1200, "genetic": 34},
    cell_sha256="0" * 64,
    parameters=10,
    clock="host",
    warm_up=1,
    steps=[0.010, 0.030],
    samples=56,
    components={"data": 0.004, "aggregation/physical": 0.020, "aggregation/genetic": 0.004, "other": 0.012},
    bytes_to_device=0,
    synchronisations=None,
    peak_memory_bytes=2_000_000,
    autotuned=None,
    environment={},
)


def written(folder: Path, **changes: Any) -> str:
    folder.mkdir()
    dataclasses.replace(BASE, **changes).write(folder / "profile.json")
    return str(folder)


def test_two_profiles_stand_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    components = {"data": 0.002, "aggregation/physical": 0.005, "pooling": 0.001, "other": 0.002}
    other = written(tmp_path / "b", strategy="difference", steps=[0.010], samples=28, components=components)
    assert main(["compare", written(tmp_path / "a"), other + "/profile.json"]) == 0
    printed = capsys.readouterr().out
    assert "warning" not in printed
    rows = {line.split()[0]: line.split()[1:] for line in printed.splitlines()[4:]}
    # A: 40 ms in 2 steps; B: 10 ms in one.
    assert rows["data"] == ["2.000", "10.0%", "2.000", "20.0%", "1.00"]
    assert rows["aggregation"] == ["12.000", "60.0%", "5.000", "50.0%", "0.42"]
    assert rows["physical"] == ["10.000", "50.0%", "5.000", "50.0%", "0.50"]
    assert rows["genetic"] == ["2.000", "10.0%", "-", "-", "-"]
    assert rows["pooling"] == ["-", "-", "1.000", "10.0%", "-"]
    assert rows["all"] == ["20.000", "100.0%", "10.000", "100.0%", "0.50"]
    assert "cpu: X; 1 process x 28 strains" in printed
    assert "hetero_cell (node_mask), 50.00 it/s, 1,400.0 samples/s, peak 2.0 MB" in printed
    assert "hetero_cell (difference), 100.00 it/s, 2,800.0 samples/s" in printed


@pytest.mark.parametrize(
    ("change", "what", "values"),
    [
        ({"batch_size": 64}, "batch sizes", "batch_size 28 and 64"),
        ({"world_size": 4}, "numbers of processes", "world_size 1 and 4"),
        ({"device": "NVIDIA A40"}, "devices", "device cpu: X and NVIDIA A40"),
        (
            {"batch_size": 8, "device": "Y"},
            "devices and batch sizes",
            "device cpu: X and Y; batch_size 28 and 8",
        ),
    ],
)
def test_profiles_of_different_conditions_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], what: str, values: str
) -> None:
    a, b = written(tmp_path / "a"), written(tmp_path / "b", **change)
    assert main(["compare", a, b]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert f"error: '{a}' and '{b}' are of different {what}\n  got:      {values}\n" in printed.err
    assert "profile both alike" in printed.err


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"dtype": "bf16-mixed"}, "warning: different precisions: 32-true and bf16-mixed"),
        ({"threads": 8}, "warning: different numbers of threads: 1 and 8"),
        (
            {"cell_sha256": "f" * 64, "edges": {"physical": 7}},
            "warning: different cell graphs: 1,234 edges (000000000000) and 7 edges (ffffffffffff)",
        ),
    ],
)
def test_what_should_be_known_is_said_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], line: str
) -> None:
    assert main(["compare", written(tmp_path / "a"), written(tmp_path / "b", **change)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == line

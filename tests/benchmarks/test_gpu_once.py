"""The measurement on a GPU, rehearsed on a CPU: every stage comes to its end, and all figures are written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import gpu_once

pytest.importorskip("torch_geometric", reason="the peer is not installed")


@pytest.mark.slow
def test_all_stages_come_to_their_end(tmp_path: Path) -> None:
    words = [str(tmp_path), "--device", "cpu", "--tiny", "--tests", "tests/gpu/test_devices.py"]
    assert gpu_once.main(words) == 0
    stages = json.loads((tmp_path / "results.json").read_text())["stages"]
    assert list(stages) == list(gpu_once.LIMITS)
    assert {stage["status"] for stage in stages.values()} == {"done"}
    rows = [row for stage in stages.values() for row in stage["found"].get("rows", [])]
    assert len(rows) == 20
    assert all(row["least_ms"] <= row["ms"] <= row["largest_ms"] and "failed" not in row for row in rows)
    assert max(row["error"] for row in rows if "float32" in row["method"] and "error" in row) < 1e-5
    assert "080" in (tmp_path / "table.md").read_text()

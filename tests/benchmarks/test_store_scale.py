"""Stores of many strains: bytes on disk and peak memory, in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tiny import process_environment

BLOCK = 2**17
MANY = 2_000_000


def measure(phase: str, store: Path, strains: int) -> dict[str, Any]:
    """Run one phase in its own process."""
    command = [sys.executable, "-m", "benchmarks.store_scale", str(store), "--strains", str(strains)]
    done = subprocess.run(
        [*command, "--phase", phase], env=process_environment(), capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_numbers_of_a_small_store(tmp_path: Path) -> None:
    output = tmp_path / "numbers.json"
    command = [sys.executable, "-m", "benchmarks.store_scale", str(tmp_path / "store"), "--strains", "30000"]
    subprocess.run([*command, "--output", str(output)], env=process_environment(), check=True, capture_output=True)
    found = json.loads(output.read_text())
    assert found["build"]["strains"] == found["load"]["strains"] == 30_000
    assert found["build"]["file_bytes"] == (tmp_path / "store" / "data.mdb").stat().st_size
    assert found["load"]["resident_bytes"] == 30_000 * (3 * 4 + 8 + 4 + 8) + 8
    assert found["resident"]["strains"] == pytest.approx(27_000, rel=0.05)
    assert found["environment"]["command"].startswith("python -m benchmarks.store_scale ")


@pytest.mark.slow
def test_two_million_strains_need_few_bytes_and_little_memory(tmp_path: Path) -> None:
    few, many = measure("build", tmp_path / "few", BLOCK), measure("build", tmp_path / "many", MANY)
    labels = 4
    assert many["bytes_per_strain"] < 11 < 24 + labels
    # All strains as a table would be 24 bytes each; the pages of the file itself come and go with its transactions.
    growth = many["peak_bytes_above_imports"] - few["peak_bytes_above_imports"]
    assert growth < 1.5 * many["file_bytes"] + 2**21 < MANY * 24
    loaded = measure("load", tmp_path / "many", MANY)
    assert loaded["strains"] == MANY
    assert loaded["resident_bytes"] <= MANY * (28 + labels) + 8
    assert loaded["peak_bytes_above_imports"] < 2.5 * loaded["resident_bytes"]

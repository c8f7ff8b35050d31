"""Too much memory is an exception."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiny import process_environment

linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")


@linux
def test_allocations_beyond_the_limit_raise_and_the_limit_goes_away() -> None:
    program = """
import torch
from dglcell.memory import keep_freed_memory
from dglcell.devices import is_out_of_memory, release
from benchmarks.timing import MemoryLimit
keep_freed_memory()
limit = MemoryLimit(300_000_000)
with limit.on("cpu"):
    torch.ones(50_000_000)
release("cpu")
try:
    with limit.on("cpu"):
        torch.ones(100_000_000)
except RuntimeError as error:
    print("refused", is_out_of_memory(error))
print(float(torch.ones(100_000_000)[-1]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env=process_environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["refused", "True", "1.0"]

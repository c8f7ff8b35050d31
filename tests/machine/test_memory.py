"""Freed memory is reused without page faults, and errors of memory are told from others."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from dglcell.machine.memory import is_out_of_memory, keep_freed_memory

FAULTS = """
import resource, sys, torch
from dglcell.machine.memory import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
for _ in range(20):
    torch.ones(2**24)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    torch.ones(2**24)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    """Page faults of making and freeing 64 MB twenty times, in a process of its own."""
    done = subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(not keep_freed_memory(), reason="the C library is not glibc")
def test_freed_memory_is_used_again() -> None:
    assert faults("keep") * 10 < faults("default")


def test_out_of_memory_is_told_from_other_errors() -> None:
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert is_out_of_memory(RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"))
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))

"""Freed memory is reused without page faults, and errors of memory are told from others."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from dglcell.machine.processor import is_out_of_memory, keep_freed_memory

FAULTS = """
import resource, torch
from dglcell.machine.processor import keep_freed_memory
def faults(times):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        torch.ones(2**24)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
default = faults(3)
keep_freed_memory()
faults(12)
print(default, faults(3))
"""
"""Page faults of making and freeing 64 MB, before and after, in a process of its own."""


@pytest.mark.skipif(not keep_freed_memory(), reason="the C library is not glibc")
def test_freed_memory_is_used_again() -> None:
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    default, kept = map(int, done.stdout.split())
    assert kept * 10 < default


def test_out_of_memory_is_told_from_other_errors() -> None:
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert is_out_of_memory(RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"))
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))

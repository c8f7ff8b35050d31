"""A generated cell and little work on it, for tests of the benchmark."""

from __future__ import annotations

import pytest

from benchmarks.cells import generated_cell
from benchmarks.timing import Ceilings, Conditions, MemoryLimit, in_this_process
from benchmarks.workload import Setting, Workload, hub_workload
from dglcell.graph.cell_graph import CellGraph

SETTING = Setting("gin", batch=3, hidden=8, layers=2, deletions=2)


def small_cell() -> CellGraph:
    """132 genes."""
    return generated_cell(scale=0.02)


def small_workload(conv: str = "gin") -> Workload:
    """Return three strains of it."""
    pytest.importorskip("torch_geometric")
    return hub_workload(small_cell(), conv)


def quick_conditions() -> Conditions:
    """In this process, where other tests have computed gradients already."""
    return Conditions("cpu", "float32", 1, 0.01, Ceilings(1e9, 1e9), MemoryLimit(), in_this_process)

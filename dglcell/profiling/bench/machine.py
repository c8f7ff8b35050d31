"""What was measured on: machine, versions and cell graph, as written beside the rows."""

from __future__ import annotations

import dataclasses
import platform
import re
from pathlib import Path
from typing import Any

import torch

from dglcell.devices import available_memory
from dglcell.graph.cell_graph import CellGraph
from dglcell.profiling.bench.conditions import Conditions
from dglcell.run_directory import environment, version_of


def describe_machine(command: str, cell: CellGraph, title: str, given: Conditions) -> dict[str, Any]:
    """Versions, device, memory, cell graph and ceilings, as plain containers.

    Args:
        command: as typed.
        cell: the cell graph.
        title: where it came from.
        given: device, threads and ceilings.
    """
    about = environment(command)
    about["packages"]["torch_geometric"] = version_of("torch_geometric")
    degrees = {r[1]: _largest_degree(cell, r) for r in cell.relations if r[0] == r[2]}
    return {
        **about,
        "threads": given.threads,
        "device": torch.cuda.get_device_name() if torch.device(given.device).type == "cuda" else "cpu",
        "processor": processor_name(),
        "memory_available_bytes": available_memory(),
        "cell": title,
        "cell_sha256": cell.sha256,
        "nodes": {node_type: cell.graph.num_nodes(node_type) for node_type in cell.graph.ntypes},
        "relations": {r[1]: cell.graph.num_edges(r) for r in cell.relations},
        "largest_degrees": degrees,
        "ceilings": dataclasses.asdict(given.ceilings),
    }


def _largest_degree(cell: CellGraph, relation: tuple[str, str, str]) -> int:
    """Edges of one node in both directions; its self-loop counts twice."""
    degrees = cell.graph.in_degrees(etype=relation) + cell.graph.out_degrees(etype=relation)
    return int(degrees.max())


def processor_name() -> str:
    """As the system calls it."""
    try:
        found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found.group(1) if found else platform.processor()

"""Time steps and predictions as the organism grows: ``python -m benchmarks.growth OUT [--cells NAME …]``.

Cells are the generated graph of yeast size, the same with three times as many genes and edges, and real metabolic
models. ``hetero_cell`` takes full training steps (float32, not compiled), and predicts.
On the generated graphs PyTorch Geometric's ``EdgeIndex`` on one shared graph takes steps in turn with it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.cells import generated_cell
from benchmarks.methods import choose_methods, training_step
from benchmarks.workload import Setting, random_workload
from dglcell.files.atomic import write_json
from dglcell.graph.cell import CellConfig, build_cell
from dglcell.graph.cell_graph import CellGraph
from dglcell.machine.devices import measured_memory
from dglcell.machine.memory import keep_freed_memory
from dglcell.machine.processor import processor_name
from dglcell.runs.usage import environment

OURS, PEER = "difference:auto", "pyg_spmm"
BATCH, ROUNDS = 8, 3
DERIVED = ["shares_complex", "isoenzyme", "metabolic_neighbour"]


def metabolic(model: str) -> CellGraph:
    """Build the cell graph of a metabolic model, with the relations between genes that follow from it."""
    return build_cell(CellConfig(model=model, derived=DERIVED))


CELLS: dict[str, Callable[[], CellGraph]] = {
    "generated, yeast size": generated_cell,
    "generated, three times yeast": lambda: generated_cell(scale=3.0),
    "E. coli core": lambda: metabolic("textbook"),
    "iJO1366": lambda: metabolic("iJO1366"),
}


def measure(name: str, raw_model: str | None = None) -> dict[str, Any]:
    """Measure seconds, memory and strains per second of one cell."""
    cell = metabolic(raw_model) if raw_model else CELLS[name]()
    generated = name.startswith("generated")
    setting = Setting("gin", batch=BATCH, hidden=64, layers=3, deletions=3)
    workload = random_workload(cell, setting.model(metabolism=not generated), BATCH, 3, seed=0)
    steps, peaks = {}, {}
    for spec in choose_methods([OURS, PEER] if generated else [OURS]):
        built = spec.build(workload, "cpu")
        steps[spec.name] = training_step(built, workload, setting.dtype)
        steps[spec.name]()
        with measured_memory("cpu") as peak:
            steps[spec.name]()
        peaks[spec.name] = peak.bytes
        if spec.name == OURS:
            ours = built
    seconds: dict[str, list[float]] = {method: [] for method in steps}
    for _ in range(ROUNDS):
        for method, step in steps.items():
            began = time.perf_counter()
            step()
            seconds[method].append(time.perf_counter() - began)
    medians = {method: statistics.median(times) for method, times in seconds.items()}
    ours.eval()
    with torch.no_grad():
        ours(workload.genotypes)
        began = time.perf_counter()
        for _ in range(ROUNDS):
            ours(workload.genotypes)
    predicting = (time.perf_counter() - began) / ROUNDS
    return {
        "cell": name,
        "nodes": sum(len(vocabulary) for vocabulary in cell.vocabularies.values()),
        "edges": cell.num_edges,
        "batch": BATCH,
        "seconds_median": {method: round(value, 4) for method, value in medians.items()},
        "peak_bytes": peaks,
        "training_strains_per_second": round(BATCH / medians[OURS], 2),
        "predicted_strains_per_second": round(BATCH / predicting, 2),
    }


def main() -> None:
    """Measure all cells, and write a row at a time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--cells", nargs="+", choices=list(CELLS), default=list(CELLS))
    parser.add_argument("--model", action="append", default=[], metavar="FILE", help="file of a metabolic model, too")
    options = parser.parse_args()
    keep_freed_memory()
    rows: list[dict[str, Any]] = []
    for name, path in [*((name, None) for name in options.cells), *((Path(p).name, p) for p in options.model)]:
        rows.append(measure(name, path))
        print(json.dumps(rows[-1]), flush=True)
        models = [word for path in options.model for word in ("--model", Path(path).name)]
        command = " ".join(["python -m benchmarks.growth OUT --cells", *map(repr, options.cells), *models])
        about = environment(command) | {"threads": torch.get_num_threads(), "processor": processor_name()}
        write_json(options.out, {"environment": about, "rows": rows})


if __name__ == "__main__":
    main()

"""Time strategies side by side: ``python -m benchmarks.side_by_side OUT [--rounds N] SETTING [SETTING …]``.

A setting reads ``gin:B=28:H=64:L=3:D=3:auto,difference,node_mask`` (convolution, strains, width, rounds, deletions,
methods of ``benchmarks.bench``). Its methods take full training steps in turn in one process, so that a machine whose
speed changes is as slow for one as for the other; medians of what one round gave are compared, not rounds that are
minutes apart.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.cells import generated_cell
from benchmarks.methods import choose_methods, training_step
from benchmarks.workload import Setting, random_workload
from dglcell.files.atomic import write_json
from dglcell.graph.cell_graph import CellGraph
from dglcell.machine.devices import measured_memory
from dglcell.machine.memory import keep_freed_memory
from dglcell.machine.processor import processor_name
from dglcell.runs.usage import environment


def measure(cell: CellGraph, text: str, rounds: int) -> dict[str, Any]:
    """Measure one setting's methods in turn."""
    conv, *numbers, methods = text.split(":")
    value = {key: int(number) for key, number in (part.split("=") for part in numbers)}
    setting = Setting(conv, batch=value["B"], hidden=value["H"], layers=value["L"], deletions=value["D"])
    workload = random_workload(cell, setting.model(metabolism=False), value["B"], value["D"], seed=0)
    steps = {}
    for spec in choose_methods(methods.split(",")):
        steps[spec.name] = training_step(spec.build(workload, "cpu"), workload, setting.dtype)
        steps[spec.name]()  # compiles
    peaks = {}
    for name, step in steps.items():
        with measured_memory("cpu") as peak:
            step()
        peaks[name] = peak.bytes
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            seconds[name].append(time.perf_counter() - start)
    return {
        "conv": conv,
        **dict(zip(("batch", "hidden", "layers", "deletions"), value.values(), strict=True)),
        "rounds": rounds,
        "seconds_median": {name: round(statistics.median(s), 4) for name, s in seconds.items()},
        "seconds_best": {name: round(min(s), 4) for name, s in seconds.items()},
        "peak_bytes": peaks,
    }


def main() -> None:
    """Measure all settings, and write a row at a time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("settings", nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    keep_freed_memory()
    cell = generated_cell()
    rows = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    for text in options.settings:
        rows.append(measure(cell, text, options.rounds))
        print(json.dumps(rows[-1]), flush=True)
        about = environment(" ".join(sys.argv)) | {"threads": torch.get_num_threads(), "processor": processor_name()}
        write_json(options.out, {"environment": about, "rows": rows})


if __name__ == "__main__":
    main()

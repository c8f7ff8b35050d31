"""Time training steps side by side: ``python -m benchmarks.bench [--help]``.

All methods have the same cell graph, strains and weights. Before anything is timed, their predictions and all gradients
are compared in float64 on a small graph. Then they take full steps in turn in one process, so that a machine whose
speed changes is as slow for one as for the other; medians are compared.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from benchmarks.cells import generated_cell
from benchmarks.methods import Method, MethodSpec, UnsupportedError, choose_methods, training_step
from benchmarks.workload import Workload, hub_workload, random_workload
from dglcell.errors import MissingDependencyError
from dglcell.files.atomic import write_json
from dglcell.graph.cell import read_cell, save_cell
from dglcell.graph.cell_graph import CellGraph
from dglcell.machine import (
    PROCESS,
    check_device,
    is_out_of_memory,
    keep_freed_memory,
    kilobytes,
    processor_name,
    resident_peak,
)
from dglcell.models.config import HeteroCellConfig
from dglcell.runs import environment

DEFAULT = ("pyg_spmm", "auto", "difference", "node_mask")
"""The first one is what the others are compared with."""

TOLERANCE = 1e-10
FLOOR = 0.1
"""Gradients below this share of the largest one are compared with it instead of with themselves. Those of the
pooling's gate are differences of large sums that nearly cancel, and are zero but for rounding where a bias is one that
all strains and the wild type share."""

SMALL_SCALE = 0.02

FEWER_FROM = 16
"""Larger batches take fewer rounds, in inverse proportion."""


def outcome(method: Method, workload: Workload) -> dict[str, Tensor]:
    """Return predictions, and gradients by parameter name, with a part in every weight that no start has."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in (each for each in method.weights.parameters() if each.requires_grad):
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(0.1 * noise.to(parameter.device))
    predictions = method(workload.genotypes)
    torch.nn.functional.mse_loss(predictions, workload.targets).backward()
    gradients = {n: p.grad for n, p in method.weights.named_parameters() if p.grad is not None}
    return {"predictions": predictions.detach(), **gradients}


def largest_difference(expected: dict[str, Tensor], found: dict[str, Tensor]) -> tuple[float, str]:
    """Return the largest relative difference, and of what it is."""
    if set(expected) != set(found):
        return float("inf"), f"which parameters have a gradient: {set(expected) ^ set(found)}"
    largest = max(float(g.abs().max()) for name, g in expected.items() if name != "predictions")
    worst = (0.0, "")
    for name, value in expected.items():
        scale = float(value.abs().max())
        scale = scale if name == "predictions" else max(scale, FLOOR * largest)
        worst = max(worst, (float((found[name] - value).abs().max()) / scale, name))
    return worst


def check(workload: Workload, specs: Sequence[MethodSpec], device: str) -> float:
    """Compare every method with the first one in float64; methods that do not run here are left out.

    Returns:
        The largest relative difference.

    Raises:
        RuntimeError: this difference is above ``TOLERANCE``.
    """
    workload, worst = workload.double().to(device), 0.0
    reference: tuple[str, dict[str, Tensor]] | None = None
    for spec in specs:
        if not spec.same_predictions:
            continue
        try:
            found = outcome(spec.build(workload, device).double(), workload)
        except (MissingDependencyError, UnsupportedError):
            continue
        reference = reference or (spec.name, found)
        difference, what = largest_difference(reference[1], found)
        if not difference <= TOLERANCE:
            raise RuntimeError(f"{spec.name} and {reference[0]} disagree by {difference:.1e} in {what}")
        worst = max(worst, difference)
    return worst


def measure(cell: CellGraph, specs: Sequence[MethodSpec], options: argparse.Namespace, batch: int) -> dict[str, Any]:
    """Return medians of the methods' steps, and the peak of memory of each."""
    seconds, peaks, left_out = (alone if options.alone else in_turn)(cell, specs, options, batch)
    medians = {name: statistics.median(of) for name, of in seconds.items()}
    first = next(iter(medians.values()), float("nan"))
    return {
        **{"batch": batch, "conv": options.conv, "hidden": options.hidden, "layers": options.layers},
        "deletions": options.deletions,
        "methods": {
            name: {
                "seconds": round(median, 5),
                "least": round(min(seconds[name]), 5),
                "times_as_fast": round(first / median, 3),
                "strains_per_second": round(batch / median, 2),
                "peak_bytes": peaks[name],
            }
            for name, median in medians.items()
        },
        "left_out": left_out,
    }


@contextmanager
def measured_memory(device: str) -> Iterator[SimpleNamespace]:
    """Measure the rise of memory inside the context in ``bytes``: of the resident set, or of the GPU's allocations."""
    gc.collect()
    peak = SimpleNamespace(bytes=0)
    if torch.device(device).type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        yield peak
        peak.bytes = torch.cuda.max_memory_allocated(device) - before
    else:
        if sys.platform.startswith("linux"):
            ctypes.CDLL(None).malloc_trim(0)  # freed memory is kept, and would count as there before
        with suppress(OSError):  # else the mark of the whole life of the process counts
            (PROCESS / "clear_refs").write_text("5", encoding="utf-8")
        before = kilobytes(PROCESS / "status", "VmRSS") or 0
        yield peak
        peak.bytes = max(0, resident_peak() - before)


Measured = tuple[dict[str, list[float]], dict[str, int], dict[str, str]]
"""Seconds of steps and peaks of bytes by method, and why other methods were left out."""


def in_turn(cell: CellGraph, specs: Sequence[MethodSpec], options: argparse.Namespace, batch: int) -> Measured:
    """Let the methods take steps in turn in this process."""
    given = {"hidden": options.hidden, "layers": options.layers, "conv": options.conv}
    config = HeteroCellConfig(**given, metabolism=False, dropout=0.0)
    workload, few = (random_workload(cell, config, of, options.deletions, seed=0) for of in (batch, 2))
    workload, few = workload.to(options.device), few.to(options.device)
    steps, seconds, peaks, left_out = {}, dict[str, list[float]](), {}, {}
    for spec in specs:
        try:
            if options.of_parent:
                training_step(spec.build(few, options.device), few, "float32")()  # compiles
            with measured_memory(options.device) as peak:
                step = training_step(spec.build(workload, options.device), workload, "float32")
                first = timed(step, options)
            if not options.of_parent:
                with measured_memory(options.device) as peak:
                    step()
        except (MissingDependencyError, UnsupportedError) as error:
            left_out[spec.name] = str(error)
            continue
        steps[spec.name], peaks[spec.name] = step, peak.bytes
        seconds[spec.name] = [first] if options.of_parent else []
    for _ in range(options.rounds):
        for name, step in steps.items():
            seconds[name].append(timed(step, options))
    return seconds, peaks, left_out


def alone(cell: CellGraph, specs: Sequence[MethodSpec], options: argparse.Namespace, batch: int) -> Measured:
    """Let each method take steps in a process of its own, whose peak has all that it keeps between steps."""
    seconds, peaks, left_out = dict[str, list[float]](), {}, {}
    rounds, limit = max(1, round(options.rounds * min(1, FEWER_FROM / batch))), int(options.alone * 1e9)
    keys = ("hidden", "layers", "deletions", "conv", "device")
    words = [word for key in keys for word in (f"--{key}", getattr(options, key))]
    words += ["--batch", batch, "--rounds", rounds - 1, *(["--cpu-seconds"] if options.cpu_seconds else [])]
    with tempfile.TemporaryDirectory() as folder:
        saved, file = Path(folder) / "cell", Path(folder) / "found.json"
        save_cell(cell, saved)
        for spec in specs:
            own = ["--of-parent", saved, "--output", file, "--methods", spec.name]
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.bench", *map(str, [*words, *own])],
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)),
                capture_output=True,
                text=True,
            )
            row = json.loads(file.read_text())["rows"][0] if done.returncode == 0 else {"methods": {}, "left_out": {}}
            if spec.name in row["methods"]:
                of = row["methods"][spec.name]
                seconds[spec.name], peaks[spec.name] = [of["seconds"]], of["peak_bytes"]
            elif done.returncode < 0 or is_out_of_memory(RuntimeError(done.stderr)):
                left_out[spec.name] = f"needs more than {options.alone:g} GB"
            else:
                left_out[spec.name] = row["left_out"].get(spec.name) or done.stderr.strip().splitlines()[-1]
            print(spec.name, seconds.get(spec.name), left_out.get(spec.name, ""), file=sys.stderr, flush=True)
    return seconds, peaks, left_out


def timed(step: Any, options: argparse.Namespace) -> float:
    """Return the seconds of one step, on the clock or of the processor."""
    clock = time.process_time if options.cpu_seconds else time.perf_counter
    if options.device != "cpu":
        torch.cuda.synchronize()
    start = clock()
    step()
    if options.device != "cpu":
        torch.cuda.synchronize()
    return clock() - start


def as_text(row: dict[str, Any]) -> str:
    """Return one setting as lines."""
    title = f"{row['conv']}  B = {row['batch']}  H = {row['hidden']}  L = {row['layers']}  {row['deletions']} deleted"
    lines = [
        f"  {name:28}{1e3 * of['seconds']:10.1f} ms  {of['times_as_fast']:6.2f} ×  {of['peak_bytes'] / 1e6:8.0f} MB"
        for name, of in row["methods"].items()
    ]
    lines += [f"  {name:28}left out: {why}" for name, why in row["left_out"].items()]
    return "\n".join([title, *lines])


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--methods", nargs="+", default=DEFAULT, metavar="NAME", help="or `all`; a wrong name lists all"
    )
    parser.add_argument("--batch", nargs="+", type=int, default=[8, 28], metavar="B", help="strains (default: 8 28)")
    parser.add_argument("--hidden", type=int, default=64, metavar="H", help="width (default: 64)")
    parser.add_argument("--layers", type=int, default=3, metavar="L", help="rounds of messages (default: 3)")
    parser.add_argument("--deletions", type=int, default=3, metavar="D", help="genes of a strain (default: 3)")
    parser.add_argument("--conv", choices=("gin", "sage"), default="gin", help="(default: gin)")
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of genes (default: 1)")
    parser.add_argument("--rounds", type=int, default=5, help="steps of each method (default: 5)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: cpu)")
    parser.add_argument("--alone", type=float, metavar="GB", help="a process for each method, which may use so much")
    parser.add_argument("--cpu-seconds", action="store_true", help="seconds of the processor, where others use it, too")
    parser.add_argument("--of-parent", type=Path, metavar="CELL", help="how `--alone` starts such a process")
    parser.add_argument("--output", type=Path, metavar="JSON", help="write all figures here, row by row")
    return parser


def main(words: Sequence[str] | None = None) -> None:
    """Run the command."""
    options = make_parser().parse_args(words)
    check_device(options.device)
    keep_freed_memory()
    specs = choose_methods(options.methods)
    agreement = None
    if options.of_parent is None:
        agreement = check(hub_workload(generated_cell(scale=SMALL_SCALE), options.conv), specs, options.device)
        print(f"predictions and gradients agree within {agreement:.1e} in float64", flush=True)
    cell = generated_cell(scale=options.scale) if options.of_parent is None else read_cell(options.of_parent)
    about = {"processor": processor_name(), "threads": torch.get_num_threads(), "largest_difference": agreement}
    about |= {"genes": len(cell.genes), "edges": cell.num_edges, **environment("python -m benchmarks.bench")}
    rows = []
    for batch in options.batch:
        rows.append(measure(cell, specs, options, batch))
        print(as_text(rows[-1]), flush=True)
        if options.output is not None:
            write_json(options.output, {"environment": about, "rows": rows})


if __name__ == "__main__":
    main(sys.argv[1:])

"""Measure everything that is to be known of a GPU: ``python -m benchmarks.gpu_report OUT``.

The tests for a GPU, its ceilings, every kernel on every relation (error, time, share of a ceiling), and training steps
beside PyTorch Geometric's and all-dense ones, in float32 and bfloat16. ``OUT/report.json`` has all of it, with device
and versions, and ``OUT/report.md`` the tables. ``--device cpu --small`` goes the same way over a tiny cell graph.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.bench import bench, positive_float
from benchmarks.timing import GEMM_SIZE, Ceilings, clock, describe_machine
from benchmarks.timing import conditions as conditions_of
from benchmarks.workload import BenchOptions, random_subject
from dglcell.cli import run
from dglcell.cli.arguments import positive
from dglcell.files.atomic import write_json
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.resident import ResidentCell, ResidentRelation
from dglcell.kernels.spmm import KERNELS, runs_on, spmm
from dglcell.machine.devices import check_device, measured_memory, release
from dglcell.machine.memory import is_out_of_memory

log = logging.getLogger("dglcell")

METHODS = (
    "pyg_replicated",
    "pyg_spmm",
    "node_mask:dense",
    "node_mask",
    "node_mask_compiled",
    "node_mask_compiled_bfloat16",
    "auto",
    "dango",
)
DTYPES = ("float32", "bfloat16")
ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Scope:
    """A scope says how much is measured.

    Attributes:
        device: ``cuda``, or ``cpu``.
        tests: paths that pytest runs.
        scale: factor on the number of genes.
        batches: B.
        hidden: H.
        layers: L.
        seconds: time budget for each figure.
    """

    device: str
    tests: str = "tests/gpu"
    scale: float = 1.0
    batches: tuple[int, ...] = (8, 28, 64, 256)
    hidden: int = 64
    layers: int = 3
    seconds: float = 0.5

    @classmethod
    def small(cls, device: str) -> Scope:
        """Return a scope that takes about a minute, to see that every part works."""
        return cls(device, "tests/gpu/test_devices.py", 0.01, (2,), 8, 1, 0.01)

    def options(self, command: str, **more: Any) -> BenchOptions:
        """Return the options of ``benchmarks.bench`` for this scope."""
        return BenchOptions(
            command,
            scale=self.scale,
            batch=self.batches,
            hidden=(self.hidden,),
            layers=(self.layers,),
            device=self.device,
            seconds_per_row=self.seconds,
            in_process=True,
            **more,
        )


# These functions measure the parts of the report.


def run_tests(paths: str) -> dict[str, Any]:
    """Run the tests for a GPU and return what pytest reports."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    workers = ["-n", str(min(8, os.cpu_count() or 1))] if find_spec("xdist") else []
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *workers, paths]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    counts = {kind: int(number) for number, kind in re.findall(r"(\d+) (passed|failed|skipped|errors?)", lines[-1])}
    return {
        "paths": paths,
        "status": done.returncode,
        **counts,
        "failures": [x for x in lines if x.startswith("FAILED")],
    }


def gather_rate(device: str, budget: float) -> float:
    """Measure the bytes per second read row by row out of the second cache: 4,096 rows of 8 KB, in random order."""
    table = torch.ones(4096, 2048, dtype=torch.float32, device=device)
    index = torch.randint(0, len(table), (len(table),), device=device)
    target = torch.empty_like(table)
    seconds = min(clock(lambda: torch.index_select(table, 0, index, out=target), budget, device).seconds)
    return 2 * table.nbytes / seconds


def product_rows(
    cell: ResidentCell, columns: int, dtype: str, scope: Scope, ceilings: Ceilings
) -> Iterator[dict[str, Any]]:
    """Measure every kernel that runs here on every relation: error, time, and share of the ceiling that binds it."""
    for relation in cell.relations:
        for kernel in (name for name in KERNELS if runs_on(name, torch.device(scope.device).type)):
            row = {"relation": relation[1], "edges": cell[relation].num_edges, "kernel": kernel, "dtype": dtype}
            try:
                yield row | _measure_product(cell[relation], kernel, columns, dtype, scope, ceilings)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                yield row | {"status": "out_of_memory"}
            finally:
                release(scope.device)


def _measure_product(
    edges: ResidentRelation, kernel: str, columns: int, dtype: str, scope: Scope, ceilings: Ceilings
) -> dict[str, Any]:
    kind = getattr(torch, dtype)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(edges.num_src, columns, generator=generator).to(scope.device, kind)
    few = x[:, : min(columns, 64)].contiguous()
    expected = spmm(edges, few.double(), kernel="reference")
    error = float((spmm(edges, few, kernel=kernel) - expected).abs().max() / expected.abs().max().clamp(min=1e-300))

    def both() -> Tensor:
        leaf = x.detach().requires_grad_()
        y = spmm(edges, leaf, kernel=kernel)
        return torch.autograd.grad(y, leaf, torch.ones_like(y))[0]

    with measured_memory(scope.device) as peak:
        forward = min(clock(lambda: spmm(edges, x, kernel=kernel), scope.seconds, scope.device).seconds)
        backward = min(clock(both, scope.seconds, scope.device).seconds)
    rate, of = edges.num_edges * columns * x.element_size() / forward, ceilings.copy_bytes_per_second
    if kernel == "dense":
        rate, of = 2 * edges.num_src * edges.num_dst * columns / forward, ceilings.gemm_flops_per_second
    return {
        "status": "ok",
        "relative_error": error,
        "forward_seconds": forward,
        "forward_backward_seconds": backward,
        "rate": rate,
        "share_of_ceiling": rate / of,
        "peak_memory_bytes": peak.bytes,
    }


def padded_products(size: int, columns: int, scope: Scope) -> dict[str, float]:
    """Time a dense bfloat16 product with an odd leading dimension, and with one that is padded to 64, in seconds."""
    found = {}
    for n in (size, -(-size // 64) * 64):
        matrix = torch.ones(n, n, dtype=torch.bfloat16, device=scope.device)
        x = torch.ones(n, columns, dtype=torch.bfloat16, device=scope.device)
        found[str(n)] = min(clock(lambda a=matrix, b=x: a @ b, scope.seconds, scope.device).seconds)  # type: ignore[misc]
    return found


def step_rows(scope: Scope, command: str, folder: Path) -> list[dict[str, Any]]:
    """Time training steps of all methods and batches, in both precisions."""
    rows: list[dict[str, Any]] = []
    for dtype in DTYPES:
        path = folder / f"steps-{dtype}.json"
        bench(scope.options(command, methods=METHODS, dtype=dtype, output=path))
        rows += json.loads(path.read_text())["rows"]
    return rows


# These functions write all parts as JSON and as tables.


def report(scope: Scope, folder: Path, command: str) -> dict[str, Any]:
    """Measure all parts; ``report.json`` is written after every part, so that nothing measured is lost.

    Raises:
        MissingDependencyError: this machine has no such device.
    """
    check_device(scope.device)
    folder.mkdir(parents=True, exist_ok=True)
    content: dict[str, Any] = {"tests": run_tests(scope.tests)}
    options = scope.options(command)
    given, subject = conditions_of(options), random_subject(options)
    content["environment"] = describe_machine(command, subject.cell, subject.title, given)
    wide = conditions_of(dataclasses.replace(options, dtype="bfloat16")).ceilings
    content["ceilings"] = {
        "float32": dataclasses.asdict(given.ceilings),
        "bfloat16": dataclasses.asdict(wide),
        "gathered_bytes_per_second": gather_rate(scope.device, scope.seconds),
        "gemm_size": GEMM_SIZE[torch.device(scope.device).type],
    }
    columns = 28 * scope.hidden
    content["padded_products"] = padded_products(len(subject.cell.genes), columns, scope)
    write_json(folder / "report.json", content)
    content["products"] = _products(subject.cell, columns, scope, {"float32": given.ceilings, "bfloat16": wide})
    write_json(folder / "report.json", content)
    content["steps"] = step_rows(scope, command, folder)
    write_json(folder / "report.json", content)
    (folder / "report.md").write_text(as_markdown(content), encoding="utf-8")
    return content


def _products(cell: CellGraph, columns: int, scope: Scope, ceilings: Mapping[str, Ceilings]) -> list[dict[str, Any]]:
    resident = ResidentCell.of(cell).to(scope.device)
    rows = []
    for dtype in DTYPES:
        for row in product_rows(resident, columns, dtype, scope, ceilings[dtype]):
            log.info("  %s", row)
            rows.append(row)
    return rows


def as_markdown(content: Mapping[str, Any]) -> str:
    """Format the tables in Markdown."""
    about, tests, ceilings = content["environment"], content["tests"], content["ceilings"]
    lines = [
        f"# {about['device']}",
        "",
        f"{about['cell']}; torch {about['packages']['torch']}; `{about['command']}`.",
        "",
        f"Tests ({tests['paths']}): {tests.get('passed', 0)} passed, {tests.get('failed', 0)} failed, "
        f"{tests.get('skipped', 0)} skipped.",
        "",
        f"A copy moves {ceilings['float32']['copy_bytes_per_second'] / 1e12:.3g} TB/s, rows are gathered from cache "
        f"at {ceilings['gathered_bytes_per_second'] / 1e12:.3g} TB/s, and matrix products reach "
        f"{ceilings['float32']['gemm_flops_per_second'] / 1e12:.3g} TFLOP/s in float32 and "
        f"{ceilings['bfloat16']['gemm_flops_per_second'] / 1e12:.3g} in bfloat16. A dense bfloat16 product takes "
        + ", ".join(f"{1e3 * seconds:.3g} ms at {size}" for size, seconds in content["padded_products"].items())
        + " rows and columns.",
        "",
        *_table(
            "Products",
            ("relation", "kernel", "dtype", "error", "ms", "and back ms", "of ceiling", "peak MB"),
            [_product_cells(row) for row in content["products"]],
        ),
        *_table(
            "Training steps",
            ("method", "dtype", "B", "ms", "strains/s", "x PyG replicated", "peak MB"),
            [_step_cells(row) for row in content["steps"]],
        ),
    ]
    return "\n".join(lines)


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"## {title}", "", *(f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows)), ""]


def _product_cells(row: Mapping[str, Any]) -> list[str]:
    names = [row["relation"], row["kernel"], row["dtype"]]
    if row["status"] != "ok":
        return [*names, row["status"], "", "", "", ""]
    return [
        *names,
        f"{row['relative_error']:.1e}",
        f"{1e3 * row['forward_seconds']:.3g}",
        f"{1e3 * row['forward_backward_seconds']:.3g}",
        f"{row['share_of_ceiling']:.0%}",
        f"{row['peak_memory_bytes'] / 1e6:,.0f}",
    ]


def _step_cells(row: Mapping[str, Any]) -> list[str]:
    names = [row["method"], row["dtype"], str(row["batch"])]
    if row["status"] != "ok":
        return [*names, row["status"], "", "", ""]
    ratio = row["ratio_to_pyg_replicated"]
    return [
        *names,
        f"{1e3 * row['seconds_per_step']:,.3g}",
        f"{row['samples_per_second']:,.0f}",
        "" if ratio is None else f"{ratio:,.1f}",
        f"{row['peak_memory_bytes'] / 1e6:,.0f}",
    ]


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of the report's options."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu_report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("out", type=Path, metavar="OUT", help="folder of report.json and report.md")
    parser.add_argument("--device", default="cuda", help="cuda or cpu (default: cuda)")
    parser.add_argument("--small", action="store_true", help="a tiny cell graph, to see that every part works")
    parser.add_argument("--tests", metavar="PATH", help="what pytest runs (default: tests/gpu)")
    parser.add_argument("--batch", nargs="+", type=positive, metavar="B", help="of strains (default: 8 28 64 256)")
    parser.add_argument("--seconds", type=positive_float, metavar="S", help="budget of each figure (default: 0.5)")
    parser.set_defaults(run=_command)
    return parser


def _command(options: argparse.Namespace) -> None:
    scope = Scope.small(options.device) if options.small else Scope(options.device)
    given = {"batches": options.batch and tuple(options.batch), "seconds": options.seconds, "tests": options.tests}
    scope = dataclasses.replace(scope, **{key: value for key, value in given.items() if value})
    report(scope, options.out, options.command)
    print(f"written to {options.out / 'report.json'} and {options.out / 'report.md'}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``python -m benchmarks.gpu_report``."""
    return run(make_parser(), arguments)


if __name__ == "__main__":
    sys.exit(main())

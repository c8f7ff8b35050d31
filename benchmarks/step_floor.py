"""Where a training step goes, and how fast it could be at most: ``python benchmarks/step_floor.py OUT``.

The headline's setting (generated cell graph of yeast size, 16 strains of three deletions, GIN, H = 64, L = 3). In turn
in one process: the step; the updates of as many rows as the step computes, by the compiled code that it uses, forward
and backward, on rows that lie in memory as they are; the matrix products of these updates alone, of blocks that stay in
the cache; the sparse products of all relations and rounds for all strains. The sum of the matrix products is a bound
for any way to compute the rows in which a strain differs from the wild type, as long as each of them is computed.
Ratios are to the replicated graph in results/training-step-cpu.json, of another run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from dglcell.files import write_json
from dglcell.graph.schema import GENE
from dglcell.kernels.spmm import spmm
from dglcell.memory import keep_freed_memory
from dglcell.models.hetero_cell import HeteroCell
from dglcell.perturbation import state_sums
from dglcell.perturbation.row_blocks import Shape
from dglcell.perturbation.row_wise import Rows, RowWise, Term, sum_terms
from dglcell.profiling.bench.generate import generated_cell
from dglcell.profiling.bench.machine import processor_name
from dglcell.profiling.bench.methods import choose_methods
from dglcell.profiling.bench.methods.method import training_step
from dglcell.profiling.bench.setting import Setting
from dglcell.profiling.bench.workload import random_workload
from dglcell.training.environment import environment

SETTING = Setting("gin", batch=16, hidden=64, layers=3, deletions=3)
BEFORE = Path(__file__).parent / "results" / "training-step-cpu.json"
BLOCK, ROWS = 512, 100_000
PRODUCTS = 8
"""Matrix products of H × H per row and update: two Linear layers, forward, once more, and twice backward."""


def seconds(work: Callable[[], object]) -> float:
    """Of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


class RowCount:
    """How many rows of updates a step computes."""

    def __init__(self) -> None:
        self.rows, self.compute = 0, state_sums.sum_by_strain

    def sum_terms(self, terms: list[Term], shape: Shape, kept: object = None) -> Tensor:
        """Count, and compute."""
        for term in terms:
            pairs = shape.pairs if term.place is None else len(term.place)
            self.rows += (shape.base + pairs) * (term.update is not None)
        return sum_terms(terms, shape)

    def sum_by_strain(self, terms: list[state_sums.StrainTerm], tables: list[Tensor]) -> Tensor:
        """Count, and compute."""
        out = self.compute(terms, tables)
        self.rows += out.shape[0] * out.shape[1] * sum(term.update is not None for term in terms)
        return out

    def of(self, step: Callable[[], object]) -> int:
        """Rows of one step."""
        kept = state_sums.sum_terms
        state_sums.sum_terms, state_sums.sum_by_strain = self.sum_terms, self.sum_by_strain
        try:
            step()
        finally:
            state_sums.sum_terms, state_sums.sum_by_strain = kept, self.compute
        return self.rows


def updates(update: RowWise, x: Tensor, received: Tensor, grad: Tensor) -> None:
    """``ROWS`` rows forward and backward."""
    sum_terms([Term(update, [Rows(x), Rows(received)])], Shape(0, ROWS)).backward(grad)


def matrix_products() -> None:
    """Those of ``ROWS`` rows, one block after the other, on one thread."""
    x, w = torch.randn(BLOCK, SETTING.hidden), torch.randn(SETTING.hidden, SETTING.hidden)
    out, of_w = torch.empty_like(x), torch.empty_like(w)
    for _ in range(ROWS // BLOCK):
        for _ in range(PRODUCTS * 3 // 4):
            torch.mm(x, w, out=out)
        for _ in range(PRODUCTS // 4):
            torch.mm(x.T, out, out=of_w)


def sparse_products(model: HeteroCell) -> None:
    """Of all relations for all strains, forward and backward, as often as there are rounds."""
    columns = (SETTING.batch + 1) * SETTING.hidden
    x = torch.randn(model.cell.num_nodes[GENE], columns, requires_grad=True)
    for relation in SETTING.layers * list(model.cell.relations):
        y = spmm(model.cell[relation], x)
        y.backward(torch.ones_like(y))


def main() -> None:
    """Measure in turn, write OUT and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT", help="JSON")
    parser.add_argument("--rounds", type=int, default=7, help="how often each is measured (7); medians count")
    options = parser.parse_args()
    keep_freed_memory()
    cell = generated_cell()
    workload = random_workload(cell, SETTING.model(metabolism=False), SETTING.batch, 3, seed=0)
    methods = choose_methods(["difference", "node_mask"])
    steps = {m.strategy: training_step(m.build(workload, "cpu"), workload, SETTING.dtype) for m in methods}
    built = methods[0].build(workload, "cpu")
    model = next(m for m in built.modules() if isinstance(m, HeteroCell))
    update = model.encoder.layers[0].convs[0].row_wise()
    for step in steps.values():
        step()
    rows = {name: RowCount().of(step) for name, step in steps.items()}
    threads, width = torch.get_num_threads(), SETTING.hidden
    x, received, grad = (torch.randn(ROWS, width, requires_grad=leaf) for leaf in (True, True, False))

    def on_one_thread() -> None:
        torch.set_num_threads(1)
        matrix_products()
        torch.set_num_threads(threads)

    works = {
        **steps,
        "updates": lambda: updates(update, x, received, grad),
        "sparse": lambda: sparse_products(model),
        "gemm": on_one_thread,
    }
    for work in works.values():
        work()
    rounds = [[seconds(work) for work in works.values()] for _ in range(options.rounds)]
    median = dict(zip(works, map(statistics.median, zip(*rounds, strict=True)), strict=True))
    about = environment("python benchmarks/step_floor.py OUT")
    write_json(options.out, {"environment": about, **summary(median, rows, threads)})
    print(options.out.read_text())


def summary(median: dict[str, float], rows: dict[str, int], threads: int) -> dict[str, object]:
    """Seconds of each part at the number of rows of the step with `difference`."""
    before = json.loads(BEFORE.read_text())["rows"]
    same = [r for r in before if (r["conv"], r["batch"], r["hidden"], r["layers"]) == ("gin", 16, 64, 3)]
    pyg = next(r["seconds_per_step"] for r in same if r["method"] == "pyg_replicated")
    share = rows["difference"] / ROWS
    gemm = median["gemm"] * share / threads
    return {
        "processor": processor_name(),
        "threads": threads,
        "rows_of_updates": rows,
        "step_seconds": {name: median[name] for name in rows},
        "updates_seconds": median["updates"] * share,
        "matrix_products_seconds": gemm,
        "sparse_products_of_all_rows_seconds": median["sparse"],
        "nanoseconds_per_row_and_thread": {
            "update": median["updates"] * threads / ROWS * 1e9,
            "matrix_products": median["gemm"] / ROWS * 1e9,
        },
        "pyg_replicated_seconds": pyg,
        "ratio_to_pyg_replicated": {name: pyg / median[name] for name in rows},
        "ratio_if_all_but_updates_were_free": pyg / (median["updates"] * share),
        "ratio_if_all_but_matrix_products_were_free": pyg / gemm,
    }


if __name__ == "__main__":
    main()

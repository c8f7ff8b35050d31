"""Time one sparse product over every network, with B strains side by side, by every kernel."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from benchmarks.results_file import OK, OUT_OF_MEMORY, RUNNING
from benchmarks.timing import Conditions, DiedError, clock
from dglcell.errors import MissingDependencyError
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.resident import ResidentCell
from dglcell.kernels.spmm import check_kernel, kernels_on, spmm
from dglcell.machine.devices import measured_memory, release
from dglcell.machine.memory import is_out_of_memory

TOLERANCE = 1e-10
CHECKED_COLUMNS = 3

log = logging.getLogger("dglcell")


@dataclass
class ProductRow:
    """A row is one kernel on all relations, one after the other.

    Attributes:
        columns: C = B · H.
        edges: number of edges of all relations.
        gathered_bytes: what the product reads from ``x`` if nothing stays in cache: E · C elements.
        gathered_bytes_per_second: gathered bytes per second of the forward pass.
        share_of_copy_bandwidth: this rate relative to the copy rate of `Ceilings`; above 1 where rows stay in cache.
    """

    kernel: str
    weighted: bool
    device: str
    dtype: str
    batch: int
    hidden: int
    columns: int
    edges: int
    gathered_bytes: int
    forward_seconds: float | None = None
    forward_backward_seconds: float | None = None
    gathered_bytes_per_second: float | None = None
    share_of_copy_bandwidth: float | None = None
    peak_memory_bytes: int | None = None
    status: str = RUNNING


def product_rows(cell: CellGraph, shapes: Sequence[tuple[int, int]], given: Conditions) -> Iterator[ProductRow]:
    """Check that kernels agree, then time each; the largest shapes first, as for steps.

    Args:
        cell: cell graph, with all of whose relations is multiplied.
        shapes: pairs (B, H).
        given: device, precision, budget (half of it for each direction) and limits.

    Raises:
        RuntimeError: a kernel differs from the reference.
    """
    cells = {weighted: _resident(cell, weighted).to(given.device) for weighted in (False, True)}
    given.isolation(lambda: check_products(cells))
    size = torch.finfo(getattr(torch, given.dtype)).bits // 8
    edges = cell.num_edges
    shapes = sorted(set(shapes), key=lambda shape: -shape[0] * shape[1])
    for (batch, hidden), weighted, kernel in itertools.product(shapes, cells, ("auto", *kernels_on(given.device))):
        columns = batch * hidden
        gathered = edges * columns * size
        row = ProductRow(kernel, weighted, given.device, given.dtype, batch, hidden, columns, edges, gathered)
        try:
            row = given.isolation(partial(_measure, row, cells[weighted], given))
        except DiedError as error:
            row.status = OUT_OF_MEMORY if error.killed else f"crashed: {error}"
        log.info("  %s", format_product(row))
        yield row


def _resident(cell: CellGraph, weighted: bool) -> ResidentCell:
    """Return a cell whose relations have random weights, or none."""
    generator, edges = torch.Generator().manual_seed(0), {}
    for relation in cell.relations:
        ends = cell.edges(relation)
        weight = torch.rand(len(ends), generator=generator) if weighted else None
        edges[relation] = torch.from_numpy(ends.src), torch.from_numpy(ends.dst), weight
    return ResidentCell(cell.num_nodes, edges)


def check_products(cells: Mapping[bool, ResidentCell]) -> None:
    """Compare all kernels with the reference, with and without weights.

    Raises:
        RuntimeError: a kernel differs.
    """
    for weighted, cell in cells.items():
        for kernel in kernels_on(next(cell.buffers()).device.type):
            check_product(cell, kernel, weighted)


def check_product(cell: ResidentCell, kernel: str, weighted: bool) -> None:
    """Compare a kernel with the reference in float64, forward and backward; one that does not run here passes.

    Raises:
        RuntimeError: they differ; the message names the relation.
    """
    device = next(cell.buffers()).device.type
    try:
        check_kernel(kernel, device)
    except MissingDependencyError:
        return
    for relation in cell.relations:
        edges = cell[relation]
        results = []
        for name in ("reference", kernel):
            generator = torch.Generator().manual_seed(0)
            x, grad = (
                torch.randn(n, CHECKED_COLUMNS, generator=generator, dtype=torch.float64).to(device)
                for n in (edges.num_src, edges.num_dst)
            )
            x.requires_grad_()
            y = spmm(edges, x, weighted=weighted, kernel=name)
            y.backward(grad)
            assert x.grad is not None
            results.append(torch.cat([y.detach(), x.grad]))
        difference = float((results[1] - results[0]).abs().max() / results[0].abs().max().clamp(min=1e-300))
        if not difference <= TOLERANCE:
            raise RuntimeError(f"kernel '{kernel}' differs from the reference by {difference:.1e} on {relation}")


def _measure(row: ProductRow, cell: ResidentCell, given: Conditions) -> ProductRow:
    """Return the row filled in."""
    budget = given.seconds_per_row / 2
    try:
        check_kernel(row.kernel, row.device)
        with measured_memory(row.device) as peak, given.limit.on(row.device):
            forward, both = _passes(row, cell)
            row.forward_seconds = clock(forward, budget, row.device).median
            row.forward_backward_seconds = clock(both, budget, row.device).median
    except MissingDependencyError as error:
        row.status = f"missing: {str(error).splitlines()[0]}"
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        row.status = OUT_OF_MEMORY
    else:
        row.status, row.peak_memory_bytes = OK, peak.bytes
        row.gathered_bytes_per_second = row.gathered_bytes / row.forward_seconds
        row.share_of_copy_bandwidth = row.gathered_bytes_per_second / given.ceilings.copy_bytes_per_second
    finally:
        release(row.device)
    return row


def _passes(row: ProductRow, cell: ResidentCell) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return forward, and forward with backward, over all relations; nothing is kept between relations."""
    dtype = getattr(torch, row.dtype)
    states = {t: torch.randn(n, row.columns, device=row.device).to(dtype) for t, n in cell.num_nodes.items()}
    grads = {t: torch.ones_like(x) for t, x in states.items()}

    def product(source: Tensor, relation: tuple[str, str, str]) -> Tensor:
        return spmm(cell[relation], source, weighted=row.weighted, kernel=row.kernel)

    def forward() -> None:
        for relation in cell.relations:
            product(states[relation[0]], relation)

    def both() -> None:
        for relation in cell.relations:
            source = states[relation[0]].detach().requires_grad_()
            product(source, relation).backward(grads[relation[2]])

    return forward, both


def format_products(rows: Sequence[ProductRow]) -> str:
    """Format a table in the order in which rows came, with a line per shape."""
    lines: list[str] = []
    title = ""
    for row in rows:
        head = (
            f"B = {row.batch}  H = {row.hidden}  {'weighted' if row.weighted else 'unweighted'}  "
            f"{row.dtype} on {row.device}  {row.edges:,} edges"
        )
        if head != title:
            lines += ([""] if lines else []) + [head, _PRODUCT_HEADER]
            title = head
        lines.append(format_product(row))
    return "\n".join(lines)


_PRODUCT_HEADER = f"{'kernel':<12} {'forward ms':>11} {'and back ms':>12} {'GB/s':>8} {'of copy':>8} {'peak MB':>9}"


def format_product(row: ProductRow) -> str:
    """Format a row as one line."""
    if row.status != OK or row.forward_seconds is None or row.forward_backward_seconds is None:
        return f"{row.kernel:<12} {row.status}"
    memory = "-" if row.peak_memory_bytes is None else f"{row.peak_memory_bytes / 1e6:,.0f}"
    return (
        f"{row.kernel:<12} {row.forward_seconds * 1e3:>11,.1f} {row.forward_backward_seconds * 1e3:>12,.1f} "
        f"{(row.gathered_bytes_per_second or 0.0) / 1e9:>8,.1f} {row.share_of_copy_bandwidth or 0.0:>8.0%} {memory:>9}"
    )

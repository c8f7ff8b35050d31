"""Products over single rows: sums over the edges of chosen (node, strain) pairs only.

Compiled with numba on a CPU, plain torch elsewhere. Nothing here is differentiable by itself: callers state their
own gradients, which are such products over the reversed edges.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dglcell.graph.resident import ResidentRelation
from dglcell.kernels.threads import run_tasks

if TYPE_CHECKING:
    from dglcell.kernels.rows_numba import Kernels

EDGES_AT_ONCE = 1 << 20
"""Edges that the plain version expands at a time."""

COMPILED_DEVICES = ("cpu",)
"""Where compiled code runs; plain torch elsewhere."""

TASKS = 16
"""Into how many tasks a product is cut; enough to balance a few threads."""

ROWS_WORTH_THREADS = 4096


@dataclass(frozen=True)
class Pairs:
    """K (node, strain) pairs, strain by strain.

    Attributes:
        nodes: [K] int64.
        strains: [K] int64, ascending.
    """

    nodes: Tensor
    strains: Tensor


def pull(
    relation: ResidentRelation, pairs: Pairs, table_BN: Tensor, source_SH: Tensor, out_KH: Tensor, *, reverse: bool
) -> None:
    """Add to row i of ``out`` the rows of ``source`` at the other ends of its node's edges.

    ``out[i] += Σ over in-edges (u → nodes[i]) of w · source[table[strains[i], u]]``; over out-edges if ``reverse``.

    Args:
        relation: the edges, with their fixed weights where they have any.
        pairs: K of them, of the destination type (the source type if ``reverse``).
        table_BN: [B, N] int32 row of ``source`` for every pair at the other end; negative for none.
        source_SH: [S, H] float32 or float64.
        out_KH: [K, H], contiguous.
        reverse: along the edges' direction from their sources.
    """
    if len(pairs.nodes) == 0 or relation.num_edges == 0:
        return
    if _compiled(out_KH):
        degrees = relation.out_degrees if reverse else relation.in_degrees
        bounds = _balanced(degrees.index_select(0, pairs.nodes))
        _run(_kernels(out_KH.shape[1]).pull, relation, pairs, table_BN, source_SH, out_KH, bounds, transposed=reverse)
        return
    for positions, neighbours, strains, weight_T1 in _expand(relation, pairs, reverse):
        rows = table_BN.flatten()[strains * table_BN.shape[1] + neighbours].long()
        messages_TH = source_SH.index_select(0, rows.clamp(min=0)) * (rows >= 0).unsqueeze(1)
        out_KH.index_add_(0, positions, _times(messages_TH, weight_T1))


def push(
    relation: ResidentRelation, pairs: Pairs, table_BM: Tensor, source_DH: Tensor, out_KH: Tensor, *, reverse: bool
) -> None:
    """Add row i of ``source`` to the rows of ``out`` at the other ends of its node's edges: the transpose of ``pull``.

    ``out[table[strains[i], v]] += w · source[i]`` for all out-edges (nodes[i] → v); in-edges if ``reverse``.

    Args:
        relation: the edges.
        pairs: D of them, of the source type (the destination type if ``reverse``).
        table_BM: [B, M] int32 row of ``out`` for every pair at the other end; K for none.
        source_DH: [D, H] or longer.
        out_KH: [K, H], contiguous.
        reverse: against the edges' direction, from their destinations.
    """
    if len(pairs.nodes) == 0 or relation.num_edges == 0 or len(out_KH) == 0:
        return
    if _compiled(out_KH):
        # One task for each strain: no two of them write to one row.
        counts = torch.bincount(pairs.strains, minlength=len(table_BM))
        bounds = [0, *counts.cumsum(0).tolist()]
        _run(
            _kernels(out_KH.shape[1]).push, relation, pairs, table_BM, source_DH, out_KH, bounds, transposed=not reverse
        )
        return
    for positions, neighbours, strains, weight_T1 in _expand(relation, pairs, not reverse):
        rows = table_BM.flatten()[strains * table_BM.shape[1] + neighbours].long()
        messages_TH = source_DH.index_select(0, positions) * (rows < len(out_KH)).unsqueeze(1)
        out_KH.index_add_(0, rows.clamp(max=len(out_KH) - 1), _times(messages_TH, weight_T1))


def mark(relation: ResidentRelation, pairs: Pairs, mask_BM: Tensor) -> None:
    """Set ``mask[strains[i], v]`` for all out-edges (nodes[i] → v).

    Args:
        relation: the edges.
        pairs: of the source type.
        mask_BM: [B, M] bool, contiguous.
    """
    if len(pairs.nodes) == 0 or relation.num_edges == 0:
        return
    if mask_BM.device.type not in COMPILED_DEVICES:
        for _, neighbours, strains, _ in _expand(relation, pairs, transposed=True):
            mask_BM.view(-1)[strains * mask_BM.shape[1] + neighbours] = True
        return
    from dglcell.kernels import rows_numba

    edges = relation.compact(None, transposed=True)
    chosen = (pairs.nodes.numpy(), pairs.strains.numpy())
    rows_numba.mark(edges.starts.numpy(), edges.neighbours.numpy(), *chosen, mask_BM.numpy())


def add_rows(out_SH: Tensor, rows: Tensor, values_KH: Tensor, *, threads: int | None = None) -> None:
    """``out[rows[i]] += values[i]``, in order, so that the result is the same every time.

    Args:
        out_SH: [S, H], contiguous.
        rows: [K] int64.
        values_KH: [K, H].
        threads: 1 inside a task; torch's where None.
    """
    if not _compiled(out_SH):
        out_SH.index_add_(0, rows, values_KH.to(out_SH.dtype))
        return
    width = out_SH.shape[1]
    arrays = (out_SH.numpy(), rows.numpy(), values_KH.contiguous().to(out_SH.dtype).numpy())
    half = width // 2
    if threads == 1 or len(rows) < ROWS_WORTH_THREADS or 2 * half != width or not _has_own_code(half):
        _kernels(width).add_rows(*arrays, 0)
    else:
        run_tasks(_kernels(half).add_rows, [(*arrays, 0), (*arrays, half)])


def add_split(shared_NH: Tensor, out_SH: Tensor, rows: Tensor, values_KH: Tensor) -> None:
    """``add_rows`` with one thread, where rows below N belong to ``shared`` instead of ``out``."""
    if not _compiled(out_SH):
        N = len(shared_NH)
        if N == 0:
            add_rows(out_SH, rows, values_KH)
            return
        low = (rows < N).unsqueeze(1)
        out_SH.index_add_(0, rows, torch.where(low, 0, values_KH).to(out_SH.dtype))
        shared_NH.index_add_(0, rows.clamp(max=N - 1), torch.where(low, values_KH, 0).to(out_SH.dtype))
        return
    values = values_KH.contiguous().to(out_SH.dtype).numpy()
    _kernels(out_SH.shape[1]).add_split(shared_NH.numpy(), out_SH.numpy(), rows.numpy(), values)


def sum_strains(table_BN: Tensor, source_SH: Tensor, out_NH: Tensor) -> None:
    """``out[v] += Σ over strains b of source[table[b, v]]``; negative rows are left out.

    Args:
        table_BN: [B, N] int32 rows of ``source``.
        source_SH: [S, H].
        out_NH: [N, H], contiguous.
    """
    if not _compiled(out_NH):
        rows_B = table_BN.unbind(0)
        for rows in rows_B:
            out_NH += source_SH.index_select(0, rows.clamp(min=0)) * (rows >= 0).unsqueeze(1)
        return
    arrays = (table_BN.numpy(), source_SH.contiguous().to(out_NH.dtype).numpy(), out_NH.numpy())
    cuts = [len(out_NH) * i // TASKS for i in range(TASKS + 1)]
    run_tasks(_kernels(out_NH.shape[1]).sum_strains, [(*arrays, *span) for span in itertools.pairwise(cuts)])


def _compiled(out: Tensor) -> bool:
    return out.device.type in COMPILED_DEVICES and out.dtype in (torch.float32, torch.float64)


def _has_own_code(width: int) -> bool:
    from dglcell.kernels import rows_numba

    return width in rows_numba.FIXED_WIDTHS


def _kernels(width: int) -> Kernels:
    from dglcell.kernels import rows_numba

    return rows_numba.compiled(width)


def _run(
    function: Callable[..., object],
    relation: ResidentRelation,
    pairs: Pairs,
    table: Tensor,
    source: Tensor,
    out: Tensor,
    bounds: list[int],
    *,
    transposed: bool,
) -> None:
    edges = relation.compact(source.dtype, transposed=transposed)
    weights = None if edges.weights is None else edges.weights.numpy()
    starts, neighbours = edges.starts.numpy(), edges.neighbours.numpy()
    shared = (starts, neighbours, weights, pairs.nodes.numpy(), pairs.strains.numpy(), table.numpy())
    rows = (source.detach().contiguous().numpy(), out.numpy())
    tasks = [(*shared, *rows, first, last) for first, last in itertools.pairwise(bounds) if last > first]
    run_tasks(function, tasks)


def _balanced(degrees_K: Tensor) -> list[int]:
    """Bounds of tasks with about as many edges each."""
    work = degrees_K.cumsum(0)
    cuts = torch.linspace(0, float(work[-1]), TASKS + 1, dtype=torch.float64)[1:-1]
    return [0, *torch.searchsorted(work, cuts.long()).tolist(), len(degrees_K)]


def _expand(
    relation: ResidentRelation, pairs: Pairs, transposed: bool
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor | None]]:
    """All edges of the pairs' nodes, some at a time: pair, node at the other end, strain and weight of each."""
    starts, neighbours, weights = relation.index_tensors(transposed=transposed)
    counts = starts.diff()[pairs.nodes]
    ends = counts.cumsum(0)
    total = int(ends[-1])
    for first in range(0, total, EDGES_AT_ONCE):
        number = torch.arange(first, min(first + EDGES_AT_ONCE, total), device=ends.device)
        positions = torch.searchsorted(ends, number, right=True)
        edges = starts[pairs.nodes[positions]] + number - (ends - counts)[positions]
        weight_T1 = None if weights is None else weights[edges].unsqueeze(1)
        yield positions, neighbours[edges], pairs.strains[positions], weight_T1


def _times(x_TH: Tensor, weight_T1: Tensor | None) -> Tensor:
    return x_TH if weight_T1 is None else x_TH * weight_T1.to(x_TH.dtype)

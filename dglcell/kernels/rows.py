"""Compute products over single rows: sums over the edges of chosen (node, strain) pairs only.

The loops are compiled with numba, for a CPU. Results are float32 or float64, and sums are taken in that type; rows that
are summed may be of any floating type, bfloat16 too. Nothing here is differentiable by itself: callers define their own
gradients, which are such products over the reversed edges.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dglcell.graph.resident_graph import ResidentRelation

TASKS = 16
"""A product is cut into this many tasks, enough to balance a few threads."""


@dataclass(frozen=True, eq=False)
class RowIndex:
    """Hold K different (node, strain) pairs of one node type, ordered by node, then strain.

    The strains of a node lie side by side, because they have the same edges. ``nodes`` and ``strains`` [K] are those of
    every pair, and ``keys`` are ``node · B + strain``, ascending.
    """

    mask_NB: Tensor  #: [N, B] bool, which pairs are in the set

    @property
    def num_nodes(self) -> int:
        return self.mask_NB.shape[0]

    @property
    def num_strains(self) -> int:
        return self.mask_NB.shape[1]

    @cached_property
    def keys(self) -> Tensor:
        return self.mask_NB.flatten().nonzero().squeeze(1)

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def nodes(self) -> Tensor:
        return self.keys.div(self.num_strains, rounding_mode="floor")

    @cached_property
    def strains(self) -> Tensor:
        return self.keys - self.nodes * self.num_strains

    @cached_property
    def starts(self) -> Tensor:
        """Return where each node's pairs start, [N + 1] int64; those of node v are ``starts[v]:starts[v + 1]``."""
        counts = self.mask_NB.sum(1)
        return torch.cat([counts.new_zeros(1), counts.cumsum(0)])

    @cached_property
    def table(self) -> Tensor:
        """Return the position of every pair, [N, B] int32; −1 for pairs that are not in the set."""
        table = torch.full(self.mask_NB.shape, -1, dtype=torch.int32, device=self.mask_NB.device)
        numbers = torch.arange(len(self), dtype=torch.int32, device=table.device)
        table.view(-1).index_copy_(0, self.keys, numbers)
        return table

    def positions(self, of: RowIndex) -> Tensor:
        """Return the positions here of the pairs of another index, [K'] int64; −1 for those that are not here."""
        return self.table.flatten()[of.keys].long()


def union(indices: Sequence[RowIndex]) -> RowIndex:
    """Return the pairs that are in any of the indices; if one of them has all, it is that object itself."""
    different = list({id(index): index for index in indices}.values())
    if len(different) == 1:
        return different[0]
    mask_NB = different[0].mask_NB.clone()
    for index in different[1:]:
        mask_NB |= index.mask_NB
    number = int(mask_NB.sum())
    return next((index for index in different if len(index) == number), RowIndex(mask_NB))


def pull(
    relation: ResidentRelation, pairs: RowIndex, table_NB: Tensor, source_SH: Tensor, out_KH: Tensor, *, reverse: bool
) -> None:
    """Add to row i of ``out`` the rows of ``source`` at the other ends of its node's edges.

    ``out[i] += Σ over in-edges (u → nodes[i]) of w · source[table[u, strains[i]]]``; over out-edges if ``reverse``.

    Args:
        relation: the edges, with their fixed weights w where they have any.
        pairs: the K pairs, of the destination type (the source type if ``reverse``).
        table_NB: int32 row of ``source`` for every pair at the other end; negative for none.
        source_SH, out_KH: rows to add, and the sums, contiguous, float32 or float64.
        reverse: whether to go along out-edges rather than in-edges.
    """
    if len(source_SH) and len(pairs) and relation.num_edges:
        order, _ = _by_strain(pairs, table_NB)
        degrees = relation.out_degrees if reverse else relation.in_degrees
        bounds = _balanced(degrees.index_select(0, pairs.nodes.index_select(0, order)))
        _run("pull", relation, pairs, order, table_NB, source_SH, out_KH, bounds, transposed=reverse)


def push(relation: ResidentRelation, pairs: RowIndex, table_MB: Tensor, source_DH: Tensor, out_KH: Tensor) -> None:
    """Add row i of ``source`` to the rows of ``out`` at the other ends of its node's edges: the transpose of ``pull``.

    ``out[table[v, strains[i]]] += w · source[i]`` for all out-edges (nodes[i] → v). The result is the same every
    time.

    Args:
        relation, out_KH: as for ``pull``.
        pairs: the D pairs, of the source type.
        table_MB: int32 row of ``out`` for every pair at the other end, each row for pairs of one strain only; negative
            where an edge leads nowhere.
        source_DH: rows to add; there may be more.
    """
    if len(out_KH) and len(pairs) and relation.num_edges:
        # One task for each strain: no two of them write to one row.
        order, bounds = _by_strain(pairs, table_MB)
        _run("push", relation, pairs, order, table_MB, source_DH, out_KH, bounds, transposed=True)


def mark(relation: ResidentRelation, pairs: RowIndex, mask_MB: Tensor) -> None:
    """Set ``mask[v, strains[i]]``, which is contiguous, for all out-edges (nodes[i] → v) of pairs."""
    from dglcell.kernels import loops_numba

    edges = relation.compact(None, transposed=True)
    chosen = (pairs.nodes.numpy(), pairs.strains.numpy())
    loops_numba.mark(edges.starts.numpy(), edges.neighbours.numpy(), *chosen, mask_MB.numpy())


def sum_rows(values: Tensor, rows: Tensor, number: int) -> Tensor:
    """Return [number, ...] sums of the ``values``, [K, ...], of each row; float32 at least, on a CPU in order."""
    dtype, width = torch.promote_types(values.dtype, torch.float32), values.shape[1:].numel()
    out = values.new_zeros(number, width, dtype=dtype)
    return out.index_add_(0, rows, values.detach().reshape(-1, width).to(dtype)).view(number, *values.shape[1:])


def take_rows(table: Tensor, index: Tensor) -> Tensor:
    """Return ``table[index]`` along the first dimension, with a backward pass that adds in order."""
    out: Tensor = _TakeRows.apply(table, index)
    return out


class _TakeRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.number = len(table)
        return table.index_select(0, index)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return sum_rows(grad, ctx.saved_tensors[0], ctx.number).to(grad.dtype), None


def _run(
    loops: str, relation: ResidentRelation, pairs: RowIndex, order: Tensor, table: Tensor, source: Tensor, out: Tensor,
    bounds: list[int], *, transposed: bool,
) -> None:  # fmt: skip
    from dglcell.kernels import loops_numba

    function = loops_numba.compiled(loops, out.shape[1])
    edges = relation.compact(out.dtype, transposed=transposed)
    weights = None if edges.weights is None else edges.weights.numpy()
    ends = pairs.nodes.numpy(), pairs.strains.numpy(), order.numpy()
    # A strain's part of the table is in one piece, too.
    shared = (edges.starts.numpy(), edges.neighbours.numpy(), weights, *ends, table.T.contiguous().numpy())
    rows = source.detach().to(out.dtype).contiguous().numpy(), out.numpy()
    run_tasks(function, [(*shared, *rows, first, last) for first, last in itertools.pairwise(bounds) if last > first])


def _by_strain(pairs: RowIndex, table: Tensor) -> tuple[Tensor, list[int]]:
    """Return the pairs by strain, [K], in their order otherwise, and where each strain begins (and the last one ends).

    What one strain's rows are summed from stays in the cache: two to three times as fast as node by node.
    """
    from dglcell.kernels import loops_numba

    order, starts = loops_numba.by_strain(pairs.strains.numpy(), table.shape[1])
    return torch.from_numpy(order), starts.tolist()


def _balanced(degrees_K: Tensor) -> list[int]:
    work = degrees_K.cumsum(0)
    cuts = torch.linspace(0, float(work[-1]), TASKS + 1, dtype=torch.float64)[1:-1]
    return [0, *torch.searchsorted(work, cuts.long()).tolist(), len(degrees_K)]


def run_tasks(function: Callable[..., object], tasks: Sequence[tuple[object, ...]], *, alone: bool = False) -> None:
    """Call ``function(*task)`` for every task, over as many threads as torch uses; return when all are done.

    Tasks may run at once, so each must write to its own part of the result. Plain threads are used rather than those of
    OpenMP, because a process forked after an OpenMP region dies in its next one.
    """
    threads = torch.get_num_threads()
    if alone or threads == 1 or len(tasks) < 2:
        for task in tasks:
            function(*task)
        return
    for _ in _pool(os.getpid(), threads).map(lambda task: function(*task), tasks):
        pass


@lru_cache(maxsize=1)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Return the threads of a process; a forked child has none of its parent's."""
    return ThreadPoolExecutor(threads, thread_name_prefix="dglcell-kernel")

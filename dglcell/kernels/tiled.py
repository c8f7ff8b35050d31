"""Sums over in-edges in blocks of columns that stay in a core's cache; weighted or not, on a CPU.

Every row of ``x`` is read once per edge. With hundreds of columns the whole of ``x`` outgrows the caches and each read
goes to memory; a block of columns, copied to a tile of its own, does not. The fewer bytes of edges read beside it the
better, hence the small integers of ``ResidentRelation.compact``.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dglcell.graph.resident import ResidentRelation
from dglcell.kernels.product import constant_product
from dglcell.kernels.threads import run_tasks

TILE_ROW_BYTES = 256
PADDING = 16
# A copied row must be read a few times to be worth the copy.
READS_OF_A_TILE = 4
# Additions below which waking another thread takes longer than the work.
SMALL_WORK = 1 << 18


def spmm_tiled(relation: ResidentRelation, x_NC: Tensor, weighted: bool) -> Tensor:
    """[M, C] sums over in-edges, summed in the order of the edges: the same bits for any number of threads."""
    return constant_product(relation, x_NC, weighted, _product)


def _product(relation: ResidentRelation, x: Tensor, *, weighted: bool, transposed: bool) -> Tensor:
    """float32 and float64 in their own precision, bfloat16 summed in float32, anything else by way of float32."""
    if x.dtype not in (torch.float32, torch.float64, torch.bfloat16):
        return _product(relation, x.float(), weighted=weighted, transposed=transposed).to(x.dtype)
    accumulator = torch.promote_types(x.dtype, torch.float32)
    edges = relation.compact(accumulator if weighted else None, transposed=transposed)
    y = x.new_empty(len(edges.starts) - 1, x.shape[1])
    starts, width = edges.starts.numpy(), TILE_ROW_BYTES // accumulator.itemsize
    weights = None if edges.weights is None else edges.weights.numpy()
    sum_part = partial(_sum_part, _array(x.contiguous()), starts, edges.neighbours.numpy(), weights, _array(y))
    if torch.get_num_threads() == 1 or relation.num_edges * x.shape[1] < SMALL_WORK:
        for column in range(0, x.shape[1], width):
            sum_part(slice(column, min(column + width, x.shape[1])), slice(0, len(y)))
    else:
        run_tasks(sum_part, _parts(starts, x.shape[1], width))
    return y


def _array(x: Tensor) -> NDArray[np.generic]:
    """The memory of ``x`` in numpy; bfloat16, which numpy lacks, as its bits."""
    array: NDArray[np.generic] = (x.view(torch.uint16) if x.dtype == torch.bfloat16 else x).numpy()
    return array


def _parts(starts: NDArray[np.int64], columns: int, width: int) -> list[tuple[slice, slice]]:
    """Blocks of columns, times ranges of rows with about as many edges each where there are few blocks."""
    blocks = [slice(column, min(column + width, columns)) for column in range(0, columns, width)]
    ranges = -(-2 * torch.get_num_threads() // len(blocks))
    # An empty row is work too: zeros are written.
    work = starts + np.arange(len(starts))
    bounds = np.searchsorted(work, np.linspace(0, work[-1], ranges + 1)).tolist()
    rows = [slice(first, last) for first, last in pairwise(bounds) if first < last]
    return [(block, part) for block in blocks for part in rows]


def _sum_part(
    x: NDArray[np.generic],
    starts: NDArray[np.int64],
    neighbours: NDArray[np.generic],
    weights: NDArray[np.generic] | None,
    y: NDArray[np.generic],
    columns: slice,
    rows: slice,
) -> None:
    """Write ``y[rows, columns]``."""
    # Imported here: numba is slow to import, and commands that compute nothing should not wait for it.
    from dglcell.kernels import tiled_numba as compiled

    starts, y = starts[rows.start : rows.stop + 1], y[rows]
    width = columns.stop - columns.start
    # Padded to whole vector registers.
    padded = -(-width // PADDING) * PADDING
    if x.dtype == np.uint16:
        tile, sums = np.empty((len(x), padded), np.float32), np.empty((len(y), padded), np.float32)
        compiled.pack_bfloat16(x, columns.start, tile.view(np.uint32))
        compiled.sum_rows(tile.reshape(-1), padded, 0, padded, starts, neighbours, weights, sums, 0)
        compiled.unpack_bfloat16(sums.view(np.uint32), columns.start, y)
    elif padded == x.shape[1] or starts[-1] - starts[0] < READS_OF_A_TILE * len(x):
        source = x.reshape(-1)
        compiled.sum_rows(source, x.shape[1], columns.start, width, starts, neighbours, weights, y, columns.start)
    else:
        tile = np.empty((len(x), padded), x.dtype)
        compiled.pack(x, columns.start, tile)
        compiled.sum_rows(tile.reshape(-1), padded, 0, padded, starts, neighbours, weights, y, columns.start)

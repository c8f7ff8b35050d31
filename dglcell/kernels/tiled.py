"""Sums over in-edges in blocks of columns that stay in a core's cache; weighted or not, on a CPU.

Every row of ``x`` is read once per edge. With hundreds of columns ``x`` outgrows the caches and most reads go to
memory; a block of its columns, copied to a tile of its own, does not. The less there is to read of the edges beside it
the better, hence the small integers of ``ResidentRelation.compact``.
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
from dglcell.kernels.scratch import scratch
from dglcell.kernels.threads import run_tasks

# Bytes of a tile's row: 1.7 MB for the 6,607 genes of yeast.
TILE_ROW_BYTES = 256
# Without tiles only the sums of one row have to stay in the first cache.
ROW_BYTES = 8192
# ``x`` is not copied to tiles while it fits in the last cache, or when its rows are read too few times.
CACHED_BYTES = 8 << 20
READS_OF_A_TILE = 32
# Columns that fill the widest vector registers.
PADDING = 16
# Additions that take less time than waking another thread.
SMALL_WORK = 1 << 18


def spmm_tiled(relation: ResidentRelation, x_NC: Tensor, weighted: bool) -> Tensor:
    """[M, C] sums over in-edges, summed in the order of the edges: the same bits for any number of threads."""
    return constant_product(relation, x_NC, weighted, _product)


def _product(relation: ResidentRelation, x: Tensor, *, weighted: bool, transposed: bool) -> Tensor:
    """float32 and float64 in their own precision, bfloat16 summed in float32, anything else by way of float32."""
    if x.dtype not in (torch.float32, torch.float64, torch.bfloat16):
        return _product(relation, x.float(), weighted=weighted, transposed=transposed).to(x.dtype)
    x = x.contiguous()
    accumulator = torch.promote_types(x.dtype, torch.float32)
    edges = relation.compact(accumulator if weighted else None, transposed=transposed)
    y = x.new_empty(len(edges.starts) - 1, x.shape[1])
    outgrows_cache = x.nbytes > CACHED_BYTES and relation.num_edges >= READS_OF_A_TILE * len(x)
    pack = outgrows_cache or x.shape[1] % PADDING != 0 or x.dtype == torch.bfloat16
    width = (TILE_ROW_BYTES if pack else ROW_BYTES) // accumulator.itemsize
    starts, weights = edges.starts.numpy(), None if edges.weights is None else edges.weights.numpy()
    sum_part = partial(_sum_part, _array(x), starts, edges.neighbours.numpy(), weights, _array(y), pack)
    if relation.num_edges * x.shape[1] < SMALL_WORK:
        for part in _parts(starts, x.shape[1], width, threads=1):
            sum_part(*part)
    else:
        run_tasks(sum_part, _parts(starts, x.shape[1], width, torch.get_num_threads()))
    return y


def _array(x: Tensor) -> NDArray[np.generic]:
    """The memory of ``x`` in numpy; bfloat16, which numpy lacks, as its bits."""
    array: NDArray[np.generic] = (x.view(torch.uint16) if x.dtype == torch.bfloat16 else x).numpy()
    return array


def _parts(starts: NDArray[np.int64], columns: int, width: int, threads: int) -> list[tuple[slice, slice]]:
    """Blocks of columns, and where they are too few for the threads ranges of rows with about as many edges each."""
    blocks = [slice(column, min(column + width, columns)) for column in range(0, columns, width)]
    ranges = -(-2 * threads // max(len(blocks), 1)) if threads > 1 else 1
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
    pack: bool,
    columns: slice,
    rows: slice,
) -> None:
    """Write ``y[rows, columns]``."""
    # Imported here: numba is slow to import, and commands that compute nothing should not wait for it.
    from dglcell.kernels import tiled_numba as compiled

    column, width = columns.start, columns.stop - columns.start
    starts, y = starts[rows.start : rows.stop + 1], y[rows]
    if not pack:
        compiled.sum_rows(x.reshape(-1), x.shape[1], column, width, starts, neighbours, weights, y, column, False)
        return
    padded = -(-width // PADDING) * PADDING
    if x.dtype != np.uint16:
        tile = scratch("tile", (len(x), padded), x.dtype)
        compiled.pack(x, column, tile)
        compiled.sum_rows(tile.reshape(-1), padded, 0, padded, starts, neighbours, weights, y, column, False)
        return
    tile, sums = scratch("tile", (len(x), padded), np.float32), np.empty((len(y), padded), np.float32)
    compiled.pack_bfloat16(x, column, tile.view(np.uint32))
    compiled.sum_rows(tile.reshape(-1), padded, 0, padded, starts, neighbours, weights, sums, 0, False)
    compiled.unpack_bfloat16(sums.view(np.uint32), column, y)

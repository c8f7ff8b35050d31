"""Products of one strain at a time: sums over edges of rows that lie in the calling thread's cache."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dglcell.graph.resident import CompactEdges
from dglcell.kernels.scratch import scratch
from dglcell.kernels.tiled import TILE_ROW_BYTES

VECTOR_BYTES = 64
"""Rows have to be a multiple of it long."""


def fits(width: int, dtype: torch.dtype) -> bool:
    """Whether rows of this width can be summed here."""
    return width * dtype.itemsize % VECTOR_BYTES == 0


def scratch_tensor(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """``scratch`` as a tensor."""
    return torch.from_numpy(scratch(name, shape, {torch.float32: np.float32, torch.float64: np.float64}[dtype]))


@dataclass(frozen=True)
class Tile:
    """Some columns of rows, side by side.

    Attributes:
        column: the first.
        rows: [N, W].
    """

    column: int
    rows: NDArray[np.generic]


def tiles_of(x_NH: Tensor, lost: Tensor, name: str) -> list[Tile]:
    """A copy of rows in the thread's memory, with zeros for lost nodes.

    Args:
        x_NH: contiguous.
        lost: [D] int64.
        name: of the memory.
    """
    step = TILE_ROW_BYTES // x_NH.element_size()
    tiles = []
    for column in range(0, x_NH.shape[1], step):
        part = x_NH[:, column : column + step]
        rows = scratch_tensor(f"{name} {column}", (len(part), part.shape[1]), x_NH.dtype).copy_(part)
        rows[lost] = 0
        tiles.append(Tile(column, rows.numpy()))
    return tiles


def whole_tiles(x_NH: Tensor, name: str) -> list[Tile]:
    """``tiles_of`` with nothing lost, without a copy where the rows are no wider than a tile's."""
    if x_NH.shape[1] * x_NH.element_size() <= TILE_ROW_BYTES:
        return [Tile(0, x_NH.numpy())]
    return tiles_of(x_NH, torch.empty(0, dtype=torch.int64), name)


def sum_tiles(edges: CompactEdges, tiles: list[Tile], out_MH: Tensor, *, add: bool) -> None:
    """Write to ``out``, or add to it, the sums over the edges of every row.

    Args:
        edges: with weights or without.
        tiles: rows at the edges' other ends.
        out_MH: contiguous.
        add: to what is there.
    """
    # Imported here: numba is slow to import, and commands that compute nothing should not wait for it.
    from dglcell.kernels import tiled_numba as compiled

    weights = None if edges.weights is None else edges.weights.numpy()
    starts, neighbours, out = edges.starts.numpy(), edges.neighbours.numpy(), out_MH.numpy()
    for tile in tiles:
        width = tile.rows.shape[1]
        compiled.sum_rows(tile.rows.reshape(-1), width, 0, width, starts, neighbours, weights, out, tile.column, add)

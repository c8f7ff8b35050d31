"""Compute sparse products in Triton's loops: rows in the order of their edges, so that sums are the same every time.

A product is of x [N, B, H] with an adjacency: B strains side by side, or one where the columns have no strains. A
program sums a piece of a row, for a tile of strains and columns. What lost nodes receive is taken into account while
rows are written.

They are kept apart because Triton is not on every machine. Under ``TRITON_INTERPRET=1`` the loops run on a CPU, slowly.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _load_row(x, keep, node, strains, columns, there, B, H, MASKED: tl.constexpr, SUM: tl.constexpr):
    """Load the row of a node, [BB, H]; zero in strains that have lost it."""
    node = node.to(tl.int64)
    if MASKED:
        kept = tl.load(keep + node * B + strains, mask=strains < B, other=0)[:, None] != 0
        there = there & kept
    return tl.load(x + (node * B + strains)[:, None] * H + columns[None, :], mask=there, other=0).to(SUM)


@triton.jit
def _store_received(total, received, keep, out, node, strains, columns, there, B, H, MASKED: tl.constexpr):
    """Write what a node receives, or minus what the base's node receives in strains that have lost it."""
    node = node.to(tl.int64)
    if MASKED:
        kept = tl.load(keep + node * B + strains, mask=strains < B, other=1)[:, None] != 0
        row = received + node * H + tl.zeros_like(strains)[:, None] + columns[None, :]
        total = tl.where(kept, total, -tl.load(row, mask=there & ~kept, other=0).to(total.dtype))
    tl.store(out + (node * B + strains)[:, None] * H + columns[None, :], total.to(out.dtype.element_ty), mask=there)


@triton.jit
def sum_pieces(
    pieces, neighbours, weights, x, keep_in, received, keep_out, out, partial, B, H,
    WEIGHTED: tl.constexpr, MASKED_IN: tl.constexpr, MASKED_OUT: tl.constexpr, ONLY_LOST: tl.constexpr,
    SUM: tl.constexpr, BB: tl.constexpr, BH: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """Sum the edges of a piece of a row; write the row, or a partial sum where it has several pieces.

    Args:
        pieces: [P, 4] int32: row, first edge, last edge + 1, and place among the partial sums or -1.
        neighbours, weights: [E] nodes at the other ends, and weights of the edges.
        x: [N, B, H] rows of the strains.
        keep_in, keep_out: [N, B] and [M, B] bytes, zero for lost nodes: rows of the former are left out.
        received: [M, H] what the base receives; nodes that ``keep_out`` has lost receive minus this.
        out, partial: [M, B, H] results and [S, B, H] partial sums, in the type of the sums; written.
        ONLY_LOST: whether only nodes that ``keep_out`` has lost are needed; the rows of others are not summed.
        SUM: type of the sums.
        BB, BH, UNROLL: strains and columns of a tile, and edges whose rows are read at once.
    """
    piece = tl.program_id(0)
    tiles = tl.cdiv(H, BH)
    strains = tl.program_id(1) // tiles * BB + tl.arange(0, BB)
    columns = tl.program_id(1) % tiles * BH + tl.arange(0, BH)
    there = (strains < B)[:, None] & (columns < H)[None, :]
    row, first, last = tl.load(pieces + 4 * piece), tl.load(pieces + 4 * piece + 1), tl.load(pieces + 4 * piece + 2)
    place = tl.load(pieces + 4 * piece + 3)
    if ONLY_LOST:
        kept = tl.load(keep_out + row.to(tl.int64) * B + strains, mask=strains < B, other=1) != 0
        last = tl.where(tl.min(kept.to(tl.int32), 0) == 0, last, first)
    total = tl.zeros((BB, BH), SUM)
    for edge in tl.range(first, last, loop_unroll_factor=UNROLL):
        node = tl.load(neighbours + edge).to(tl.int32)
        value = _load_row(x, keep_in, node, strains, columns, there, B, H, MASKED_IN, SUM)
        if WEIGHTED:
            value = value * tl.load(weights + edge).to(SUM)
        total += value
    if place >= 0:
        at = (place.to(tl.int64) * B + strains)[:, None] * H + columns[None, :]
        tl.store(partial + at, total, mask=there)
    else:
        _store_received(total, received, keep_out, out, row, strains, columns, there, B, H, MASKED_OUT)


@triton.jit
def add_pieces(
    rows, partial, received, keep_out, out, B, H,
    MASKED_OUT: tl.constexpr, SUM: tl.constexpr, BB: tl.constexpr, BH: tl.constexpr,
):  # fmt: skip
    """Add the partial sums of a row, in order; ``rows`` [R, 3] int32: row, its first partial sum, its last one + 1."""
    number = tl.program_id(0)
    tiles = tl.cdiv(H, BH)
    strains = tl.program_id(1) // tiles * BB + tl.arange(0, BB)
    columns = tl.program_id(1) % tiles * BH + tl.arange(0, BH)
    there = (strains < B)[:, None] & (columns < H)[None, :]
    row = tl.load(rows + 3 * number)
    total = tl.zeros((BB, BH), SUM)
    first, last = tl.load(rows + 3 * number + 1).to(tl.int64), tl.load(rows + 3 * number + 2).to(tl.int64)
    for place in range(first, last):
        at = (place * B + strains)[:, None] * H + columns[None, :]
        total += tl.load(partial + at, mask=there, other=0)
    _store_received(total, received, keep_out, out, row, strains, columns, there, B, H, MASKED_OUT)


@triton.jit
def send(x, base, keep, out, B, H, HAS_X: tl.constexpr, BB: tl.constexpr, BH: tl.constexpr):
    """Write what a node sends: its rows, zeros if not HAS_X, or minus the base's row in strains that have lost it."""
    node = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BH + tl.arange(0, BH)
    instead = -tl.load(base + node * H + columns, mask=columns < H, other=0).to(out.dtype.element_ty)
    for start in range(0, B, BB):
        strains = start + tl.arange(0, BB)
        kept = tl.load(keep + node * B + strains, mask=strains < B, other=1)[:, None] != 0
        there = (strains < B)[:, None] & (columns < H)[None, :]
        rows = (node * B + strains)[:, None] * H + columns[None, :]
        value = tl.zeros((BB, BH), out.dtype.element_ty)
        if HAS_X:
            value = tl.load(x + rows, mask=there & kept, other=0)
        tl.store(out + rows, tl.where(kept, value, instead[None, :]), mask=there)


@triton.jit
def sum_slots(gone, rows, received, keep_out, out, B, K, H, SUM: tl.constexpr, BB: tl.constexpr, BH: tl.constexpr):
    """Write minus what a strain's lost sources sent to a node, or minus what the node received where it is lost.

    ``gone`` [M, B, K] has the weights of the edges from the K lost sources of each strain, ``rows`` [B, K, H] the rows
    of the base's sources.
    """
    node = tl.program_id(0).to(tl.int64)
    tiles = tl.cdiv(H, BH)
    strains = tl.program_id(1) // tiles * BB + tl.arange(0, BB)
    columns = tl.program_id(1) % tiles * BH + tl.arange(0, BH)
    there = (strains < B)[:, None] & (columns < H)[None, :]
    total = tl.zeros((BB, BH), SUM)
    for slot in range(K):
        weight = tl.load(gone + (node * B + strains) * K + slot, mask=strains < B, other=0).to(SUM)
        row = tl.load(rows + (strains * K + slot)[:, None] * H + columns[None, :], mask=there, other=0).to(SUM)
        total -= weight[:, None] * row
    _store_received(total, received, keep_out, out, node, strains, columns, there, B, H, True)


@triton.jit
def sum_lost(x, keep, out, B, H, CLEAR: tl.constexpr, SUM: tl.constexpr, BB: tl.constexpr, BH: tl.constexpr):
    """Compute minus the sum of a node's rows, [N, H], over the strains that have lost it; CLEAR sets them to zero."""
    node = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BH + tl.arange(0, BH)
    total = tl.zeros((BB, BH), SUM)
    for start in range(0, B, BB):
        strains = start + tl.arange(0, BB)
        lost = tl.load(keep + node * B + strains, mask=strains < B, other=1)[:, None] == 0
        there = lost & (columns < H)[None, :]
        rows = x + (node * B + strains)[:, None] * H + columns[None, :]
        total += tl.load(rows, mask=there, other=0).to(SUM)
        if CLEAR:
            tl.store(rows, tl.zeros((BB, BH), x.dtype.element_ty), mask=there)
    tl.store(out + node * H + columns, -tl.sum(total, 0), mask=columns < H)

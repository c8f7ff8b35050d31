"""Attention of the base strain once, and anew for the (destination, strain) pairs in which a strain differs."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from dglcell.graph.rectangles import rectangles
from dglcell.graph.resident import ResidentRelation
from dglcell.kernels.attention import (
    Block,
    GATv2Score,
    attend_blocks,
    block_rows,
    cut,
    edge_weights,
    gatv2,
    in_edges,
)
from dglcell.kernels.spmm import spmm
from dglcell.perturbation.row_index import RowIndex
from dglcell.perturbation.row_wise import Rows
from dglcell.perturbation.states import SharedStates

DENSE_SHARE = 0.25
"""In-edges of touched pairs, as a share of E · B, from which attending everywhere is cheaper."""


def shared_attention(
    edges: ResidentRelation,
    keep: tuple[Tensor, Tensor],
    keys: SharedStates,
    queries: SharedStates,
    score: GATv2Score,
    kernel: str,
    base: tuple[Tensor, Tensor] | None = None,
) -> SharedStates | None:
    """Attention over surviving in-edges, for states that strains share.

    A softmax changes as a whole, so that pairs are computed anew if their query differs from the base's, or the key of
    any in-neighbour does, or one is lost.

    Args:
        edges: the relation.
        keep: [N, B] and [M, B] bool of source and destination nodes.
        keys: of N source nodes.
        queries: of M destination nodes.
        score: of a pair.
        kernel: see ``dglcell.kernels.spmm``.
        base: [N, 1] and [M, 1] bool which nodes the base strain keeps; all where None.

    Returns:
        States of the destination nodes; None where so many pairs are touched that attending everywhere is cheaper.
    """
    if base is None:
        base = keep[0].new_ones(edges.num_src, 1), keep[1].new_ones(edges.num_dst, 1)
    touched_MB = _touched(edges, keep, base, keys, queries, kernel)
    work = int((touched_MB.sum(1) * edges.in_degrees).sum())
    if work > DENSE_SHARE * edges.num_edges * touched_MB.shape[1]:
        return None
    base_MH = gatv2(edges, keys.base_NH.unsqueeze(1), queries.base_NH.unsqueeze(1), base, score).squeeze(1)
    pairs = RowIndex.where(touched_MB)
    if len(pairs) == 0:
        return SharedStates(base_MH, None)
    queries_KH = Rows(queries.x_XH, queries.positions(pairs)).all()
    return SharedStates(torch.cat([base_MH, _attend_pairs(edges, keep, keys, queries_KH, pairs, score)]), pairs)


def _touched(
    edges: ResidentRelation,
    keep: tuple[Tensor, Tensor],
    base: tuple[Tensor, Tensor],
    keys: SharedStates,
    queries: SharedStates,
    kernel: str,
) -> Tensor:
    """[M, B] bool: which pairs of the base are lost, or attend with another query or to other keys than there."""
    changed_NB = _marked(~keep[0] & base[0], keys.index)
    received_MB = spmm(edges, changed_NB.to(torch.float32), weighted=False, kernel=kernel) > 0.5
    return (received_MB | _marked(~keep[1], queries.index)) & base[1]


def _marked(mask_NB: Tensor, index: RowIndex | None) -> Tensor:
    """The mask, true also for the pairs of an index."""
    if index is None:
        return mask_NB
    return mask_NB.index_put((index.nodes, index.strains), mask_NB.new_ones(()))


def _attend_pairs(
    edges: ResidentRelation,
    keep: tuple[Tensor, Tensor],
    keys: SharedStates,
    queries_KH: Tensor,
    pairs: RowIndex,
    score: GATv2Score,
) -> Tensor:
    """[K, H] attention of (destination, strain) pairs."""
    degrees, order = torch.sort(edges.in_degrees[pairs.nodes], descending=True, stable=True)
    shapes = rectangles(degrees.cpu().numpy())
    position_NB = _positions(keys, keep[0])
    weighted, limit = score.edge_vector is not None, block_rows(keys.base_NH)

    def blocks() -> Iterator[Block]:
        for rows, width, columns in cut(shapes, 1, limit):
            row = order[rows]
            node, strain = pairs.nodes[row], pairs.strains[row].unsqueeze(1)
            edge, present = in_edges(edges, node, width)
            source = edges.src[edge]
            alive = keep[0][source, strain] & keep[1][node.unsqueeze(1), strain] & present
            weight = edge_weights(edges, edge) if weighted else None
            yield Block(row, position_NB[source, strain], alive.unsqueeze(-1), weight, columns)

    return attend_blocks(keys.x_XH.unsqueeze(1), queries_KH.unsqueeze(1), score, blocks).squeeze(1)


def _positions(states: SharedStates, keep_NB: Tensor) -> Tensor:
    """[N, B] where each pair's row is among the base, followed by the changed rows."""
    N, B = keep_NB.shape
    position_NB = torch.arange(N, device=keep_NB.device).unsqueeze(1).expand(N, B)
    if states.index is None:
        return position_NB
    changed = N + torch.arange(len(states.index), device=keep_NB.device)
    return position_NB.index_put((states.index.nodes, states.index.strains), changed)

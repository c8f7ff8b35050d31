"""Edge lists of one relation as arrays, and the few operations that turn tables into relations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Edges:
    """Edges of one relation.

    Attributes:
        src: [E] int64 source nodes.
        dst: [E] int64 destination nodes.
        weight: [E] float32 fixed edge weights, or None.
    """

    src: NDArray[np.int64]
    dst: NDArray[np.int64]
    weight: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.src)

    def select(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> Edges:
        """The edges at ``rows`` (a mask or indices)."""
        return Edges(self.src[rows], self.dst[rows], None if self.weight is None else self.weight[rows])

    def reversed(self) -> Edges:
        """Every edge turned round, weights kept."""
        return Edges(self.dst, self.src, self.weight)

    def symmetrised(self) -> Edges:
        """Both directions of every edge, given each pair once; a self-loop stays one edge."""
        return self.joined(self.reversed().select(self.src != self.dst))

    def with_self_loops(self, num_nodes: int) -> Edges:
        """One self-loop of weight 1 more for every node that has none."""
        without = np.setdiff1d(np.arange(num_nodes, dtype=np.int64), self.src[self.src == self.dst])
        weight = None if self.weight is None else np.ones(len(without), dtype=np.float32)
        return self.joined(Edges(without, without, weight))

    def joined(self, other: Edges) -> Edges:
        """These edges, then the others; both weighted or neither."""
        weight = None
        if self.weight is not None and other.weight is not None:
            weight = np.concatenate([self.weight, other.weight])
        return Edges(np.concatenate([self.src, other.src]), np.concatenate([self.dst, other.dst]), weight)

    def sorted(self) -> Edges:
        """Ordered by (destination, source)."""
        return self.select(np.lexsort((self.src, self.dst)))


def merge_pairs(edges: Edges, *, ordered: bool) -> Edges:
    """Each pair once, with its largest weight, in the order and direction in which it first occurs.

    Args:
        edges: with repeated pairs.
        ordered: whether (a, b) and (b, a) are different pairs.
    """
    if not len(edges):
        return edges
    ends = np.stack([edges.src, edges.dst])
    if not ordered:
        ends = np.sort(ends, axis=0)
    keys = ends[0] * (ends.max() + 1) + ends[1]
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    merged = Edges(edges.src[first], edges.dst[first])
    if edges.weight is not None:
        weight = np.full(len(first), -np.inf, dtype=np.float32)
        np.maximum.at(weight, inverse, edges.weight)
        merged = Edges(merged.src, merged.dst, weight)
    return merged.select(np.argsort(first))

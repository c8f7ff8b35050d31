"""Make cell graphs to measure on, of yeast size or a multiple of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import ConfigError
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.schema import GENE, Edges, gene_relation
from dglcell.graph.vocabulary import Vocabulary

# This makes a cell graph of yeast size from a seed: nine gene–gene networks with published sizes and skewed degrees.


GENES = 6_607

LARGEST = 9
"""A graph has at most so many times as many genes as yeast, because nodes are numbered in 16 bits."""


@dataclass(frozen=True)
class NetworkSize:
    """These are the published figures of one network of the torchcell project, and how its degrees fall off."""

    name: str  #: name of the relation
    pairs: int  #: distinct pairs of different genes, each stored once; every network has a self-loop per gene besides
    genes: int  #: number of genes that are in any pair
    largest_degree: int  #: published largest number of pairs that a gene is in, in either direction
    #: the chance of being drawn falls with the power ``-exponent`` of a gene's rank. Chosen so that the largest degree
    #: comes out as published.
    exponent: float
    shared: float = 0.0  #: share of its pairs that are in an earlier network too
    #: genes that edges may leave; None for undirected networks. How many there are is assumed.
    regulators: int | None = None


PUBLISHED = (
    NetworkSize("coexpression", 996_199, 6_474, 1_770, 0.253),
    NetworkSize("experimental", 822_094, 6_016, 2_696, 0.509, shared=0.675),
    NetworkSize("neighborhood", 146_713, 2_191, 936, 0.769, shared=0.9),
    NetworkSize("physical", 137_604, 5_721, 3_606, 0.971, shared=0.6),
    NetworkSize("database", 72_617, 4_027, 374, 0.342, shared=0.9),
    NetworkSize("fusion", 11_787, 3_081, 84, 0.479, shared=0.9),
    NetworkSize("cooccurence", 11_085, 2_601, 97, 0.182, shared=0.9),
    NetworkSize("regulatory", 37_703, 6_582, 2_991, 0.811, regulators=200),
    NetworkSize("tflink", 200_643, 5_074, 4_908, 0.684, regulators=200),
)
"""Shares of common pairs give coexpression and experimental the published Jaccard index of 0.44, and all nine together
about as many different pairs as published: 1.56 million, where 1.51 are."""

TARGET_EXPONENT = 0.3
"""This is the exponent for the genes that regulatory edges enter."""


def generated_cell(*, seed: int = 0, scale: float = 1.0, symmetrise: bool = False) -> CellGraph:
    """Generate nine networks over 6,607 genes: 2,495,908 stored edges, of which 59,463 are self-loops.

    Args:
        seed: seed of genes' ranks and of all pairs.
        scale: factor on the number of genes. Of a smaller graph the share of pairs that are edges stays the same, and
            of a larger one the number of edges of a gene.
        symmetrise: store undirected pairs in both directions; else once, in one arbitrary direction.

    Raises:
        ConfigError: `scale` leaves fewer than ten genes, or is above 9.
    """
    number = round(GENES * scale)
    if not 10 <= number <= LARGEST * GENES:
        raise ConfigError("`scale` is out of range", got=scale, expected=f"{10 / GENES:.4f} to {LARGEST}")
    genes = Vocabulary(tuple(f"g{i:04d}" for i in range(number)))
    relations = {}
    known = np.empty(0, dtype=np.int64)
    for i, size in enumerate(PUBLISHED):
        keys = _draw(np.random.default_rng([seed, i]), size, number, scale, known)
        known = np.union1d(known, keys)
        pairs = Edges(keys // number, keys % number)
        if symmetrise and size.regulators is None:
            pairs = pairs.symmetrised()
        relations[gene_relation(size.name)] = pairs.with_self_loops(number)
    provenance = {"generated": {"seed": seed, "scale": scale, "symmetrise": symmetrise}}
    return CellGraph.assemble({GENE: genes}, relations, provenance)


def _draw(
    rng: np.random.Generator, size: NetworkSize, number: int, scale: float, known: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Draw distinct pairs of different genes, with chances that fall with the genes' ranks.

    Args:
        rng: generator for ranks and pairs.
        size: figures of the network at full scale.
        number: N genes.
        scale: scale of the network.
        known: pairs of earlier networks.

    Returns:
        ``source · N + destination`` of every pair; undirected ones have the lower index first.
    """
    ranked = rng.permutation(number)[: max(2, round(size.genes * scale))]
    wanted = max(1, round(size.pairs * min(scale, scale**2)))
    if size.regulators is None:
        sources = targets = _chances(len(ranked), size.exponent)
    else:
        sources = _chances(max(1, round(size.regulators * scale)), size.exponent)
        # Being regulated by many says nothing about regulating many.
        targets = rng.permutation(_chances(len(ranked), TARGET_EXPONENT))
    chance = np.zeros(number)
    chance[ranked] = targets
    keys = _choose(rng, known, chance[known // number] * chance[known % number], round(size.shared * wanted))
    while len(keys) < wanted:
        missing = wanted - len(keys)
        ends = np.stack([_sample(rng, chances, missing + missing // 8 + 16) for chances in (sources, targets)])
        src, dst = ranked[ends[:, ends[0] != ends[1]]]
        if size.regulators is None:
            src, dst = np.minimum(src, dst), np.maximum(src, dst)
        new = np.setdiff1d(src * number + dst, keys)
        keys = np.concatenate([keys, rng.choice(new, min(missing, len(new)), replace=False)])
    return keys


def _choose(
    rng: np.random.Generator, keys: NDArray[np.int64], chances: NDArray[np.float64], most: int
) -> NDArray[np.int64]:
    """Draw up to ``most`` of the keys without replacement, by the chances (Efraimidis and Spirakis 2006)."""
    possible = np.flatnonzero(chances)
    most = min(most, len(possible))
    if most == 0:
        return keys[:0]
    order = rng.exponential(size=len(possible)) / chances[possible]
    return keys[possible[np.argpartition(order, most - 1)[:most]]]


def _chances(number: int, exponent: float) -> NDArray[np.float64]:
    weight = np.arange(1, number + 1, dtype=np.float64) ** -exponent
    return weight / weight.sum()


def _sample(rng: np.random.Generator, chances: NDArray[np.float64], number: int) -> NDArray[np.int64]:
    """Draw positions with replacement."""
    return np.searchsorted(np.cumsum(chances), rng.random(number)).clip(max=len(chances) - 1).astype(np.int64)

"""A gene–gene relation between genes with similar neighbours, from the networks of the cell graph alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dglcell.errors import ConfigError, GraphError
from dglcell.graph.edges import Edges

SIMILAR = "similar"
"""Name of the relation."""

BLOCK = 512
"""Genes whose similarities to all others are held at a time."""


@dataclass
class SimilarityConfig:
    """Weighted edges from the most similar genes."""

    neighbours: int = 50  # most in-edges of a gene
    power: float = 2.0  # weights are cosines to this power, as shares of their sum …
    damping: float = 0.3  # … plus this: a gene that resembles none receives little

    def validate(self, key: str = "cell.similarity") -> None:
        """Check values.

        Raises:
            ConfigError: naming the key.
        """
        if self.neighbours < 1:
            raise ConfigError(f"`{key}.neighbours` is too small", got=self.neighbours, expected="1 or more")
        for name in ("power", "damping"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"`{key}.{name}` must be positive", got=getattr(self, name))


def similar_genes(relations: Iterable[Edges], num_genes: int, config: SimilarityConfig) -> Edges:
    r"""Edges into every gene from those with the most similar neighbourhoods.

    The neighbourhood of gene v is the row :math:`b_v` of :math:`I + \sum_r A_r`: itself, and its in-neighbours with the
    number of their edges. With cosines :math:`c_{uv}` of two rows, and the genes :math:`u \ne v` with the largest ones
    as neighbours,

    .. math:: w_{uv} = \frac{c_{uv}^p}{\delta + \sum_{u'} c_{u'v}^p}

    so that a sum over in-edges is a mean shrunk towards zero. Genes of one complex or pathway, which have similar
    interaction profiles in a screen (Tong et al. 2004), are joined also where no edge joins them directly.

    Args:
        relations: of genes with genes; fixed weights are not used.
        num_genes: N.
        config: validated.

    Raises:
        GraphError: no gene has a similar one.
    """
    neighbourhoods = _neighbourhoods(relations, num_genes)
    blocks = [_block(neighbourhoods, start, config) for start in range(0, num_genes, BLOCK)]
    src, dst, weight = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    if not len(src):
        raise GraphError(
            "no two genes have a neighbour in common",
            got=f"{num_genes:,} genes",
            do="give networks, or leave `cell.similarity` out",
        )
    return Edges(src, dst, weight.astype(np.float32))


def _neighbourhoods(relations: Iterable[Edges], num_genes: int) -> sparse.csr_array:
    """[N, N] rows of length one: a gene and its in-neighbours."""
    counts = sparse.csr_array(sparse.eye_array(num_genes))
    for edges in relations:
        other = edges.select(edges.src != edges.dst)
        ones = np.ones(len(other))
        counts = counts + sparse.csr_array((ones, (other.dst, other.src)), shape=(num_genes, num_genes))
    length = np.sqrt(counts.multiply(counts).sum(axis=1))
    return sparse.csr_array(counts.multiply((1 / length)[:, None]))


def _block(
    neighbourhoods: sparse.csr_array, start: int, config: SimilarityConfig
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Sources, destinations and weights of the edges into some genes."""
    cosine = (neighbourhoods[start : start + BLOCK] @ neighbourhoods.T).toarray()
    rows = np.arange(len(cosine))
    cosine[rows, start + rows] = 0.0
    # The sort is stable, so that of equally similar genes the first ones are taken, on any machine.
    src = np.argsort(-cosine.round(9), axis=1, kind="stable")[:, : config.neighbours]
    weight = np.take_along_axis(cosine, src, axis=1) ** config.power
    weight = weight / (config.damping + weight.sum(axis=1, keepdims=True))
    dst = np.broadcast_to((start + rows)[:, None], src.shape)
    return src[weight > 0].astype(np.int64), dst[weight > 0].astype(np.int64), weight[weight > 0]

"""Derive gene–gene relations from a metabolic model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import GraphError
from dglcell.graph.metabolism import Metabolism
from dglcell.graph.schema import METABOLITE

if TYPE_CHECKING:
    from scipy.sparse import csr_array


CURRENCY_DEGREE = 50
"""A metabolite of more than 50 reactions would join over 1,000 pairs: it says little about any one."""

# BiGG identifiers without compartment, then names as other models write them, all in lower case.
_IDENTIFIERS = "h,h2o,o2,co2,pi,ppi,nh4,atp,adp,amp,gtp,gdp,nad,nadh,nadp,nadph,fad,fadh2,coa"
_NAMES = "h+,water,oxygen,carbon dioxide,phosphate,diphosphate,ammonium,ammonia,nad+,nad(+),nadp+,nadp(+),coenzyme a"
CURRENCY_SPECIES = frozenset(f"{_IDENTIFIERS},{_NAMES}".split(","))
"""These metabolites carry protons, water, gases, phosphate, energy and electrons in models of every size."""


@dataclass(frozen=True)
class Currency:
    """Define which metabolites do not make two reactions neighbours."""

    degree: int = CURRENCY_DEGREE  #: a metabolite of more reactions than this is currency
    metabolites: tuple[
        str, ...
    ] = ()  #: if not empty, exactly these metabolites are currency and ``degree`` is not used

    def mask(self, metabolism: Metabolism) -> NDArray[np.bool_]:
        """Return which metabolites are currency, [N metabolites] bool.

        Raises:
            GraphError: a listed metabolite is not in the model.
        """
        vocabulary = metabolism.metabolites
        mask = np.zeros(len(vocabulary), dtype=bool)
        if self.metabolites:
            mask[[vocabulary.index(name) for name in self.metabolites]] = True
            return mask
        degree = _stoichiometric(metabolism).sum(axis=0)
        titles = metabolism.titles[METABOLITE]
        called = [titles.get(name, name) for name in vocabulary.names]
        columns = (vocabulary.names, called, metabolism.compartments)
        known = [
            identifier.removesuffix(f"_{compartment}").lower() in CURRENCY_SPECIES or name.lower() in CURRENCY_SPECIES
            for identifier, name, compartment in zip(*columns, strict=True)
        ]
        return (degree > self.degree) | np.array(known, dtype=bool)


def shares_complex(metabolism: Metabolism, currency: Currency) -> csr_array:
    """Relate genes that are subunits of one enzyme complex."""
    membership = _incidence(metabolism.catalyses, (len(metabolism.genes), len(metabolism.reactions)))
    return _without_diagonal(membership @ membership.T)


def isoenzyme(metabolism: Metabolism, currency: Currency) -> csr_array:
    """Relate genes of different complexes of one reaction that share no complex of that reaction."""
    gene, node = metabolism.catalyses
    reaction = metabolism.model_reaction_of[node]
    pairs: set[tuple[int, int]] = set()
    order = np.argsort(reaction, kind="stable")
    boundaries = np.flatnonzero(np.diff(reaction[order])) + 1
    for rows in np.split(order, boundaries):
        genes, local_gene = np.unique(gene[rows], return_inverse=True)
        nodes, local_node = np.unique(node[rows], return_inverse=True)
        together = np.zeros((len(genes), len(nodes)), dtype=np.int64)
        together[local_gene, local_node] = 1
        a, b = np.nonzero(together @ together.T == 0)
        pairs.update(zip(genes[a].tolist(), genes[b].tolist(), strict=True))
    edges = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2).T
    return _incidence(edges, (len(metabolism.genes),) * 2)


def metabolic_neighbour(metabolism: Metabolism, currency: Currency) -> csr_array:
    """Relate genes of two different reactions that share a metabolite which is not currency."""
    substances = _stoichiometric(metabolism)[:, ~currency.mask(metabolism)]
    adjacent = _without_diagonal(substances @ substances.T)
    gene, node = metabolism.catalyses
    edges = np.stack([gene, metabolism.model_reaction_of[node]])
    catalysed = _incidence(edges, (len(metabolism.genes), len(metabolism.model_reactions)))
    return _without_diagonal(catalysed @ adjacent @ catalysed.T)


DERIVED: dict[str, Callable[[Metabolism, Currency], csr_array]] = {
    "shares_complex": shares_complex,
    "isoenzyme": isoenzyme,
    "metabolic_neighbour": metabolic_neighbour,
}
"""This maps a derived relation to a function that returns a symmetric matrix [N genes, N genes], which is not zero
where two genes are related."""


def derived_edges(name: str, metabolism: Metabolism, currency: Currency | None = None) -> NDArray[np.int64]:
    """Return the edges of one derived relation, with both directions of each pair and without self-loops.

    Args:
        name: a key of `DERIVED`.
        metabolism: the model.
        currency: which metabolites do not connect reactions.

    Returns:
        Gene indices, [2, E].

    Raises:
        GraphError: the relation has no edges in this model.
    """
    edges = _edges(name, metabolism, currency or Currency())
    if not edges.size:
        raise GraphError(
            f"derived relation '{name}' has no edges",
            got=f"metabolic model '{metabolism.name}' with {len(metabolism.genes):,} genes",
            do=f"take '{name}' out of `derived`",
        )
    return edges


def has_edges(name: str, metabolism: Metabolism) -> bool:
    """Return whether a derived relation has edges in a model."""
    return bool(_edges(name, metabolism, Currency()).size)


def _edges(name: str, metabolism: Metabolism, currency: Currency) -> NDArray[np.int64]:
    return np.stack(DERIVED[name](metabolism, currency).nonzero()).astype(np.int64)


def _stoichiometric(metabolism: Metabolism) -> csr_array:
    """Return a matrix [N model reactions, N metabolites] that is not zero where a metabolite takes part."""
    node, metabolite = metabolism.converts
    edges = np.stack([metabolism.model_reaction_of[node], metabolite])
    return _incidence(edges, (len(metabolism.model_reactions), len(metabolism.metabolites)))


def _incidence(edges: NDArray[np.int64], shape: tuple[int, int]) -> csr_array:
    from scipy import sparse  # here, so that a configuration is read without it

    matrix = sparse.csr_array((np.ones(edges.shape[1], dtype=np.int64), tuple(edges)), shape=shape)
    matrix.data[:] = 1
    return matrix


def _without_diagonal(matrix: csr_array) -> csr_array:
    from scipy import sparse

    matrix = sparse.csr_array(matrix)
    matrix.setdiag(0)
    matrix.eliminate_zeros()
    return matrix

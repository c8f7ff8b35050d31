"""Describe a batch of genotypes of a cell: which genes and reactions each strain changes, and how much is left."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dglcell.checks import A_STRENGTH, no_strengths
from dglcell.errors import GenotypeError
from dglcell.graph.schema import GENE, REACTION
from dglcell.perturbation.edge_perturbation import EdgePerturbations
from dglcell.perturbation.targets import Perturbations, Targets, only, strains_of

MOST_GENES = 2**31
"""Gene indices are below this number in every cell graph."""


def _is_index(gene: Any) -> bool:
    """Return whether a gene is a whole number of Python, numpy or torch; `True` is not one."""
    try:
        operator.index(gene)
    except TypeError:
        return False
    return not isinstance(gene, (bool, np.bool_))


@dataclass(frozen=True)
class GenotypeBatch:
    """Hold the deleted and weakened genes of B strains, concatenated (CSR), on one device.

    Indices and strengths are checked once, where data is read, and not again here. A gene that is deleted twice counts
    as deleted once.
    """

    #: [P] int64 gene indices, strain by strain; behind them there may be fillers of −1, so that batches of strains with
    #: different numbers of deletions have the same shape
    genes: Tensor
    offsets: Tensor  #: [B + 1] int64; strain b changes ``genes[offsets[b]:offsets[b + 1]]``
    #: K, an upper bound of the number of genes that any strain changes. It is known on the host, so that padded shapes
    #: need no synchronisation with the device.
    max_deletions: int
    #: genes that every strain deletes, where that is known on the host; a model may compute once what the strains have
    #: in common through them
    shared: tuple[int, ...] = ()
    #: [P] float, what is left of each of ``genes``: 0 where it is deleted, 1 as in the wild type, 0.3 for a knock-down,
    #: above 1 for an overexpression; a strain then names a gene at most once. None where all are deleted, which costs
    #: less.
    strengths: Tensor | None = None
    reactions: Targets | None = None  #: reaction nodes that strains change themselves; optional
    conditions: Tensor | None = None  #: [B, C] float, what a model sees of the conditions of each strain; optional
    edges: EdgePerturbations | None = None  #: edges that strains change; optional
    #: [B, K] reaction nodes that strains lose because they lose others, −1 behind them, where that was found when the
    #: strains were read; optional
    blocked: Tensor | None = None

    @classmethod
    def from_lists(
        cls, strains: Sequence[Sequence[int] | Mapping[int, float]], num_genes: int | None = None
    ) -> GenotypeBatch:
        """Build from Python lists of gene indices, validating them.

        Args:
            strains: the deleted genes of each; or, for strains that are not all deletions, gene → strength.
            num_genes: number of genes of the cell graph; None where it is unknown.

        Raises:
            GenotypeError: an index is outside ``[0, num_genes)``, or a strength is negative, not finite, or not 0 and
                below ``LEAST_STRENGTH``.
        """
        for number, strain in enumerate(strains):
            if not isinstance(strain, Iterable) or not all(map(_is_index, strain)):
                raise GenotypeError(
                    f"strain {number}: genes are given by their index",
                    got=repr(strain),
                    expected="whole numbers, as `Vocabulary.index` gives them for names",
                )
            wrong = [g for g in strain if not 0 <= g < (MOST_GENES if num_genes is None else num_genes)]
            if wrong:
                raise GenotypeError(
                    f"strain {number}: gene index outside the cell graph",
                    got=wrong,
                    expected=f"0 … {num_genes - 1}" if num_genes is not None else "0 or more",
                )
        counts = torch.tensor([len(s) for s in strains], dtype=torch.int64)
        offsets = torch.zeros(len(strains) + 1, dtype=torch.int64)
        offsets[1:] = torch.cumsum(counts, 0)
        genes = torch.tensor([g for s in strains for g in s], dtype=torch.int64)
        strengths = None
        if any(isinstance(strain, Mapping) for strain in strains):
            left = [x for s in strains for x in (s.values() if isinstance(s, Mapping) else [0.0] * len(s))]
            strengths = torch.tensor(left, dtype=torch.float64)
            _check_strengths(strengths, strains_of(offsets, len(genes)))
        return cls(genes, offsets, max((len(s) for s in strains), default=0), strengths=strengths)

    @property
    def num_strains(self) -> int:
        """Return the number of strains, B."""
        return len(self.offsets) - 1

    @cached_property
    def perturbations(self) -> Perturbations:
        """Return what the strains change of the cell graph."""
        nodes = {GENE: Targets(self.genes, self.offsets, self.max_deletions, self.strengths)}
        if self.reactions is not None:
            nodes[REACTION] = self.reactions
        derived = {} if self.blocked is None else {REACTION: self.blocked}
        return Perturbations(nodes, self.edges, {GENE: self.shared} if self.shared else {}, derived)

    @property
    def strains(self) -> Tensor:
        """Return the strain of every entry of ``genes``, [P] int64; fillers belong to the last strain."""
        return strains_of(self.offsets, len(self.genes))

    def of_shared(self) -> GenotypeBatch:
        """Return the one strain that deletes the ``shared`` genes and no others, on the same device."""
        genes = only(self.shared, self.genes.device)
        return GenotypeBatch(genes.nodes, genes.offsets, genes.most)

    @property
    def deletes_only(self) -> bool:
        """Return whether strains only delete genes: none is merely weakened, and no reaction is changed."""
        return self.strengths is None and self.reactions is None

    def refuse_strengths(self, what: str, do: str) -> None:
        """Refuse strains that do more than delete genes, or differ in conditions.

        Args:
            what: what cannot express such strains, for the message.
            do: what a user can do, for the message.

        Raises:
            GenotypeError: there are such strains.
        """
        if not self.deletes_only or self.conditions is not None:
            varied = "weakened genes" if self.strengths is not None else "conditions"
            raise GenotypeError(
                f"{'strengths' if self.strengths is not None else 'conditions'} cannot be expressed by {what}",
                got=f"strains with {varied if self.reactions is None else 'weakened reactions of a medium'}",
                expected="strains that only delete genes",
                do=do,
            )

    def padded(self) -> tuple[Tensor, Tensor]:
        """Return the genes as a rectangle, and how much of each is removed; see ``Targets.padded``."""
        return self.perturbations.nodes[GENE].padded()

    def part(self, first: int, last: int) -> GenotypeBatch:
        """Return the strains from number ``first`` up to ``last``, without it; the host waits for the device."""
        mine = self.perturbations.nodes[GENE].part(first, last)
        chosen = torch.arange(first, last, device=self.genes.device)
        return replace(
            self,
            genes=mine.nodes,
            offsets=mine.offsets,
            strengths=mine.activities,
            reactions=None if self.reactions is None else self.reactions.part(first, last),
            conditions=None if self.conditions is None else self.conditions[first:last],
            edges=None if self.edges is None else self.edges.take(chosen),
            blocked=None if self.blocked is None else self.blocked[first:last],
        )

    def to(self, device: torch.device | str, non_blocking: bool = False) -> GenotypeBatch:
        """Return the batch on ``device``."""
        parts = {one.name: getattr(self, one.name) for one in fields(self)}
        there = {name: x.to(device, non_blocking=non_blocking) for name, x in parts.items() if hasattr(x, "to")}
        return replace(self, **there)


def _check_strengths(strengths: Tensor, strains: Tensor) -> None:
    wrong = np.flatnonzero(no_strengths(strengths.numpy()))
    if len(wrong):
        raise GenotypeError(
            f"strain {int(strains[wrong[0]])}: the strength of a gene is no amount",
            got=[float(strengths[i]) for i in wrong],
            expected=A_STRENGTH,
            do="leave a gene out that the strain does not change",
        )

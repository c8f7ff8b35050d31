"""Describe a batch of genotypes of a cell: which genes and reactions each strain changes, and how much is left."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from dglcell.checks import AN_ACTIVITY, no_activities
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
class GenotypeBatch(Targets):
    """Hold the deleted and weakened genes of B strains, and what else these change.

    Indices and activities are checked once, where data is read, and not again here.
    """

    #: genes that every strain deletes, where that is known on the host; a model may compute once what the strains have
    #: in common through them
    shared: tuple[int, ...] = ()
    reactions: Targets | None = None  #: reaction nodes that strains change themselves; optional
    covariates: Tensor | None = None  #: [B, C] float, what a model sees of the covariates of each strain; optional
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
            strains: the deleted genes of each; or, for strains that are not all deletions, gene → activity.
            num_genes: number of genes of the cell graph; None where it is unknown.

        Raises:
            GenotypeError: an index is outside ``[0, num_genes)``, or an activity is negative, not finite, or not 0 and
                below ``LEAST_ACTIVITY``.
        """
        for number, strain in enumerate(strains):
            if not isinstance(strain, Iterable) or not all(map(_is_index, strain)):
                what, expected = (
                    "genes are given by their index",
                    "whole numbers, as `Vocabulary.index` gives for names",
                )
                raise GenotypeError(f"strain {number}: {what}", got=repr(strain), expected=expected)
            wrong = [g for g in strain if not 0 <= g < (MOST_GENES if num_genes is None else num_genes)]
            if wrong:
                expected = f"0 … {num_genes - 1}" if num_genes is not None else "0 or more"
                raise GenotypeError(f"strain {number}: gene index outside the cell graph", got=wrong, expected=expected)
        offsets = torch.tensor([0, *map(len, strains)]).cumsum(0)
        genes = torch.tensor([g for s in strains for g in s], dtype=torch.int64)
        activities = None
        if any(isinstance(strain, Mapping) for strain in strains):
            left = [x for s in strains for x in (s.values() if isinstance(s, Mapping) else [0.0] * len(s))]
            activities = torch.tensor(left, dtype=torch.float64)
            wrong = np.flatnonzero(no_activities(activities.numpy())).tolist()
            if wrong:
                what = f"strain {int(strains_of(offsets, len(genes))[wrong[0]])}: the activity of a gene is no amount"
                do = "leave a gene out that the strain does not change"
                raise GenotypeError(what, got=[left[i] for i in wrong], expected=AN_ACTIVITY, do=do)
        return cls(genes, offsets, max(map(len, strains), default=0), activities)

    @property
    def genes(self) -> Tensor:
        """Return the changed genes, [P] int64; see ``Targets.nodes``."""
        return self.nodes

    @property
    def perturbations(self) -> Perturbations:
        """Return what the strains change of the cell graph."""
        nodes: dict[str, Targets] = {GENE: self}
        if self.reactions is not None:
            nodes[REACTION] = self.reactions
        derived = {} if self.blocked is None else {REACTION: self.blocked}
        return Perturbations(nodes, self.edges, {GENE: self.shared} if self.shared else {}, derived)

    def of_shared(self) -> GenotypeBatch:
        """Return the one strain that deletes the ``shared`` genes and no others, on the same device."""
        genes = only(self.shared, self.nodes.device)
        return GenotypeBatch(genes.nodes, genes.offsets, genes.most)

    @property
    def deletes_only(self) -> bool:
        """Return whether strains only delete genes: none is merely weakened, and no reaction is changed."""
        return self.activities is None and self.reactions is None

    def refuse_activities(self, what: str, do: str) -> None:
        """Refuse strains that do more than delete genes, or differ in covariates, which ``what`` cannot express."""
        if not self.deletes_only or self.covariates is not None:
            kind = "activities" if self.activities is not None else "covariates"
            varied = "weakened genes" if self.activities is not None else "covariates"
            got = f"strains with {varied if self.reactions is None else 'weakened reactions of a medium'}"
            what, expected = f"{kind} cannot be expressed by {what}", "strains that only delete genes"
            raise GenotypeError(what, got=got, expected=expected, do=do)

    def part(self, first: int, last: int) -> Self:
        chosen = torch.arange(first, last, device=self.nodes.device)
        return replace(
            super().part(first, last),
            reactions=None if self.reactions is None else self.reactions.part(first, last),
            covariates=None if self.covariates is None else self.covariates[first:last],
            edges=None if self.edges is None else self.edges.take(chosen),
            blocked=None if self.blocked is None else self.blocked[first:last],
        )

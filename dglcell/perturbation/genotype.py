"""Describe a batch of genotypes of a cell: which genes and reactions each strain changes, and how much is left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor

from dglcell.errors import GenotypeError
from dglcell.graph.schema import GENE, REACTION
from dglcell.perturbation.targets import Perturbations, Targets, only, read_targets


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
    #: [B, K] reaction nodes that strains lose because they lose others, −1 behind them, where that was found when the
    #: strains were read; optional
    blocked: Tensor | None = None

    @classmethod
    def from_lists(
        cls, strains: Sequence[Sequence[int] | Mapping[int, float]], num_genes: int | None = None
    ) -> GenotypeBatch:
        """Build from the deleted genes of each strain, or from gene → activity; all are checked.

        ``num_genes`` is None where the cell graph is unknown.
        """
        genes = [[*strain] if isinstance(strain, Mapping) else strain for strain in strains]
        left = None
        if any(isinstance(strain, Mapping) for strain in strains):
            left = [[*s.values()] if isinstance(s, Mapping) else [0.0] * len(s) for s in strains]
        most = 2**31 if num_genes is None else num_genes
        found = read_targets("genes", genes, most, activities=left, repeats=True)
        return cls(found.nodes, found.offsets, found.most, found.activities)

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
        return Perturbations(nodes, shared={GENE: self.shared} if self.shared else {}, derived=derived)

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
        return replace(
            super().part(first, last),
            reactions=None if self.reactions is None else self.reactions.part(first, last),
            covariates=None if self.covariates is None else self.covariates[first:last],
            blocked=None if self.blocked is None else self.blocked[first:last],
        )

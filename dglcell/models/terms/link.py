"""Turn scores into phenotypes: links that compose over deletions, and the least fit of a strain's measured parts.

A training strain is a *part* of a strain if every reaction (or gene) that it loses is lost by the strain too.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from dglcell.errors import ConfigError, DataError
from dglcell.graph.resident import ResidentCell
from dglcell.graph.schema import CONVERTS, GENE, REACTION
from dglcell.models.config import LinkConfig
from dglcell.models.terms.term import Seen, Surroundings, Term, Training
from dglcell.nn.config import LINKS
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.rules import from_source
from dglcell.perturbation.sent import keep_masks, listed

MOST_CELLS = 2**28
"""Most entries of a table of training strains and nodes: a gigabyte."""

WILD_TYPE, LEAST = 1.0, 0.0
"""Phenotypes of the strain without deletions, and of one that does not grow: none is below."""

MISSING = 1e30
"""This replaces a missing label: it bounds nothing, and is finite, as everything in a checkpoint has to be."""

FLOOR = 1e-3
"""Smaller values are raised to this before they are bounded, as their powers overflow."""

LEAK = 0.05
"""``bounded`` has this slope beyond the bounds while a model trains, so that scores far outside have a gradient."""

PARTS, WHOLES = "measured parts", "measured strains that lose more"
"""Attributions give these names to what bounds phenotypes."""


def log(score: Tensor) -> Tensor:
    r"""Return :math:`y = e^\eta`: where scores of deletions add up, their effects on the phenotype multiply."""
    return score.clamp(max=20.0).exp()  # far beyond any phenotype, and finite


def saturation(score: Tensor) -> Tensor:
    r"""Return :math:`y = \sigma(c + \eta) / \sigma(c)`, c = 2.

    Small effects are buffered, larger ones multiply, and nothing raises the phenotype by more than 14 %.
    """
    return torch.sigmoid(2.0 + score) * (1 + math.exp(-2.0))


def minimum(value: Tensor, bound: Tensor) -> Tensor:
    r"""Return a smooth minimum of two phenotypes: :math:`(b^{-k} + s^{-k} - 1)^{-1/k}`, k = 4.

    It is Schweizer and Sklar's triangular norm, which lies between the product (k → 0) and the minimum (k → ∞). Without
    a bound (b = 1) it is s, what a strain would have by itself. Without an effect (s = 1) it is b, what its measured
    parts have: at most 1, so that the root exists. It is at most either where both are at most 1, and only one of them
    counts where they differ by more than a factor of about 2.
    """
    s, b = value.clamp(min=FLOOR), bound.clamp(min=FLOOR, max=1.0)
    return (s.pow(-4.0) + b.pow(-4.0) - 1).pow(-0.25)


def bounded(score: Tensor, least: Tensor, largest: Tensor, slope: float = 0.0) -> Tensor:
    r"""Return :math:`y = \min(b, \max(a, 1 + \eta))`: exactly a bound for any score that is low or high enough.

    The largest value b takes precedence where it is below a, which noise in labels can cause. ``slope`` is that outside
    of the bounds.
    """
    free = 1 + score
    held = free.maximum(least).minimum(largest)
    return held + slope * (free - held)


class Link(Term):
    r"""Turn the scores :math:`\eta` of a model into normalised phenotypes.

    Links but ``identity`` are for phenotypes relative to the wild type, whose value is 1. The score of the strain
    without deletions is taken off every score, so that this strain has the wild type's value exactly. A link gives
    original units; these are normalised here, once, and nowhere else on the way to the loss. The guide to models lists
    the links.

    Strains lose reactions, or genes where the model reads no reactions; that decides which measured strains are parts
    of a strain. A model that was trained on strains with activities or covariates compares them with none. Parts of
    strains are told by the genes that they lack, which does not say how weak these are, or in which medium.

    Attributes:
        codes: [T] number of the link, as in ``LINKS``.
        shift, scale: [T] of the normalisation.
        measured: the training strains, for ``minimum`` and ``bounded``; else None.
    """

    Config = LinkConfig
    shift: Tensor
    scale: Tensor

    def __init__(self, config: LinkConfig, surroundings: Surroundings) -> None:
        super().__init__(config, surroundings)
        outputs, self.link = surroundings.outputs, config.link
        self.register_buffer("codes", torch.full((outputs,), LINKS[self.link], dtype=torch.uint8))
        self.register_buffer("shift", torch.zeros(outputs))
        self.register_buffer("scale", torch.ones(outputs))
        self.measured = None
        if self.link in ("minimum", "bounded"):
            reactions = surroundings.metabolism and REACTION in surroundings.cell.num_nodes
            node_type = REACTION if reactions else GENE
            self.measured = MeasuredStrains(outputs, node_type, whole=self.link == "bounded")
            self.fitted = tuple(f"measured.{name}" for name in ("genes", "offsets", "labels"))

    def fit(self, train: Training, cell: ResidentCell) -> None:
        """Take the units, and the strains to compare with."""
        strains = train.strains
        for name, fitness_like in zip(strains.phenotypes, train.fitness_like, strict=True):
            if not fitness_like and self.link != "identity":
                what = f"`model.link: {self.link}` is for phenotypes relative to the wild type, such as a fitness"
                expected = "labels that are mostly positive, hardly ever negative, and have other values than 0 and 1"
                do = "set `model.link: identity`"
                raise ConfigError(what, got=f"phenotype '{name}'", expected=expected, do=do)
        self.shift.copy_(train.normaliser.shift)
        self.scale.copy_(train.normaliser.scale)
        if self.measured is not None and strains.activities is None and not strains.covariates:
            self.measured.remember(cell, strains.perturbations, strains.labels)

    def finish(self, score_BT: Tensor, seen: Seen) -> Tensor:
        """Return phenotypes of strains, beside those of their measured parts where the link compares them, [B, T]."""
        bounds = self._bounds(score_BT, seen.cell, seen.strains) or (None, None)
        return self.phenotypes(score_BT, seen.wild_type_score(score_BT), *bounds)

    def _bounds(
        self, like_BT: Tensor, cell: ResidentCell, genotypes: GenotypeBatch
    ) -> tuple[Tensor, Tensor | None] | None:
        """Return the smallest phenotypes of the strains' measured parts, [B, T]; None where the link compares none.

        For ``bounded`` it also returns the largest of the measured strains that they are parts of, [B, T].
        """
        if self.measured is None:
            return None
        beyond = not genotypes.deletes_only or genotypes.covariates is not None
        if beyond and not len(self.measured.genes):
            unbounded_BT = torch.full_like(like_BT, torch.inf)
            return unbounded_BT, -unbounded_BT
        do = "leave activities such as `:0.3` out, or train with `model.link: saturation`"
        genotypes.refuse_activities(f"`model.link: {self.link}`, which compares lost parts", do)
        if self.training and self.link == "bounded":
            # A strain with new genes has few bounds, so that a model must not learn to rely on them.
            return torch.full_like(like_BT, WILD_TYPE), torch.zeros_like(like_BT)
        bound_BT, least_BT = from_source(PARTS, self.measured(cell, genotypes), WILD_TYPE), None
        if self.link == "bounded":
            least_BT = from_source(WHOLES, self.measured.largest(cell, genotypes), LEAST)
        return bound_BT, least_BT

    def phenotypes(
        self, score_BT: Tensor, wild_type_1T: Tensor, bound_BT: Tensor | None, least_BT: Tensor | None = None
    ) -> Tensor:
        """Return phenotypes in normalised units, [B, T], from scores and bounds in original units; see ``_bounds``."""
        if self.link == "identity":
            return score_BT
        anchored_BT = score_BT - wild_type_1T
        value_BT = log(anchored_BT) if self.link == "log" else saturation(anchored_BT)
        if self.link == "minimum" and bound_BT is not None:
            value_BT = minimum(value_BT, bound_BT)
        if self.link == "bounded" and bound_BT is not None:
            least_BT = torch.zeros_like(bound_BT) if least_BT is None else least_BT
            value_BT = bounded(anchored_BT, least_BT, bound_BT, LEAK if self.training else 0.0)
        return (value_BT - self.shift) / self.scale


class MeasuredStrains(nn.Module):
    """Hold the training strains, and find the smallest label among those that lose only what a strain loses.

    Growth cannot be above that of any part as long as a deletion only takes away. In turn, it cannot be below that of
    any strain of which it is a part. Only labels of the training part are used, and a strain's own label is left out: a
    training strain gets the same bounds as if it were held out. A strain is identified by its set of deleted genes.

    Args:
        outputs: number T of phenotypes.
        node_type: node type whose lost nodes are compared.
        whole: compare what a strain loses altogether: reaction nodes with the same metabolites, such as the enzyme
            complexes of one reaction, count as lost when all of them are.

    Attributes:
        genes: [P] int32 deleted genes, strain by strain.
        offsets: [S + 1] int64.
        labels: [S, T] in original units; ``MISSING`` where missing.
    """

    genes: Tensor
    offsets: Tensor
    labels: Tensor

    def __init__(self, outputs: int, node_type: str, *, whole: bool = False) -> None:
        super().__init__()
        self.node_type, self.whole = node_type, whole and node_type == REACTION
        self._same: Tensor | None = None
        self.register_buffer("genes", torch.zeros(0, dtype=torch.int32))
        self.register_buffer("offsets", torch.zeros(1, dtype=torch.int64))
        self.register_buffer("labels", torch.zeros(0, outputs))
        self._tables: dict[bool, _Table] = {}
        self._labels_of_tables = self.labels

    def remember(self, cell: ResidentCell, genotypes: GenotypeBatch, labels_ST: Tensor) -> None:
        """Take in training strains and labels in original units, NaN where missing; too many are a ``DataError``."""
        nodes = cell.num_nodes[self.node_type]
        if nodes * len(labels_ST) > MOST_CELLS:
            what = "`model.link` compares every strain with all training strains, which are too many here"
            got = f"{len(labels_ST):,} strains, {nodes:,} nodes of type {self.node_type}"
            expected = f"a product of at most {MOST_CELLS:,}"
            raise DataError(what, got=got, expected=expected, do="set `model.link: saturation`")
        self.genes, self.offsets = genotypes.genes.int(), genotypes.offsets
        self.labels = labels_ST.nan_to_num(MISSING)

    def forward(self, cell: ResidentCell, genotypes: GenotypeBatch) -> Tensor:
        """Return the smallest label of each strain's measured parts, [B, T]; the wild type's where none is smaller."""
        return self._least(cell, genotypes, of_parts=True)

    def largest(self, cell: ResidentCell, genotypes: GenotypeBatch) -> Tensor:
        """Return the largest label of the training strains that each strain is a part of, [B, T]; 0 where none is."""
        return -self._least(cell, genotypes, of_parts=False)

    @torch.no_grad()
    def _least(self, cell: ResidentCell, genotypes: GenotypeBatch, *, of_parts: bool) -> Tensor:
        """Return the smallest label of other strains that are parts, or of which these are parts, [B, T]."""
        table, lost_BN = self._table(cell, of_parts=of_parts), self._lost(cell, genotypes)
        sizes = table.lost.sum(1) if of_parts else lost_BN.sum(1, keepdim=True)
        compared_BM = lost_BN[:, table.columns].float() @ table.lost.T == sizes
        own_BMT, most = table.owner == _keys(table.bits, genotypes)[:, None, None], WILD_TYPE if of_parts else -LEAST
        labels_BMT = torch.where(own_BMT, table.second, table.first).masked_fill(~compared_BM[..., None], most)
        return nn.functional.pad(labels_BMT, (0, 0, 1, 0), value=most).amin(1)

    def _table(self, cell: ResidentCell, *, of_parts: bool) -> _Table:
        """Return the table in which the parts of a strain are found, or the strains that it is a part of."""
        # Of other training strains, or on another device, labels are another tensor.
        if self._labels_of_tables is not self.labels:
            self._tables, self._labels_of_tables = {}, self.labels
        if of_parts not in self._tables:
            counts = self.offsets.diff()
            genotypes = GenotypeBatch(self.genes.long(), self.offsets, int(counts.max()) if len(counts) else 0)
            # The largest label is found as the smallest of the labels times −1.
            labels_ST = self.labels if of_parts else self.labels.masked_fill(self.labels == MISSING, LEAST).neg()
            lost_SN = self._lost(cell, genotypes)
            self._tables[of_parts] = _table_of(cell, lost_SN, genotypes, labels_ST, prune=of_parts)
        return self._tables[of_parts]

    def _lost(self, cell: ResidentCell, genotypes: GenotypeBatch) -> Tensor:
        """Return whether each strain loses each node, or each set of nodes with the same metabolites, [B, N].

        Where strains lose blocked reactions, only reactions count that could carry flux and no longer can. A strain
        that loses one of several enzymes of a reaction loses nothing.
        """
        if self.node_type == REACTION and cell.steady_state is not None:
            return blocked_reactions(cell, genotypes).T
        lost_BN = ~keep_masks(cell, genotypes)[self.node_type].T
        if not self.whole:
            return lost_BN
        if self._same is None or self._same.device != lost_BN.device:
            self._same = _with_the_same_metabolites(cell)
        return lost_BN.float() @ self._same == self._same.sum(0)


class _Table(NamedTuple):
    """Hold distinct sets of lost nodes that can bound a strain, with the two smallest labels of the strains of each."""

    bits: Tensor  #: [N] a number for each gene; the sum over a set's genes identifies the set
    columns: Tensor  #: nodes that at least one strain loses
    lost: Tensor  #: [M, C] float32, 1 where a set has the node
    first: Tensor  #: [M, T] smallest label
    second: Tensor  #: [M, T] smallest label of the other strains
    owner: Tensor  #: [M, T] number of the strain with the smallest label


@torch.no_grad()
def _table_of(
    cell: ResidentCell, lost_SN: Tensor, genotypes: GenotypeBatch, labels_ST: Tensor, *, prune: bool
) -> _Table:
    """Make the table of training strains, which lose nodes; ``prune`` drops sets that bound nothing from above."""
    device = genotypes.genes.device
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(2**62, (cell.num_nodes[GENE],), generator=generator).to(device)
    columns = lost_SN.any(0).nonzero().squeeze(1)
    if not len(columns):  # no training strain loses such a node, or there is none
        return _Table(bits, columns, labels_ST.new_zeros(0, 0), *(labels_ST[:0],) * 3)
    sets, which = torch.unique(lost_SN[:, columns], dim=0, return_inverse=True)
    keys_S = _keys(bits, genotypes)
    lowest = [_two_lowest(len(sets), which, keys_S, label_S) for label_S in labels_ST.unbind(1)]
    first, second, owner = (torch.stack(parts, 1) for parts in zip(*lowest, strict=True))
    needed = _needed(sets.float(), first) if prune else torch.ones(len(sets), dtype=torch.bool, device=device)
    return _Table(bits, columns, *(x[needed] for x in (sets.float(), first, second, owner)))


def _with_the_same_metabolites(cell: ResidentCell) -> Tensor:
    """Return 1 where a reaction node converts what set G converts, in the same amounts, [N, G] float32."""
    converts = cell[CONVERTS]
    amounts_NM = torch.zeros(converts.num_src, converts.num_dst, device=converts.src.device)
    assert converts.weight is not None
    amounts_NM[converts.src, converts.dst] = converts.weight.float()
    which_N = torch.unique(amounts_NM, dim=0, return_inverse=True)[1]
    return nn.functional.one_hot(which_N).float()


def _keys(bits: Tensor, genotypes: GenotypeBatch) -> Tensor:
    genes_BK, present_BK = genotypes.padded()
    return (bits[genes_BK] * present_BK).sum(1)


def _needed(sets_MC: Tensor, first_MT: Tensor) -> Tensor:
    """Return whether a set can bound a strain at all, [M]: where a smaller part has no larger label, that part does.

    Strains that lose nothing bound no other: else the least of many measurements of the wild type would bound all.
    """
    size_M = sets_MC.sum(1)
    needed = (first_MT < WILD_TYPE).any(1) & (size_M > 0)
    for rows in torch.arange(len(size_M), device=size_M.device).split(1024):
        is_part = (sets_MC[rows] @ sets_MC.T == size_M) & (size_M < size_M[rows, None]) & (size_M > 0)
        smallest = torch.where(is_part[..., None], first_MT, torch.inf).amin(1)
        needed[rows] &= (first_MT[rows] < smallest).any(1)
    return needed


def _two_lowest(sets: int, which_S: Tensor, keys_S: Tensor, label_S: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return for each set, [M], its smallest label, that of strains with other genes, and whose the first one is."""
    order = torch.argsort(label_S, stable=True)
    order = order[torch.argsort(which_S[order], stable=True)]
    which, keys, labels = which_S[order], keys_S[order], label_S[order]
    start = torch.searchsorted(which, torch.arange(sets, device=which.device))
    owner = keys[start]
    second = labels.new_full((sets,), torch.inf)
    others = keys != owner[which]
    second.scatter_reduce_(0, which[others], labels[others], "amin")
    return labels[start], second, owner


def blocked_reactions(cell: ResidentCell, genotypes: GenotypeBatch) -> Tensor:
    """Return which reaction nodes could carry flux in the wild type and cannot in each strain, [N, B] bool."""
    assert cell.steady_state is not None
    known_BK = genotypes.perturbations.derived.get(REACTION)
    if known_BK is not None:
        return listed(known_BK, cell.num_nodes[REACTION])
    return cell.steady_state.lost(keep_masks(cell, genotypes), genotypes.perturbations.tensors)

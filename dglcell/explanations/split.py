"""Split the changes that a model predicts for a batch of strains, so that the parts sum to them."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dglcell.data.transform import Normaliser
from dglcell.errors import ConfigError
from dglcell.explanations.edges import CarriedEdges
from dglcell.explanations.graph import Removed, Rows, Trace, trace
from dglcell.graph.edge_targets import EDGES
from dglcell.models.hetero_cell import HeteroCell
from dglcell.models.model import StrainModel
from dglcell.nn.config import LINKS
from dglcell.nn.flux_rounds import GrowthShares
from dglcell.nn.heads import AttentionPooling
from dglcell.perturbation import secants
from dglcell.perturbation.execution import BasePass
from dglcell.perturbation.genotype import GenotypeBatch, ReactionStrengths
from dglcell.perturbation.rules import PerturbedTensor

GRAPH, ALONE, TOGETHER = "graph", "deleted genes, each alone", "deleted genes, together"
BALANCE, MEASURED, NULLS, CONDITIONS = "flux balance", "measured strains", "null models", "conditions"
PARTS = (GRAPH, ALONE, TOGETHER, CONDITIONS, BALANCE, MEASURED, NULLS)
"""These are what a model's output depends on directly; ``GRAPH`` is what strains' graphs say."""

_Values = tuple[Tensor | None, ...]

STEP = 1e-5
"""The slope of a phenotype where the score does not change is taken over so large a change of the score."""


@dataclass(frozen=True)
class BalanceShares:
    """Hold the part of flux balance by groups of reaction nodes with the same metabolites, for B strains.

    Attributes:
        nodes: [G] one node of each group.
        share_GB: its share. What they leave of the part comes from metabolites that the rounds leave out of balance,
            and from bounds of growth.
        wild_type_G, flux_GB: fluxes in the wild type and in the strains, in the unit of the metabolic model.
    """

    nodes: Tensor
    share_GB: Tensor
    wild_type_G: Tensor
    flux_GB: Tensor


@dataclass(frozen=True)
class Split:
    """Hold the parts of the changes of one phenotype in B strains, in original units.

    Attributes:
        wild_type_B, predicted_B: what the model predicts for the wild type in the same conditions, and for the strain.
        parts: part → [B] its share, among ``PARTS``; those that the model has.
        removed: where removed nodes change something themselves, with [N, B] the share of each.
        rows: differences that pass through, with [K] the share of each listed pair.
        balance: the part of flux balance by groups of reaction nodes; None without it, or with growth media.
        edges: edges that carry differences, with [P] the share of each; none where they are not asked for.
    """

    wild_type_B: Tensor
    predicted_B: Tensor
    parts: dict[str, Tensor]
    removed: list[tuple[Removed, Tensor]]
    rows: list[tuple[Rows, Tensor]]
    balance: BalanceShares | None = None
    edges: list[tuple[CarriedEdges, Tensor]] = field(default_factory=list)

    @property
    def change_B(self) -> Tensor:
        """Return by how much the predictions differ from that for the wild type."""
        return self.predicted_B - self.wild_type_B

    @property
    def rest_B(self) -> Tensor:
        """Return what the parts leave: rounding, and functions without a rule that are not smooth."""
        return self.change_B - torch.stack(list(self.parts.values())).sum(0)


def check_model(model: StrainModel) -> HeteroCell:
    """Return a model that can be explained.

    Raises:
        ConfigError: the model is of another kind, or strains change edges.
    """
    if EDGES in (model.config.conditions or {}):
        raise ConfigError(
            "strains that change edges cannot be explained",
            got=f"a model that sees the condition `{EDGES}`",
            expected="strains that change genes, reactions or a medium",
            do=f"leave `{EDGES}` out of `data.source.csv.conditions`, and train anew",
        )
    if isinstance(model, HeteroCell) and type(model).forward is HeteroCell.forward:
        return model
    raise ConfigError(
        "this model cannot be explained",
        got=f"`model.name: {model.config.name}`",
        expected="hetero_cell, which passes messages over the strains' own graphs",
        do="train such a model, e.g. with `model.name=hetero_cell`",
    )


class Explainer:
    """Split the changes that one model predicts; what it computes of the wild type is kept for later batches.

    Args:
        model: a trained model, which is used in evaluation mode.
        normaliser: what turns its outputs into original units; None where they are.
        edges: whether to split what layers bring in over edges, too.

    Raises:
        ConfigError: the model is of another kind than ``HeteroCell``.
    """

    def __init__(self, model: StrainModel, normaliser: Normaliser | None = None, edges: bool = False) -> None:
        self.model, self.edges = check_model(model), edges
        self._wild_type: list[Tensor] = []
        # What follows the graphs is a few rows, so that it is computed in double precision.
        self._global_head, self._combination = _wide(self.model.global_head), _wide(self.model.combination)
        self._link = None if self.model.link is None else _wide(self.model.link)
        self._normaliser = None if normaliser is None else _wide(normaliser)

    @property
    def num_layers(self) -> int:
        """Return the number of rounds of messages, L."""
        return len(self.model.encoder.layers)

    def __call__(self, genotypes: GenotypeBatch) -> list[Split]:
        """Split the changes of each phenotype in B strains.

        Args:
            genotypes: the strains, on the device of the model.
        """
        model = self.model
        training = model.training
        model.eval()
        try:
            with _frozen(model), torch.enable_grad(), torch.inference_mode(False):
                return self._split(genotypes)
        finally:
            model.train(training)

    def _split(self, genotypes: GenotypeBatch) -> list[Split]:
        model, B = self.model, genotypes.num_strains
        both = with_references(genotypes)
        # The wild type in the conditions of each strain; without conditions one for all.
        own = torch.arange(B, both.num_strains, device=genotypes.genes.device).expand(B)
        with torch.no_grad():
            predicted_CT = self._restore(model(both).phenotypes.double())
        seen = both if model.learned is None else model.learned(both)
        seen = model.in_conditions(seen)
        with secants.secants():
            inputs = self._inputs(both, seen)
            score_CT, leaves, found = self._score(seen, inputs)
            players = self._players(seen, score_CT, inputs, own)
            shares, slopes_BT = self._shares(players, score_CT.detach(), own)
            rounds = None if model.cell.media else model.flux_rounds
            growth = None if rounds is None else (rounds.shares(model.cell, seen), inputs["growth"][:B])
            out_BT = slopes_BT * (score_CT[:B] - score_CT[own])
            return [
                self._phenotype(t, out_BT, predicted_CT, own, shares, leaves, found, growth)
                for t in range(out_BT.shape[1])
            ]

    def _inputs(self, as_given: GenotypeBatch, seen: GenotypeBatch) -> dict[str, Tensor]:
        """Return what the output depends on beside the graphs: growth, its bounds, and what null models predict."""
        inputs, model, growth = dict[str, Tensor](), self.model, None
        with torch.no_grad():
            if model.flux_rounds is not None:
                growth, certain = model.flux_rounds(model.cell, seen)
                inputs |= {"growth": growth.double(), "certain": certain.double()}
            if model.null_share is not None:
                inputs[NULLS] = model.null_share(as_given, growth).double()
        return inputs

    def _score(self, genotypes: GenotypeBatch, inputs: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor], Trace]:
        """Return by how much scores differ from that of the wild type, [C, T], and the tensors they come from."""
        model, config = self.model, self.model.config
        scales = {t: model.cell.num_nodes[t] for t in config.pool}
        pools: dict[str, tuple[AttentionPooling, float]] = {}
        for t in config.pool:
            part = model.pools[t]
            assert isinstance(part, AttentionPooling)
            pools[t] = part, scales[t]
        found = trace(model.encoder, pools, genotypes, BasePass(self._wild_type), self.edges)
        leaves: dict[str, Tensor] = {}
        embedding = -found.pooled_BD.double()  # z_w − z_i
        if "growth" in inputs:
            leaves[BALANCE] = (1 - inputs["growth"]).requires_grad_()
            embedding = torch.cat([embedding, leaves[BALANCE]], 1)
        if model.readout is not None and model.readout.to_strain is not None:
            with torch.no_grad():
                moved = model.readout.strain(torch.zeros_like(embedding, dtype=found.pooled_BD.dtype), genotypes)
            leaves[CONDITIONS] = moved.double().requires_grad_()
            embedding = embedding + leaves[CONDITIONS]
        C = genotypes.num_strains
        score: Any = PerturbedTensor(embedding.new_zeros(1, embedding.shape[1]), embedding, C)
        score = self._global_head(score)
        if model.local_head is not None:
            leaves |= self._local_scores(genotypes, found.genes_NH)
            local = leaves[ALONE].sum(1) + leaves[TOGETHER]
            zero = local.new_zeros(1, local.shape[1])
            of_genes: Any = PerturbedTensor(zero, local, C)
            score, _ = self._combination(score, of_genes)
        return score.delta, leaves, found

    @torch.no_grad()
    def _local_scores(self, genotypes: GenotypeBatch, genes_NH: Tensor) -> dict[str, Tensor]:
        """Return what the local head says of each changed gene alone, [C, K, T], and of all beyond that, [C, T]."""
        model = self.model
        genes_BK, removed_BK = genotypes.padded()
        x_BKH = F.embedding(genes_BK, genes_NH)
        if model.readout is not None:
            x_BKH = model.readout.genes(x_BKH, removed_BK, genotypes)
        head = model.local_head
        assert head is not None
        whole_BT = head(x_BKH, genes_BK, removed_BK).double()
        one = (part.flatten(0, 1).unsqueeze(1) for part in (x_BKH, genes_BK, removed_BK))
        alone = head(*one).double().unflatten(0, genes_BK.shape) if genes_BK.shape[1] else None
        alone = whole_BT.new_zeros(len(whole_BT), 0, whole_BT.shape[1]) if alone is None else alone
        together = whole_BT - alone.sum(1)
        with torch.enable_grad():
            return {ALONE: alone.requires_grad_(), TOGETHER: together.requires_grad_()}

    def _players(
        self, seen: GenotypeBatch, score_CT: Tensor, inputs: Mapping[str, Tensor], own: Tensor
    ) -> dict[str, tuple[_Values, _Values]]:
        """Return what the link and what follows it read, by part: of the strains, and of their wild types.

        Bounds are wide open for the wild type, which has its own value without them: else no other part could count.
        """
        B, players = len(own), dict[str, tuple[_Values, _Values]]()
        if self._link is not None:
            if "growth" in inputs and self._link.name == "bounded":
                growth, certain = inputs["growth"][:, -1:], inputs["certain"]
                open_B2 = certain[own] if seen.conditions is not None else _open(certain[:B])
                players[BALANCE] = (growth[:B], certain[:B]), (growth[own], open_B2)
            with torch.no_grad():
                bounds = self._link.bounds(score_CT, self.model.cell, seen)
            if bounds is not None:
                largest, least = bounds[0][:B].double(), None if bounds[1] is None else bounds[1][:B].double()
                none = torch.full_like(largest, torch.inf)
                players[MEASURED] = (largest, least), (none, None if least is None else -none)
        if NULLS in inputs:
            players[NULLS] = (inputs[NULLS][:B],), (inputs[NULLS][own],)
        return players

    def _output(self, score_BT: Tensor, players: Mapping[str, _Values]) -> Tensor:
        """Return phenotypes in original units from scores less that of the wild type."""
        zero_1T, out_BT = self._wild_type_score(score_BT), score_BT
        if self._link is None:
            out_BT = score_BT + zero_1T
        else:
            bounds, balance = (cast(Any, players.get(name)) for name in (MEASURED, BALANCE))
            out_BT = self._link.between(score_BT, torch.zeros_like(zero_1T), bounds, balance)
            out_BT = out_BT + zero_1T * (self._link.codes == LINKS.index("identity"))
        if NULLS in players:
            [nulls_BT] = players[NULLS]
            assert nulls_BT is not None
            out_BT = torch.lerp(out_BT, nulls_BT, self.model.config.null_share)
        return self._restore(out_BT)

    def _wild_type_score(self, like_BT: Tensor) -> Tensor:
        first = self._global_head[0]
        assert isinstance(first, nn.Linear)
        score_1T: Tensor = self._global_head(like_BT.new_zeros(1, first.in_features))
        if self.model.local_head is not None:
            score_1T, _ = self._combination(score_1T, torch.zeros_like(score_1T))
        return score_1T

    def _restore(self, outputs: Tensor) -> Tensor:
        return outputs if self._normaliser is None else self._normaliser.restore(outputs)

    @torch.no_grad()
    def _shares(
        self, players: Mapping[str, tuple[_Values, _Values]], score_CT: Tensor, own: Tensor
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Split the outputs between the score and the other players by Shapley's values.

        Returns:
            player → [B, T] its share, and the share of the score by the change of the score, [B, T].
        """
        B = len(own)

        def value(chosen: frozenset[str], score_BT: Tensor) -> Tensor:
            return self._output(score_BT, {name: values[name not in chosen] for name, values in players.items()})

        def shapley(here: Tensor, there: Tensor) -> dict[str, Tensor]:
            names = ["score", *players]
            outputs = {
                chosen: value(chosen, here if "score" in chosen else there)
                for size in range(len(names) + 1)
                for chosen in map(frozenset, itertools.combinations(names, size))
            }
            return {name: _shapley_value(name, names, outputs) for name in names}

        here, there = score_CT[:B], score_CT[own]
        shares = shapley(here, there)
        change = here - there
        # Where the score hardly changes, its share is as small, and its slope is that at the wild type.
        still = change.abs() < STEP
        around = shapley(there + STEP, there - STEP)["score"] / (2 * STEP)
        slopes = torch.where(still, around, shares["score"] / torch.where(still, 1, change))
        return {name: share for name, share in shares.items() if name != "score"}, slopes

    def _phenotype(
        self,
        t: int,
        out_BT: Tensor,
        predicted_CT: Tensor,
        own: Tensor,
        shares: Mapping[str, Tensor],
        leaves: Mapping[str, Tensor],
        found: Trace,
        growth: tuple[GrowthShares, Tensor] | None,
    ) -> Split:
        """Go back from the changes of one phenotype, and multiply what arrives by what is there."""
        B = len(own)
        removed, rows = [one.removed_NB for one in found.removed], [one.delta_KH for one in found.rows]
        taps = [*leaves.values(), *removed, *rows, *(one.carried_P for one in found.edges)]
        # What nothing removed has reached has no gradient, and no share.
        live = [tap for tap in taps if tap.requires_grad]
        grads = iter(torch.autograd.grad(out_BT[:, t].sum(), live, retain_graph=True, allow_unused=True))
        arrived = [next(grads) if tap.requires_grad else None for tap in taps]
        of_leaves = dict(zip(leaves, arrived, strict=False))
        products = iter(
            torch.zeros_like(tap, dtype=torch.float64) if grad is None else (grad * tap.detach()).double()
            for tap, grad in zip(taps, arrived, strict=True)
        )
        parts = {name: _of_strains(next(products).flatten(1).sum(1), B) for name in leaves}
        of_removed = [(one, _of_strains(next(products), B)) for one in found.removed]
        of_rows = [(one, next(products).sum(1)) for one in found.rows]
        of_edges = [(one, next(products)) for one in found.edges]
        parts[GRAPH] = torch.stack([share.sum(0) for _, share in of_removed]).sum(0)
        for name, share in shares.items():
            parts[name] = parts.get(name, 0) + share[:, t]
        ordered = {name: parts[name] for name in PARTS if name in parts}
        balance = None
        if growth is not None:
            linked_B = shares[BALANCE][:, t] if BALANCE in shares else None
            balance = _balance(*growth, of_leaves[BALANCE], linked_B)
        return Split(predicted_CT[own, t], predicted_CT[:B, t], ordered, of_removed, of_rows, balance, of_edges)


def _balance(found: GrowthShares, growth_BP: Tensor, slope_CP: Tensor | None, linked_B: Tensor | None) -> BalanceShares:
    """Split the part of flux balance over groups of reactions: what growth counts for, times its own split.

    Args:
        growth_BP: growth after each part of the rounds, relative to the wild type's.
        slope_CP: by how much the output rises with each fall of growth, through the head.
        linked_B: what the last growth changes in the link.
    """
    B = len(growth_BP)
    weight_BP = torch.zeros_like(growth_BP) if slope_CP is None else -slope_CP[:B].double()
    if linked_B is not None:
        change_B = growth_BP[:, -1] - 1
        still_B = change_B.abs() < STEP
        weight_BP[:, -1] += torch.where(still_B, 0, linked_B / torch.where(still_B, 1, change_B))
    share_GB = torch.einsum("pgb,bp->gb", found.shares_PGB[..., :B], weight_BP)
    return BalanceShares(found.nodes, share_GB, found.wild_type_G.double(), found.flux_GB[:, :B].double())


def _open(certain_B2: Tensor) -> Tensor:
    """Return bounds that leave everything open, −∞ and ∞."""
    return torch.tensor([-torch.inf, torch.inf], dtype=certain_B2.dtype, device=certain_B2.device).expand_as(certain_B2)


def _shapley_value(name: str, names: Sequence[str], outputs: Mapping[frozenset[str], Tensor]) -> Tensor:
    """Return the mean over all orders of what a player adds to those before it."""
    others, n = [one for one in names if one != name], len(names)
    total: Tensor | float = 0.0
    for size in range(n):
        weight = 1 / (n * math.comb(n - 1, size))
        for before in map(frozenset, itertools.combinations(others, size)):
            total = total + weight * (outputs[before | {name}] - outputs[before])
    assert isinstance(total, Tensor)
    return total


def _of_strains(share: Tensor, B: int) -> Tensor:
    """Return shares of strains, less those of their wild types where each has its own."""
    return share[..., :B] if share.shape[-1] != 2 * B else share[..., :B] + share[..., B:]


def with_references(genotypes: GenotypeBatch) -> GenotypeBatch:
    """Return the strains, and behind them the wild type in the conditions of each; one for all without conditions."""
    number = genotypes.num_strains if genotypes.conditions is not None or genotypes.reactions is not None else 1
    end = genotypes.offsets[-1]
    offsets = torch.cat([genotypes.offsets, end.expand(number)])
    genes, left = genotypes.genes[: int(end)], genotypes.strengths
    own, conditions = genotypes.reactions, genotypes.conditions
    return replace(
        genotypes,
        genes=genes,
        offsets=offsets,
        shared=(),
        strengths=None if left is None else left[: int(end)],
        reactions=None if own is None else _twice(own),
        conditions=None if conditions is None else torch.cat([conditions, conditions]),
    )


def _twice(own: ReactionStrengths) -> ReactionStrengths:
    offsets = torch.cat([own.offsets, own.offsets[1:] + own.offsets[-1]])
    return ReactionStrengths(own.nodes.repeat(2), offsets, own.strengths.repeat(2))


Module = TypeVar("Module", bound=nn.Module)


def _wide(module: Module) -> Module:
    """Return a copy in double precision and evaluation mode."""
    return copy.deepcopy(module).double().eval()


@contextmanager
def _frozen(model: nn.Module) -> Iterator[None]:
    """Take the gradient from all weights, and give it back."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)

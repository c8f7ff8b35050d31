"""Pass differences of strains through a cell graph so that the backward pass splits them over nodes and relations.

Messages differ because nodes are removed, and because states already differ. ``Traced`` computes what ``Difference``
does within ``secants()``, and keeps how much of each node is removed as a tensor of its own for every relation of every
layer. The gradient for that tensor, times what is removed, is the share of the node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dglcell.explanations.edges import CarriedEdges, along_edges
from dglcell.graph.resident import ResidentCell
from dglcell.graph.schema import GENE, Relation
from dglcell.kernels.spmm import spmm
from dglcell.models.encoder import CellEncoder
from dglcell.nn.heads import AttentionPooling
from dglcell.perturbation import secants
from dglcell.perturbation.attention import Score, attend_pairs
from dglcell.perturbation.base_rows import take_rows
from dglcell.perturbation.execution import BasePass
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import PerturbedCell
from dglcell.perturbation.row_index import RowIndex, union
from dglcell.perturbation.sent import Kept, keep_masks, strengths
from dglcell.perturbation.states import DifferenceStates, Execution, States
from dglcell.perturbation.strategies.difference import Difference, listed_sums


@dataclass(frozen=True)
class Removed:
    """Hold where removed nodes change something themselves: what they send in a layer, or what is pooled.

    Attributes:
        layer: number of the layer, from 1; one behind the last where nodes are missing from a pooled mean.
        relation: the relation along which the nodes send; None where they are pooled.
        removed_NB: [N, B] how much of each node is removed, 1 where it is lost.
    """

    layer: int
    relation: Relation | None
    node_type: str
    removed_NB: Tensor


@dataclass(frozen=True)
class Rows:
    """Hold differences of listed pairs: states after a layer, or what nodes receive along a relation of it.

    Attributes:
        layer: number of the layer, from 1.
        relation: the relation along which the nodes receive; None for states.
    """

    layer: int
    node_type: str
    relation: Relation | None
    index: RowIndex
    delta_KH: Tensor


class Traced(Difference):
    """Do what ``Difference`` does with lists alone, within ``secants()``, and keep what the parts are read from.

    Lost nodes receive nothing here, which changes no result, because nothing reads their states.

    Attributes:
        layer: the number of the layer that is computed, from 1.
        removed: what removed nodes do themselves.
        rows: differences that can be read.
        edges: edges that carry differences; None where they are not asked for.
    """

    def __init__(
        self,
        cell: ResidentCell,
        kept: dict[str, Kept],
        kernel: str,
        execution: Execution,
        kept_pass: BasePass,
        with_edges: bool = False,
    ) -> None:
        super().__init__(cell, kept, kernel, execution, kept_pass)
        self.layer, self.removed, self.rows = 1, list[Removed](), list[Rows]()
        self.edges = list[CarriedEdges]() if with_edges else None

    def aggregate(self, relation: Relation, states: States, reduce: str = "sum") -> DifferenceStates:
        assert isinstance(states, DifferenceStates)
        base_MH, edges, kept = self.base_sums(relation, states), self.cell[relation], self.kept[relation[0]]
        sources = self._senders(relation[0], states)
        targets = self._kept_receivers(relation, sources)
        dtype = states.delta_dtype
        removed_NB = self.remove(relation[0], dtype, relation)
        removed_D1 = take_rows(removed_NB.flatten().unsqueeze(1), sources.keys)
        left_D1 = kept.weights(dtype).flatten()[sources.keys].unsqueeze(1)
        sent_DH = left_D1 * states.at(sources) - removed_D1 * states.base_NH[sources.nodes]
        if len(targets):
            delta_KH = listed_sums(sent_DH, edges, sources, targets).to(dtype)
        else:
            delta_KH = base_MH.new_zeros(0, base_MH.shape[1], dtype=dtype)
        mean = None
        if reduce == "mean":
            base_M1, strains_MB = self.degrees(relation, base_MH.dtype)
            base_MH = base_MH / base_M1
            # A sum over removed sources of (their part of the base's mean − the mean) / what is left of the degree;
            # where nothing is left, they take all of the mean with them.
            left_K1 = spmm(edges, kept.weights(dtype), weighted=False, kernel=self.kernel).flatten()[targets.keys]
            some_K1 = (left_K1 > 0).unsqueeze(1)
            degree_K1 = torch.where(some_K1, strains_MB.flatten()[targets.keys, None], base_M1[targets.nodes])
            gone_K1 = spmm(edges, removed_NB, weighted=False, kernel=self.kernel).flatten()[targets.keys].unsqueeze(1)
            mean = removed_D1.detach(), some_K1 * base_MH[targets.nodes], degree_K1
            delta_KH = (delta_KH + gone_K1 * mean[1]) / degree_K1
        if self.edges is not None and len(targets):
            known = CarriedEdges.of_sources(self.layer, edges, sources, targets, dtype)
            self.edges.append(known)
            delta_KH = delta_KH + along_edges(known, edges, sent_DH, delta_KH, mean)
        return self._received_states(relation, states, base_MH, targets, delta_KH)

    def attend(self, relation: Relation, keys: States, queries: States, score: Score) -> States:
        assert isinstance(keys, DifferenceStates)
        assert isinstance(queries, DifferenceStates)
        base_MH = self.base_attention(relation, keys, queries, score)
        source, destination = self.kept[relation[0]], self.kept[relation[2]]
        pairs = self._kept_receivers(relation, self._senders(relation[0], keys))
        if queries.index is not None:
            pairs = union([pairs, queries.index])
        removed_NB = self.remove(relation[0], keys.delta_dtype, relation)
        delta_KH = base_MH.new_zeros(0, base_MH.shape[1])
        known = None
        if self.edges is not None and len(pairs):
            known = CarriedEdges.into(self.layer, self.cell[relation], pairs, delta_KH.dtype)
            self.edges.append(known)
        if len(pairs):
            delta_KH = attend_pairs(
                self.cell[relation],
                (pairs.nodes, pairs.strains),
                (keys.base_NH, keys.delta),
                (keys.index or source.lost).table,
                (queries.base_NH, None if queries.delta is None else queries.at(pairs)),
                (source.base_N1, destination.base_N1),
                (source.strains_NB, destination.strains_NB),
                score,
                source.log_strengths,
                removed_NB,
                None if known is None else known.carried_P,
            )
        return self._received_states(relation, keys, base_MH, pairs, delta_KH.to(keys.delta_dtype))

    def remove(self, node_type: str, dtype: torch.dtype, relation: Relation | None = None) -> Tensor:
        """Return how much of each node is removed, [N, B], as a new tensor whose gradient is read later."""
        removed_NB = (1 - self.kept[node_type].weights(dtype)).requires_grad_()
        self.removed.append(Removed(self.layer, relation, node_type, removed_NB))
        return removed_NB

    def keep_states(self, states: Mapping[str, States]) -> dict[str, States]:
        """Keep the states after a layer, and go on to the next.

        Returns:
            The same states, to be read from now on: a layer may leave those of a node type as they were, and what is
            read of them before must not count again.
        """
        kept = dict(states)
        for node_type, one in states.items():
            assert isinstance(one, DifferenceStates)
            if one.delta is not None and one.index is not None:
                delta = one.delta.view_as(one.delta)
                kept[node_type] = one.with_difference(one.base_NH, delta, one.index)
                self.rows.append(Rows(self.layer, node_type, None, one.index, delta))
        self.layer += 1
        return kept

    def _kept_receivers(self, relation: Relation, sources: RowIndex) -> RowIndex:
        return RowIndex(self._receivers(relation, sources).mask_NB & self.kept[relation[2]].strains_NB)

    def _received_states(
        self, relation: Relation, like: DifferenceStates, base_MH: Tensor, pairs: RowIndex, delta_KH: Tensor
    ) -> DifferenceStates:
        if len(pairs):
            self.rows.append(Rows(self.layer, relation[2], relation, pairs, delta_KH))
        return like.with_difference(base_MH, delta_KH, pairs)


@dataclass(frozen=True)
class Trace:
    """Hold what a pass over the strains' graphs found.

    Attributes:
        pooled_BD: by how much the strains' pooled states differ from the wild type's.
        genes_NH: the wild type's states of genes after the last layer.
        removed, rows, edges: as for ``Traced``.
    """

    pooled_BD: Tensor
    genes_NH: Tensor
    removed: list[Removed]
    rows: list[Rows]
    edges: list[CarriedEdges]


def trace(
    encoder: CellEncoder,
    pools: Mapping[str, tuple[AttentionPooling, float]],
    genotypes: GenotypeBatch,
    kept_pass: BasePass,
    with_edges: bool = False,
) -> Trace:
    """Pass messages over the strains' graphs, within ``secants()``.

    Args:
        pools: node type → its pooling, and what pooled states are multiplied by.
        kept_pass: what earlier batches computed of the wild type.
        with_edges: whether to keep the edges that carry differences, too.
    """
    cell, config = encoder.cell, encoder.config
    keep = keep_masks(cell, genotypes)
    left = {} if genotypes.deletes_only else strengths(cell, genotypes)
    kept = {
        t: Kept(torch.ones_like(mask[:, :1]), mask, strengths_NB=left.get(t), whole=True) for t, mask in keep.items()
    }
    engine = Traced(cell, kept, config.kernel, Execution(recompute=False), kept_pass, with_edges)
    perturbed = PerturbedCell(engine, kept)

    def inputs(node_type: str) -> Tensor:
        return kept_pass.once(lambda: encoder.inputs(node_type).detach())

    states: dict[str, Any] = {t: perturbed.start(inputs(t)) for t in encoder.node_types}
    for layer in encoder.layers:
        states = engine.keep_states(layer(perturbed, states))
    pooled = [
        scale * pool(part, states[t], kept[t], engine.remove(t, states[t].delta_dtype))
        for t, (part, scale) in pools.items()
    ]
    genes_NH: Tensor = states[GENE].base_NH
    return Trace(torch.cat(pooled, 1), genes_NH, engine.removed, engine.rows, engine.edges or [])


def pool(pooling: AttentionPooling, states: DifferenceStates, kept: Kept, removed_NB: Tensor) -> Tensor:
    """Return by how much pooled states differ, [B, H], as ``AttentionPooling`` does, within ``secants()``.

    Changes of shares and of states are split by their midpoint, but for lost nodes, whose states do not matter.

    Args:
        removed_NB: how much of each node is removed.
    """
    gate = states.map(pooling.gate)
    assert isinstance(gate, DifferenceStates)
    change_NB, p_N1, q_NB = secants.share_changes(
        gate.base_NH, gate.dense().squeeze(-1), -2, kept.base_N1, kept.strains_NB, kept.log_strengths, removed_NB
    )
    base_1H = p_N1.T @ states.base_NH
    # Shares sum to one before and after, so that rows may be centred: small sums lose no digits.
    pooled_BH = change_NB.T @ (states.base_NH - base_1H)
    if states.delta is not None and states.index is not None:
        keys, half_KH = states.index.keys, states.delta.detach() / 2
        weight_K1 = (q_NB - (q_NB - p_N1) / 2).flatten()[keys].unsqueeze(1)
        change_K1 = take_rows(change_NB.flatten().unsqueeze(1), keys)
        pooled_BH = pooled_BH.index_add(0, states.index.strains, weight_K1 * states.delta + change_K1 * half_KH)
    # A strain that keeps none of the nodes pools to zero, whatever the value of the mean of no nodes would be.
    none_B1 = ~kept.strains_NB.any(0).unsqueeze(1)
    lost_B1 = (p_N1 * removed_NB).sum(0).unsqueeze(1) * none_B1
    value: nn.Linear = pooling.value
    return F.linear(pooled_BH, value.weight) - lost_B1 * (F.linear(base_1H, value.weight) + value.bias)

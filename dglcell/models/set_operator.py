"""The set operator model: the wild type is encoded once, and the deleted genes act on what comes out."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dglcell.graph.resident import ResidentCell
from dglcell.graph.schema import GENE
from dglcell.models.encoder import CellEncoder, make_local_head
from dglcell.models.prediction import Prediction, StrainModel
from dglcell.models.set_operator_config import SetOperatorConfig
from dglcell.nn.combination import Combination
from dglcell.nn.deletion_attention import DeletionAttention
from dglcell.nn.initial import initialise, start_at_the_mean
from dglcell.nn.mlp import mlp
from dglcell.nn.pooling import AttentionPooling
from dglcell.nn.relation_mixer import RelationWeights
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.knockout import keep_genes
from dglcell.perturbation.perturb import perturb
from dglcell.perturbation.row_wise import shared_sums
from dglcell.perturbation.states import States, pooling_shares

State = tuple[tuple[int, int], ...]


class SetOperator(StrainModel):
    r"""Predict phenotypes as :math:`f(G, S) = g(F(G), S)`: F sees the wild type's graph alone.

    **It does not compute on the strains' own graphs**: no edge is removed and no reaction is lost with its enzyme. What
    a deletion does to the network must be learnt by g. In return a step encodes one graph, whatever the batch, and an
    evaluation pass encodes none but the first time: the states are kept until the model is trained, moved or loaded.

    1. F: the encoder of ``HeteroCell``, on the wild type: states :math:`x_n` of all genes.
    2. g, one of two operators or both (then their mean or a gated sum):
       ``local`` scores the deleted genes' states (``LocalHead``);
       ``cross_attention`` lets all genes attend to the deleted ones (``DeletionAttention``), pools the kept genes'
       states, and predicts from the difference to the wild type, :math:`z_p = z_w - z(S)`.

    Both are functions of a set: neither the order of the deleted genes nor the other strains of a batch matter.

    Args:
        cell: the cell graph; becomes part of the module, so it follows it to any device.
        config: validated.
        outputs: T, number of phenotypes.
        features: node type → [N, F] fixed input features, added through a Linear; optional.
    """

    config: SetOperatorConfig
    no_genes: Tensor
    no_offsets: Tensor

    def __init__(
        self,
        cell: ResidentCell,
        config: SetOperatorConfig,
        outputs: int = 1,
        features: dict[str, Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.cell, self.config = cell, config
        width, activation, dropout = config.hidden, config.activation, config.dropout
        self.encoder = CellEncoder(cell, config, [GENE], features)
        self.local_head = self.operator = self.pool = self.global_head = None
        if config.operator != "cross_attention":
            self.local_head = make_local_head(config, outputs, cell.num_nodes[GENE])
        if config.operator != "local":
            self.operator = DeletionAttention(width, config.operator_heads)
            self.pool = AttentionPooling(width, activation, dropout)
            self.global_head = mlp([width, width, outputs], activation, dropout)
        gated = config.combination == "gated"
        self.combination = Combination(outputs, gated=gated, width=width, activation=activation, dropout=dropout)
        self.apply(initialise)
        self.encoder.spread_embeddings()
        if self.global_head is not None:
            start_at_the_mean(self.global_head[-1])
        if self.local_head is not None:
            self.local_head.start_at_the_mean()
        self.register_buffer("no_genes", torch.zeros(0, dtype=torch.int64), persistent=False)
        self.register_buffer("no_offsets", torch.zeros(2, dtype=torch.int64), persistent=False)
        self._encoded: tuple[State, Tensor] | None = None
        self.register_load_state_dict_post_hook(_forget)

    def forward(self, genotypes: GenotypeBatch) -> Prediction:
        """Predict the phenotypes of B strains, on the device of the model, without synchronising with the host."""
        x_NH = self.wild_type()
        genes_BK, present_BK = genotypes.padded()
        parts: dict[str, Tensor] = {}
        difference: Tensor | None = None
        if self.global_head is not None:
            difference = self._difference(x_NH, genotypes, genes_BK, present_BK)
            parts["global"] = self.global_head(difference)
        if self.local_head is not None:
            parts["local"] = self.local_head(F.embedding(genes_BK, x_NH), genes_BK, present_BK)
        first, *second = parts.values()
        if not second:
            return Prediction(first, difference, parts)
        phenotypes, gates = self.combination(first, *second)
        return Prediction(phenotypes, difference, parts, gates)

    def relation_weights(self) -> list[RelationWeights]:
        """See ``CellEncoder.relation_weights``."""
        return self.encoder.relation_weights()

    def _difference(self, x_NH: Tensor, genotypes: GenotypeBatch, genes_BK: Tensor, present_BK: Tensor) -> Tensor:
        """[B, H] pooled states of the wild type minus those of every strain."""
        assert self.pool is not None
        assert self.operator is not None
        keep_NB = keep_genes(len(x_NH), genotypes.with_wild_type())
        share_NB = pooling_shares(States.shared(self.pool.gate(x_NH)), keep_NB)
        pooled_BH = shared_sums(share_NB, x_NH)
        strains_BH = pooled_BH[1:] + self.operator(x_NH, share_NB[:, 1:], genes_BK, present_BK)
        out: Tensor = self.pool.value(pooled_BH[:1]) - self.pool.value(strains_BH)
        return out

    def wild_type(self) -> Tensor:
        """[N, H] states of all genes; those of the last call where nothing has changed and no gradient is wanted."""
        if self.training or torch.is_grad_enabled():
            return self._encode()
        state = tuple((id(p), _version(p)) for p in self.encoder.parameters())
        if self._encoded is None or self._encoded[0] != state:
            self._encoded = state, self._encode()
        return self._encoded[1]

    def _encode(self) -> Tensor:
        unchanged = GenotypeBatch(self.no_genes, self.no_offsets, 0)
        # Without a deletion all strategies are one and the same product per relation; this one never synchronises.
        perturbed = perturb(self.cell, unchanged, "node_mask", self.config.kernel)
        return self.encoder(perturbed)[GENE].dense().squeeze(1)

    def train(self, mode: bool = True) -> SetOperator:
        """See ``nn.Module.train``; every pass, of training or evaluation, starts with an encoding of its own."""
        self._encoded = None
        return super().train(mode)

    def _apply(self, fn: Any, recurse: bool = True) -> SetOperator:
        self._encoded = None
        return super()._apply(fn, recurse)


def _forget(model: nn.Module, _: Any) -> None:
    """Weights were loaded."""
    assert isinstance(model, SetOperator)
    model._encoded = None


def _version(parameter: Tensor) -> int:
    """How often a tensor has been written to; those made in inference mode do not count."""
    return -1 if parameter.is_inference() else parameter._version

"""The set operator model: the wild type is encoded once, and the deleted genes act on what comes out."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

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
from dglcell.perturbation.base_cache import BaseCache
from dglcell.perturbation.deletions import Kept, keep_genes
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import perturb
from dglcell.perturbation.states import pooling_shares


class SetOperator(StrainModel):
    r"""Predict phenotypes as :math:`f(G, S) = g(F(G), S)`: F sees the wild type's graph alone.

    **It does not compute on the strains' own graphs**: no edge is removed and no reaction is lost with its enzyme. What
    a deletion does to the network must be learnt by g. In return a step encodes one graph, whatever the batch, and an
    evaluation pass encodes none but the first time: the states are kept until the model is trained, moved or loaded.

    1. F: the encoder of ``HeteroCell``, on the wild type: states :math:`x_n` of all genes.
    2. g, one of two operators or both (then their sum, mean, or a gated sum):
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
        self.combination = Combination(
            outputs, how=config.combination, width=width, activation=activation, dropout=dropout
        )
        self.apply(initialise)
        self.encoder.spread_embeddings()
        if self.global_head is not None:
            start_at_the_mean(self.global_head[-1])
        if self.local_head is not None:
            self.local_head.start_at_the_mean()
        self.register_buffer("no_genes", torch.zeros(0, dtype=torch.int64), persistent=False)
        self.register_buffer("no_offsets", torch.zeros(2, dtype=torch.int64), persistent=False)
        self._base_cache = BaseCache()

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
        keep_NB = keep_genes(len(x_NH), genotypes)
        p_N1, change_NB = pooling_shares(self.pool.gate(x_NH), Kept(torch.ones_like(keep_NB[:, :1]), keep_NB))
        # Shares sum to one before and after, so that rows may be centred: small sums lose no digits. All are zero in a
        # strain that keeps no gene.
        mean_1H = p_N1.T @ x_NH
        pooled_BH = torch.where(keep_NB.any(0).unsqueeze(1), change_NB.T @ (x_NH - mean_1H), -mean_1H)
        moved_BH = pooled_BH + self.operator(x_NH, p_N1 + change_NB, genes_BK, present_BK)
        # The bias cancels. Its gradient is zero, not absent: processes that train together wait for every one.
        return F.linear(-moved_BH, self.pool.value.weight, 0 * self.pool.value.bias)

    def wild_type(self) -> Tensor:
        """[N, H] states of all genes; those of the last call where nothing has changed and no gradient is wanted."""
        kept_pass = self._base_cache.replay(self)
        return self._encode() if kept_pass is None else kept_pass.once(self._encode)

    def _encode(self) -> Tensor:
        unchanged = GenotypeBatch(self.no_genes, self.no_offsets, 0)
        # Without a deletion all strategies are one and the same product per relation; this one never synchronises.
        perturbed = perturb(self.cell, unchanged, "node_mask", self.config.kernel)
        return self.encoder(perturbed)[GENE].base_NH

    def train(self, mode: bool = True) -> SetOperator:
        """See ``nn.Module.train``; every pass, of training or evaluation, starts with an encoding of its own."""
        self._base_cache.forget()
        return super().train(mode)

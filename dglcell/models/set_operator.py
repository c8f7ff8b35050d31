"""Build the model that encodes the wild type once, and lets the deleted genes of every strain act on it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dglcell.graph.resident import ResidentCell
from dglcell.graph.schema import GENE
from dglcell.kernels.pooled_shares import pooled_shares
from dglcell.models.config import OPERATOR_HEADS, SetOperatorConfig
from dglcell.models.encoder import CellEncoder, make_link, make_local_head
from dglcell.models.model import Prediction, StrainModel
from dglcell.nn.blocks import initialise, mlp, start_at_the_mean
from dglcell.nn.heads import GENES, Combination
from dglcell.nn.pooling import AttentionPooling
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import perturb
from dglcell.perturbation.rules import as_difference, from_source
from dglcell.perturbation.sent import Kept, activities, keep_nodes
from dglcell.perturbation.states import pooling_shares


class DeletionAttention(nn.Module):
    r"""Compute how the deletion of a set S changes the weighted mean of all kept genes' states.

    Every kept gene attends to the deleted ones, and to nothing at all with logit 0, so that genes which a deletion does
    not concern stay as they are and the empty set changes none:

    .. math:: h_n(S) = x_n + W_o \sum_{j \in S} a_{nj} W_v x_j, \qquad
        a_{nj} = \frac{\exp(q_n^\top k_j / \sqrt d)}{1 + \sum_{i \in S} \exp(q_n^\top k_i / \sqrt d)}

    (Vaswani et al. 2017, *Attention is all you need*, eq. 1, per head of width d, with one more key whose logit and
    value are zero.) Out comes :math:`\sum_n p_n (h_n(S) - x_n)` for weights p. Sums over n are taken of the shares
    :math:`a` first, which is the same because updates are linear in them; there is never a tensor [B, N, H]. See
    ``pooled_shares``.

    Args:
        width: H.
        heads: must divide H.

    Shapes:
        states [N, H], weights p [N, B], deleted genes [B, K], removed [B, K] (see ``GenotypeBatch.padded``) → [B, H].
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x_NH: Tensor, weight_NB: Tensor, genes_BK: Tensor, removed_BK: Tensor) -> Tensor:
        """Return the weighted mean of all genes' updates."""
        (B, K), width, heads = genes_BK.shape, x_NH.shape[1], self.heads
        present_BK, partly = removed_BK != 0, removed_BK.is_floating_point()
        deleted_GH = F.embedding(genes_BK.flatten(), x_NH)
        query_hNd = _by_head(self.query(x_NH), heads) * (width // heads) ** -0.5
        key_hGd = _by_head(self.key(deleted_GH), heads)
        if partly:
            # One more place of queries and keys adds the logarithm of what is removed.
            added_G1 = removed_BK.abs().masked_fill(~present_BK, 1).log().to(key_hGd.dtype).view(-1, 1)
            query_hNd = F.pad(query_hNd, (0, 1), value=1.0)
            key_hGd = torch.cat([key_hGd, added_G1.expand(heads, -1, 1)], dim=2)
        share_BhK = pooled_shares(query_hNd, key_hGd.unflatten(1, (B, K)), present_BK, weight_NB)
        if partly:  # more of a gene acts in the opposite direction
            share_BhK = share_BhK * removed_BK.sign().to(share_BhK.dtype).unsqueeze(1)
        share_BhK = from_source(GENES, share_BhK.transpose(1, 2)).transpose(1, 2)
        value_BKhd = self.value(deleted_GH).view(B, K, heads, width // heads)
        out: Tensor = self.out(torch.einsum("bhk,bkhd->bhd", share_BhK, value_BKhd).flatten(1))
        return out


def _by_head(x_NH: Tensor, heads: int) -> Tensor:
    """Split states by attention head, [heads, N, d]."""
    return x_NH.view(len(x_NH), heads, x_NH.shape[1] // heads).transpose(0, 1)


class SetOperator(StrainModel):
    r"""Predict phenotypes as :math:`f(G, S) = g(F(G), S)`: F sees the wild type's graph alone.

    **It does not compute on the strains' own graphs**: no edge is removed and no reaction is lost with its enzyme. What
    a deletion does to the network must be learnt by g. In return a step encodes one graph, whatever the batch, and an
    evaluation pass encodes only once: the states are kept until the model is trained, moved or loaded.

    1. F: the encoder of ``HeteroCell``, on the wild type: states :math:`x_n` of all genes.
    2. g scores the deleted genes' states (``LocalHead``). With ``operator: both`` the score is the sum or mean of this
       and of a second one: it lets all genes attend to the deleted ones (``DeletionAttention``), pools the kept genes'
       states, and predicts from the difference to the wild type, :math:`z_p = z_w - z(S)`.

    ``link`` makes phenotypes of the scores (``Link``). Links that compare a strain with measured ones look up which
    reactions it loses, as far as the cell graph has any.

    Heads see the conditions of strains and how much is left of their genes (``ConditionedReadout``), which may be
    learned (``LearnedStrengths``).

    Both are functions of a set: neither the order of the deleted genes nor the other strains of a batch matter.

    Args:
        cell: the cell graph; becomes part of the module, so it follows it to any device.
        config: validated.
        outputs: T, number of phenotypes.
        features: node type → [N, F] fixed input features, added through a Linear; optional.
    """

    Config = SetOperatorConfig
    config: SetOperatorConfig

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
        self.operator = self.pool = self.global_head = None
        self.local_head = make_local_head(config, outputs, cell.num_nodes[GENE])
        if config.operator != "local":
            self.operator = DeletionAttention(width, OPERATOR_HEADS)
            self.pool = AttentionPooling(width, activation, dropout)
            self.global_head = mlp([width, width, outputs], activation, dropout)
        self.combination = Combination(config.combination)
        self.link = make_link(cell, config, outputs)
        self.see_conditions(
            width=width,
            strain_width=0 if self.global_head is None else width,
            outputs=outputs,
            hidden=width,
            activation=activation,
        )
        self.apply(initialise)
        self.ignore_conditions_at_first()
        self.encoder.spread_embeddings()
        if self.global_head is not None:
            start_at_the_mean(self.global_head[-1])
        self.local_head.start_at_the_mean()

    def forward(self, genotypes: GenotypeBatch) -> Prediction:
        """Predict the phenotypes of B strains, on the device of the model, without synchronising with the host."""
        if not genotypes.num_strains:
            return self.of_no_strains(genotypes)
        if self.learned is not None:
            genotypes = self.learned(genotypes)
        x_NH = self.wild_type()
        genes_BK, removed_BK = genotypes.padded()
        parts: dict[str, Tensor] = {}
        difference: Tensor | None = None
        if self.global_head is not None:
            difference = self._difference(x_NH, genotypes, genes_BK, removed_BK)
            parts["global"] = self.global_head(
                difference if self.readout is None else self.readout.strain(difference, genotypes)
            )
        x_BKH = F.embedding(genes_BK, x_NH)
        x_BKH = x_BKH if self.readout is None else self.readout.genes(x_BKH, removed_BK, genotypes)
        parts["local"] = self.local_head(x_BKH, genes_BK, removed_BK)
        phenotypes, *second = parts.values()
        if second:
            phenotypes = self.combination(phenotypes, *second)
        if self.readout is not None:
            phenotypes = self.readout.score(phenotypes, genotypes)
        if self.link is not None:
            phenotypes = self.link.compare(phenotypes, self._wild_type_score(phenotypes), self.cell, genotypes)
        return Prediction(phenotypes, difference, parts)

    def _wild_type_score(self, like_BT: Tensor) -> Tensor:
        """Return the score of the strain without deletions, [1, T]."""
        score_1T = torch.zeros_like(like_BT[:1])
        if self.global_head is not None:
            of_global_1T: Tensor = self.global_head(like_BT.new_zeros(1, self.config.hidden))
            score_1T = self.combination(of_global_1T, score_1T)
        return score_1T

    def _difference(self, x_NH: Tensor, genotypes: GenotypeBatch, genes_BK: Tensor, removed_BK: Tensor) -> Tensor:
        """Return the pooled states of the wild type minus those of every strain, [B, H]."""
        assert self.pool is not None
        assert self.operator is not None
        keep_NB = keep_nodes(len(x_NH), genotypes.perturbations.nodes[GENE])
        left_NB = None if genotypes.strengths is None else activities(self.cell, genotypes)[GENE]
        kept = Kept(torch.ones_like(keep_NB[:, :1]), keep_NB, strengths_NB=left_NB)
        p_N1, change_NB = pooling_shares(self.pool.gate(x_NH), kept)
        # Shares sum to one before and after, so that rows may be centred: small sums lose no digits. All are zero in a
        # strain that keeps no gene.
        mean_1H = p_N1.T @ x_NH
        some_B1 = keep_NB.any(0).unsqueeze(1)
        pooled_BH = torch.where(some_B1, change_NB.T @ (x_NH - mean_1H), -mean_1H)
        moved_BH = as_difference(pooled_BH) + self.operator(x_NH, p_N1 + change_NB, genes_BK, removed_BK)
        # The bias cancels but in a strain without genes, whose pooled state is zero. Its gradient is never absent:
        # processes that train together wait for every one.
        return F.linear(-moved_BH, self.pool.value.weight) + ~some_B1 * self.pool.value.bias

    def wild_type(self) -> Tensor:
        """Return the states of all genes, [N, H].

        They are those of the last call where nothing has changed and no gradient is wanted.
        """
        kept_pass = self._base_cache.replay(self)
        return self._encode() if kept_pass is None else kept_pass.once(self._encode)

    def _encode(self) -> Tensor:
        device = next(self.parameters()).device
        none_G, offsets_2 = (torch.zeros(size, dtype=torch.int64, device=device) for size in (0, 2))
        unchanged = GenotypeBatch(none_G, offsets_2, 0)
        # Without a deletion all strategies are one and the same product per relation; this one never synchronises.
        strategy = self.config.strategy_of_edges() or "node_mask"
        perturbed = perturb(self.cell, unchanged, strategy, self.config.kernel)
        return self.encoder(perturbed)[GENE].base_NH

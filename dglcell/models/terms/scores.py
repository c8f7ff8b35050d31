"""Score strains by their own graphs, by what deletions do to all genes, and by the changed genes alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from dglcell.errors import ConfigError
from dglcell.graph.schema import GENE
from dglcell.models.config import OPERATOR_HEADS, GenesConfig, GraphConfig, OperatorConfig
from dglcell.models.terms.term import Seen, Surroundings, Term
from dglcell.nn.blocks import HEAD_GAIN, AttentionPooling, make_activation, mlp, start_at_the_mean
from dglcell.nn.config import check_heads
from dglcell.perturbation.rules import as_difference, from_source
from dglcell.perturbation.sent import Kept, activities, keep_nodes
from dglcell.perturbation.states import States, pooling_shares

CHANGED_GENES = "changed genes"
"""What heads give for the deleted genes has this name among the sources of a change."""


class OfVector(Term):
    """Score strains by an MLP on a vector of each, which is zero for the wild type."""

    head: nn.Sequential

    def start(self) -> None:
        start_at_the_mean(self.head[-1])

    def forward(self, seen: Seen) -> Tensor:
        score_BT: Tensor = self.head(seen.vectors[self.name])
        return score_BT

    def of_wild_type(self, like_BT: Tensor) -> Tensor:
        score_1T: Tensor = self.head(like_BT.new_zeros(1, self.width))
        return score_1T


class Graph(OfVector):
    r"""Pool the kept nodes: :math:`z_w` of the wild type, :math:`z_i` of strain i; score :math:`z_p = z_w - z_i`.

    Pooling takes a mean, which a few changed nodes move by about 1/N; :math:`z_p` is multiplied by N, so that it is of
    order one. The score is an MLP on it.
    """

    Config = GraphConfig
    config: GraphConfig

    def __init__(self, config: GraphConfig, surroundings: Surroundings) -> None:
        super().__init__(config, surroundings)
        hidden, activation, dropout = surroundings.hidden, surroundings.activation, surroundings.dropout
        self.nodes, self.width = surroundings.cell.num_nodes, hidden * len(config.pool)
        if missing := sorted(set(config.pool) - set(self.nodes)):
            what = "`model.pool` names node types that the cell graph does not have"
            do = "set `cell.metabolism: true` or `model.pool: [gene]`"
            raise ConfigError(what, got=missing, expected=", ".join(self.nodes), do=do)
        self.pools = nn.ModuleDict({t: AttentionPooling(hidden, activation, dropout) for t in config.pool})
        self.head = mlp([self.width, hidden, surroundings.outputs], activation, dropout)

    @classmethod
    def reads(cls, config: GraphConfig) -> list[str]:
        return config.pool

    def pool(self, states: Mapping[str, States], kept: Mapping[str, Kept]) -> Tensor:
        pooled = [self.pools[t](states[t], kept[t]).difference_BH * self.nodes[t] for t in self.config.pool]
        return torch.cat(pooled, dim=-1)


class DeletionAttention(nn.Module):
    r"""Compute how the deletion of a set S changes the weighted mean of all kept genes' states.

    Every kept gene attends to the deleted ones, and to nothing at all with logit 0, so that genes which a deletion does
    not concern stay as they are and the empty set changes none:

    .. math:: h_n(S) = x_n + W_o \sum_{j \in S} a_{nj} W_v x_j, \qquad
        a_{nj} = \frac{\exp(q_n^\top k_j / \sqrt d)}{1 + \sum_{i \in S} \exp(q_n^\top k_i / \sqrt d)}

    (Vaswani et al. 2017, *Attention is all you need*, eq. 1, per head of width d, with one more key whose logit and
    value are zero.) Out comes :math:`\sum_n p_n (h_n(S) - x_n)` for weights p. Sums over n are taken of the shares
    :math:`a` first, which is the same because updates are linear in them; there is never a tensor [B, N, H].

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
        share_BhK = from_source(CHANGED_GENES, share_BhK.transpose(1, 2)).transpose(1, 2)
        value_BKhd = self.value(deleted_GH).view(B, K, heads, width // heads)
        out: Tensor = self.out(torch.einsum("bhk,bkhd->bhd", share_BhK, value_BKhd).flatten(1))
        return out


BLOCK_LOGITS = 1 << 23
"""Logits that are held at a time; they are computed once more in the backward pass."""


def pooled_shares(query_hNd: Tensor, key_hBKd: Tensor, present_BK: Tensor, weight_NB: Tensor) -> Tensor:
    r"""Return weighted sums over nodes of the shares that they give to the keys of a strain, [B, heads, K].

    .. math:: s_{bhk} = \sum_n p_{nb} \frac{\exp(q_{hn}^\top k_{hbk})}{1 + \sum_i \exp(q_{hn}^\top k_{hbi})}

    Sums in the denominator are over the keys that the strain has; shares of absent keys are zero.
    """
    heads, N, _ = query_hNd.shape
    strains = max(1, BLOCK_LOGITS // max(1, heads * N * present_BK.shape[1]))
    blocks = zip(
        key_hBKd.split(strains, dim=1), present_BK.split(strains), weight_NB.split(strains, dim=1), strict=True
    )
    return torch.cat([checkpoint(_some_strains, query_hNd, *block, use_reentrant=False) for block in blocks])


def _some_strains(query_hNd: Tensor, key_hBKd: Tensor, present_BK: Tensor, weight_NB: Tensor) -> Tensor:
    heads, B, K, wide = key_hBKd.shape
    N = query_hNd.shape[1]
    logits = (query_hNd @ key_hBKd.reshape(heads, B * K, wide).transpose(1, 2)).view(heads, N, B, K)
    logits = logits.masked_fill(~present_BK, float("-inf"))
    share_hNBK = torch.softmax(F.pad(logits, (1, 0)), dim=-1)[..., 1:]
    return torch.einsum("hnbk,nb->bhk", share_hNBK, weight_NB)


def _by_head(x_NH: Tensor, heads: int) -> Tensor:
    return x_NH.view(len(x_NH), heads, x_NH.shape[1] // heads).transpose(0, 1)


class Operator(OfVector):
    r"""Predict from the difference of pooled states to the wild type, :math:`z_p = z_w - z(S)`.

    No strain's own graph is computed: what a deletion does to the states of kept genes is learnt
    (``DeletionAttention``).
    """

    Config = OperatorConfig

    def __init__(self, config: OperatorConfig, surroundings: Surroundings) -> None:
        super().__init__(config, surroundings)
        activation, dropout = surroundings.activation, surroundings.dropout
        self.width = surroundings.hidden
        self.attention = DeletionAttention(self.width, OPERATOR_HEADS)
        self.pooling = AttentionPooling(self.width, activation, dropout)
        self.head = mlp([self.width, self.width, surroundings.outputs], activation, dropout)

    def see(self, seen: Seen) -> Seen:
        x_NH, genotypes = seen.wild_type[GENE], seen.strains
        keep_NB = keep_nodes(len(x_NH), genotypes.perturbations.nodes[GENE])
        left_NB = None if genotypes.activities is None else activities(seen.cell, genotypes)[GENE]
        kept = Kept(torch.ones_like(keep_NB[:, :1]), keep_NB, activities_NB=left_NB)
        p_N1, change_NB = pooling_shares(self.pooling.gate(x_NH), kept)
        # Shares sum to one before and after, so that rows may be centred: small sums lose no digits. All are zero in a
        # strain that keeps no gene.
        mean_1H = p_N1.T @ x_NH
        some_B1 = keep_NB.any(0).unsqueeze(1)
        pooled_BH = torch.where(some_B1, change_NB.T @ (x_NH - mean_1H), -mean_1H)
        moved_BH = as_difference(pooled_BH) + self.attention(x_NH, p_N1 + change_NB, *genotypes.padded())
        # The bias cancels but in a strain without genes, whose pooled state is zero. Its gradient is never absent:
        # processes that train together wait for every one.
        z_BH = F.linear(-moved_BH, self.pooling.value.weight) + ~some_B1 * self.pooling.value.bias
        return replace(seen, vectors={**seen.vectors, self.name: z_BH})


class Genes(Term):
    """Score the changed genes by self-attention among them, by products of their vectors, or by the sum of both."""

    Config = GenesConfig
    sees_genes = True
    head: Any

    def __init__(self, config: GenesConfig, surroundings: Surroundings) -> None:
        super().__init__(config, surroundings)
        hidden, outputs, dropout = surroundings.hidden, surroundings.outputs, surroundings.dropout
        self.head = nn.ModuleDict()
        if config.local_kind != "factorisation":
            check_heads(hidden, config.local_heads, key="model.local_heads")
            self.head["attention"] = HyperSAGNN(
                hidden, outputs, layers=config.local_layers, heads=config.local_heads, gain=config.local_gain,
                activation=surroundings.activation, dropout=dropout,
            )  # fmt: skip
        if config.local_kind != "hyper_sagnn":
            genes = surroundings.cell.num_nodes[GENE] if config.local_deviations else None
            self.head["factorisation"] = FactorisationMachine(
                hidden, outputs, factors=config.local_factors, dropout=dropout, genes=genes
            )

    def start(self) -> None:
        if "attention" in self.head:
            start_at_the_mean(self.head["attention"].score)
        if "factorisation" in self.head:
            self.head["factorisation"].start_at_the_mean()

    def forward(self, seen: Seen) -> Tensor:
        x_BKH, (genes_BK, removed_BK) = seen.x_BKH, seen.strains.padded()
        arguments = {"attention": (x_BKH, removed_BK), "factorisation": (x_BKH, genes_BK, removed_BK)}
        scores: list[Tensor] = [head(*arguments[name]) for name, head in self.head.items()]
        return sum(scores[1:], scores[0])


def shares_of_removed(logits: Tensor, removed: Tensor) -> Tensor:
    """Return a softmax of [..., K] logits over changed genes, each weighted by how much of it is removed.

    ``removed`` is bool, or float and negative for what is added. Shares are zero where nothing is removed.
    """
    gone = removed == 0
    if removed.is_floating_point():
        logits = logits + removed.abs().masked_fill(gone, 1).log().to(logits.dtype)
    # A finite floor keeps rows without any entry free of NaN.
    return torch.softmax(logits.masked_fill(gone, torch.finfo(logits.dtype).min), dim=-1).masked_fill(gone, 0)


class SetAttention(nn.Module):
    """Let every gene attend to the *other* genes of its strain, with several heads and a ReZero residual.

    ``d ← d + β · out(attention(d))`` (Bachlechner et al. 2021, *ReZero is all you need*) with β = ``gain`` at first; a
    gene without partners stays as it is. The number of heads divides H.

    Shapes:
        [B, K, H], removed [B, K] (see ``GenotypeBatch.padded``) → [B, K, H].
    """

    def __init__(self, width: int, heads: int, gain: float) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.beta = nn.Parameter(torch.full((1,), gain))

    def forward(self, x_BKH: Tensor, removed_BK: Tensor) -> Tensor:
        (B, K, H), removed_BK = x_BKH.shape, removed_BK.to(x_BKH.dtype)
        query, key, value = self.project(x_BKH).view(B, K, 3, self.heads, H // self.heads).permute(2, 0, 3, 1, 4)
        others_KK = ~torch.eye(K, dtype=torch.bool, device=x_BKH.device)
        partner_B1KK = (removed_BK.unsqueeze(1) * others_KK).unsqueeze(1)
        share = shares_of_removed((query @ key.transpose(-1, -2)) * (H // self.heads) ** -0.5, partner_B1KK)
        # A single partner has a share of 1 even if little of it is removed, so values are weighted once more.
        mixed_BKH = ((share * partner_B1KK) @ value).transpose(1, 2).reshape(B, K, H)
        partners_BK1 = partner_B1KK.squeeze(1).abs().sum(-1, keepdim=True).clamp(max=1)
        return x_BKH + self.beta * self.out(mixed_BKH) * partners_BK1


class HyperSAGNN(nn.Module):
    r"""Score a set of genes by how far each moves when it sees the others.

    Zhang, Zou & Ma 2020, *Hyper-SAGNN*: with static embeddings :math:`s_i = \sigma(W x_i)` and dynamic ones
    :math:`d_i` (attention within the set), the score of the set is the mean over its genes of
    :math:`w^\top (d_i - s_i)^2 + c`, weighted by their losses where strains weaken genes. ``gain`` is the initial
    share of the attention; the genes' interaction is learnt through it.

    Shapes:
        genes' states [B, K, H], removed [B, K] → [B, T]; zero for an empty set.
    """

    def __init__(
        self, width: int, outputs: int, *, layers: int, heads: int, gain: float, activation: str, dropout: float
    ) -> None:
        super().__init__()
        self.static = nn.Sequential(nn.Linear(width, width), make_activation(activation))
        self.attention = nn.ModuleList(SetAttention(width, heads, gain) for _ in range(layers))
        self.score = nn.Linear(width, outputs)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BKH: Tensor, removed_BK: Tensor) -> Tensor:
        x_BKH, removed_BK = self.dropout(x_BKH), removed_BK.to(x_BKH.dtype)
        dynamic = x_BKH
        for attention in self.attention:
            dynamic = attention(dynamic, removed_BK)
        there_BK1 = from_source(CHANGED_GENES, removed_BK).unsqueeze(-1)
        score_BKT = self.score((dynamic - self.static(x_BKH)).square()) * there_BK1
        return score_BKT.sum(1) / removed_BK.abs().sum(1, keepdim=True).clamp(min=1)


class FactorisationMachine(nn.Module):
    r"""Score a set of genes by the sum of their effects and of the products of their vectors.

    .. math:: s = \sum_i (w^\top x_i + c) + \sum_{i \lt j} \sum_f a_f v_{if} v_{jf}, \quad v_i = V x_i

    Rendle 2010, *Factorization Machines*, eq. 1, with the inner sum over pairs computed by his lemma 3.1 as
    :math:`\tfrac12 \big((\sum_i v_{if})^2 - \sum_i v_{if}^2\big)`; the weights :math:`a_f` let products count against
    each other, so that the matrix of pairwise scores need not be positive definite.

    With ``genes``, their number, every gene has an effect and a vector of its own beside :math:`w^\top x_i` and
    :math:`V x_i`. They start at zero: scores of genes that are never trained on come from the states alone, and weight
    decay reduces deviations that the states can explain as well. Without ``factors`` F, states are the vectors (V = 1).

    Shapes:
        genes' states [B, K, H], their indices [B, K], removed [B, K] → [B, T]; zero for an empty set.
    """

    def __init__(
        self, width: int, outputs: int, *, factors: int | None, dropout: float, genes: int | None = None
    ) -> None:
        super().__init__()
        free, factors = factors is not None, factors or width
        self.effect = nn.Linear(width, outputs)
        self.vector = nn.Linear(width, factors, bias=False) if free else None
        self.score = nn.Linear(factors, outputs, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.own_effects = None if genes is None else nn.Parameter(torch.zeros(genes, outputs))
        self.own_vectors = None if genes is None else nn.Parameter(torch.zeros(genes, factors))

    def start_at_the_mean(self) -> None:
        """Scale initial weights down, so that an untrained model predicts about the training mean, 0.

        Vectors are scaled by the root of the gain, because scores are products of two. Scaling down the products'
        weights instead would scale down the vectors' gradients, and weight decay would win against them.
        """
        with torch.no_grad():
            self.effect.weight.mul_(HEAD_GAIN)
            if self.vector is not None:
                self.vector.weight.mul_(HEAD_GAIN**0.5)

    def forward(self, x_BKH: Tensor, genes_BK: Tensor, removed_BK: Tensor) -> Tensor:
        x_BKH = self.dropout(x_BKH)
        effect_BKT = self.effect(x_BKH)
        vector_BKF = x_BKH if self.vector is None else self.vector(x_BKH)
        if self.own_effects is not None and self.own_vectors is not None:
            effect_BKT = effect_BKT + F.embedding(genes_BK, self.own_effects)
            vector_BKF = vector_BKF + F.embedding(genes_BK, self.own_vectors)
        there_BK1 = from_source(CHANGED_GENES, removed_BK.to(x_BKH.dtype)).unsqueeze(-1)
        vector_BKF = vector_BKF * there_BK1
        products_BF = 0.5 * (vector_BKF.sum(1).square() - vector_BKF.square().sum(1))
        out: Tensor = (effect_BKT * there_BK1).sum(1) + self.score(products_BF)
        return out

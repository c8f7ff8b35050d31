"""Build DANGO: embeddings from reconstructed networks, and self-attention among the deleted genes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from dglcell.errors import ConfigError
from dglcell.graph.resident import ResidentCell
from dglcell.graph.resident_graph import ResidentRelation, sparse_matrix
from dglcell.graph.schema import GENE, Relation
from dglcell.kernels.spmm import spmm
from dglcell.models.cell_model import CellModel, Encoded
from dglcell.models.config import DangoConfig
from dglcell.models.terms.scores import SetAttention
from dglcell.nn.blocks import make_activation, mlp
from dglcell.nn.convolutions import SAGEConv
from dglcell.perturbation.genotype import GenotypeBatch

UNCERTAIN, CERTAIN = 0.1, 1.0
CHANNEL_ZERO_WEIGHTS = dict.fromkeys(("neighborhood", "coexpression", "experimental"), UNCERTAIN)
CHANNEL_ZERO_WEIGHTS |= dict.fromkeys(("fusion", "cooccurence", "database"), CERTAIN)
"""This is λ by channel of STRING, less where many zeros became edges between versions 9.1 and 11.0, as the torchcell
project found among the genes of both. The code of DANGO's authors takes 1 for ``neighborhood``."""

BLOCK_EDGES = 1 << 18
"""Edges whose rows are gathered at once."""


def zero_weight(relation: str, given: Mapping[str, float]) -> float:
    """Return λ of a network: the given one, or that of the channel of STRING in which its name ends."""
    if relation in given:
        return given[relation]
    for channel, weight in CHANNEL_ZERO_WEIGHTS.items():
        if relation == channel or relation.endswith(f"_{channel}"):
            return weight
    what = f"how much do the pairs that are no edges of '{relation}' count when it is reconstructed?"
    got = f"a name that ends in no channel of STRING ({', '.join(CHANNEL_ZERO_WEIGHTS)})"
    expected = f"{UNCERTAIN} for a network that still grows by much, {CERTAIN} for one that hardly does"
    do = f"set `model.zero_weights: {{{relation}: {CERTAIN}}}`, or leave the network out of `model.relations`"
    raise ConfigError(what, got=got, expected=expected, do=do)


class NetworksEncoder(nn.Module):
    """Encode the wild type's genes in each of K networks, and join their states."""

    def __init__(self, cell: ResidentCell, config: DangoConfig) -> None:
        super().__init__()
        self.cell, self.config = cell, config
        self.networks = choose_networks(cell, config)
        N, H = cell.num_nodes[GENE], config.hidden
        self.embedding = nn.Embedding(N, H)
        nn.init.normal_(self.embedding.weight, std=config.embedding_std)
        self.encoders = nn.ModuleList(NetworkEncoder(relation, H, config.activation) for relation in self.networks)
        self.heads = nn.ModuleList(
            Reconstruction(cell[relation], H, zero_weight(relation[1], config.zero_weights))
            for relation in (self.networks if config.reconstruction else [])
        )
        self.meta = MetaEmbedding(H, config.activation)

    def forward(self) -> list[Tensor]:
        """Return the gene states in each network, [N, H]."""
        pairs, x_NH = zip(self.encoders, self.networks, strict=True), self.embedding.weight
        return [encoder(self.cell[relation], x_NH, self.config.kernel) for encoder, relation in pairs]

    def joined(self, states: list[Tensor]) -> dict[str, Tensor]:
        """Return the genes' joined states, ``gene`` → [N, H]."""
        return {GENE: self.meta(torch.stack(states, dim=1))}

    def reconstruct(self, states: list[Tensor] | None = None) -> Tensor:
        """Return the mean reconstruction error of the networks, a scalar; states are encoded anew where None."""
        pairs = zip(self.heads, states or self(), strict=True)
        return torch.stack([head(x_NH) for head, x_NH in pairs]).mean()


class Dango(CellModel):
    r"""Predict interactions of deleted genes from their states in the wild type.

    Zhang, Ma & Ma 2020, *DANGO: Predicting higher-order genetic interactions* (bioRxiv 2020.11.26.400739).

    1. Every gene has an embedding. For each of K networks, two rounds of GraphSAGE with ReLU give the genes' states
       :math:`E^{(k)}`, from which a Linear layer reconstructs the network's adjacency (``Reconstruction``).
    2. The states of a gene in the networks are joined to one (``MetaEmbedding``).
    3. The states of a strain's deleted genes are scored as a set (``Genes``).

    Only the wild type is encoded: a deletion decides which genes' states are read, and changes no state. So this is not
    a model of the strains' graphs (``HeteroCell`` is). Networks are taken as the cell graph stores them, self-loops
    included; ``cell.symmetrise`` decides whether an undirected pair counts in both directions. Defaults are those of
    the torchcell project's experiment 006. The code that DANGO's authors released (github.com/ma-compbio/DANGO) differs
    from it, and both from the paper. The auxiliary ``reconstruction`` of a prediction is computed when it is called.
    """

    Config = DangoConfig
    config: DangoConfig

    def make_encoder(self, read: Sequence[str], features: dict[str, Tensor] | None) -> NetworksEncoder:
        return NetworksEncoder(self.cell, self.config)

    def initialise(self) -> None:
        for name, term in self.terms.items():
            if name == "genes":
                term.apply(initialise)
            else:
                term.start()

    def encode(self, genotypes: GenotypeBatch) -> Encoded:
        kept_pass, states = self._base_cache.replay(self), None
        if kept_pass is None:
            states = self.encoder()
            wild_type = self.encoder.joined(states)
        else:
            wild_type = kept_pass.once(lambda: self.encoder.joined(self.encoder()))
        auxiliary = {"reconstruction": partial(self.encoder.reconstruct, states)} if self.config.reconstruction else {}
        return Encoded(wild_type, auxiliary=auxiliary)


def choose_networks(cell: ResidentCell, config: DangoConfig) -> list[Relation]:
    """Return the gene–gene relations of the cell graph that the configuration uses."""
    known = {relation[1]: relation for relation in cell.relations if relation[0] == relation[2] == GENE}
    if not known:
        do = "give `cell.networks` or `cell.derived`"
        raise ConfigError("DANGO needs networks of genes", got="a cell graph without any", do=do)
    names = list(known) if config.relations is None else config.relations
    if unknown := sorted(set(names) - set(known)):
        what = "`model.relations` names no networks of genes that the cell graph has"
        raise ConfigError(what, got=unknown, expected=", ".join(known))
    if unused := sorted(set(config.zero_weights) - set(names)):
        expected = f"among {', '.join(names)}"
        raise ConfigError("`model.zero_weights` names networks that are not used", got=unused, expected=expected)
    return [known[name] for name in names]


def initialise(module: nn.Module) -> None:
    """Initialise Linear layers by Xavier (gain of ReLU; queries, keys and values apart), and their biases by zeros."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight, gain=math.sqrt(2))
        nn.init.zeros_(module.bias)
    elif isinstance(module, SetAttention):
        for weight in module.project.weight.chunk(3):
            nn.init.xavier_uniform_(weight, gain=math.sqrt(2))


class MetaEmbedding(nn.Module):
    r"""Average over networks, with weights from the states themselves (Zhang et al. 2020, *DANGO*).

    .. math:: E_i = \sum_k \operatorname{softmax}_k\big(f(E_i^{(k)})\big)\, E_i^{(k)}

    f has two Linear layers, H → H/2 → 1. States [N, K, H] of K networks become [N, H].
    """

    def __init__(self, width: int, activation: str) -> None:
        super().__init__()
        self.weight = mlp([width, max(1, width // 2), 1], activation)
        self.weight.apply(initialise)

    def forward(self, x_NKH: Tensor) -> Tensor:
        share_NK1 = torch.softmax(self.weight(x_NKH), dim=1)
        return (share_NK1 * x_NKH).sum(1)


class NetworkEncoder(nn.Module):
    """Encode the wild type's genes, [N, H], by two rounds of ``SAGEConv`` and activation on one unweighted network."""

    def __init__(self, relation: Relation, width: int, activation: str) -> None:
        super().__init__()
        self.rounds = nn.ModuleList(SAGEConv(relation, width) for _ in range(2))
        self.activation = make_activation(activation)

    def forward(self, edges: ResidentRelation, x_NH: Tensor, kernel: str = "auto") -> Tensor:
        """Return new states; the mean over no in-edge is 0."""
        degree_N1 = edges.in_degrees.clamp(min=1).unsqueeze(1)
        for conv in self.rounds:
            assert isinstance(conv, SAGEConv)
            mean_NH = spmm(edges, x_NH, weighted=False, kernel=kernel) / degree_N1
            x_NH = self.activation(conv.update(x_NH, mean_NH))
        return x_NH


class Reconstruction(nn.Module):
    r"""Reconstruct a network's adjacency from the states of its genes, and return the mean error over all pairs.

    .. math:: \hat A = E W^\top + 1 b^\top, \qquad
        \frac{1}{N^2}\Big[\sum_{A = 1} (\hat A - 1)^2 + \lambda \sum_{A = 0} \hat A^2\Big]

    (Zhang et al. 2020, *DANGO*). The row of a gene holds its out-edges, as the cell graph stores them (self-loops too);
    parallel edges count once. No matrix of N × N is ever made; see ``pair_error``.
    """

    def __init__(self, edges: ResidentRelation, width: int, zero_weight: float) -> None:
        super().__init__()
        self.edges, self.zero_weight = _without_parallel_edges(edges), zero_weight
        self.out = nn.Linear(width, edges.num_src)
        nn.init.normal_(self.out.weight, std=0.1)
        nn.init.zeros_(self.out.bias)

    def forward(self, x_NH: Tensor) -> Tensor:
        return pair_error(self.edges, x_NH, self.out.weight, self.out.bias, self.zero_weight)


def _without_parallel_edges(edges: ResidentRelation) -> ResidentRelation:
    keys, order = edges.edges_by_pair
    first = torch.ones_like(keys, dtype=torch.bool)
    first[1:] = keys[1:] != keys[:-1]
    if bool(first.all()):
        return edges
    kept = order[first]
    return ResidentRelation(edges.relation, edges.src[kept], edges.dst[kept], edges.num_src, edges.num_dst)


Factors = tuple[Tensor, Tensor, Tensor]
"""These are L, R and b, or their gradients."""


def pair_error(
    edges: ResidentRelation, left_NH: Tensor, right_MH: Tensor, bias_M: Tensor, zero_weight: float
) -> Tensor:
    r"""Compute the mean squared error of :math:`\hat A = L R^\top + 1 b^\top` against an adjacency A of ones and zeros.

    .. math:: \frac{1}{N M} \Big[\, \sum_{A_{uv} = 1} (\hat A_{uv} - 1)^2
              + \lambda \sum_{A_{uv} = 0} \hat A_{uv}^2 \Big]

    Exact, in O(E H + (N + M) H²): with :math:`\tilde L = [L, 1]` and :math:`\tilde R = [R, b]` the squares of all pairs
    are :math:`\sum_{uv} \hat A_{uv}^2 = \langle \tilde L^\top \tilde L,\, \tilde R^\top \tilde R \rangle`. The edges
    are then set right one by one. Differentiable (once) in L, R and b. The products of all pairs are taken in float64,
    because the edges' share is subtracted from them again; half precisions are computed in float32.

    Args:
        edges: E edges u → v; each pair occurs at most once.
        left_NH, right_MH, bias_M: factors L of the sources and R of the destinations, and the bias b.
        zero_weight: λ, the weight of pairs without an edge.
    """
    dtype = torch.promote_types(torch.promote_types(left_NH.dtype, right_MH.dtype), torch.float32)
    factors = (x.to(dtype) for x in (left_NH, right_MH, bias_M))
    p = 1 / (len(left_NH) * len(right_MH))
    out: Tensor = _PairError.apply(*factors, edges, (p, zero_weight * p))
    return out


class _PairError(torch.autograd.Function):
    """Compute the gradients together with the error, because those of a scalar cost only as much as a factor."""

    @staticmethod
    def forward(
        ctx: Any, left: Tensor, right: Tensor, bias: Tensor, edges: ResidentRelation, weights: tuple[float, float]
    ) -> Tensor:
        # Autocast would turn factors into bfloat16.
        with torch.autocast(left.device.type, enabled=False):
            squares, gradients = _all_pairs(left, right, bias, weights[1])
            total = squares + _add_edges(edges, (left, right, bias), weights, gradients)
        ctx.save_for_backward(*gradients)
        return total.to(left.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        left, right, bias = (grad * gradient for gradient in ctx.saved_tensors)
        return left, right, bias, None, None


def _all_pairs(left: Tensor, right: Tensor, bias: Tensor, q: float) -> tuple[Tensor, Factors]:
    """Return q Σ Â² over all pairs, in float64, and its gradients in L, R and b."""
    H = left.shape[1]
    left_one = torch.cat([left, left.new_ones(len(left), 1)], dim=1).double()
    right_bias = torch.cat([right, bias.unsqueeze(1)], dim=1).double()
    of_left, of_right = q * (left_one.T @ left_one), right_bias.T @ right_bias
    S, G = of_left.to(left.dtype), of_right.to(left.dtype)
    d_left = torch.addmm(G[H, :H], left, G[:H, :H]) * (2 * q)
    d_right = 2 * torch.addmm(torch.outer(bias, S[H, :H]), right, S[:H, :H])
    d_bias = 2 * torch.addmv(bias * S[H, H], right, S[:H, H])
    return (of_left * of_right).sum(), (d_left, d_right, d_bias)


def _add_edges(edges: ResidentRelation, factors: Factors, weights: tuple[float, float], gradients: Factors) -> Tensor:
    """Return Σ over edges of p (Â − 1)² − q Â², in float64; its gradients in L, R and b are added to ``gradients``."""
    (left, right, bias), (p, q), (d_left, d_right, d_bias) = factors, weights, gradients
    total, slope_E = bias.new_zeros((), dtype=torch.float64), left.new_empty(edges.num_edges)
    for first in range(0, edges.num_edges, BLOCK_EDGES):
        block = slice(first, first + BLOCK_EDGES)
        u, v = edges.src[block], edges.dst[block]
        guess = (left.index_select(0, u) * right.index_select(0, v)).sum(1) + bias[v]
        error = guess - 1
        total += (p * error.square() - q * guess.square()).sum(dtype=torch.float64)
        slope_E[block] = 2 * (p * error - q * guess)
    if edges.num_edges:
        to_destinations = _matrix(edges, slope_E, transposed=False) @ torch.cat([left, torch.ones_like(left[:, :1])], 1)
        d_right += to_destinations[:, :-1]
        d_bias += to_destinations[:, -1]
        d_left += _matrix(edges, slope_E[edges.by_source], transposed=True) @ right
    return total


def _matrix(edges: ResidentRelation, values_E: Tensor, *, transposed: bool) -> Tensor:
    """Return values on edges, in the order of the rows, as a sparse matrix whose rows are destinations, or sources."""
    starts, columns, _ = edges.index_tensors(transposed=transposed)
    shape = (edges.num_src, edges.num_dst) if transposed else (edges.num_dst, edges.num_src)
    return sparse_matrix(starts, columns, values_E, shape)

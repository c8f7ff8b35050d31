"""Define the parts of DANGO: network encoders, reconstruction, meta-embedding and its attention."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from dglcell.errors import ConfigError
from dglcell.graph.resident import ResidentRelation
from dglcell.graph.schema import Relation
from dglcell.kernels.pair_error import pair_error
from dglcell.kernels.spmm import spmm
from dglcell.machine.parts import Part
from dglcell.nn.blocks import make_activation, mlp
from dglcell.nn.convolutions import SAGEConv
from dglcell.nn.heads import shares_of_removed

# One state per gene from its states in several networks.


class MetaEmbedding(nn.Module):
    r"""Average over networks, with weights from the states themselves (Zhang et al. 2020, *DANGO*).

    .. math:: E_i = \sum_k \operatorname{softmax}_k\big(f(E_i^{(k)})\big)\, E_i^{(k)}

    Args:
        width: H.
        layers: Linear layers of f: 2 (H → H/2 → 1, as published), or 1.
        activation: activation between the layers.

    Shapes:
        states [N, K, H] of K networks → [N, H].
    """

    def __init__(self, width: int, layers: int, activation: str) -> None:
        super().__init__()
        self.weight = mlp([width, *[max(1, width // 2)] * (layers - 1), 1], activation)
        for module in self.weight:
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight, gain=math.sqrt(2))
                nn.init.zeros_(module.bias)

    @Part("updates")
    def forward(self, x_NKH: Tensor) -> Tensor:
        """Return the joined gene states."""
        share_NK1 = torch.softmax(self.weight(x_NKH), dim=1)
        return (share_NK1 * x_NKH).sum(1)


# Rounds of GraphSAGE on the wild type of one network.


class NetworkEncoder(nn.Module):
    """Encode the wild type's genes by some rounds of ``SAGEConv`` and activation on one network.

    There is one state per gene, whatever the batch: no strain's graph is used. Fixed edge weights are not used.

    Args:
        relation: the network.
        width: H.
        activation: activation after every round, the last too.
        rounds: number of rounds of message passing.

    Shapes:
        [N, H] → [N, H].
    """

    def __init__(self, relation: Relation, width: int, activation: str, rounds: int = 2) -> None:
        super().__init__()
        self.rounds = nn.ModuleList(SAGEConv(relation, width) for _ in range(rounds))
        self.activation = make_activation(activation)

    @Part("updates")
    def forward(self, edges: ResidentRelation, x_NH: Tensor, kernel: str = "auto") -> Tensor:
        """Return new states; the mean over no in-edge is 0."""
        degree_N1 = edges.in_degrees.clamp(min=1).unsqueeze(1)
        for conv in self.rounds:
            assert isinstance(conv, SAGEConv)
            with Part(f"aggregation/{edges.relation[1]}"):
                mean_NH = spmm(edges, x_NH, weighted=False, kernel=kernel) / degree_N1
            x_NH = self.activation(conv.update(x_NH, mean_NH))
        return x_NH


# Predict a network's adjacency from the states of its genes.


class AdjacencyTarget(nn.Module):
    """Hold the target of a reconstruction: a network's adjacency entries and their weights in the error.

    The row of a gene holds its out-edges, as the cell graph stores them (self-loops too).

    Args:
        edges: edges of the network with N genes.
        zero_weight: λ of the pairs that are no edges.
        target: ``binary``: edges are ones; ``weight``: the edges' weights, shifted and scaled to 0 … 1, so that the
            smallest counts as no edge; of parallel edges the largest.
        mean: ``pairs``: over all N² pairs; ``rows``: the mean over a gene's edges and that over its other pairs, each
            averaged over genes.

    Raises:
        ConfigError: ``weight``, but the network has no weights.
    """

    edge_weight: Tensor
    zero_weight: Tensor

    def __init__(
        self, edges: ResidentRelation, zero_weight: float, target: str = "binary", mean: str = "pairs"
    ) -> None:
        super().__init__()
        self.weighted = target == "weight"
        self.edges = _entries(edges, weighted=self.weighted)
        N = edges.num_src
        degree_N = self.edges.out_degrees.double()
        if mean == "pairs":
            of_edges, of_zeros = torch.full_like(degree_N, N**-2), torch.full_like(degree_N, N**-2)
        else:
            of_edges, of_zeros = 1 / (N * degree_N.clamp(min=1)), 1 / (N * (N - degree_N).clamp(min=1))
        # They are kept in double precision, so that a model that is converted to float64 is exact.
        self.register_buffer("edge_weight", of_edges, persistent=False)
        self.register_buffer("zero_weight", zero_weight * of_zeros, persistent=False)


def _entries(edges: ResidentRelation, *, weighted: bool) -> ResidentRelation:
    """Return a relation with every pair once.

    It is the given relation itself where that has every pair once and no weight is needed. Else it is a new one, with
    scaled weights.
    """
    keys, order = edges.edges_by_pair
    first = torch.ones_like(keys, dtype=torch.bool)
    first[1:] = keys[1:] != keys[:-1]
    if not weighted and bool(first.all()):
        return edges
    kept = order[first]
    src, dst, weight = edges.src[kept], edges.dst[kept], None
    if weighted:
        weight = _scaled(_largest(_weights(edges)[order], first))
        entry = weight != 0
        src, dst, weight = src[entry], dst[entry], weight[entry]
    return ResidentRelation(edges.relation, src, dst, edges.num_src, edges.num_dst, weight)


def _weights(edges: ResidentRelation) -> Tensor:
    if edges.weight is None:
        raise ConfigError(
            f"`model.reconstruction_target: weight`, but relation '{edges.relation[1]}' has no weights",
            do="set `use_weights: true` for it in `cell.networks`, or `model.reconstruction_target: binary`",
        )
    return edges.weight


def _largest(weight_E: Tensor, first_E: Tensor) -> Tensor:
    """Return the largest of each run of values; runs begin where ``first``."""
    run_E = first_E.cumsum(0) - 1
    return weight_E.new_empty(int(first_E.sum())).scatter_reduce(0, run_E, weight_E, "amax", include_self=False)


def _scaled(weight_E: Tensor) -> Tensor:
    """Shift and scale values to 0 … 1; where all are equal, return ones."""
    if len(weight_E) == 0 or bool((weight_E == weight_E[0]).all()):
        return torch.ones_like(weight_E)
    low, high = weight_E.aminmax()
    return (weight_E - low) / (high - low)


class Reconstruction(nn.Module):
    r"""Reconstruct the rows of a network's adjacency from the states of its genes, and return the error.

    .. math:: \hat A = f(E)\, W^\top + 1 b^\top, \qquad
        \frac{1}{N^2}\Big[\sum_{A \neq 0} (\hat A - A)^2 + \lambda \sum_{A = 0} \hat A^2\Big]

    (Zhang et al. 2020, *DANGO*). No matrix of N × N is ever made; see ``dglcell.kernels.pair_error``.

    Args:
        width: H.
        num_genes: number N of genes.
        layers: Linear layers: 1 (as above, f the identity), or more (H → H, activation) before.
        activation: activation between the layers.
        sd: standard deviation of the initial weights W; b starts at 0.

    Shapes:
        [N, H] → scalar.
    """

    def __init__(self, width: int, num_genes: int, layers: int = 1, activation: str = "relu", sd: float = 0.1) -> None:
        super().__init__()
        hidden = [(nn.Linear(width, width), make_activation(activation)) for _ in range(layers - 1)]
        self.hidden = nn.Sequential(*(module for pair in hidden for module in pair))
        self.out = nn.Linear(width, num_genes)
        nn.init.normal_(self.out.weight, std=sd)
        nn.init.zeros_(self.out.bias)

    @Part("loss/reconstruction")
    def forward(self, x_NH: Tensor, target: AdjacencyTarget) -> Tensor:
        """Return the weighted error over all pairs."""
        weights = target.edge_weight, target.zero_weight
        hidden_NH, out = self.hidden(x_NH), self.out
        return pair_error(target.edges, hidden_NH, out.weight, out.bias, weights, weighted=target.weighted)


# Scoring of gene sets as in the code that DANGO's authors released.


class ReleasedSAGNN(nn.Module):
    """Score a set of genes after one round of attention among all of them, in which each also attends to itself.

    This is what the released code computes (github.com/ma-compbio/DANGO, ``Hyper_SAGNN`` in ``Modules.py``), which is
    not what the paper says (``HyperSAGNN``): its switch for leaving out a gene's attention to itself and for comparing
    static with dynamic states is never on, so the score is read from the dynamic states alone. Heads are as wide as
    states, layer norms come first, and a set's score is a sum.

    Args:
        width: H.
        outputs: T scores per set.
        heads: number A of heads.
        activation: activation inside the feed-forward network.
        dropout: dropout after attention, inside the feed-forward network and before the score.

    Shapes:
        genes' states [B, K, H], removed [B, K] (see ``GenotypeBatch.padded``) → [B, T]; zero for an empty set.
    """

    def __init__(self, width: int, outputs: int, *, heads: int, activation: str, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.projections = nn.ModuleList(nn.Linear(width, heads * width, bias=False) for _ in range(3))
        for projection in self.projections:
            assert isinstance(projection, nn.Linear)
            nn.init.normal_(projection.weight, std=width**-0.5)
        self.mix = nn.Linear(heads * width, width, bias=False)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, width),
            make_activation(activation),
            nn.Dropout(dropout),
            nn.Linear(width, width),
        )
        self.beta = nn.Parameter(torch.zeros(1))
        self.norm = nn.LayerNorm(width)
        self.score = nn.Linear(width, outputs)
        self.dropout = nn.Dropout(dropout)

    @Part("heads")
    def forward(self, x_BKH: Tensor, removed_BK: Tensor) -> Tensor:
        """Return the scores, [B, T]."""
        B, K, H = x_BKH.shape
        query, key, value = (
            project(norm(x_BKH)).view(B, K, self.heads, H).transpose(1, 2)
            for project, norm in zip(self.projections, self.norms, strict=True)
        )
        share = shares_of_removed((query @ key.transpose(-1, -2)) * H**-0.5, removed_BK[:, None, None])
        dynamic = self.dropout(self.mix((share @ value).transpose(1, 2).flatten(2)))
        dynamic = dynamic + self.beta * self.feed_forward(dynamic)
        score_BKT = self.score(self.dropout(self.norm(dynamic)))
        out: Tensor = (score_BKT * removed_BK.unsqueeze(-1).to(score_BKT.dtype)).sum(1)
        return out

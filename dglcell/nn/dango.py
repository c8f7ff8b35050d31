"""Define the parts of DANGO: network encoders, reconstruction and meta-embedding."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from dglcell.graph.resident_graph import ResidentRelation
from dglcell.graph.schema import Relation
from dglcell.kernels.pair_error import pair_error
from dglcell.kernels.spmm import spmm
from dglcell.nn.blocks import make_activation, mlp
from dglcell.nn.convolutions import SAGEConv


class MetaEmbedding(nn.Module):
    r"""Average over networks, with weights from the states themselves (Zhang et al. 2020, *DANGO*).

    .. math:: E_i = \sum_k \operatorname{softmax}_k\big(f(E_i^{(k)})\big)\, E_i^{(k)}

    Args:
        width: H.
        activation: activation between the two Linear layers of f, H → H/2 → 1.

    Shapes:
        states [N, K, H] of K networks → [N, H].
    """

    def __init__(self, width: int, activation: str) -> None:
        super().__init__()
        self.weight = mlp([width, max(1, width // 2), 1], activation)
        for module in self.weight:
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight, gain=math.sqrt(2))
                nn.init.zeros_(module.bias)

    def forward(self, x_NKH: Tensor) -> Tensor:
        """Return the joined gene states."""
        share_NK1 = torch.softmax(self.weight(x_NKH), dim=1)
        return (share_NK1 * x_NKH).sum(1)


class NetworkEncoder(nn.Module):
    """Encode the wild type's genes by two rounds of ``SAGEConv`` and activation on one network.

    There is one state per gene, whatever the batch: no strain's graph is used. Fixed edge weights are not used.

    Args:
        relation: the network.
        width: H.
        activation: activation after every round, the last too.

    Shapes:
        [N, H] → [N, H].
    """

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
    parallel edges count once. No matrix of N × N is ever made; see ``dglcell.kernels.pair_error``.

    Args:
        edges: edges of the network with N genes.
        width: H.
        zero_weight: λ of the pairs that are no edges.

    Shapes:
        [N, H] → scalar.
    """

    def __init__(self, edges: ResidentRelation, width: int, zero_weight: float) -> None:
        super().__init__()
        self.edges, self.zero_weight = _without_parallel_edges(edges), zero_weight
        self.out = nn.Linear(width, edges.num_src)
        nn.init.normal_(self.out.weight, std=0.1)
        nn.init.zeros_(self.out.bias)

    def forward(self, x_NH: Tensor) -> Tensor:
        """Return the mean error over all pairs."""
        return pair_error(self.edges, x_NH, self.out.weight, self.out.bias, self.zero_weight)


def _without_parallel_edges(edges: ResidentRelation) -> ResidentRelation:
    """Return a relation with every pair once: the given one itself if that has none twice."""
    keys, order = edges.edges_by_pair
    first = torch.ones_like(keys, dtype=torch.bool)
    first[1:] = keys[1:] != keys[:-1]
    if bool(first.all()):
        return edges
    kept = order[first]
    return ResidentRelation(edges.relation, edges.src[kept], edges.dst[kept], edges.num_src, edges.num_dst)

"""Predict a network's adjacency from the states of its genes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dglcell.errors import ConfigError
from dglcell.graph.resident import ResidentRelation
from dglcell.kernels.pair_error import pair_error
from dglcell.nn.registry import make_activation

TARGETS = ("binary", "weight")
MEANS = ("pairs", "rows")


class AdjacencyTarget(nn.Module):
    """What a reconstruction is compared with: the entries of a network's adjacency and how much each counts.

    The row of a gene holds its out-edges, as the cell graph stores them (self-loops too).

    Args:
        edges: the network, N genes.
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
        # In double precision, so that the double of a model is exact.
        self.register_buffer("edge_weight", of_edges, persistent=False)
        self.register_buffer("zero_weight", zero_weight * of_zeros, persistent=False)


def _entries(edges: ResidentRelation, *, weighted: bool) -> ResidentRelation:
    """Every pair once: the relation itself where that is so and no weight is needed; else a new one, weights scaled."""
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
    """The largest of each run of values; runs begin where ``first``."""
    run_E = first_E.cumsum(0) - 1
    return weight_E.new_empty(int(first_E.sum())).scatter_reduce(0, run_E, weight_E, "amax", include_self=False)


def _scaled(weight_E: Tensor) -> Tensor:
    """Shifted and scaled to 0 … 1; ones where all are equal."""
    if len(weight_E) == 0 or bool((weight_E == weight_E[0]).all()):
        return torch.ones_like(weight_E)
    low, high = weight_E.aminmax()
    return (weight_E - low) / (high - low)


class Reconstruction(nn.Module):
    r"""The rows of a network's adjacency from the states of its genes, and how wrong they are.

    .. math:: \hat A = f(E)\, W^\top + 1 b^\top, \qquad
        \frac{1}{N^2}\Big[\sum_{A \neq 0} (\hat A - A)^2 + \lambda \sum_{A = 0} \hat A^2\Big]

    (Zhang et al. 2020, *DANGO*). No matrix of N × N is ever made; see ``dglcell.kernels.pair_error``.

    Args:
        width: H.
        num_genes: N.
        layers: Linear layers: 1 (as above, f the identity), or more (H → H, activation) before.
        activation: between them.
        sd: of the initial weights W; b starts at 0.

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

    def forward(self, x_NH: Tensor, target: AdjacencyTarget) -> Tensor:
        """The weighted error over all pairs."""
        weights = target.edge_weight, target.zero_weight
        hidden_NH, out = self.hidden(x_NH), self.out
        return pair_error(target.edges, hidden_NH, out.weight, out.bias, weights, weighted=target.weighted)

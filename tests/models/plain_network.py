"""The global head of the model on one strain's own graph, in plain torch: edge by edge, with no layer of dglcell."""

from __future__ import annotations

from collections import defaultdict

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.random_cells import RandomCell

Left = dict[str, Tensor]
"""Node type → [N] what is left of every node of a strain: 0 of lost ones, 1 of those of the wild type."""


def left_of(cell: RandomCell, genes: dict[int, Tensor], reactions: dict[int, Tensor] | None = None) -> Left:
    """Return the definition: a reaction has the smallest activity of its genes and its own.

    Args:
        genes: gene → its activity in the strain.
        reactions: reaction → the activity that a medium gives it.
    """
    one = torch.ones((), dtype=torch.float64)
    gene = [genes.get(number, one) for number in range(cell.sizes["gene"])]
    limits = defaultdict(list, {reaction: [value] for reaction, value in (reactions or {}).items()})
    for number, reaction in zip(*cell.edges["gene", "catalyses", "reaction"], strict=True):
        limits[int(reaction)].append(gene[int(number)])
    reaction = [torch.stack(limits[number] or [one]).amin() for number in range(cell.sizes["reaction"])]
    return {
        "gene": torch.stack(gene),
        "reaction": torch.stack(reaction),
        "metabolite": one.expand(cell.sizes["metabolite"]),
    }


class Parameters:
    """Parameters by name, of which gradients can be taken."""

    def __init__(self, model: nn.Module) -> None:
        self.values = dict(model.named_parameters())

    def linear(self, prefix: str, x: Tensor) -> Tensor:
        return F.linear(x, self.values[f"{prefix}.weight"], self.values.get(f"{prefix}.bias"))

    def norm(self, prefix: str, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], self.values[f"{prefix}.weight"], self.values[f"{prefix}.bias"])


def added(rows: Tensor, v: Tensor, nodes: int) -> Tensor:
    """Sums of the edges' rows, node by node."""
    return rows.new_zeros(nodes, *rows.shape[1:]).index_add(0, v, rows)


def over(total: Tensor, divisor: Tensor) -> Tensor:
    """Return a quotient; 0 where nothing is added up."""
    divisor = torch.where(divisor > 0, divisor, 1)
    return total / divisor.view(*divisor.shape, *(1,) * (total.dim() - divisor.dim()))


def receive(p: Parameters, name: str, conv: str, edges: tuple[Tensor, ...], x: Tensor, there: Tensor) -> Tensor:
    """Return what nodes receive over the edges that are left: sums, means, or GATv2's attention.

    Args:
        edges: source, destination, weight and activity of each.
        x: states of the sources.
        there: states of the destinations.
    """
    u, v, weight, activity = edges
    if conv != "gatv2":
        total = added((activity * weight).unsqueeze(1) * x[u], v, len(there))
        return over(total, added(activity, v, len(there))) if conv == "sage" else total
    keys, queries, vector = p.linear(f"{name}.keys", x), p.linear(f"{name}.queries", there), p.values[f"{name}.vector"]
    hidden = keys[u] + queries[v]
    if f"{name}.edge_vector" in p.values:
        hidden = hidden + weight.unsqueeze(1) * p.values[f"{name}.edge_vector"]
    scores = (F.leaky_relu(hidden, 0.2).unflatten(1, vector.shape) * vector).sum(2)
    share = activity.unsqueeze(1) * scores.exp()
    rows = share.unsqueeze(2) * keys[u].unflatten(1, vector.shape)
    return over(added(rows, v, len(there)), added(share, v, len(there))).flatten(1)


def convolve(p: Parameters, name: str, model: nn.Module, x: Tensor, received: Tensor) -> Tensor:
    """Return what one relation says about its destination nodes."""
    if model.config.conv == "gatv2":
        return received + p.values[f"{name}.bias"]
    if model.config.conv == "sage":
        return p.linear(f"{name}.itself", x) + p.linear(f"{name}.neighbours", received)
    out = (1 + p.values[f"{name}.epsilon"]) * x + received
    for position in range(0, 2 * model.config.gin_layers, 2):
        out = p.linear(f"{name}.mlp.{position}", F.gelu(out) if position else out)
    return out


def combine(p: Parameters, how: str, name: str, h: list[Tensor]) -> Tensor:
    """Return what relations say about the same nodes."""
    if how == "sum" or len(h) == 1:
        return torch.stack(h).sum(0)
    if how == "mean":
        return torch.stack(h).mean(0)
    return p.norm(f"{name}.norm", mix_pairs(p, f"{name}.mix", torch.stack(h)))


def mix_pairs(p: Parameters, name: str, h_KNH: Tensor) -> Tensor:
    """[N, H], option by option."""
    options = []
    for pair, (a, b) in enumerate((a, b) for i, a in enumerate(h_KNH) for b in h_KNH[i:]):
        x = torch.cat([a, b], 1)
        layers = ["first", *(f"middle.{d}" for d in range(10) if f"{name}.middle.{d}.weight" in p.values), "last"]
        for layer in layers:
            x = x @ p.values[f"{name}.{layer}.weight"][pair] + p.values[f"{name}.{layer}.bias"][pair]
            x = x if layer == "last" else F.gelu(x)
        options.append(x)
    options.append(h_KNH.mean(0))
    scores = [p.linear(f"{name}.score_last", F.gelu(p.linear(f"{name}.score_first", o))) for o in options]
    return (torch.softmax(torch.stack(scores), 0) * torch.stack(options)).sum(0)


def encode(model: nn.Module, cell: RandomCell, left: Left) -> dict[str, Tensor]:
    """States of all nodes after message passing; those of lost nodes are never read."""
    p, x = Parameters(model), {}
    for node_type in model.encoder.node_types:
        name = f"encoder.preprocessors.{node_type}"
        h = F.gelu(p.linear(f"{name}.0", p.values[f"encoder.embeddings.{node_type}.weight"]))
        x[node_type] = F.gelu(p.norm(f"{name}.4", p.linear(f"{name}.3", h)))
    for number, layer in enumerate(model.encoder.layers):
        said: dict[str, list[Tensor]] = defaultdict(list)
        for i, relation in enumerate(layer.relations):
            name, (source, _, destination) = f"encoder.layers.{number}.convs.{i}", relation
            u, v = (torch.as_tensor(end) for end in cell.edges[relation])
            weight = (
                torch.as_tensor(cell.weights[relation]) if relation in cell.weights else torch.ones(len(u)).double()
            )
            there = (left[source][u] > 0) & (left[destination][v] > 0)
            edges = u[there], v[there], weight[there], left[source][u[there]]
            received = receive(p, f"{name}.conv", model.config.conv, edges, x[source], x[destination])
            out = convolve(p, f"{name}.conv", model, x[destination], received)
            said[destination].append(F.gelu(p.norm(f"{name}.after.0", out)))
        for node_type, h in said.items():
            new = combine(p, model.config.cross_relation, f"encoder.layers.{number}.mixers.{node_type}", h)
            x[node_type] = x[node_type] + new if model.config.residual else new
    return x


def pool(model: nn.Module, x: dict[str, Tensor], left: Left) -> Tensor:
    """Attention pooling of every pooled type over what is left of its nodes, side by side."""
    p, parts = Parameters(model), []
    for node_type in model.config.pool:
        h = x[node_type]
        name = f"terms.graph.pools.{node_type}"
        gate = p.linear(f"{name}.gate.2", F.gelu(p.linear(f"{name}.gate.0", h)))[:, 0]
        share = left[node_type] * gate.exp()
        pooled = over(share @ p.linear(f"{name}.value", h), share.sum())
        parts.append(pooled * model.cell.num_nodes[node_type])
    return torch.cat(parts)


def plain_forward(model: nn.Module, cell: RandomCell, left: Left) -> Tensor:
    """[T] global prediction for a strain."""
    p, whole = Parameters(model), left_of(cell, {})
    z = pool(model, encode(model, cell, whole), whole) - pool(model, encode(model, cell, left), left)
    return p.linear("terms.graph.head.2", F.gelu(p.linear("terms.graph.head.0", z)))

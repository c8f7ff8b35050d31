"""The global head of the model on one physically reduced graph, in dense numpy with loops and no dglcell layer."""

from __future__ import annotations

import math

import numpy as np

from tests.random_cells import RandomCell

_erf = np.vectorize(math.erf, otypes=[float])


def _gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + _erf(x / math.sqrt(2)))


def _norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * weight + bias


class Parameters:
    """Parameters by name, as numpy."""

    def __init__(self, model) -> None:
        self.values = {name: p.detach().numpy() for name, p in model.named_parameters()}

    def linear(self, prefix: str, x: np.ndarray) -> np.ndarray:
        y = x @ self.values[f"{prefix}.weight"].T
        return y + self.values[f"{prefix}.bias"] if f"{prefix}.bias" in self.values else y

    def norm(self, prefix: str, x: np.ndarray) -> np.ndarray:
        return _norm(x, self.values[f"{prefix}.weight"], self.values[f"{prefix}.bias"])


def attend(p: Parameters, name: str, surviving: list, kept: dict, relation: tuple, x: dict) -> np.ndarray:
    """GATv2 node by node."""
    source, _, destination = relation
    keys, queries = p.linear(f"{name}.keys", x[source]), p.linear(f"{name}.queries", x[destination])
    vector, edge_vector = p.values[f"{name}.vector"], p.values.get(f"{name}.edge_vector", np.zeros(keys.shape[1]))
    out = np.zeros(queries.shape)
    for row, node in enumerate(kept[destination]):
        incoming = [(u, w) for u, v, w in surviving if v == node]
        if incoming:
            mine = keys[np.searchsorted(kept[source], [u for u, _ in incoming])]
            sums = mine + queries[row] + np.array([w for _, w in incoming])[:, None] * edge_vector
            hidden = np.where(sums > 0, sums, 0.2 * sums).reshape(len(incoming), *vector.shape)
            share = np.exp((hidden * vector).sum(-1))
            out[row] = ((share / share.sum(0))[:, :, None] * mine.reshape(hidden.shape)).sum(0).ravel()
    return out + p.values[f"{name}.bias"]


def combine(p: Parameters, how: str, name: str, h: list[np.ndarray]) -> np.ndarray:
    """Return what relations say about the same nodes, node by node."""
    if how == "sum" or len(h) == 1:
        return sum(h)
    if how == "mean":
        return sum(h) / len(h)
    mix = mix_pairs if how == "pairwise_interaction" else mix_by_attention
    rows = [mix(p, f"{name}.mix", np.stack(row)) for row in zip(*h, strict=True)]
    return p.norm(f"{name}.norm", np.stack(rows) if rows else h[0])


def mix_pairs(p: Parameters, name: str, h: np.ndarray) -> np.ndarray:
    """[H] from the [K, H] of one node, option by option."""
    options = []
    for pair, (a, b) in enumerate((a, b) for i, a in enumerate(h) for b in h[i:]):
        x = np.concatenate([a, b])
        layers = ["first", *(f"middle.{d}" for d in range(10) if f"{name}.middle.{d}.weight" in p.values), "last"]
        for layer in layers:
            x = x @ p.values[f"{name}.{layer}.weight"][pair] + p.values[f"{name}.{layer}.bias"][pair]
            x = x if layer == "last" else _gelu(x)
        options.append(x)
    options.append(h.mean(0))
    scores = [p.linear(f"{name}.score_last", _gelu(p.linear(f"{name}.score_first", o)))[0] for o in options]
    share = np.exp(np.array(scores) - max(scores))
    return share / share.sum() @ np.stack(options)


def mix_by_attention(p: Parameters, name: str, h: np.ndarray) -> np.ndarray:
    """[H] from the [K, H] of one node, head by head; four heads."""
    query, key, value = np.split(p.linear(f"{name}.project", h + p.values[f"{name}.embedding"]), 3, axis=1)
    heads = []
    for q, k, v in zip(*(np.split(x, 4, axis=1) for x in (query, key, value)), strict=True):
        share = np.exp(q @ k.T / math.sqrt(k.shape[1]))
        heads.append(share / share.sum(1, keepdims=True) @ v)
    return p.linear(f"{name}.out", np.concatenate(heads, axis=1)).mean(0)


def encode(model, cell: RandomCell, strain: list[int]) -> dict[str, np.ndarray]:
    """States of the kept nodes after message passing on the graph without the lost ones."""
    p = Parameters(model)
    kept = {t: np.flatnonzero(mask) for t, mask in cell.keep(strain).items()}
    x = {}
    for node_type in model.encoder.node_types:
        h = p.values[f"encoder.embeddings.{node_type}.weight"][kept[node_type]]
        h = _gelu(p.linear(f"encoder.preprocessors.{node_type}.0", h))
        x[node_type] = _gelu(
            p.norm(f"encoder.preprocessors.{node_type}.4", p.linear(f"encoder.preprocessors.{node_type}.3", h))
        )
    for number, layer in enumerate(model.encoder.layers):
        said: dict[str, list[np.ndarray]] = {}
        for i, relation in enumerate(layer.relations):
            name = f"encoder.layers.{number}.convs.{i}"
            source, _, destination = relation
            matrix, degree = cell.adjacency(relation, strain)
            matrix = matrix[np.ix_(kept[destination], kept[source])]
            received = matrix @ x[source]
            if model.config.conv == "gatv2":
                out = attend(p, f"{name}.conv", cell.surviving(relation, strain), kept, relation, x)
            elif model.config.conv == "sage":
                received = received / np.maximum(degree[kept[destination]], 1)[:, None]
                out = p.linear(f"{name}.conv.itself", x[destination]) + p.linear(f"{name}.conv.neighbours", received)
            else:
                out = (1 + p.values[f"{name}.conv.epsilon"]) * x[destination] + received
                for position in range(0, 2 * model.config.gin_layers, 2):
                    out = p.linear(f"{name}.conv.mlp.{position}", _gelu(out) if position else out)
            said.setdefault(destination, []).append(_gelu(p.norm(f"{name}.after.0", out)))
        for node_type, h in said.items():
            new = combine(p, model.config.cross_relation, f"encoder.layers.{number}.mixers.{node_type}", h)
            x[node_type] = x[node_type] + new if model.config.residual else new
    return x


def pool(model, x: dict[str, np.ndarray]) -> np.ndarray:
    """Attention pooling of every pooled type, side by side."""
    p, parts = Parameters(model), []
    for node_type in model.config.pool:
        h = x[node_type]
        if len(h) == 0:
            parts.append(np.zeros(h.shape[1]))
            continue
        gate = p.linear(f"pools.{node_type}.gate.2", _gelu(p.linear(f"pools.{node_type}.gate.0", h)))[:, 0]
        share = np.exp(gate - gate.max())
        pooled = (share / share.sum()) @ p.linear(f"pools.{node_type}.value", h)
        parts.append(pooled * model.cell.num_nodes[node_type])
    return np.concatenate(parts)


def plain_forward(model, cell: RandomCell, strain: list[int]) -> np.ndarray:
    """[T] global prediction."""
    p = Parameters(model)
    z = pool(model, encode(model, cell, [])) - pool(model, encode(model, cell, strain))
    return p.linear("global_head.2", _gelu(p.linear("global_head.0", z)))

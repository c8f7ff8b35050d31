"""The set operator model strain by strain, in dense numpy with loops and no dglcell layer."""

from __future__ import annotations

import math

import numpy as np

from dglcell.models.config import OPERATOR_HEADS
from tests.models.plain_network import Parameters, _gelu, encode
from tests.random_cells import RandomCell


def attended(p: Parameters, x: np.ndarray, deleted: list[int], heads: int) -> np.ndarray:
    """Every gene's state after it has attended to the deleted ones, gene by gene."""
    query, key, value = (p.linear(f"operator.{name}", x) for name in ("query", "key", "value"))
    wide = x.shape[1] // heads
    mixed = np.zeros_like(x)
    for n in range(len(x)):
        for head in range(heads):
            part = slice(head * wide, (head + 1) * wide)
            weights = [math.exp(query[n, part] @ key[j, part] / math.sqrt(wide)) for j in deleted]
            for weight, j in zip(weights, deleted, strict=True):
                mixed[n, part] += weight / (1 + sum(weights)) * value[j, part]
    return x + p.linear("operator.out", mixed)


def pool(p: Parameters, x: np.ndarray, gate_of: np.ndarray) -> np.ndarray:
    """Attention pooling of some genes, with gates from their wild-type states."""
    if len(x) == 0:
        return np.zeros_like(p.values["pool.value.bias"])  # as in every pooling over no node
    gate = p.linear("pool.gate.2", _gelu(p.linear("pool.gate.0", gate_of)))[:, 0]
    share = np.exp(gate - gate.max())
    return p.linear("pool.value", (share / share.sum()) @ x)


def global_part(p: Parameters, x: np.ndarray, deleted: list[int], heads: int) -> tuple[np.ndarray, np.ndarray]:
    """[H] difference of pooled states, [T] prediction."""
    kept = [n for n in range(len(x)) if n not in deleted]
    z = pool(p, x, x) - pool(p, attended(p, x, deleted, heads)[kept], x[kept])
    return z, p.linear("global_head.2", _gelu(p.linear("global_head.0", z)))


def factorisation_part(p: Parameters, x: np.ndarray, deleted: list[int]) -> np.ndarray:
    """[T] effects and products, pair by pair."""
    name = "local_head.factorisation"
    effects = p.linear(f"{name}.effect", x) + p.values[f"{name}.own_effects"]
    vectors = p.linear(f"{name}.vector", x) if f"{name}.vector.weight" in p.values else x
    vectors = vectors + p.values[f"{name}.own_vectors"]
    score = sum((effects[i] for i in deleted), np.zeros(effects.shape[1]))
    for position, i in enumerate(deleted):
        for j in deleted[:position]:
            score = score + p.linear(f"{name}.score", vectors[i] * vectors[j])
    return score


def plain_parts(model, cell: RandomCell, strain: list[int]) -> dict[str, np.ndarray]:
    """Return what the model gives for one strain: its two parts and z_p."""
    p, x = Parameters(model), encode(model, cell, [])["gene"]
    deleted = list(dict.fromkeys(strain))
    z, prediction = global_part(p, x, deleted, OPERATOR_HEADS)
    return {"difference": z, "global": prediction, "local": factorisation_part(p, x, deleted)}

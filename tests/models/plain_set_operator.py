"""The set operator model strain by strain, in plain torch with loops and no dglcell layer."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from dglcell.models.config import OPERATOR_HEADS
from tests.models.plain_network import Parameters, encode, left_of
from tests.random_cells import RandomCell


def attended(p: Parameters, x: Tensor, deleted: list[int], heads: int) -> Tensor:
    """Every gene's state after it has attended to the deleted ones, gene by gene."""
    query, key, value = (p.linear(f"terms.operator.attention.{name}", x) for name in ("query", "key", "value"))
    wide = x.shape[1] // heads
    mixed = torch.zeros_like(x)
    for n in range(len(x)):
        for head in range(heads):
            part = slice(head * wide, (head + 1) * wide)
            weights = [math.exp(float(query[n, part] @ key[j, part]) / math.sqrt(wide)) for j in deleted]
            for weight, j in zip(weights, deleted, strict=True):
                mixed[n, part] += weight / (1 + sum(weights)) * value[j, part]
    return x + p.linear("terms.operator.attention.out", mixed)


def pool(p: Parameters, x: Tensor, gate_of: Tensor) -> Tensor:
    """Attention pooling of some genes, with gates from their wild-type states."""
    if len(x) == 0:
        return torch.zeros_like(p.values["terms.operator.pooling.value.bias"])  # as in every pooling over no node
    gate = p.linear("terms.operator.pooling.gate.2", F.gelu(p.linear("terms.operator.pooling.gate.0", gate_of)))[:, 0]
    return p.linear("terms.operator.pooling.value", torch.softmax(gate, 0) @ x)


def global_part(p: Parameters, x: Tensor, deleted: list[int], heads: int) -> tuple[Tensor, Tensor]:
    """[H] difference of pooled states, [T] prediction."""
    kept = [n for n in range(len(x)) if n not in deleted]
    z = pool(p, x, x) - pool(p, attended(p, x, deleted, heads)[kept], x[kept])
    return z, p.linear("terms.operator.head.2", F.gelu(p.linear("terms.operator.head.0", z)))


def factorisation_part(p: Parameters, x: Tensor, deleted: list[int]) -> Tensor:
    """[T] effects and products, pair by pair."""
    name = "terms.genes.head.factorisation"
    effects = p.linear(f"{name}.effect", x) + p.values.get(f"{name}.own_effects", 0)
    vectors = p.linear(f"{name}.vector", x) if f"{name}.vector.weight" in p.values else x
    vectors = vectors + p.values.get(f"{name}.own_vectors", 0)
    score = sum((effects[i] for i in deleted), effects.new_zeros(effects.shape[1]))
    for position, i in enumerate(deleted):
        for j in deleted[:position]:
            score = score + p.linear(f"{name}.score", vectors[i] * vectors[j])
    return score


@torch.no_grad()
def plain_parts(model, cell: RandomCell, strain: list[int]) -> dict[str, Tensor]:
    """Return what the model gives for one strain: its two parts and z_p."""
    p, x = Parameters(model), encode(model, cell, left_of(cell, {}))["gene"]
    deleted = list(dict.fromkeys(strain))
    z, prediction = global_part(p, x, deleted, OPERATOR_HEADS)
    return {"difference": z, "operator": prediction, "genes": factorisation_part(p, x, deleted)}

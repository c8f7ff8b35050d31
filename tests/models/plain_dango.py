"""DANGO in plain torch with dense matrices and loops over genes, strains and heads; it shares no code with dglcell."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from tests.models.plain_network import Parameters

Edge = tuple[int, int]
SCORER = "terms.genes.head.attention"


class PlainDango(Parameters):
    """Reads the parameters of a model by name, so that gradients of both can be compared.

    Args:
        model: the model.
        edges: name of a network → (source, destination) of every edge.
        zero_weights: name of a network → λ.
    """

    def __init__(self, model, edges: dict[str, list[Edge]], zero_weights: dict[str, float]) -> None:
        super().__init__(model)
        self.config, self.edges, self.zero_weights = model.config, edges, zero_weights
        self.num_genes = len(self.values["encoder.embedding.weight"])

    def activate(self, x: Tensor) -> Tensor:
        return torch.nn.functional.gelu(x) if self.config.activation == "gelu" else x.clamp(min=0)

    def encode(self, number: int, edges: list[Edge]) -> Tensor:
        """Return two rounds of GraphSAGE, gene by gene."""
        x = self.values["encoder.embedding.weight"]
        for layer in range(2):
            prefix = f"encoder.encoders.{number}.rounds.{layer}"
            means = []
            for gene in range(self.num_genes):
                sources = [u for u, v in edges if v == gene]
                means.append(x[sources].mean(0) if sources else torch.zeros_like(x[0]))
            x = self.activate(
                self.linear(f"{prefix}.itself", x) + self.linear(f"{prefix}.neighbours", torch.stack(means))
            )
        return x

    def target(self, edges: list[Edge]) -> Tensor:
        """[N, N] adjacency; the row is the source."""
        matrix = torch.zeros(self.num_genes, self.num_genes, dtype=torch.float64)
        for u, v in edges:
            matrix[u, v] = 1.0
        return matrix

    def reconstruct(self, number: int, name: str, x: Tensor) -> Tensor:
        """Return the weighted error of one network, from dense matrices."""
        target = self.target(self.edges[name])
        squares = (self.linear(f"encoder.heads.{number}.out", x) - target).square()
        return (squares * (target + self.zero_weights[name] * (1 - target))).sum() / self.num_genes**2

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return one head: every gene looks at the others."""
        rows = []
        for i in range(len(query)):
            seen = [j for j in range(len(query)) if j != i]
            logits = torch.stack([query[i] @ key[j] / math.sqrt(query.shape[1]) for j in seen])
            rows.append(sum(share * value[j] for share, j in zip(torch.softmax(logits, 0), seen, strict=True)))
        return torch.stack(rows)

    def score(self, x: Tensor) -> Tensor:
        """[T] of one set of genes [K, H]."""
        if not len(x):
            return torch.zeros_like(self.values[f"{SCORER}.score.bias"])
        static, width = self.activate(self.linear(f"{SCORER}.static.0", x)), x.shape[1] // self.config.heads
        dynamic = x
        for layer in range(2 if len(x) > 1 else 0):
            prefix = f"{SCORER}.attention.{layer}"
            parts = [part.split(width, 1) for part in self.linear(f"{prefix}.project", dynamic).chunk(3, 1)]
            heads = [self.attend(q, k, v) for q, k, v in zip(*parts, strict=True)]
            mixed = self.linear(f"{prefix}.out", torch.cat(heads, 1))
            dynamic = self.values[f"{prefix}.beta"] * mixed + dynamic
        return self.linear(f"{SCORER}.score", (dynamic - static) ** 2).mean(0)

    def meta(self, states: list[Tensor]) -> Tensor:
        """Weighted mean over networks."""
        logits = []
        for x in states:
            logits.append(self.linear("encoder.meta.weight.2", self.activate(self.linear("encoder.meta.weight.0", x))))
        weights = torch.cat(logits, 1).exp()
        shares = weights / weights.sum(1, keepdim=True)
        return sum(shares[:, k : k + 1] * x for k, x in enumerate(states))

    def forward(self, strains: list[list[int]]) -> tuple[Tensor, Tensor]:
        """[B, T] predictions and the reconstruction error."""
        states = [self.encode(k, edges) for k, edges in enumerate(self.edges.values())]
        genes = self.meta(states)
        errors = [self.reconstruct(k, name, states[k]) for k, name in enumerate(self.edges)]
        return torch.stack([self.score(genes[strain]) for strain in strains]), sum(errors) / len(errors)


def random_networks(rng: np.random.Generator, num_genes: int, names: list[str]) -> dict[str, list[Edge]]:
    """Networks with self-loops, genes without edges, and now and then an edge twice or no edge at all."""
    networks = {}
    for name in names:
        number = int(rng.integers(0, 3 * num_genes))
        ends = rng.integers(0, max(1, num_genes - 1), (2, number))
        networks[name] = [(int(u), int(v)) for u, v in ends.T]
    return networks

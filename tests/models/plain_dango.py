"""DANGO in plain torch with dense matrices and loops over genes, strains and heads; it shares no code with dglcell."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

Edge = tuple[int, int, float]


class PlainDango:
    """Reads the parameters of a model by name, so that gradients of both can be compared.

    Args:
        model: the model.
        edges: name of a network → (source, destination, weight) of every edge.
        zero_weights: name of a network → λ.
    """

    def __init__(self, model, edges: dict[str, list[Edge]], zero_weights: dict[str, float]) -> None:
        self.parameters = dict(model.named_parameters())
        self.config, self.edges, self.zero_weights = model.config, edges, zero_weights
        self.num_genes = len(self.parameters["embedding.weight"])

    def linear(self, prefix: str, x: Tensor) -> Tensor:
        y = x @ self.parameters[f"{prefix}.weight"].T
        return y + self.parameters[f"{prefix}.bias"] if f"{prefix}.bias" in self.parameters else y

    def activate(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(x) if self.config.activation == "silu" else x.clamp(min=0)

    def encode(self, number: int, edges: list[Edge]) -> Tensor:
        """Return two rounds of GraphSAGE, gene by gene."""
        x = self.parameters["embedding.weight"]
        for layer in range(2):
            prefix = f"encoders.{number}.rounds.{layer}"
            means = []
            for gene in range(self.num_genes):
                sources = [u for u, v, _ in edges if v == gene]
                means.append(x[sources].mean(0) if sources else torch.zeros_like(x[0]))
            x = self.activate(
                self.linear(f"{prefix}.itself", x) + self.linear(f"{prefix}.neighbours", torch.stack(means))
            )
        return x

    def target(self, edges: list[Edge]) -> Tensor:
        """[N, N] adjacency; the row is the source. Of an edge that is there twice, the larger weight counts."""
        matrix = torch.zeros(self.num_genes, self.num_genes, dtype=torch.float64)
        if self.config.reconstruction_target == "binary":
            for u, v, _ in edges:
                matrix[u, v] = 1.0
            return matrix
        weights = {(u, v): max(w for a, b, w in edges if (a, b) == (u, v)) for u, v, _ in edges}
        low, high = min(weights.values(), default=0), max(weights.values(), default=0)
        for (u, v), weight in weights.items():
            matrix[u, v] = (weight - low) / (high - low) if high > low else 1.0
        return matrix

    def reconstruct(self, number: int, name: str, x: Tensor) -> Tensor:
        """Return the weighted error of one network, from dense matrices."""
        for layer in range(self.config.reconstruction_layers - 1):
            x = self.activate(self.linear(f"heads.{number}.hidden.{2 * layer}", x))
        target = self.target(self.edges[name])
        squares = (self.linear(f"heads.{number}.out", x) - target).square()
        edge, zero, weight = (target != 0).double(), (target == 0).double(), self.zero_weights[name]
        if self.config.reconstruction_mean == "pairs":
            return ((squares * edge).sum() + weight * (squares * zero).sum()) / self.num_genes**2
        of_edges = (squares * edge).sum(1) / edge.sum(1).clamp(min=1)
        of_zeros = (squares * zero).sum(1) / zero.sum(1).clamp(min=1)
        return (of_edges + weight * of_zeros).mean()

    def attend(self, x: Tensor, query: Tensor, key: Tensor, value: Tensor, itself: bool) -> Tensor:
        """Return one head: every gene looks at the others, or at all."""
        rows = []
        for i in range(len(x)):
            seen = [j for j in range(len(x)) if itself or j != i]
            logits = torch.stack([query[i] @ key[j] / math.sqrt(query.shape[1]) for j in seen])
            rows.append(sum(share * value[j] for share, j in zip(torch.softmax(logits, 0), seen, strict=True)))
        return torch.stack(rows)

    def score(self, x: Tensor) -> Tensor:
        """[T] of one set of genes [K, H]."""
        if not len(x):
            return torch.zeros_like(self.parameters["score.score.bias"])
        return self.released(x) if self.config.scorer == "released" else self.rezero(x)

    def rezero(self, x: Tensor) -> Tensor:
        static, dynamic, width = self.activate(self.linear("score.static.0", x)), x, x.shape[1] // self.config.heads
        for layer in range(self.config.attention_layers if len(x) > 1 else 0):
            prefix = f"score.attention.{layer}"
            parts = [part.split(width, 1) for part in self.linear(f"{prefix}.project", dynamic).chunk(3, 1)]
            heads = [self.attend(dynamic, q, k, v, False) for q, k, v in zip(*parts, strict=True)]
            mixed = self.linear(f"{prefix}.out", torch.cat(heads, 1))
            dynamic = self.parameters[f"{prefix}.beta"] * mixed + dynamic
        return self.linear("score.score", (dynamic - static) ** 2).mean(0)

    def norm(self, prefix: str, x: Tensor) -> Tensor:
        centred = x - x.mean(1, keepdim=True)
        scaled = centred / (centred.square().mean(1, keepdim=True) + 1e-5).sqrt()
        return scaled * self.parameters[f"{prefix}.weight"] + self.parameters[f"{prefix}.bias"]

    def released(self, x: Tensor) -> Tensor:
        width = x.shape[1]
        parts = [
            self.linear(f"score.projections.{i}", self.norm(f"score.norms.{i}", x)).split(width, 1) for i in range(3)
        ]
        heads = [self.attend(x, q, k, v, True) for q, k, v in zip(*parts, strict=True)]
        dynamic = self.linear("score.mix", torch.cat(heads, 1))
        hidden = self.activate(self.linear("score.feed_forward.1", self.norm("score.feed_forward.0", dynamic)))
        dynamic = self.parameters["score.beta"] * self.linear("score.feed_forward.4", hidden) + dynamic
        return self.linear("score.score", self.norm("score.norm", dynamic)).sum(0)

    def meta(self, states: list[Tensor]) -> Tensor:
        """Weighted mean over networks."""
        logits = []
        for x in states:
            if self.config.meta_layers == 2:
                x = self.activate(self.linear("meta.weight.0", x))
            logits.append(self.linear(f"meta.weight.{2 * (self.config.meta_layers - 1)}", x))
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
        networks[name] = [
            (int(u), int(v), float(w)) for u, v, w in zip(*ends, rng.uniform(0.2, 1, number), strict=True)
        ]
    return networks

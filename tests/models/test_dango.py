"""DANGO: against plain torch with dense matrices, its size, what evaluation keeps, and what is refused."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dglcell.errors import ConfigError
from dglcell.graph.resident import ResidentCell
from dglcell.graph.resident_graph import ResidentRelation
from dglcell.models import dango
from dglcell.models.config import DangoConfig
from dglcell.models.dango import Dango, pair_error, zero_weight
from dglcell.perturbation.genotype import GenotypeBatch
from tests.examples import examples
from tests.models.plain_network import Parameters
from tests.random_cells import randomise, resident_cell

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


CHANNELS = ("neighborhood", "fusion", "cooccurence", "coexpression", "experimental", "database")
STRAINS = [[], [1], [0, 4], [2, 3, 5], [5, 3, 2]]


def make_cell(networks: dict[str, list[Edge]], num_genes: int) -> ResidentCell:
    """Return a cell of these networks."""
    ends = {("gene", n, "gene"): np.array(edges, int).reshape(-1, 2) for n, edges in networks.items()}
    return resident_cell({r: (pairs[:, 0], pairs[:, 1]) for r, pairs in ends.items()}, {"gene": num_genes})


def six_channels(genes: int) -> ResidentCell:
    return make_cell({f"string12_0_{channel}": [(0, 1)] for channel in CHANNELS}, genes)


def small_dango(**changes: Any) -> Dango:
    """Six genes and three networks."""
    networks = {"one": [(0, 1), (1, 2), (3, 3)], "two": [(5, 4)], "string_fusion": [(2, 0)]}
    config = DangoConfig(**{"hidden": 8, "heads": 2, "zero_weights": {"one": 0.1, "two": 0.7}, **changes})
    config.validate()
    torch.manual_seed(0)
    return Dango(make_cell(networks, 6), config)


@pytest.mark.parametrize("options", [{}, {"activation": "gelu", "embedding_std": 1.0}], ids=str)
@examples(6)
@given(seed=st.integers(0, 2**32 - 1), num_genes=st.integers(6, 9))
def test_predictions_errors_and_gradients_equal_dense_matrices_and_loops(
    options: dict[str, Any], seed: int, num_genes: int
) -> None:
    rng = np.random.default_rng(seed)
    networks = random_networks(rng, num_genes, ["a", "b", "string_coexpression"])
    zero_weights = {"a": 0.3, "b": 2.0}
    config = DangoConfig(hidden=6, heads=2, gain=0.5, zero_weights=zero_weights, **options)
    config.validate()
    torch.manual_seed(seed % 2**31)
    model = randomise(Dango(make_cell(networks, num_genes), config, outputs=2).double())
    plain = PlainDango(model, networks, {**zero_weights, "string_coexpression": 0.1})
    prediction = model(GenotypeBatch.from_lists(STRAINS))
    got = prediction.phenotypes, prediction.auxiliary["reconstruction"]()
    expected = plain.forward(STRAINS)
    for value, right in zip(got, expected, strict=True):
        torch.testing.assert_close(value, right, atol=1e-10, rtol=1e-10)
    weights = torch.as_tensor(rng.normal(size=tuple(got[0].shape)))
    totals = [(value * weights).sum() + 5 * error for value, error in (got, expected)]
    names, parameters = zip(*model.named_parameters(), strict=True)
    gradients = [torch.autograd.grad(t, parameters, allow_unused=True, materialize_grads=True) for t in totals]
    for name, gradient, right in zip(names, *gradients, strict=True):
        torch.testing.assert_close(gradient, right, atol=1e-10, rtol=1e-10, msg=lambda text, n=name: f"{n}: {text}")


def test_weights_start_as_in_the_original() -> None:
    torch.manual_seed(0)
    model = Dango(six_channels(3000), DangoConfig())
    named = dict(model.named_parameters())
    for name, sd in (("encoder.embedding.weight", 0.1), ("encoder.heads.3.out.weight", 0.1)):
        assert float(named[name].detach().std()) == pytest.approx(sd, rel=0.01), name
    # Xavier: uniform in ± √2 · √(6 / (inputs + outputs)), of queries, keys and values by themselves.
    for name, limit in (
        ("encoder.meta.weight.0.weight", (12 / 96) ** 0.5),
        (f"{SCORER}.static.0.weight", (12 / 128) ** 0.5),
        (f"{SCORER}.attention.1.project.weight", (12 / 128) ** 0.5),
        (f"{SCORER}.attention.0.out.weight", (12 / 128) ** 0.5),
    ):
        assert 0.97 * limit < float(named[name].detach().abs().max()) <= limit, name
    for name in ("encoder.heads.0.out", "encoder.meta.weight.2", f"{SCORER}.static.0", f"{SCORER}.score"):
        assert not named[f"{name}.bias"].any(), name
    assert named[f"{SCORER}.attention.0.beta"].item() == pytest.approx(0.01)


def test_a_reconstruction_that_nobody_reads_is_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    model, calls = small_dango(), []
    model.encoder.heads[0].register_forward_hook(lambda *arguments: calls.append(1) and None)
    prediction = model(GenotypeBatch.from_lists(STRAINS))
    assert list(prediction.auxiliary) == ["reconstruction"]
    assert not calls
    read = prediction.auxiliary["reconstruction"]()
    assert len(calls) == 1
    with torch.no_grad():
        kept = model.eval()(GenotypeBatch.from_lists(STRAINS)).auxiliary["reconstruction"]()
    torch.testing.assert_close(kept, read.detach())
    without = small_dango(reconstruction=False, zero_weights={})
    assert not without(GenotypeBatch.from_lists(STRAINS)).auxiliary
    assert not without.encoder.heads


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"hidden": 0}, "`model.hidden` is too small"),
        ({"heads": 3}, "`model.heads` does not divide `model.hidden`\n  got:      3\n  expected: a divisor of 8"),
        ({"zero_weights": {"one": -1.0}}, "`model.zero_weights` must not be negative"),
        ({"features": {"gene": "t.csv"}}, "`model.features`: DANGO has embeddings only\n  got:      gene"),
        ({"relations": ["three"]}, "`model.relations` names no networks of genes that the cell graph has"),
        ({"relations": []}, "`model.relations` is an empty list"),
        ({"zero_weights": {"tow": 1.0}}, "`model.zero_weights` names networks that are not used\n  got:      ['tow']"),
        ({"zero_weights": {}}, "how much do the pairs that are no edges of 'one' count when it is reconstructed?"),
    ],
)
def test_wrong_options_are_refused_by_key(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError) as error:
        small_dango(**changes)
    assert str(error.value).startswith(expected)
    cell = resident_cell({("gene", "catalyses", "reaction"): ([0], [0])}, {"gene": 1, "reaction": 1})
    with pytest.raises(ConfigError, match="DANGO needs networks of genes"):
        Dango(cell, DangoConfig())


def test_a_network_has_the_lambda_of_its_channel_unless_it_is_given() -> None:
    growing = {"neighborhood", "coexpression", "experimental"}
    for channel, prefix in itertools.product(CHANNELS, ("string9_1_", "string12_0_", "string_", "")):
        assert zero_weight(f"{prefix}{channel}", {}) == (0.1 if channel in growing else 1.0)
    given = {"string_fusion": 0.25, "physical": 0.5}
    assert (zero_weight("string_fusion", given), zero_weight("physical", given)) == (0.25, 0.5)
    for name in ("string_coexpression_transferred", "string_textmining", "confusion", "fusions"):
        said = rf"no edges of '{name}' count[\s\S]*do: +set `model.zero_weights: {{{name}: 1.0}}`"
        with pytest.raises(ConfigError, match=said):
            zero_weight(name, given)


# The error of reconstruction, over all pairs, against dense matrices.


def dense_error(edges: ResidentRelation, left: Tensor, right: Tensor, bias: Tensor, zero_weight: float) -> Tensor:
    """Return the definition, pair by pair."""
    target = torch.zeros(edges.num_src, edges.num_dst, dtype=left.dtype)
    target[edges.src, edges.dst] = 1
    squares = (left @ right.T + bias - target).square()
    return torch.where(target == 1, squares, zero_weight * squares).mean()


@examples(13)
@given(
    sizes=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    share=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    zero_weight=st.sampled_from([0.0, 0.1, 1.0, 2.5]),
    seed=st.integers(0, 2**32 - 1),
)
def test_error_and_gradients_equal_those_of_dense_matrices(
    sizes: tuple[int, int], share: float, zero_weight: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    src, dst = (torch.as_tensor(end) for end in np.nonzero(rng.random(sizes) < share))  # self-loops among them
    edges = ResidentRelation(("gene", "random", "gene"), src, dst, *sizes)
    shapes = (sizes[0], 8), (sizes[1], 8), (sizes[1],)
    factors = [torch.as_tensor(rng.normal(size=shape)).requires_grad_() for shape in shapes]
    expected = dense_error(edges, *factors, zero_weight)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dango, "BLOCK_EDGES", 7)
        got = pair_error(edges, *factors, zero_weight)
    torch.testing.assert_close(got, expected, atol=1e-10, rtol=1e-10)
    given_gradients = torch.autograd.grad(3 * got, factors)
    for gradient, right in zip(given_gradients, torch.autograd.grad(3 * expected, factors), strict=True):
        torch.testing.assert_close(gradient, right, atol=1e-10, rtol=1e-10)


def nearly_perfect(dtype: torch.dtype) -> tuple[ResidentRelation, list[Tensor]]:
    """Return two cliques of 300 genes, guessed to 1 %: nearly all of the sum of squares over all pairs is edges."""
    generator = torch.Generator().manual_seed(0)
    clique = torch.arange(600) // 300
    src, dst = (clique.unsqueeze(0) == clique.unsqueeze(1)).nonzero().unbind(1)
    edges = ResidentRelation(("gene", "cliques", "gene"), src, dst, 600, 600)
    left, right = (torch.nn.functional.one_hot(clique, 2).double() for _ in range(2))
    noise = [0.01 * torch.randn(x.shape, generator=generator, dtype=torch.float64) for x in (left, right, left[:, 0])]
    factors = [left + noise[0], right + noise[1], noise[2]]
    return edges, [x.to(dtype).requires_grad_() for x in factors]


def test_single_precision_survives_that_edges_are_subtracted_from_all_pairs() -> None:
    edges, factors = nearly_perfect(torch.float32)
    got = pair_error(edges, *factors, 1.0)
    exact = [x.detach().double().requires_grad_() for x in factors]
    expected = dense_error(edges, *exact, 1.0)
    # The squares of all pairs are a thousand times the error, so float32 may lose three of its seven digits.
    assert float(got.detach()) == pytest.approx(float(expected.detach()), rel=3e-5)
    pairs = zip(torch.autograd.grad(got, factors), torch.autograd.grad(expected, exact), strict=True)
    for gradient, right in pairs:
        assert gradient.dtype == torch.float32
        assert (gradient - right).norm() < 1e-4 * right.norm()


def test_half_precision_is_computed_in_single_precision_also_under_autocast() -> None:
    edges, factors = nearly_perfect(torch.float32)
    rounded = factors[0].detach().bfloat16().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = pair_error(edges, rounded, *factors[1:], 1.0)
    got.backward()
    assert (got.dtype, rounded.grad.dtype) == (torch.float32, torch.bfloat16)
    expected = pair_error(edges, rounded.detach().float(), *factors[1:], 1.0)
    torch.testing.assert_close(got, expected, atol=0.0, rtol=1e-6)

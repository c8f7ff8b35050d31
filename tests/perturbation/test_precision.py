"""Digits of what a model reads, against float64: differences of pooled states, and their second differences."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor, nn

from benchmarks.cells import generated_cell
from dglcell.graph.resident import ResidentCell
from dglcell.graph.resident_graph import dgl_runs_on
from dglcell.models.cell_model import HeteroCell
from dglcell.models.config import HeteroCellConfig
from dglcell.perturbation import rules as differences
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import Choices
from dglcell.perturbation.rules import PerturbedTensor

FIRST = {"float32": 1e-4, "tf32": 0.01, "bfloat16": 0.02}
"""Largest median error of pooled differences by how the strains' differences are computed."""

GRADIENT = 1e-4
"""Largest error of the gradient of all weights in float32."""

SECOND = 0.05
"""Largest median error of second differences in float32."""

SMALL = 0.12
"""Of the genes of yeast: enough for whole states to fail both bounds in float32."""

PAIRS = 5

Pooled = tuple[Tensor, Tensor]
"""[PAIRS, 3, H] pooled differences of the strains without i, without j and without both; [PAIRS, H] second ones."""


def make_model(scale: float) -> HeteroCell:
    """Fresh weights: GIN over nine networks."""
    torch.manual_seed(0)
    config = HeteroCellConfig(hidden=64, layers=3, metabolism=False, local_head=False, combination="none")
    return HeteroCell(ResidentCell.of(generated_cell(scale=scale)), config)


@torch.no_grad()
def pooled(model: HeteroCell, strategy: str, dtype: str | None = None) -> Pooled:
    """First and second differences of the strains of some pairs of genes."""
    model.choose(Choices(strategy, half=dtype is not None))
    model.train()  # so that nothing is kept from call to call; there is no dropout
    genes = random.Random(0).sample(range(model.cell.num_nodes["gene"]), 2 * PAIRS)
    pairs = [sorted(genes[k : k + 2]) for k in range(0, 2 * PAIRS, 2)]
    strains = [strain for i, j in pairs for strain in ([i], [j], [i, j])]
    first = model(GenotypeBatch.from_lists(strains)).embedding.double().unflatten(0, (PAIRS, 3))
    return first, first[:, 0] + first[:, 1] - first[:, 2]


def errors(found: Pooled, exact: Pooled) -> list[float]:
    """Relative errors of first and second differences, medians over the pairs."""
    pairs = [(x.flatten(1), y.flatten(1)) for x, y in zip(found, exact, strict=True)]
    return [statistics.median(((x - y).norm(dim=1) / y.norm(dim=1)).tolist()) for x, y in pairs]


@contextmanager
def rounded_products() -> Iterator[None]:
    """Linear layers of differences in TF32: factors are rounded to 10 bits behind the leading one."""
    plain = differences.RULES["linear"]

    def rounded(x: Tensor) -> Tensor:
        return ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)

    def rule(x: PerturbedTensor, weight: Tensor, bias: Tensor | None = None) -> PerturbedTensor:
        base = nn.functional.linear(x.base, weight, bias)
        delta = None if x.delta is None else rounded(x.delta) @ rounded(weight).T
        return PerturbedTensor(base, delta, x.rows)

    differences.RULES["linear"] = rule
    try:
        yield
    finally:
        differences.RULES["linear"] = plain


@pytest.fixture(scope="module", params=[SMALL, pytest.param(1.0, marks=pytest.mark.slow)], ids=["small", "yeast_size"])
def known(request: pytest.FixtureRequest) -> tuple[HeteroCell, Pooled]:
    """Return a model, and what it makes of the strains in float64."""
    model = make_model(request.param).double()
    exact = pooled(model, "node_mask")
    return model.float(), exact


@pytest.mark.parametrize("strategy", ["difference", "node_mask"])
@pytest.mark.parametrize("precision", FIRST)
def test_differences_keep_their_digits(known: tuple[HeteroCell, Pooled], strategy: str, precision: str) -> None:
    model, exact = known
    if precision == "tf32":
        with rounded_products():
            found = pooled(model, strategy)
    else:
        found = pooled(model, strategy, None if precision == "float32" else precision)
    first, second = errors(found, exact)
    assert first <= FIRST[precision]
    assert precision != "float32" or second <= SECOND


def gradient(model: HeteroCell, strategy: str) -> Tensor:
    """Of all weights, from the embeddings of some strains that lose a gene or two."""
    model.choose(Choices(strategy))
    genes = random.Random(1).sample(range(model.cell.num_nodes["gene"]), 6)
    embedding = model(GenotypeBatch.from_lists([genes[:1], genes[1:3], genes[3:5], genes[5:]])).embedding
    upstream = torch.randn(embedding.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weights = list(model.encoder.parameters())
    grads = torch.autograd.grad(embedding, weights, upstream.to(embedding.dtype), materialize_grads=True)
    return torch.cat([x.flatten().double() for x in grads])


@pytest.mark.parametrize("strategy", ["difference", "node_mask"])
def test_gradients_keep_their_digits(strategy: str) -> None:
    model = make_model(SMALL / 2).double()
    exact = gradient(model, strategy)
    error = (gradient(model.float(), strategy) - exact).norm() / exact.norm()
    assert error <= GRADIENT


@pytest.mark.skipif(not dgl_runs_on("cpu"), reason="strategies of whole states need DGL")
def test_whole_states_would_not_pass(known: tuple[HeteroCell, Pooled]) -> None:
    """So the bounds ask for differences: whole states in float32 are far beyond them."""
    model, exact = known
    first, second = errors(pooled(model, "edge_mask"), exact)
    assert first > 3 * FIRST["float32"]
    assert second > 3 * SECOND

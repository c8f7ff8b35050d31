"""Layers taken strain by strain equal those of all strains at once, forward and backward."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dglcell.nn.cross_relation import CROSS_RELATION, CrossRelation
from dglcell.nn.gin import GINConv
from dglcell.nn.hetero_layer import HeteroLayer
from dglcell.nn.sage import SAGEConv
from dglcell.perturbation import state_sums, strain_sums
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import perturb
from dglcell.perturbation.states import DenseStates, States
from tests.random_cells import RandomCell, genotypes_of, random_cells


@pytest.fixture(autouse=True)
def nothing_is_too_small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(strain_sums, "ROWS_WORTH", 1)
    monkeypatch.setattr(strain_sums, "STRAINS_WORTH", 1)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many terms each sum by strain had."""
    seen: list[int] = []
    own = state_sums.sum_by_strain

    def noted(terms, tables):  # type: ignore[no-untyped-def]
        seen.append(len(terms))
        return own(terms, tables)

    monkeypatch.setattr(state_sums, "sum_by_strain", noted)
    return seen


def a_layer(cell: RandomCell, conv: str, how: str, width: int, residual: bool) -> HeteroLayer:
    def make(relation):  # type: ignore[no-untyped-def]
        if conv == "sage":
            return SAGEConv(relation, width)
        return GINConv(relation, width, hidden=width, layers=2, activation="gelu", dropout=0.0)

    torch.manual_seed(0)
    return HeteroLayer(
        list(cell.edges),
        make,
        width=width,
        cross_relation=CrossRelation(how, heads=2),
        norm="layer",
        activation="relu",
        dropout=0.0,
        residual=residual,
    ).double()


def run(
    layer: HeteroLayer, cell: RandomCell, batch: GenotypeBatch, strategy: str, x: dict[str, Tensor]
) -> list[Tensor]:
    """Outputs, and all gradients."""
    layer.zero_grad()
    leaves = {t: value.clone().requires_grad_() for t, value in x.items()}
    states: dict[str, States] = {t: DenseStates(leaf) for t, leaf in leaves.items()}
    out = layer(perturb(cell.resident, batch, strategy), states)
    dense = [out[t].dense().expand(-1, batch.num_strains, -1) for t in sorted(out)]
    sum((y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)).sum() for y in dense).backward()  # type: ignore[union-attr]
    grads = [leaf.grad for leaf in leaves.values()] + [p.grad for p in layer.parameters()]
    return [*(y.detach() for y in dense), *(g for g in grads if g is not None)]


@settings(max_examples=25, deadline=None)
@given(
    data=st.data(),
    cell=random_cells(),
    conv=st.sampled_from(["gin", "sage"]),
    how=st.sampled_from(CROSS_RELATION),
    width=st.sampled_from([8, 40]),
    residual=st.booleans(),
    threads=st.sampled_from([1, 3]),
)
def test_a_layer_equals_that_of_physically_reduced_graphs(data, cell, conv, how, width, residual, threads) -> None:
    batch = GenotypeBatch.from_lists(data.draw(genotypes_of(cell)))
    torch.set_num_threads(threads)
    generator = torch.Generator().manual_seed(1)
    x = {
        t: torch.randn(
            n, data.draw(st.sampled_from([1, batch.num_strains])), width, dtype=torch.float64, generator=generator
        )
        for t, n in cell.sizes.items()
    }
    layer = a_layer(cell, conv, how, width, residual)
    expected = run(layer, cell, batch, "edge_subgraph", x)
    for strategy in ("node_mask", "difference"):
        found = run(layer, cell, batch, strategy, x)
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, atol=1e-10, rtol=1e-10)


def test_strains_are_taken_one_by_one_where_that_is_possible(calls: list[int]) -> None:
    cell = RandomCell({"gene": 6}, {("gene", "physical", "gene"): (np.array([0, 1, 2]), np.array([1, 2, 3]))}, {})
    batch = GenotypeBatch.from_lists([[0], [1, 2]])
    x = {"gene": torch.randn(6, 2, 8, dtype=torch.float64)}
    layer = a_layer(cell, "gin", "sum", 8, residual=True)
    run(layer, cell, batch, "node_mask", x)
    assert calls == [2]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        layer(perturb(cell.resident, batch), {"gene": DenseStates(x["gene"])})
    narrow = a_layer(cell, "gin", "sum", 4, residual=True)
    run(narrow, cell, batch, "node_mask", {"gene": x["gene"][..., :4].contiguous()})
    run(layer, cell, batch, "edge_mask", x)
    layer(perturb(cell.resident, batch, kernel="csr"), {"gene": DenseStates(x["gene"])})
    assert calls == [2]


def test_the_number_of_threads_changes_no_bit() -> None:
    rng = np.random.default_rng(0)
    edges = {("gene", name, "gene"): (rng.integers(0, 50, 400), rng.integers(0, 50, 400)) for name in ("a", "b")}
    cell = RandomCell({"gene": 50}, edges, {})
    batch = GenotypeBatch.from_lists([[i, i + 1] for i in range(9)])
    x = {"gene": torch.randn(50, 9, 16, dtype=torch.float64)}
    layer = a_layer(cell, "gin", "sum", 16, residual=True)
    found = []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        found.append(run(layer, cell, batch, "node_mask", x))
    for other in found[1:]:
        assert all(torch.equal(one, two) for one, two in zip(found[0], other, strict=True))


def test_weights_that_are_not_trained_get_no_gradient() -> None:
    cell = RandomCell({"gene": 6}, {("gene", "physical", "gene"): (np.array([0, 1, 2]), np.array([1, 2, 3]))}, {})
    batch = GenotypeBatch.from_lists([[0], [1, 2]])
    layer = a_layer(cell, "gin", "sum", 8, residual=False)
    frozen = next(p for p in layer.parameters() if p.dim() == 2)
    frozen.requires_grad_(False)
    run(layer, cell, batch, "node_mask", {"gene": torch.randn(6, 2, 8, dtype=torch.float64)})
    assert frozen.grad is None
    assert all(p.grad is not None for p in layer.parameters() if p.requires_grad)

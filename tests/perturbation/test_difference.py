"""Corrections of the wild type against dense numpy on every strain's reduced graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dglcell.graph.schema import Relation
from dglcell.kernels import rows
from dglcell.kernels.spmm import KERNELS
from dglcell.nn.cross_relation import CrossRelation
from dglcell.nn.gin import GINConv
from dglcell.nn.hetero_layer import HeteroLayer
from dglcell.nn.sage import SAGEConv
from dglcell.perturbation import difference, row_blocks
from dglcell.perturbation.choices import Choices
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.knockout import keep_masks
from dglcell.perturbation.perturb import REDUCES, perturb
from dglcell.perturbation.row_index import RowIndex
from dglcell.perturbation.states import DenseStates, SharedStates, States
from tests.perturbation.test_strategies import TOLERANCE, WIDTH, dense_aggregate
from tests.random_cells import RandomCell, genotypes_of, random_cells

PHYSICAL = ("gene", "physical", "gene")


@st.composite
def settings_of_the_engine(draw: st.DrawFn) -> dict[str, Any]:
    """Whether sources push or targets pull, and whether loops are compiled."""
    return {
        "push_cost": draw(st.sampled_from([0.0, 2.0, float("inf")])),
        "compiled": draw(st.booleans()),
    }


CHOICES = st.builds(Choices, st.just("difference"), st.sampled_from([0.0, 0.2, 1e9, 1e9]))
"""From which share of changed rows on states are made dense."""


@st.composite
def batches_of(draw: st.DrawFn, cell: RandomCell) -> tuple[list[list[int]], GenotypeBatch]:
    """Strains as lists and as a batch, some of which delete genes in common, so that the base lacks them."""
    strains = draw(genotypes_of(cell))
    shared = draw(st.lists(st.integers(0, cell.sizes["gene"] - 1), max_size=2, unique=True))
    strains = [[*shared, *(gene for gene in strain if gene not in shared)] for strain in strains]
    return strains, dataclasses.replace(GenotypeBatch.from_lists(strains), shared=tuple(shared))


@contextmanager
def engine(push_cost: float, compiled: bool) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(difference, "PUSH_COST", push_cost)
        if not compiled:
            patch.setattr(rows, "COMPILED_DEVICES", ())
        yield


@settings(max_examples=100)
@given(
    data=st.data(),
    cell=random_cells(),
    reduce=st.sampled_from(REDUCES),
    changed=st.sampled_from([None, 0.0, 0.3, 1.0]),
    options=settings_of_the_engine(),
    choices=CHOICES,
    kernel=st.sampled_from(["auto", *KERNELS]),
)
def test_shared_states_aggregate_as_dense_ones(
    data,
    cell: RandomCell,
    reduce: str,
    changed: float | None,
    options: dict[str, Any],
    choices: Choices,
    kernel: str,
) -> None:
    strains, batch = data.draw(batches_of(cell))
    generator, resident = torch.Generator().manual_seed(0), cell.resident
    base = keep_masks(resident, batch.of_shared())
    for relation in cell.edges:
        nodes = cell.sizes[relation[0]]
        mask = (torch.rand(nodes, len(strains), generator=generator) < (changed or 0.0)) & base[relation[0]]
        index = None if changed is None else RowIndex.where(mask)
        number = nodes + (0 if index is None else len(index))
        leaf = torch.randn(number, WIDTH, dtype=torch.float64, generator=generator, requires_grad=True)
        states = SharedStates(leaf, index)
        dense = states.dense().expand(-1, len(strains), -1)
        with engine(**options):
            got = perturb(resident, batch, "difference", kernel, choices=choices)
            got = got.aggregate(relation, states, reduce).dense()
            got = got.expand(-1, len(strains), -1)
            expected = dense_aggregate(cell, relation, strains, dense.detach().numpy(), reduce)
            torch.testing.assert_close(got.detach(), torch.as_tensor(expected), **TOLERANCE)
            reference = perturb(resident, batch, "edge_subgraph").aggregate(relation, DenseStates(dense), reduce)
            upstream = torch.randn(got.shape, dtype=torch.float64, generator=generator)
            for x, y in zip(
                _gradients(got, upstream, [leaf]), _gradients(reference.dense(), upstream, [leaf]), strict=True
            ):
                torch.testing.assert_close(x, y, **TOLERANCE)


def make_layers(cell: RandomCell, conv: str, aggregation: str, norm: str, recompute: bool) -> nn.ModuleList:
    """Three layers over all relations, GIN (sums) or SAGE (means)."""

    def make_conv(relation: Relation) -> nn.Module:
        if conv == "sage":
            return SAGEConv(relation, WIDTH)
        return GINConv(relation, WIDTH, hidden=5, layers=2, activation="tanh", dropout=0.0)

    combination = CrossRelation(aggregation, activation="gelu")
    options = {"width": WIDTH, "cross_relation": combination, "norm": norm, "activation": "gelu", "dropout": 0.0}
    layers = (HeteroLayer(list(cell.edges), make_conv, **options, residual=True, recompute=recompute) for _ in range(3))
    return nn.ModuleList(layers).double()


@settings(max_examples=40)
@given(
    data=st.data(),
    cell=random_cells(),
    conv=st.sampled_from(["gin", "sage"]),
    aggregation=st.sampled_from(["sum", "mean"]),
    norm=st.sampled_from(["layer", "none"]),
    recompute=st.booleans(),
    options=settings_of_the_engine(),
    choices=CHOICES,
    block_bytes=st.sampled_from([100, 1 << 20]),
)
def test_several_layers_agree_forward_and_in_every_gradient(
    data,
    cell: RandomCell,
    conv: str,
    aggregation: str,
    norm: str,
    recompute: bool,
    options: dict[str, Any],
    choices: Choices,
    block_bytes: int,
) -> None:
    strains, batch = data.draw(batches_of(cell))
    resident = cell.resident
    layers = make_layers(cell, conv, aggregation, norm, recompute)
    inputs = {t: torch.randn(n, WIDTH, dtype=torch.float64, requires_grad=True) for t, n in cell.sizes.items()}
    leaves = [*inputs.values(), *layers.parameters()]
    upstream = {t: torch.randn(n, len(strains), WIDTH, dtype=torch.float64) for t, n in cell.sizes.items()}

    def results(strategy: str) -> list[torch.Tensor]:
        perturbed = perturb(resident, batch, strategy, choices=choices)
        states = {t: States.shared(x) for t, x in inputs.items()}
        for layer in layers:
            states = layer(perturbed, states)
        dense = {t: s.dense().expand(-1, len(strains), -1) for t, s in states.items()}
        total = torch.stack([(dense[t] * upstream[t]).sum() for t in dense]).sum()
        return [*(x.detach() for x in dense.values()), *torch.autograd.grad(total, leaves, materialize_grads=True)]

    with engine(**options), pytest.MonkeyPatch.context() as patch:
        patch.setitem(row_blocks.BLOCK_BYTES, "cpu", block_bytes)
        patch.setattr(row_blocks, "ROWS_PER_SHARE", 4)
        got = results("difference")
    for x, y in zip(got, results("edge_subgraph"), strict=True):
        assert (x - y).abs().max() <= 1e-10 * max(1.0, float(y.abs().max()))


def _gradients(y: torch.Tensor, upstream: torch.Tensor, leaves: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    if not y.requires_grad:
        return tuple(torch.zeros_like(leaf) for leaf in leaves)
    return torch.autograd.grad(y, leaves, upstream, allow_unused=True, materialize_grads=True)


def ring(genes: int) -> RandomCell:
    """Gene i acts on gene i + 1."""
    source = np.arange(genes)
    return RandomCell({"gene": genes}, {PHYSICAL: (source, (source + 1) % genes)}, {})


def test_only_the_rows_next_to_a_deletion_are_stored() -> None:
    perturbed = perturb(ring(20).resident, GenotypeBatch.from_lists([[], [3], [3, 7]]), "difference")
    first = perturbed.aggregate(PHYSICAL, States.shared(torch.ones(20, 1, dtype=torch.float64)))
    assert isinstance(first, SharedStates)
    assert first.index is not None
    pairs = list(zip(first.index.strains.tolist(), first.index.nodes.tolist(), strict=True))
    assert pairs == [(1, 3), (1, 4), (2, 3), (2, 4), (2, 7), (2, 8)]
    assert not first.rows_KH.any()
    second = perturbed.aggregate(PHYSICAL, first)
    assert isinstance(second, SharedStates)
    assert second.index is not None
    assert set(second.index.nodes.tolist()) == {3, 4, 5, 7, 8, 9}


def test_fewer_rows_are_stored_beside_a_base_with_deletions_in_common() -> None:
    batch = dataclasses.replace(GenotypeBatch.from_lists([[3], [3, 7]]), shared=(3,))
    perturbed = perturb(ring(20).resident, batch, "difference")
    first = perturbed.aggregate(PHYSICAL, States.shared(torch.ones(20, 1, dtype=torch.float64)))
    assert isinstance(first, SharedStates)
    assert first.index is not None
    pairs = list(zip(first.index.strains.tolist(), first.index.nodes.tolist(), strict=True))
    assert pairs == [(1, 7), (1, 8)]
    assert first.base_NH.flatten().tolist() == [float(node not in (3, 4)) for node in range(20)]


def test_no_row_is_stored_where_no_strain_lost_anything() -> None:
    perturbed = perturb(ring(4).resident, GenotypeBatch.from_lists([[], []]), "difference")
    states = perturbed.aggregate(PHYSICAL, States.shared(torch.ones(4, 1, dtype=torch.float64)), "mean")
    assert isinstance(states, SharedStates)
    assert len(states.rows_KH) == 0
    assert states.dense().flatten().tolist() == [1.0] * 8


def test_many_changes_are_computed_densely() -> None:
    everyone = GenotypeBatch.from_lists([[0, 1, 2, 3]] * 3)
    states = perturb(ring(4).resident, everyone, "difference").aggregate(
        PHYSICAL, States.shared(torch.ones(4, 1, dtype=torch.float64))
    )
    assert not isinstance(states, SharedStates)
    assert not states.dense().any()

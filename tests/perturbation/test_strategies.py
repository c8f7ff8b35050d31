"""All strategies against each other and against dense numpy on the physically reduced graph, in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dglcell.errors import ConfigError, MissingDependencyError
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import DGL_STRATEGIES, REDUCES, STRATEGIES, check_strategy_device, perturb
from dglcell.perturbation.states import DenseStates
from tests.random_cells import RandomCell, genotypes_of, random_cells

TOLERANCE = {"atol": 1e-10, "rtol": 1e-10}
WIDTH = 3


def dense_aggregate(cell: RandomCell, relation, strains, x_NBH: np.ndarray, reduce: str) -> np.ndarray:
    columns = []
    for b, strain in enumerate(strains):
        matrix, degree = cell.adjacency(relation, strain)
        y = matrix @ x_NBH[:, b]
        columns.append(y / np.maximum(degree, 1)[:, None] if reduce == "mean" else y)
    return np.stack(columns, axis=1)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), cell=random_cells(), reduce=st.sampled_from(REDUCES), shared=st.booleans())
def test_aggregation_equals_the_reduced_graph(data, cell: RandomCell, reduce: str, shared: bool) -> None:
    strains = data.draw(genotypes_of(cell))
    batch = GenotypeBatch.from_lists(strains)
    rng = np.random.default_rng(0)
    for relation in cell.edges:
        shape = (cell.sizes[relation[0]], 1 if shared else len(strains), WIDTH)
        x = rng.normal(size=shape)
        expected = dense_aggregate(cell, relation, strains, np.broadcast_to(x, (shape[0], len(strains), WIDTH)), reduce)
        upstream = torch.as_tensor(rng.normal(size=expected.shape))
        gradients = {}
        for strategy in STRATEGIES:
            leaf = torch.tensor(x, requires_grad=True)
            perturbed = perturb(cell.resident, batch, strategy)
            y = perturbed.aggregate(relation, DenseStates(leaf), reduce).dense()
            torch.testing.assert_close(y.detach(), torch.as_tensor(expected), **TOLERANCE)
            (y * upstream).sum().backward() if y.requires_grad else None
            gradients[strategy] = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        for strategy, gradient in gradients.items():
            torch.testing.assert_close(gradient, gradients["edge_subgraph"], msg=strategy, **TOLERANCE)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), cell=random_cells())
def test_keep_masks_follow_the_definition(data, cell: RandomCell) -> None:
    strains = data.draw(genotypes_of(cell))
    keep = perturb(cell.resident, GenotypeBatch.from_lists(strains)).keep
    for b, strain in enumerate(strains):
        for node_type, expected in cell.keep(strain).items():
            np.testing.assert_array_equal(keep[node_type][:, b].numpy(), expected, err_msg=node_type)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), cell=random_cells())
def test_pooling_leaves_out_lost_nodes(data, cell: RandomCell) -> None:
    strains = data.draw(genotypes_of(cell))
    keep = perturb(cell.resident, GenotypeBatch.from_lists(strains)).keep["gene"]
    rng = np.random.default_rng(1)
    gate, value = rng.normal(size=(*keep.shape, 1)), rng.normal(size=(*keep.shape, WIDTH))
    pooled = DenseStates(torch.tensor(value)).softmax_pool(DenseStates(torch.tensor(gate)), keep)
    for b, strain in enumerate(strains):
        kept = cell.keep(strain)["gene"]
        share = np.exp(gate[kept, b])
        expected = (share * value[kept, b]).sum(0) / share.sum() if kept.any() else np.zeros(WIDTH)
        np.testing.assert_allclose(pooled[b].numpy(), expected, atol=1e-10)


def test_unknown_strategy_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"unknown strategy\n  got:      nodemask\n  expected: .*node_mask"):
        perturb(None, GenotypeBatch.from_lists([[0]]), "nodemask")  # type: ignore[arg-type]


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine on which DGL has no GPU")
def test_strategies_that_need_dgl_on_the_device_are_refused_without_it() -> None:
    for strategy in STRATEGIES:
        check_strategy_device(strategy, "cpu")
        if strategy in DGL_STRATEGIES:
            with pytest.raises(MissingDependencyError, match=r"cuda support\n  expected: node_mask, difference"):
                check_strategy_device(strategy, "cuda")
        else:
            check_strategy_device(strategy, "cuda")

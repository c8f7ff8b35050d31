"""All strategies against each other and against dense numpy on the physically reduced graph, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dglcell.errors import ConfigError, MissingDependencyError
from dglcell.graph.schema import Relation
from dglcell.perturbation import DGL_STRATEGIES, STRATEGIES
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import check_strategy_device, perturb
from tests.examples import examples
from tests.perturbation.states_of import batches_of
from tests.random_cells import Changes, RandomCell, random_cells

WIDTH = 4


def dense_aggregate(
    cell: RandomCell,
    relation: Relation,
    strains: list,
    x_NBH: Tensor,
    reduce: str,
    changes: list[Changes] | None = None,
) -> Tensor:
    """[M, B, H] by the adjacency of every strain's reduced graph."""
    columns = []
    for b, strain in enumerate(strains):
        matrix, degree = cell.adjacency(relation, strain, changes and changes[b])
        y = matrix @ x_NBH[:, b].detach().numpy()
        columns.append(y / np.where(degree == 0, 1, degree)[:, None] if reduce == "mean" else y)
    return torch.as_tensor(np.stack(columns, axis=1))


@examples(12)
@given(data=st.data(), cell=random_cells())
def test_keep_masks_follow_the_definition(data: Any, cell: RandomCell) -> None:
    strains, batch = data.draw(batches_of(cell))
    kept = perturb(cell.resident, batch).kept
    base = cell.keep(list(batch.shared))
    for node_type, expected in base.items():
        np.testing.assert_array_equal(kept[node_type].base_N1[:, 0].numpy(), expected, err_msg=node_type)
    for b, strain in enumerate(strains):
        for node_type, expected in cell.keep(strain).items():
            np.testing.assert_array_equal(kept[node_type].strains_NB[:, b].numpy(), expected, err_msg=node_type)


def test_unknown_strategy_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"unknown strategy\n  got:      nodemask\n  expected: .*node_mask"):
        perturb(None, GenotypeBatch.from_lists([[0]]), "nodemask")  # type: ignore[arg-type]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_reduction_that_does_not_exist_is_refused(strategy: str) -> None:
    cell = RandomCell({"gene": 2}, {("gene", "physical", "gene"): (np.array([0]), np.array([1]))}, {})
    perturbed = perturb(cell.resident, GenotypeBatch.from_lists([[0]]), strategy)
    states = perturbed.start(torch.ones(2, 1, dtype=torch.float64))
    with pytest.raises(
        ConfigError,
        match=r"messages cannot be reduced so\n  got:      max\n  expected: sum or mean\n  do:       choose one",
    ):
        perturbed.aggregate(("gene", "physical", "gene"), states, "max")


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine on which DGL has no GPU")
def test_strategies_that_need_dgl_on_the_device_are_refused_without_it() -> None:
    for strategy in STRATEGIES:
        check_strategy_device(strategy, "cpu")
        if strategy in DGL_STRATEGIES:
            with pytest.raises(MissingDependencyError, match=r"cuda support\n  expected: node_mask, difference"):
                check_strategy_device(strategy, "cuda")
        else:
            check_strategy_device(strategy, "cuda")

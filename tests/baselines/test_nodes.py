"""Null models of values of nodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dglcell.baselines.nodes import NODE_NULLS, NodeProblem, fit_node_nulls
from dglcell.baselines.reactions import LostSetKernel, Reactions
from dglcell.data.strains import Strains
from dglcell.graph.cell import CellConfig, build_cell
from dglcell.graph.cell_graph import CellGraph

MEAN, NEAREST, RIDGE = NODE_NULLS


@pytest.fixture(scope="module")
def cell() -> CellGraph:
    """The E. coli core model."""
    return build_cell(CellConfig(model="textbook"))


def strains_of(cell: CellGraph, seed: int, number: int = 60) -> Strains:
    rng = np.random.default_rng(seed)
    return Strains.from_indices(cell.genes.names, [rng.choice(137, 2, replace=False).tolist() for _ in range(number)])


@pytest.fixture(scope="module")
def problem(cell: CellGraph) -> NodeProblem:
    """Values that follow from the lost reactions, for two nodes."""
    reactions = Reactions(cell)
    train, validation = strains_of(cell, 0), strains_of(cell, 1)
    weights = np.random.default_rng(2).normal(size=(len(reactions.nodes_of), 2))
    y_train, y_validation = ((reactions.lost(s) @ weights).astype(np.float32) for s in (train, validation))
    y_train[3] = np.nan
    return NodeProblem(train, validation, y_train, y_validation, reactions)


def test_every_null_model_is_what_it_says(problem: NodeProblem) -> None:
    models, left_out = fit_node_nulls(problem)
    assert list(models) == [MEAN, NEAREST, RIDGE]
    assert not left_out
    kept = np.delete(np.arange(60), 3)
    train, y = problem.train.take(kept), problem.y_train[kept].astype(np.float64)
    np.testing.assert_allclose(models[MEAN].predict(problem.validation), np.tile(y.mean(0), (60, 1)), rtol=1e-6)
    assert problem.reactions is not None
    kernel = LostSetKernel(1.0, problem.reactions)
    alike = kernel.between(kernel.features(problem.validation), kernel.features(train))
    expected = [y[row >= row.max() - 1e-9].mean(axis=0) for row in alike]
    np.testing.assert_allclose(models[NEAREST].predict(problem.validation), expected, atol=1e-5)
    assert problem.error(models[RIDGE]) < problem.error(models[NEAREST]) < problem.error(models[MEAN])


def test_kernel_ridge_is_the_same_for_all_nodes_together_and_alone(problem: NodeProblem) -> None:
    both = fit_node_nulls(problem)[0][RIDGE]
    alone = NodeProblem(
        problem.train, problem.validation, problem.y_train[:, :1], problem.y_validation[:, :1], problem.reactions
    )
    candidates = [model.predict(problem.validation)[:, 0] for model in NODE_NULLS[RIDGE](alone)]
    found = both.predict(problem.validation)[:, 0]
    assert min(np.abs(found - one).max() for one in candidates) < 0.2 * np.abs(found).max()


def test_without_reactions_genes_are_compared(problem: NodeProblem) -> None:
    models, _ = fit_node_nulls(replace(problem, reactions=None))
    found = models[NEAREST].predict(problem.train)
    kept = np.delete(np.arange(60), 3)
    np.testing.assert_allclose(found[kept], problem.y_train[kept], atol=1e-5)


def test_conditions_are_not_guessed(cell: CellGraph, problem: NodeProblem) -> None:
    def hot(strains: Strains) -> Strains:
        return Strains.from_names(strains.genotypes, conditions={"temperature": np.arange(len(strains)) % 2})

    models, left_out = fit_node_nulls(replace(problem, train=hot(problem.train), validation=hot(problem.validation)))
    assert list(models) == [MEAN]
    assert left_out == dict.fromkeys([NEAREST, RIDGE], "knows no conditions of strains")

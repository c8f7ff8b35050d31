"""Baselines of lost reactions, on the E. coli core model."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import cobra
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from dglcell import load_cell
from dglcell.baselines import kernel_ridge, simple
from dglcell.baselines.fit import ALL_BASELINES
from dglcell.baselines.kernel_ridge import ReactionKernelRidge, fit_reaction_kernel
from dglcell.baselines.problem import Problem, Reactions
from dglcell.baselines.simple import UntrainedBound
from dglcell.data.strains import Strains
from dglcell.graph.cell import CellConfig, build_cell
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.resident import ResidentCell
from dglcell.graph.schema import REACTION
from dglcell.models.terms.link import MeasuredStrains
from dglcell.perturbation.genotype import GenotypeBatch
from tests.baselines.invented import strains_of, unlike


@cache
def core() -> tuple[CellGraph, Reactions]:
    cell = load_cell("quickstart")
    return cell, Reactions(cell)


def invented(seed: int, number: int, most: int = 6) -> Strains:
    """Return strains with up to ``most`` deletions, many of them in genes of one complex."""
    rng, genes = np.random.default_rng(seed), len(core()[0].genes)
    starts = rng.integers(0, genes, number)
    genotypes = [
        np.unique((start + rng.integers(0, 8, rng.integers(1, most + 1))) % genes).tolist() for start in starts
    ]
    return strains_of(genotypes, genes)


def names(cell: CellGraph, strains: Strains) -> list[list[str]]:
    return [[cell.genes.names[gene] for gene in genes] for genes in np.split(strains.targets, strains.offsets[1:-1])]


def test_the_lost_reactions_are_those_whose_rule_is_false() -> None:
    (cell, reactions), strains = core(), invented(0, 60)
    model = cobra.io.load_model("textbook")
    lost, nodes = reactions.lost(strains), reactions.lost_nodes(strains)
    expected = [
        sum(not reaction.gpr.eval(knockouts) for reaction in model.reactions if reaction.genes)
        for knockouts in map(set, names(cell, strains))
    ]
    assert lost.sum(axis=1).tolist() == expected
    assert max(expected) > 3
    # A reaction with two complexes is kept as long as one is left.
    assert (nodes.sum(axis=1) > lost.sum(axis=1)).any()


@pytest.mark.parametrize("lose_blocked", [False, True])
def test_the_bound_is_that_of_the_link_without_a_model(lose_blocked: bool) -> None:
    cell = build_cell(CellConfig(model="textbook", lose_blocked=lose_blocked)) if lose_blocked else core()[0]
    reactions, by_rules, train, test = Reactions(cell), core()[1], invented(0, 300, most=3), invented(2, 200)
    known = {frozenset(genes) for genes in train.genotypes}
    test = test.take(np.array([row for row, genes in enumerate(test.genotypes) if frozenset(genes) not in known]))
    y = np.random.default_rng(1).choice([0.0, 0.3, 0.7, 0.9, 1.0, 1.1], len(train))
    link = MeasuredStrains(1, REACTION)
    link.remember(ResidentCell.of(cell), batch_of(train), torch.as_tensor(y)[:, None])
    found = UntrainedBound(reactions).fit(train, y).predict(test)
    np.testing.assert_allclose(found, link(ResidentCell.of(cell), batch_of(test))[:, 0].numpy(), atol=1e-6)
    assert 0.2 < (found < 1).mean() < 1
    assert (reactions.lost_nodes(test).sum() > by_rules.lost_nodes(test).sum()) == lose_blocked
    assert not (reactions.of_bounds(test) - reactions.lost_nodes(test) > 0).nnz
    for row in range(20):  # one strain alone loses what it loses among others
        alone = reactions.of_bounds(test.take(np.array([row])))
        assert (alone != reactions.of_bounds(test)[[row]]).nnz == 0


def test_strains_that_lose_nothing_bound_no_other() -> None:
    reactions = core()[1]
    idle = np.flatnonzero(np.diff(reactions.lost_nodes(strains_of([[g] for g in range(137)], 137)).indptr) == 0)
    train = strains_of([[int(idle[0])], [0]], 137) if len(idle) else strains_of([[], [0]], 137)
    model = UntrainedBound(reactions).fit(train, np.array([0.5, 0.9]))
    assert model.predict(strains_of([[1], [0, 1]], 137)).tolist() == [1.0, 0.9]


def fitted(
    strains: Strains, y: NDArray[np.float64], own: float, penalties: Sequence[float]
) -> list[ReactionKernelRidge]:
    problem = Problem(strains, strains, y, y, lambda: unlike(len(core()[0].genes)), core()[1])
    return list(fit_reaction_kernel(problem, own, penalties))


def among(kernel: ReactionKernelRidge, strains: Strains) -> ReactionKernelRidge:
    return replace(kernel, landmarks=kernel.features(strains))


def batch_of(strains: Strains) -> GenotypeBatch:
    return GenotypeBatch.from_lists([genes.tolist() for genes in np.split(strains.targets, strains.offsets[1:-1])])


@pytest.mark.parametrize("own", [0.1, 0.5, 1.0])
def test_the_kernel_is_tanimotos_and_a_covariance(own: float) -> None:
    reactions, strains = core()[1], invented(0, 80)
    found = among(ReactionKernelRidge(own, reactions), strains).covariance(strains)
    lost, near = reactions.lost(strains).toarray(), reactions.neighbourhood.toarray()
    inner = lost @ (own * np.eye(lost.shape[1]) + (1 - own) * near @ near.T) @ lost.T
    for i, j in itertools.product(range(80), repeat=2):
        union = inner[i, i] + inner[j, j] - inner[i, j]
        assert found[i, j] == pytest.approx(inner[i, j] / union if union > 1e-6 else 1.0, abs=1e-5)
    assert np.linalg.eigvalsh(found).min() > -1e-5


def test_it_is_the_ridge_regression_of_the_whole_kernel() -> None:
    reactions, train, test = core()[1], invented(0, 150), invented(1, 50)
    y, kernel = np.random.default_rng(2).normal(size=150), ReactionKernelRidge(0.3, reactions)
    kernel = among(kernel, train)
    whole = kernel.covariance(train)
    for model, penalty in zip(fitted(train, y, 0.3, (1.0, 0.1)), (1.0, 0.1), strict=True):
        weights = np.linalg.solve(whole + penalty * np.eye(150), y - y.mean())
        expected = y.mean() + kernel.covariance(test) @ weights
        np.testing.assert_allclose(model.predict(test), expected, atol=1e-4)


def test_a_large_table_is_sampled_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_ridge, "MOST_STRAINS", 50)
    (model,) = fitted(invented(0, 80), np.arange(80.0), 0.3, [0.01])
    assert model.limited == "a sample of 50 of 80 strains"
    monkeypatch.setattr(kernel_ridge, "REACTION_LANDMARKS", 10)
    (model,) = fitted(invented(0, 80), np.arange(80.0), 0.3, [0.01])
    assert model.limited == "10 landmarks of a sample of 50 of 80 strains"


def test_too_many_pairs_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    strains, y = invented(0, 30), np.linspace(0.2, 1, 30)
    problem = Problem(strains, strains, y, y, lambda: unlike(len(core()[0].genes)), core()[1])
    bound, kernel = (ALL_BASELINES[name] for name in ("untrained bound", "reaction kernel ridge"))
    assert bound.why_not(problem) is kernel.why_not(problem) is None
    monkeypatch.setattr(simple, "MOST_CELLS", 10)
    assert str(bound.why_not(problem)).endswith("pairs, and is limited to 1e+01")
    wild_types = strains.take(np.arange(2)).with_targets(np.zeros(strains.offsets[2], bool))
    assert kernel.why_not(replace(problem, train=wild_types)) == "needs training strains that lose a reaction"

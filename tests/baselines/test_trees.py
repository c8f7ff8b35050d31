"""Boosted trees on numbers of strains."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from dglcell.baselines.fit import best_of
from dglcell.baselines.simple import AdditiveRidge
from dglcell.baselines.trees import TREES, BoostedTrees, Features
from tests.baselines.invented import low_rank_pairs, pairs_of, problem_of, strains_of
from tests.baselines.test_packed import growth


def test_arrays_predict_what_scikit_learn_does() -> None:
    rng = np.random.default_rng(0)
    numbers, labels = rng.normal(size=(500, 6)), rng.normal(size=500)
    fitted = HistGradientBoostingRegressor(max_leaf_nodes=7, max_iter=20, early_stopping=False).fit(numbers, labels)
    problem = growth(60)
    trees = BoostedTrees.of(fitted, Features.of(problem))
    new = rng.normal(size=(200, 6))
    np.testing.assert_allclose(trees.of_features(new), fitted.predict(new), atol=1e-12)
    few = replace(trees, trees=5, roots=trees.roots[:5])
    expected = next(itertools.islice(fitted.staged_predict(new), 4, None))
    np.testing.assert_allclose(few.of_features(new), expected, atol=1e-12)


def test_features_do_not_depend_on_the_order_of_genes() -> None:
    problem = growth(60)
    features = Features.of(problem)
    flipped = problem.train.with_(targets=problem.train.targets.reshape(-1, 2)[:, ::-1].ravel())
    np.testing.assert_allclose(features(flipped), features(problem.train), atol=1e-9)


def test_a_training_strain_is_not_among_those_that_its_additive_effects_are_fitted_to() -> None:
    rng = np.random.default_rng(0)
    strains, y = strains_of([[gene] for gene in range(50)], 50), rng.normal(size=50)
    problem = problem_of(strains, y)
    features = Features.of(problem)
    own, others = features(strains)[:, 0], features.without_own(problem)[:, 0]
    assert np.corrcoef(own, y)[0, 1] > 0.98
    assert np.corrcoef(others, y)[0, 1] < 0.1


def test_trees_learn_what_is_not_additive() -> None:
    pairs, _ = low_rank_pairs(0, genes=30)
    rng = np.random.default_rng(0)
    effects = rng.uniform(0, 1, 30)
    y = np.maximum(effects[pairs[:, 0]], effects[pairs[:, 1]]) + (effects[pairs].sum(1) > 1)
    train, test = pairs_of(pairs[:300], 30), pairs_of(pairs[300:], 30)
    problem = problem_of(train, y[:300], test, y[300:])
    additive = min(problem.error(AdditiveRidge(alpha).fit(train, y[:300])) for alpha in (0.1, 1.0, 10.0))
    assert problem.error(best_of(TREES, problem)) < 0.6 * additive


def test_lost_reactions_are_seen() -> None:
    problem = growth(300)
    assert problem.reactions is not None
    y = [1 - 0.2 * problem.reactions.lost(of).sum(axis=1) for of in (problem.train, problem.validation)]
    found = best_of(TREES, replace(problem, y_train=y[0], y_validation=y[1])).predict(problem.validation)
    assert np.corrcoef(found, y[1])[0, 1] > 0.98

"""Fit gradient-boosted trees to tables of lost reactions, as a user of tables would try first."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor

from dglcell.baselines.fit import Problem
from dglcell.baselines.reactions import Reactions
from dglcell.data.strains import Strains

LEAVES, IN_LEAF = (15, 63), (2, 20)
MOST_TREES, PATIENCE = 1000, 30


class BoostedTrees:
    """This is scikit-learn's histogram gradient boosting; the validation part chooses settings and number of trees.

    The table has a column for every reaction that a training strain loses, the number of deleted genes, the number of
    lost reactions, and the sum of the wild type's fluxes through lost nodes of reactions.

    Args:
        problem: strains of the training and validation part with their labels.
        flux: [N] flux through each reaction node in the wild type.
    """

    def __init__(self, problem: Problem, flux: NDArray[np.float32]) -> None:
        problem = problem.labelled()
        assert problem.reactions is not None
        self.reactions: Reactions = problem.reactions
        self.flux = flux
        self.columns = np.flatnonzero(self.reactions.lost(problem.train).sum(axis=0))
        train, validation = self.table(problem.train), self.table(problem.validation)
        tried: list[tuple[float, int, HistGradientBoostingRegressor]] = []
        for leaves, in_leaf in itertools.product(LEAVES, IN_LEAF):
            trees = HistGradientBoostingRegressor(
                max_iter=MOST_TREES,
                max_leaf_nodes=leaves,
                min_samples_leaf=in_leaf,
                early_stopping=True,
                n_iter_no_change=PATIENCE,
                random_state=0,
            )
            trees.fit(train, problem.y_train, X_val=validation, y_val=problem.y_validation)
            error = float(np.square(trees.predict(validation) - problem.y_validation).mean())
            tried.append((error, len(tried), trees))
        self.trees = min(tried)[2]

    def table(self, strains: Strains) -> NDArray[np.float32]:
        """Return the table of strains, [S, columns + 3] float32."""
        lost = self.reactions.lost(strains)
        sums = strains.num_deletions, lost.sum(axis=1), self.reactions.lost_nodes(strains) @ self.flux
        return np.column_stack([lost[:, self.columns].toarray(), *sums]).astype(np.float32)

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        """Return predictions [S] in the units of the labels."""
        predicted: NDArray[np.float64] = self.trees.predict(self.table(strains))
        return predicted

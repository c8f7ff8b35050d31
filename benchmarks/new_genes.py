"""Fit gradient-boosted trees to an experiment: ``python -m benchmarks.new_genes EXPERIMENT SEED [SEED …]``.

They are what a user of tables would try first. The table has a column for every reaction that a training strain loses,
the number of deleted genes and that of lost reactions. The validation part chooses settings and number of trees. What
they have on the test part of each split becomes a baseline in the experiment's table of `docs/results`.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor

from benchmarks.collect import SCORES, Row, read, table_of, text, write
from dglcell.baselines.fit import Problem
from dglcell.baselines.reactions import Reactions
from dglcell.config.read import load_config
from dglcell.data.strains import Strains
from dglcell.metrics import regression_metrics
from dglcell.training.null_problems import null_problems, strains_by_part
from dglcell.training.prepare import prepare

NAME = "boosted trees"
LEAVES, IN_LEAF = (15, 63), (2, 20)
MOST_TREES, PATIENCE = 1000, 30


class BoostedTrees:
    """This is scikit-learn's histogram gradient boosting on lost reactions.

    Args:
        problem: strains of the training and validation part with their labels.
    """

    def __init__(self, problem: Problem) -> None:
        problem = problem.labelled()
        assert problem.reactions is not None
        self.reactions: Reactions = problem.reactions
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
        """Return the table of strains, [S, columns + 2] float32."""
        lost = self.reactions.lost(strains)
        sums = strains.num_deletions, lost.sum(axis=1)
        return np.column_stack([lost[:, self.columns].toarray(), *sums]).astype(np.float32)

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        """Return predictions [S] in the units of the labels."""
        predicted: NDArray[np.float64] = self.trees.predict(self.table(strains))
        return predicted


def measured(experiment: Path, seed: int) -> Row:
    """Return the row of the trees on one split."""
    config = load_config(experiment, [f"split.seed={seed}"])
    prepared = prepare(config, command="benchmark")
    test = prepared.parts["test"]
    predicted = BoostedTrees(null_problems(prepared)[0]).predict(strains_by_part(prepared)["test"])
    found = regression_metrics(predicted, prepared.dataset.labels[test, 0].double().numpy())
    kept = {key: text(float(found[key])) for key in ("pearson", "spearman", "r2", "mae")}
    about = {"experiment": config.experiment.name, "seed": str(seed), "model": NAME, "baseline": "1"}
    return {**about, "n": str(len(test)), **kept}


def main(experiment: str, *seeds: str) -> None:
    """Put a row for each seed into the experiment's table, in place of an earlier one."""
    for row in (measured(Path(experiment), int(seed)) for seed in seeds):
        path, run = table_of(row["experiment"]), (row["experiment"], row["seed"], NAME)
        others = [one for one in read(path) if (one["experiment"], one["seed"], one["model"]) != run]
        write(path, SCORES, [*others, row])
        print(row)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Boosted trees on tables of lost reactions."""

from __future__ import annotations

import numpy as np
import pytest

from dglcell import load_cell
from dglcell.baselines.fit import Problem
from dglcell.baselines.reactions import Reactions
from tests.baselines.invented import strains_of, unlike

pytest.importorskip("sklearn")

from benchmarks.new_genes import BoostedTrees


def test_trees_learn_what_lost_reactions_say() -> None:
    cell = load_cell("quickstart")
    genes, rng = len(cell.genes), np.random.default_rng(0)
    reactions = Reactions(cell)
    parts = [
        strains_of([rng.choice(genes, rng.integers(1, 4), replace=False).tolist() for _ in range(n)], genes)
        for n in (900, 100, 100)
    ]
    labels = [1 - 0.2 * reactions.lost(strains).sum(axis=1) for strains in parts]
    labels[0][:5] = np.nan
    trees = BoostedTrees(Problem(*parts[:2], *labels[:2], lambda: unlike(genes), 3, reactions))
    table = trees.table(parts[2])
    assert table[:, -1].tolist() == reactions.lost(parts[2]).sum(axis=1).tolist()
    assert 0 < len(trees.columns) == table.shape[1] - 2
    assert np.corrcoef(trees.predict(parts[2]), labels[2])[0, 1] > 0.99

"""What a model has learned of mismatches is read as what guides repress."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.guide_strengths import compare, mismatches, repressed
from dglcell.nn.conditions import Conditions, LearnedStrengths


def test_strengths_of_guides_follow_from_their_mismatches() -> None:
    differ = mismatches(["ACGT", "TCGT", "ACGA"], ["ACGT", "ACGT", "ACGT"])
    assert differ.astype(int).tolist() == [[0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1]]
    names = [f"mismatch_{place}" for place in (1, 2, 3, 4)]
    learned = LearnedStrengths(Conditions({name: () for name in names}), hidden=0, prior=0.2, activation="gelu")
    learned.start_at_zero()
    with torch.no_grad():
        learned.network[-1].weight[0, 0] = 2.0  # a mismatch beside the PAM
    found = repressed(learned, names, differ)
    assert found.tolist() == pytest.approx([0.8, 0.8, 1 - 1 / (1 + 4 * np.exp(-2.0))], abs=1e-6)


def test_correlations() -> None:
    assert compare(np.array([1.0, 2.0, 4.0]), np.array([1.0, 2.0, 3.0])) == {"pearson": 0.982, "spearman": 1.0}

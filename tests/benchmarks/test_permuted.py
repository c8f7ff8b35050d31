"""Data whose training labels are permuted."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.permuted import permuted
from dglcell.training.prepare import prepare
from tests.tiny import Tiny


def test_only_labels_of_the_training_part_change_places(tiny: Tiny, tmp_path: Path) -> None:
    given = prepare(tiny.config(tmp_path), command="tests")
    found, again, other = permuted(given, 0), permuted(given, 0), permuted(given, 1)
    before, after = (one.dataset.labels[:, 0].numpy() for one in (given, found))
    train = given.parts["train"].numpy()
    rest = np.setdiff1d(np.arange(len(before)), train)
    np.testing.assert_array_equal(before[rest], after[rest])
    np.testing.assert_array_equal(np.sort(before[train]), np.sort(after[train]))
    assert (before[train] != after[train]).any()
    np.testing.assert_array_equal(after, again.dataset.labels[:, 0].numpy())
    assert (after != other.dataset.labels[:, 0].numpy()).any()
    np.testing.assert_array_equal(given.dataset.targets.numpy(), found.dataset.targets.numpy())

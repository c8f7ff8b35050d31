"""What null models of weakened genes predict, and which strains a strength that is left out tests."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.flux_strengths import LARGEST_CURVE, SUM_OF_CURVES, of_curves, split_of
from dglcell.data.strains import Strains

TRAIN = [{"a": 0.0}, {"a": 0.5}, {"b": 0.5}, {"b": 0.0}, {"a": 0.5, "b": 0.5}]
CHANGES = np.array([[-4.0, 0.0], [-1.0, 0.0], [0.0, 2.0], [np.nan, np.nan], [9.0, 9.0]])


@pytest.mark.parametrize(
    ("strain", "summed", "largest"),
    [
        ({"a": 0.25}, [-2.5, 0], [-2.5, 0]),  # between the deletion and a half
        ({"a": 0.75}, [-0.5, 0], [-0.5, 0]),  # between a half and the wild type
        ({"a": 0.0, "b": 0.75}, [-4, 1], [-4, 0]),
        ({"b": 0.1}, [0, 2], [0, 2]),  # below the smallest strength whose values were measured
        ({"c": 0.1}, [0, 0], [0, 0]),
    ],
)
def test_curves_are_read_between_their_points(
    strain: dict[str, float], summed: list[float], largest: list[float]
) -> None:
    strains = Strains.from_names([*TRAIN, strain])
    found = of_curves(strains.take(np.arange(len(TRAIN))), CHANGES, strains.take(np.array([len(TRAIN)])))
    np.testing.assert_allclose(found[SUM_OF_CURVES][0], summed, atol=1e-6)
    np.testing.assert_allclose(found[LARGEST_CURVE][0], largest, atol=1e-6)


def test_a_strength_that_is_left_out_is_in_no_other_part() -> None:
    strengths = (0.0, 0.1, 0.3)
    strains = Strains.from_names(
        [{f"g{i}": s} for i in range(20) for s in strengths] + [{"g0": 0.1, "g1": 0.3}, {"g0": 0.1, "g1": 0.0}],
    )
    parts = split_of(strains, 0.3, seed=0)
    assert sorted(number for part in parts.values() for number in part) == list(range(len(strains)))
    assert len(parts["test"]) == 21
    assert len(parts["val"]) == 4
    assert all(0.3 not in np.round(list(strains.changes[i].values()), 3) for i in parts["train"] + parts["val"])

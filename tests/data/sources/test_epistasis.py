"""The mathematics of genetic interactions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dglcell.data.sources.growth import RESOLUTION, digenic, lethal, snap, trigenic

fitness = st.floats(0, 1.2)


def array(*values: float) -> tuple[np.ndarray, ...]:
    return tuple(np.array([value]) for value in values)


@given(fitness, fitness, fitness)
def test_independent_genes_do_not_interact(a: float, b: float, c: float) -> None:
    (ab, ac, bc, abc) = array(a * b, a * c, b * c, a * b * c)
    singles = array(a, b, c)
    assert digenic(ab, *singles[:2]) == pytest.approx(0, abs=1e-12)
    assert trigenic(abc, singles, (ab, ac, bc)) == pytest.approx(0, abs=1e-12)


@given(fitness, fitness, fitness, fitness, fitness)
def test_a_pair_with_an_independent_third_gene_has_no_trigenic_interaction(
    a: float, b: float, c: float, ab: float, extra: float
) -> None:
    tau = trigenic(*array(ab * c), array(a, b, c), array(ab, a * c, b * c))
    assert tau == pytest.approx(0, abs=1e-12)
    assert trigenic(*array(ab * c + extra), array(a, b, c), array(ab, a * c, b * c)) == pytest.approx(extra, abs=1e-12)


@given(st.lists(fitness, min_size=7, max_size=7), st.permutations(range(3)))
def test_tau_does_not_depend_on_the_order_of_genes(values: list[float], order: list[int]) -> None:
    singles, abc = values[:3], values[6]
    pairs = dict(zip(map(frozenset, itertools.combinations(range(3), 2)), values[3:6], strict=True))

    def tau(i: int, j: int, k: int) -> np.ndarray:
        two = array(*(pairs[frozenset(pair)] for pair in ((i, j), (i, k), (j, k))))
        return trigenic(*array(abc), array(singles[i], singles[j], singles[k]), two)  # type: ignore[arg-type]

    assert tau(*order) == pytest.approx(tau(0, 1, 2), abs=1e-12)


def test_snap_moves_only_what_is_close() -> None:
    values = np.array([0.9 * RESOLUTION, 1.1 * RESOLUTION, 1 - 0.9 * RESOLUTION, 0.5, np.nan])
    snapped = snap(values, 0.0, 1.0)
    np.testing.assert_array_equal(snapped, [0.0, values[1], 1.0, 0.5, np.nan])


def test_lethal_is_no_growth_and_missing_is_not_lethal() -> None:
    assert lethal(np.array([0.0, 5e-7, 2e-6, 1.0, np.nan])).tolist() == [True, True, False, False, False]

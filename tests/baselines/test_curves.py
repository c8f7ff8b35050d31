"""Monotone curves over strength."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dglcell.baselines.curves import MINIMUM, MINIMUM_OF_CURVES, PRODUCT, Curve, GeneCurves
from dglcell.data.strains import Strains
from tests.baselines.invented import problem_of

POINTS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.2, 0.5, 0.7, 1.0]), st.floats(-2, 2, width=16), st.sampled_from([0.5, 1.0, 3.0])),
    min_size=1,
    max_size=9,
)


def least_error(x: np.ndarray, y: np.ndarray, w: np.ndarray) -> float:
    """Return the least weighted squared error of any monotone function: of all cuts into blocks of monotone means."""
    places, best = np.unique(x), np.inf
    for cuts in itertools.product([False, True], repeat=len(places) - 1):
        block = np.searchsorted(places, x)
        block = np.concatenate([[0], np.cumsum(cuts)]).astype(int)[block]
        means = np.bincount(block, w * y) / np.bincount(block, w)
        if (np.diff(means) >= 0).all() or (np.diff(means) <= 0).all():
            best = min(best, float(w @ np.square(y - means[block])))
    return best


@given(points=POINTS)
def test_a_curve_is_monotone_and_no_other_fits_better(points: list[tuple[float, float, float]]) -> None:
    x, y, w = np.array(points).T
    curve = Curve.of(x, y, w)
    steps = np.diff(curve(np.linspace(-0.5, 1.5, 50)))
    assert (steps >= -1e-12).all() or (steps <= 1e-12).all()
    assert float(w @ np.square(y - curve(x))) == pytest.approx(least_error(x, y, w), abs=1e-9)


def rows(*strains: dict[str, float]) -> Strains:
    made = Strains.from_names(strains)
    return Strains(made.names, made.targets, made.offsets, strengths=made.left())


def test_every_gene_has_its_curve_where_much_is_measured() -> None:
    left = np.linspace(0, 0.9, 10)
    strains = rows({}, *({f"g{gene}": s} for gene in range(3) for s in left))
    y = np.concatenate([[1.0], left**2, 1 - 0.1 * (1 - left), 2 - left])  # the last gene's strains gain by losing it
    model = GeneCurves(1e-9).fit(strains, y)
    np.testing.assert_allclose(model.predict(strains), y, atol=1e-6)
    few = GeneCurves(1e6).fit(strains, y)
    pooled = few.pooled(np.append(0.0, np.tile(1 - left, 3)))
    np.testing.assert_allclose(few.predict(strains), pooled, atol=0.05)
    assert np.abs(pooled - y).max() > 0.5
    known = np.flatnonzero(strains.design[:, 2].toarray().ravel() == 0)  # the last gene is new
    model = GeneCurves(1e-9).fit(strains.take(known), y[known])
    np.testing.assert_allclose(model.predict(strains)[21:], model.pooled(1 - left), atol=1e-6)


def test_curves_of_several_genes_multiply_or_the_least_counts() -> None:
    left = np.linspace(0, 1, 11)
    strains = rows({}, *({"g0": s} for s in left), *({"g1": s} for s in left))
    a, b = 2 * left, 1 + left  # the wild type has 2
    y = np.concatenate([[2.0], a, b])
    pairs = rows(*({"g0": s, "g1": t} for s in left for t in left))
    first, second = np.repeat(a, 11), np.tile(b, 11)
    for combined, expected in ((PRODUCT, first * second / 2), (MINIMUM, np.minimum(first, second))):
        found = GeneCurves(1e-9, combined).fit(strains, y).predict(pairs)
        np.testing.assert_allclose(found, expected, atol=1e-6, err_msg=combined)


def test_where_the_wild_type_would_be_negative_a_product_is_of_absolute_values() -> None:
    strains = rows({}, {"g0": 0.0}, {"g1": 0.0})
    y = np.array([-0.1, 0.6, 0.8])
    both = GeneCurves(1e-9, PRODUCT).fit(strains, y).predict(rows({"g0": 0.0, "g1": 0.0}))
    np.testing.assert_allclose(both, 0.48, atol=1e-6)


def test_curves_of_genes_need_strains_that_change_one() -> None:
    def why_not(train: Strains, label: float, others: Strains) -> str | None:
        y = np.full(len(train), label)
        return MINIMUM_OF_CURVES.why_not(problem_of(train, y, others, np.ones(len(others))))

    pairs, single = rows({"g0": 0.5, "g1": 0.2}), rows({"g0": 0.5})
    assert why_not(Strains.from_names([["g0"]]), 1.0, pairs) == "needs strains with strengths"
    assert why_not(pairs, 1.0, pairs) == "needs training strains that change one gene"
    assert why_not(single, 1.0, pairs) is None
    assert why_not(single, 1.0, single) == "needs strains that change several genes"
    assert "fitness-like" in str(why_not(single, -1.0, pairs))

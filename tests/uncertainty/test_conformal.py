"""Intervals hold the share of strains that they promise, and probabilities of classes are calibrated."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dglcell.errors import ConfigError
from dglcell.uncertainty.conformal import (
    ISOTONIC,
    PLATT,
    Probability,
    by_logistic,
    by_steps,
    conformal_quantile,
    fewest_strains,
    fit_probability,
)

coverages = st.fractions(0, 1, max_denominator=40).filter(lambda share: 0 < share < 1).map(float)
scores = arrays(np.float64, st.integers(1, 60), elements=st.floats(0, 1e6))


@given(scores, coverages)
def test_it_is_the_smallest_score_that_enough_others_do_not_exceed(scores_n: np.ndarray, coverage: float) -> None:
    n = len(scores_n)
    if n < fewest_strains(coverage):
        with pytest.raises(ConfigError, match="too few validation strains"):
            conformal_quantile(scores_n, coverage)
        return
    found = conformal_quantile(scores_n, coverage)
    enough = [score for score in scores_n if np.sum(scores_n <= score) >= (n + 1) * coverage - 1e-9]
    assert found == min(enough)


@pytest.mark.parametrize(("coverage", "n"), [(0.5, 1), (0.9, 9), (0.95, 19), (0.99, 99), (0.999, 999)])
def test_so_many_strains_are_enough(coverage: float, n: int) -> None:
    assert fewest_strains(coverage) == n
    assert conformal_quantile(np.arange(n, dtype=float), coverage) == n - 1
    with pytest.raises(ConfigError) as error:
        conformal_quantile(np.arange(n - 1, dtype=float), coverage)
    assert f"got:      {n - 1} strains" in str(error.value)
    assert f"expected: {n} or more" in str(error.value)
    assert "split" in str(error.value)


def classes(rng: np.random.Generator, chance_S: np.ndarray) -> np.ndarray:
    """Labels 1 with the given probabilities."""
    return (rng.random(len(chance_S)) < chance_S).astype(float)


@pytest.mark.parametrize("way", [by_logistic, by_steps])
def test_overconfident_scores_become_probabilities_in_the_same_order(
    way: Callable[[np.ndarray, np.ndarray], Probability],
) -> None:
    rng = np.random.default_rng(1)
    log_odds_S = rng.normal(0, 1, 5_000)
    truth = 1 / (1 + np.exp(-log_odds_S))
    score = 1 / (1 + np.exp(-4 * log_odds_S))
    found = way(score, classes(rng, truth))(score)
    assert np.abs(found - truth).mean() < 0.06 < np.abs(score - truth).mean()
    assert (np.diff(found[np.argsort(score)]) >= 0).all()
    assert 0 <= found.min() <= found.max() <= 1
    assert np.isnan(way(score, classes(rng, truth))(np.array([np.nan]))).all()


def test_the_better_of_two_on_halves_is_taken() -> None:
    rng = np.random.default_rng(2)
    score = rng.uniform(0, 1, 4_000)
    step = np.where(score < 0.3, 0.02, np.where(score < 0.6, 0.5, 0.55))
    logistic = 1 / (1 + np.exp(-(score - 0.5) * 3))
    stepped, curved = (fit_probability(score, classes(rng, chance)) for chance in (step, logistic))
    assert getattr(stepped, "kind", None) == ISOTONIC
    assert getattr(curved, "kind", None) == PLATT


@pytest.mark.parametrize("labels", [[0.0] * 10, [1.0] * 10, [1.0] + [0.0] * 9, []])
def test_without_both_classes_there_is_no_probability(labels: list[float]) -> None:
    assert fit_probability(np.linspace(0, 1, len(labels)), np.array(labels)) is None

"""Calibrated probabilities of classes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from dglcell.uncertainty.conformal import ISOTONIC, PLATT, Probability, by_logistic, by_steps, fit_probability


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

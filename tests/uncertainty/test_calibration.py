"""Calibrations choose how wide intervals are, keep their promise, and are written and read back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dglcell.data.columns import columns_of
from dglcell.data.strains import Strains
from dglcell.data.table import CLASSIFICATION, REGRESSION
from dglcell.errors import CheckpointError, ConfigError
from dglcell.uncertainty import (
    Calibrated,
    Calibration,
    Difficulty,
    by_logistic,
    by_steps,
    choose_difficulty,
    conformal_quantile,
    features_of,
    fewest_strains,
    fit_probability,
    structure_of,
)

GENES = ("a", "b", "c", "d")
TRAINING = np.array([9, 0, 3, 1])
"""Training strains that change each gene: none changes b."""


def strains(lists: list[list[int]], activities: list[float] | None = None, **phenotypes: np.ndarray) -> Strains:
    made = Strains.from_indices(GENES, lists)
    left = None if activities is None else np.array(activities, np.float32)
    return replace(made, columns=columns_of(phenotype=phenotypes), activities=left)


def test_features_say_how_well_the_genes_of_a_strain_are_known() -> None:
    structure = structure_of(strains([[0, 2], [1], [], [3, 1]]), TRAINING)
    found = features_of(structure, np.array([0.5, 1.0, 2.0, 3.0]), np.full(4, 0.1))
    expected = [
        [0.5, 2, 0, np.log(4), 2, np.log(0.1)],
        [1.0, 1, 1, 0, 1, np.log(0.1)],
        [2.0, 0, 0, np.log(10), 0, np.log(0.1)],
        [3.0, 2, 1, 0, 2, np.log(0.1)],
    ]
    np.testing.assert_allclose(found, expected)
    weakened = features_of(structure_of(strains([[0, 2], [1]], [0.25, 0.5, 1.0]), TRAINING), np.zeros(2))
    np.testing.assert_allclose(weakened[:, 4], [1.25, 0.0])
    np.testing.assert_allclose(weakened[:, 5], 0.0)


def features(rng: np.random.Generator, n: int) -> np.ndarray:
    """Features of strains: predictions between 0 and 1, one or two genes, some of them new, spreads."""
    spread = rng.lognormal(-2, 1, n)
    new = rng.integers(0, 2, n)
    return np.stack([rng.uniform(0, 1, n), 1 + rng.integers(0, 2, n), new, 1 - new, np.ones(n), np.log(spread)], 1)


def test_a_learned_difficulty_is_proportional_to_the_true_one() -> None:
    rng = np.random.default_rng(0)
    known = features(rng, 5_000)
    truth = np.where(known[:, 2] > 0, 3.0, 1.0) * np.exp(2 * known[:, 0])
    ratio = Difficulty.learn(known, truth * np.abs(rng.normal(size=5_000)))(known) / truth
    assert np.std(np.log(ratio)) < 0.1


def test_a_difficulty_is_learned_where_that_makes_intervals_narrower() -> None:
    rng = np.random.default_rng(1)
    known, noise = features(rng, 2_000), np.abs(rng.normal(size=2_000))
    for truth in (np.where(known[:, 0] > 0.5, 9.0, 1.0), np.exp(known[:, -1])):  # by the prediction, by the spread
        assert np.corrcoef(np.log(choose_difficulty(known, truth * noise)(known)), np.log(truth))[0, 1] > 0.9
    # It may be a little narrower by chance where nothing matters.
    assert np.ptp(np.log(choose_difficulty(known, noise)(known))) < 0.5
    assert choose_difficulty(known, 0 * noise) == Difficulty()


def test_intervals_cover_what_they_promise_and_are_narrower_than_constant_ones() -> None:
    rng = np.random.default_rng(2)
    inside, ratios = [], []
    for _ in range(30):
        known = features(rng, 1_500)
        predicted = known[:, 0]
        truth = predicted + np.where(known[:, 2] > 0, 0.3, 0.03) * rng.normal(size=1_500)
        parts = slice(0, 500), slice(500, 1_500)
        fitted = Calibrated.of(REGRESSION, *(x[parts[0]] for x in (known, predicted, truth)))
        found = fitted.measure(*(x[parts[1]] for x in (known, predicted, truth)))
        inside.append([found["covered"], found["constant_covered"]])
        ratios.append(found["width"] / found["constant_width"])
    np.testing.assert_allclose(np.mean(inside, 0), 0.9, atol=0.01)
    assert np.mean(ratios) < 0.8
    alike = Calibrated.of(REGRESSION, known, predicted, truth, constant=True)
    assert (alike.difficulty, len(alike.scores)) == (Difficulty(), len(known))
    measured = alike.measure(known, predicted, truth)
    assert (measured["covered"], measured["width"]) == (measured["constant_covered"], measured["constant_width"])


@pytest.fixture
def calibration() -> Calibration:
    rng = np.random.default_rng(5)
    lists = [rng.choice(4, size=1 + i % 2, replace=False).tolist() for i in range(400)]
    growth, sick = rng.uniform(0, 1, 400), rng.integers(0, 2, 400).astype(float)
    known = strains(lists, growth=growth.astype(np.float32), sick=sick.astype(np.float32))
    predicted = np.stack([growth + 0.1 * rng.normal(size=400), 0.8 * sick + 0.3 * rng.uniform(size=400)], 1)
    return Calibration.of_run(known, TRAINING, predicted, (REGRESSION, CLASSIFICATION), "last.ckpt", 2)


def test_columns_have_ends_for_numbers_and_probabilities_for_classes(calibration: Calibration) -> None:
    asked = strains([[0], [1, 2], []])
    growth, sick = np.array([0.5, 0.7, np.nan]), np.array([0.0, 1.1, np.nan])
    predicted = {"predicted_growth": growth, "predicted_sick": sick}
    found = calibration.columns(asked, predicted, 0.9)
    assert list(found) == ["low_growth", "high_growth", "probability_sick"]
    np.testing.assert_allclose((found["low_growth"] + found["high_growth"]) / 2, growth, rtol=1e-6)
    wider = calibration.columns(asked, predicted, 0.95)
    assert (wider["high_growth"][:2] > found["high_growth"][:2]).all()
    assert found["probability_sick"][0] < 0.1 < 0.9 < found["probability_sick"][1]
    assert np.isnan(found["probability_sick"][2])
    for coverage, message in ((1.5, "such as 0.9"), (0.999, "too few validation strains")):
        with pytest.raises(ConfigError, match=message):
            calibration.columns(asked, predicted, coverage)


def test_it_is_read_back_and_a_missing_or_damaged_one_is_refused(calibration: Calibration, tmp_path: Path) -> None:
    path = tmp_path / "calibration.npz"
    with pytest.raises(CheckpointError, match=r"has no intervals\n  got:      no calibration.npz") as error:
        Calibration.load(path)
    assert "`split.kind: none`" in str(error.value)
    calibration.save(path)
    found = Calibration.load(path)
    assert (found.checkpoint, found.epoch, found.most_new) == ("last.ckpt", 2, 1)
    asked = strains([[0], [1, 2]])
    predicted = {"predicted_growth": np.array([0.5, 0.7]), "predicted_sick": np.array([0.1, 0.9])}
    expected = calibration.columns(asked, predicted, 0.9)
    for name, values in found.columns(asked, predicted, 0.9).items():
        np.testing.assert_array_equal(values, expected[name])
    whole = path.read_bytes()
    arrays = dict(np.load(path))
    wrong = [
        {**arrays, "scores_0": arrays["scores_0"][:, None]},
        {**arrays, "structure": arrays["structure"][:, :2]},
        {**arrays, "training": arrays["training"] * np.nan},
        {**arrays, "about": np.array("{}")},
        {name: array for name, array in arrays.items() if name != "errors_0"},
    ]
    for content in wrong:
        np.savez(path, **content)
        with pytest.raises(CheckpointError, match=r"calibration\.npz' is damaged"):
            Calibration.load(path)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match="no whole arrays"):
        Calibration.load(path)


coverages = st.fractions(0, 1, max_denominator=40).filter(lambda share: 0 < share < 1).map(float)
scores = arrays(np.float64, st.integers(1, 60), elements=st.floats(0, 1e6))


@given(scores, coverages)
def test_it_is_the_smallest_score_that_enough_others_do_not_exceed(scores_n: np.ndarray, coverage: float) -> None:
    n = len(scores_n)
    if n < fewest_strains(coverage):
        message = rf"too few .*\n  got:      {n} strains .*\n  expected: {fewest_strains(coverage)} or more\n.*split"
        with pytest.raises(ConfigError, match=message):
            conformal_quantile(scores_n, coverage)
        return
    found = conformal_quantile(scores_n, coverage)
    enough = [score for score in scores_n if np.sum(scores_n <= score) >= (n + 1) * coverage - 1e-9]
    assert found == min(enough)


def classes(rng: np.random.Generator, chance_S: np.ndarray) -> np.ndarray:
    return (rng.random(len(chance_S)) < chance_S).astype(float)


@pytest.mark.parametrize("way", [by_logistic, by_steps])
def test_overconfident_scores_become_probabilities_in_the_same_order(way: Callable[..., Any]) -> None:
    rng = np.random.default_rng(1)
    log_odds_S = rng.normal(0, 1, 5_000)
    truth, score = (1 / (1 + np.exp(-factor * log_odds_S)) for factor in (1, 4))
    made = way(score, classes(rng, truth))
    found = made(score)
    assert np.abs(found - truth).mean() < 0.06 < np.abs(score - truth).mean()
    assert (np.diff(found[np.argsort(score)]) >= 0).all()
    assert 0 <= found.min() <= found.max() <= 1
    assert np.isnan(made(np.array([np.nan]))).all()


def test_the_better_of_two_on_halves_is_taken() -> None:
    rng = np.random.default_rng(2)
    score = rng.uniform(0, 1, 4_000)
    step = np.where(score < 0.3, 0.02, np.where(score < 0.6, 0.5, 0.55))
    stepped, curved = (fit_probability(score, classes(rng, p)) for p in (step, 1 / (1 + np.exp(-(score - 0.5) * 3))))
    assert stepped is not None
    assert curved is not None
    assert stepped.at
    assert not curved.at


@pytest.mark.parametrize("labels", [[0.0] * 10, [1.0] * 10, [1.0] + [0.0] * 9, []])
def test_without_both_classes_there_is_no_probability(labels: list[float]) -> None:
    assert fit_probability(np.linspace(0, 1, len(labels)), np.array(labels)) is None

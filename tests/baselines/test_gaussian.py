"""The Gaussian process that learns how much each number counts: against its definition, and scipy's likelihood."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy
from numpy.typing import NDArray

from dglcell.baselines import gaussian
from dglcell.baselines.fit import ALL_BASELINES, best_of
from dglcell.baselines.gaussian import HELD, JITTER, USUAL, GaussianProcess, fit_gaussian_process
from dglcell.baselines.kernel_ridge import Compared
from dglcell.baselines.problem import Covariates
from dglcell.data.columns import COVARIATE
from dglcell.data.strains import Strains
from tests.baselines.invented import alike, among, problem_of, unlike

GENES, SIMILAR = 5, alike(3)


def guides(number: int, seed: int = 0) -> tuple[Strains, NDArray[np.float64]]:
    """Return strains of one or two weakened genes with two sites and three numbers, of which the first counts most."""
    rng = np.random.default_rng(seed)
    rows = [
        dict(zip((f"g{gene}" for gene in rng.permutation(GENES)[: 1 + s % 2]), rng.random(2), strict=False))
        for s in range(number)
    ]
    numbers, site = rng.integers(0, 2, (number, 3)), rng.integers(0, 2, number)
    covariates = {"site": np.array(["left", "right"])[site], **{f"mismatch_{i}": numbers[:, i] for i in range(3)}}
    y = 1 - 0.5 * numbers[:, 0] * (1 + site) + 0.02 * rng.normal(size=number)
    return among(Strains.from_names(rows, covariates=covariates)), y


def one_by_one(strains: Strains, logarithms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the covariance of all pairs of strains, from its definition."""
    of = strains.of_kind(COVARIATE)
    numbers = np.stack([values for name, values in sorted(of.items()) if name != "site"], 1).astype(float)
    numbers = (numbers - numbers.mean(0)) / numbers.std(0)
    v, w, s, theta, _ = np.split(np.exp(logarithms), np.cumsum([4, 4, 4, 3]))
    lost, gene = 1.0 - strains.left().astype(float), SIMILAR.matrix
    rows = [range(*strains.offsets[i : i + 2]) for i in range(len(strains))]
    found = np.empty((len(strains),) * 2)
    for i, j in np.ndindex(found.shape):
        pairs = [(strains.targets[a], strains.targets[b], lost[a] * lost[b]) for a in rows[i] for b in rows[j]]
        near, same = sum(gene[a, b] * both for a, b, both in pairs), sum(both for a, b, both in pairs if a == b)
        squares = theta @ np.square(numbers[i] - numbers[j])
        kinds = np.array([1.0, near, same, of["site"][i] == of["site"][j]])
        found[i, j] = kinds @ (v * np.exp(-s * squares / 2) + w)
    return found


def test_it_is_the_regression_of_its_definition() -> None:
    strains, y = guides(30)
    for factor, model in zip((1, 2, 4), fit_gaussian_process(problem_of(strains, y, similarity=SIMILAR)), strict=True):
        covariance = one_by_one(strains, model.logarithms)
        np.testing.assert_allclose(model.covariance(strains), covariance, rtol=1e-5)
        assert model.penalty == pytest.approx(factor * np.exp(model.logarithms[-1]))
        noisy = covariance + model.penalty * np.eye(len(y))
        expected = y.mean() + covariance @ np.linalg.solve(noisy, y - y.mean())
        np.testing.assert_allclose(model.predict(strains), expected, atol=1e-6)


def test_what_is_learned_is_likeliest() -> None:
    strains, y = guides(40)
    covariates = Covariates.of(strains)
    model = GaussianProcess(SIMILAR.genes, SIMILAR.matrix, covariates, Compared.of(strains, covariates))
    found = model.learned(strains, y).logarithms
    usual, held = (np.repeat(of, [4, 4, 4, 3, 1]) for of in (np.log(USUAL), HELD))

    def loss(logarithms: NDArray[np.float64]) -> float:
        noisy = one_by_one(strains, logarithms) + (np.exp(logarithms[-1]) + JITTER) * np.eye(len(y))
        likely = scipy.stats.multivariate_normal.logpdf((y - y.mean()) / y.std(), cov=noisy)
        return float(held @ np.square(logarithms - usual) - likely)

    least = loss(found)
    assert least < loss(usual) - 10
    for place in range(len(found)):
        for step in (-0.5, 0.5):
            other = found.copy()
            other[place] += step
            assert loss(other) > least - 0.1, (place, step)
    weights = found[12:15]
    assert weights.argmax() == 0


def test_numbers_that_count_are_told_from_others() -> None:
    strains, y = guides(300)
    train, test = (np.arange(200), np.arange(200, 300))
    problem = problem_of(strains.take(train), y[train], strains.take(test), y[test], similarity=unlike(GENES))
    errors = [problem.error(best_of(ALL_BASELINES[name], problem)) for name in ("Gaussian process", "boosted trees")]
    assert errors[0] < 0.03**2
    assert errors[0] < errors[1]


def test_a_large_table_has_landmarks_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    strains, y = guides(150)
    problem = problem_of(strains, y, similarity=unlike(GENES))
    exact = next(fit_gaussian_process(problem))
    monkeypatch.setattr(gaussian, "MOST_EXACT", 100)
    monkeypatch.setattr(gaussian, "LANDMARKS", 120)
    few = next(fit_gaussian_process(problem))
    assert (exact.limited, few.limited, len(few.coefficients)) == ("", "120 landmarks", 120)
    np.testing.assert_allclose(few.predict(strains), exact.predict(strains), atol=0.05)


def test_labels_without_noise_are_fitted() -> None:
    numbers = np.random.default_rng(0).integers(0, 2, (250, 3))
    covariates = {f"mismatch_{i}": numbers[:, i] for i in range(3)}
    strains = among(Strains.from_names([["g0"]] * 250, covariates=covariates))
    y = (numbers[:, 0] * numbers[:, 1]).astype(float)
    model = best_of(ALL_BASELINES["Gaussian process"], problem_of(strains, y))
    assert np.abs(model.predict(strains) - y).max() < 1e-4


def test_it_needs_two_measured_numbers() -> None:
    strains, y = guides(10)
    family = ALL_BASELINES["Gaussian process"]
    assert family.why_not(problem_of(strains, y)) is None
    one = replace(
        strains, columns={c: of for c, of in strains.columns.items() if c.name not in ("mismatch_1", "mismatch_2")}
    )
    assert family.why_not(problem_of(one, y)) == "needs strains with 2 numbers or more (found 1)"

"""Baselines of strains with activities and covariates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dglcell.baselines import kernel_ridge, problem
from dglcell.baselines.fit import ALL_BASELINES, best_of, fit_families
from dglcell.baselines.kernel_ridge import OWN, SHARED, StrainKernelRidge, fit_strain_kernels
from dglcell.baselines.problem import ANY, DELETIONS, MORE, Baseline, GeneSimilarity, in_words
from dglcell.baselines.simple import AdditiveRidge
from dglcell.data.columns import COVARIATE, Column
from dglcell.data.strains import Strains
from dglcell.errors import DataError
from tests.baselines.invented import alike, among, problem_of, unlike, weakened
from tests.baselines.test_kernel_ridge import growth
from tests.examples import examples

Table = tuple[Strains, NDArray[np.float64]]

KNOW_MORE = [name for name, family in ALL_BASELINES.items() if family.about in (ANY, MORE)]
FEWER = examples(10)


def fitted(name: str, strains: Strains, y: NDArray[np.float64]) -> Baseline:
    return next(ALL_BASELINES[name].fitted(problem_of(strains, y)))


def reordered(strains: Strains, rows: NDArray[np.int64], seed: int) -> Strains:
    """Return the strains at ``rows``, with targets, names, columns and categories in other orders."""
    rng, strains = np.random.default_rng(seed), strains.take(rows)
    assert strains.activities is not None
    places = [rng.permutation(np.arange(a, b)) for a, b in zip(strains.offsets[:-1], strains.offsets[1:], strict=True)]
    place, columns = np.concatenate([*places, np.zeros(0, np.int64)]).astype(np.int64), {}
    for column, values in reversed(strains.columns.items()):
        order = rng.permutation(len(column.categories))
        codes = np.argsort(order)[values.astype(np.int64)] if column.categories else values
        columns[column._replace(categories=tuple(column.categories[i] for i in order))] = codes.astype(np.float32)
    return replace(strains, targets=strains.targets[place], activities=strains.activities[place], columns=columns)


@pytest.mark.parametrize("name", KNOW_MORE)
@given(table=weakened(), seed=st.integers(0, 99))
@FEWER
def test_the_order_of_rows_targets_and_categories_does_not_matter(name: str, table: Table, seed: int) -> None:
    strains, y = among(table[0]), table[1]
    rows = np.random.default_rng(seed).permutation(len(y))
    other = reordered(strains, rows, seed)
    first, second = fitted(name, strains, y), fitted(name, other, y[rows])
    found = first.predict(strains)[rows]
    np.testing.assert_allclose(first.predict(other), found, atol=1e-6)
    # What is learned in steps depends a little on the order of sums.
    np.testing.assert_allclose(second.predict(other), found, atol=1e-2 if name == "Gaussian process" else 1e-6)


@pytest.mark.parametrize("name", KNOW_MORE)
@given(table=weakened())
@FEWER
def test_activity_1_is_the_wild_type(name: str, table: Table) -> None:
    strains, y = among(table[0]), table[1]
    model = fitted(name, strains, y)
    covariates = {"medium": ["xylose"] * 4, "temperature": [30] * 4}
    genotypes: list[dict[str, float]] = [{}, {"g1": 1.0}, {"g2": 0.5}, {"g2": 0.5, "g0": 1.0}]
    found = model.predict(among(Strains.from_names(genotypes, covariates=covariates)))
    np.testing.assert_allclose(found[[0, 2]], found[[1, 3]], atol=1e-6)


@given(table=weakened())
@FEWER
def test_an_unknown_category_and_a_covariate_that_is_not_there_do_what_the_mean_does(table: Table) -> None:
    strains, y = among(table[0]), table[1]
    model = AdditiveRidge(0.5).fit(strains, y)
    media = strains.of_kind(COVARIATE)["medium"]
    one = strains.take(np.zeros(len(y), np.int64))
    temperature = Column(COVARIATE, "temperature")
    medium = next(column for column in strains.columns if column.name == "medium")
    in_each = replace(one, columns={medium: media, temperature: one.columns[temperature]})
    elsewhere = Column(COVARIATE, "medium", ("acetate",))
    unknown = replace(one, columns={elsewhere: np.zeros(len(y), np.float32), temperature: one.columns[temperature]})
    lacking = replace(one, columns={temperature: one.columns[temperature]})
    np.testing.assert_allclose(model.predict(unknown), model.predict(in_each).mean())
    np.testing.assert_allclose(model.predict(lacking), model.predict(unknown))


@given(table=weakened(), alpha=st.sampled_from([0.1, 1.0, 10.0]))
@FEWER
def test_the_additive_ridge_is_the_solution_of_its_normal_equations(table: Table, alpha: float) -> None:
    strains, y = among(table[0]), table[1]
    columns = [np.zeros((len(y), 5))]
    for s, (genes, left) in enumerate(
        zip(strains.genotypes, np.split(strains.left(), strains.offsets[1:-1]), strict=True)
    ):
        for gene, activity in zip(genes, left, strict=True):
            columns[0][s, int(gene[1])] = 1 - float(activity)
    media = strains.of_kind(COVARIATE)["medium"]
    columns += [(media == code)[:, None].astype(float) for code in np.unique(media)]
    warmth = strains.of_kind(COVARIATE)["temperature"].astype(float)
    columns.append(warmth[:, None] / (warmth.std() or 1.0))
    design = np.concatenate(columns, axis=1)
    design -= design.mean(axis=0)
    solved = np.linalg.solve(design.T @ design + alpha * np.eye(design.shape[1]), design.T @ (y - y.mean()))
    np.testing.assert_allclose(
        AdditiveRidge(alpha).fit(strains, y).predict(strains), y.mean() + design @ solved, atol=1e-6
    )


def test_an_activity_of_0_is_a_deletion() -> None:
    rows = [["g0"], ["g1"], ["g0", "g1"], ["g2"]]
    y = np.array([0.5, 0.6, 0.2, 0.9])
    deleted, at_0 = Strains.from_names(rows), Strains.from_names([dict.fromkeys(row, 0.0) for row in rows])
    for deletions, activities in zip(
        (AdditiveRidge(0.5).fit(deleted, y), *fit_strain_kernels(problem_of(deleted, y))),
        (AdditiveRidge(0.5).fit(at_0, y), *list(fit_strain_kernels(problem_of(at_0, y)))[-5:]),
        strict=True,
    ):
        np.testing.assert_array_equal(activities.predict(at_0), deletions.predict(deleted))


@pytest.mark.parametrize("name", [name for name, family in ALL_BASELINES.items() if family.about == DELETIONS])
def test_baselines_of_deletions_refuse_activities(name: str) -> None:
    problem = growth(60)
    model, strains = best_of(ALL_BASELINES[name], problem), problem.validation
    weak = replace(strains, activities=np.full(len(strains.targets), 0.5, np.float32))
    with pytest.raises(DataError, match=r"cannot express activities\n  do: .*--with network"):
        model.predict(weak)


def test_predictions_for_activities_and_media_stay_as_they_were() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(12, 4))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    similarity = GeneSimilarity(np.arange(12), np.square(vectors @ vectors.T).astype(np.float32))
    rows = [dict(zip(rng.permutation(12)[:k].tolist(), rng.random(k), strict=False)) for k in rng.integers(1, 4, 400)]
    rows, media, dose = rows[:200] * 2, np.repeat(["glucose", "acetate"], 200), np.tile(rng.random(200), 2)
    y = np.array([np.prod([1 - (1 - left) ** 2 * (0.2 + gene / 20) for gene, left in row.items()]) for row in rows])
    y = y * np.where(media == "glucose", 1.0, 0.8) + 0.1 * dose + 0.02 * rng.normal(size=400)
    named = [{f"g{gene}": float(left) for gene, left in row.items()} for row in rows]
    strains = among(Strains.from_names(named, covariates={"medium": media, "dose": dose}), 12)
    train, validation, test = np.split(rng.permutation(400), [240, 320])
    models = fit_families(
        problem_of(strains.take(train), y[train], strains.take(validation), y[validation], similarity)
    )
    expected = {
        "additive ridge": [0.59062579, 0.86262767, 0.485902],
        "same strain in other media": [0.58074581, 0.85803458, 0.49804931],
        "kernel ridge over strains": [0.70080657, 0.98487861, 0.44666485],
    }
    for name, values in expected.items():
        found = models[name].predict(strains.take(test[:3]))
        np.testing.assert_allclose(found, values, atol=1e-7, err_msg=name)


Activities = tuple[Strains, NDArray[np.float64]]


def fitted_kernel(strains: Strains, y: NDArray[np.float64], similarity: GeneSimilarity) -> list[StrainKernelRidge]:
    return list(fit_strain_kernels(problem_of(strains, y, similarity=similarity)))


def one_by_one(strains: Strains, kernel: StrainKernelRidge, similarity: GeneSimilarity) -> NDArray[np.float64]:
    """Return the covariance of all pairs of strains, from its definition, target by target."""
    gene = OWN * np.eye(5) + SHARED + (1 - OWN - SHARED) * similarity.matrix
    of_kind = strains.of_kind(COVARIATE)
    media, warmth = of_kind["medium"], of_kind["temperature"].astype(float)
    warmth = (warmth - warmth.mean()) / (warmth.std() or 1.0)
    lost = 1.0 - strains.left().astype(float)
    rows = [range(*strains.offsets[s : s + 2]) for s in range(len(strains))]
    found = np.empty((len(strains), len(strains)))
    for i, j in np.ndindex(found.shape):
        g = 0.0
        for v in rows[i]:
            for w in rows[j]:
                near = np.exp(-((lost[v] - lost[w]) ** 2) / 2 / kernel.activity_length**2)
                g += gene[strains.targets[v], strains.targets[w]] * lost[v] * lost[w] * near
        covariate = 1.0 if media[i] == media[j] else kernel.alike
        covariate *= np.exp(-((warmth[i] - warmth[j]) ** 2) / 2 / kernel.covariate_length**2)
        found[i, j] = (1 + g + g**2 / 2) * covariate
    return found


@given(table=weakened(), seed=st.integers(0, 9), number=st.integers(0, 79))
@examples(15)
def test_the_ridge_is_that_of_the_kernel_of_all_pairs(table: Activities, seed: int, number: int) -> None:
    strains, y = among(table[0]), table[1]
    similarity = alike(seed)
    models = fitted_kernel(strains, y, similarity)
    assert len(models) == 2 * 2 * 4 * 5
    model = models[number]
    covariance = model.covariance(strains)
    np.testing.assert_allclose(covariance, one_by_one(strains, model, similarity), rtol=1e-5)
    np.testing.assert_allclose(covariance, covariance.T, rtol=1e-6)
    assert np.linalg.eigvalsh(covariance).min() > -1e-5 * covariance.max()
    noisy = covariance + model.penalty * np.eye(len(y))
    expected = y.mean() + covariance @ np.linalg.solve(noisy, y - y.mean())
    np.testing.assert_allclose(model.predict(strains), expected, atol=1e-6)


def test_strains_are_compared_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    rows = [dict(zip((f"g{g}" for g in rng.permutation(5)[:n]), rng.random(n), strict=True)) for n in range(4)] * 5
    strains, y = among(Strains.from_names(rows)), rng.random(20)
    whole = [model.predict(strains) for model in fitted_kernel(strains, y, unlike(5))]
    said = in_words("kernel ridge", fitted_kernel(strains, y, unlike(5))[0])
    assert said == "kernel ridge (penalty 1, activity length 0.25)", "it says nothing of covariates that are not there"
    monkeypatch.setattr(problem, "MOST_COMPARED", 200)
    pieces = [model.predict(strains) for model in fitted_kernel(strains, y, unlike(5))]
    np.testing.assert_allclose(pieces, whole)
    empty = strains.take(np.zeros(0, np.int64))
    assert fitted_kernel(strains, y, unlike(5))[0].predict(empty).shape == (0,)


def test_a_large_table_has_landmarks_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    left = np.random.default_rng(0).random(80)
    strains = among(Strains.from_names([{f"g{i % 5}": s} for i, s in enumerate(left)]))
    y = left * (np.arange(80) % 5)
    exact = fitted_kernel(strains, y, unlike(5))[-1]
    assert exact.limited == ""
    monkeypatch.setattr(kernel_ridge, "MOST_EXACT", 50)
    monkeypatch.setattr(kernel_ridge, "LANDMARKS", 60)
    found = fitted_kernel(strains, y, unlike(5))[-1]
    assert found.limited == "60 landmarks"
    np.testing.assert_allclose(found.predict(strains), exact.predict(strains), atol=0.1)
    monkeypatch.setattr(kernel_ridge, "MOST_STRAINS", 70)
    found = fitted_kernel(strains, y, unlike(5))[-1]
    assert found.limited == "60 landmarks of a sample of 70 of 80 strains"
    assert len(found.coefficients) == 60

"""Kernel ridge over strains with strengths and conditions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dglcell.baselines import beyond_deletions, problem, strain_kernel
from dglcell.baselines.similarity import GeneSimilarity
from dglcell.baselines.strain_kernel import OWN, SHARED, STRAIN_KERNEL, StrainKernelRidge, fit_strain_kernels
from dglcell.data.columns import CONDITION
from dglcell.data.strains import Strains
from tests.baselines.invented import among, problem_of, unlike, weakened
from tests.examples import examples

Table = tuple[Strains, NDArray[np.float64]]


def alike(seed: int) -> GeneSimilarity:
    """Return a positive semidefinite similarity of five genes."""
    vectors = np.random.default_rng(seed).normal(size=(5, 3))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return GeneSimilarity(np.arange(5), np.square(vectors @ vectors.T).astype(np.float32))


def fitted(strains: Strains, y: NDArray[np.float64], similarity: GeneSimilarity) -> list[StrainKernelRidge]:
    return list(fit_strain_kernels(problem_of(strains, y, similarity=similarity)))


def one_by_one(strains: Strains, kernel: StrainKernelRidge, similarity: GeneSimilarity) -> NDArray[np.float64]:
    """Return the covariance of all pairs of strains, from its definition, target by target."""
    gene = OWN * np.eye(5) + SHARED + (1 - OWN - SHARED) * similarity.matrix
    of_kind = strains.of_kind(CONDITION)
    media, warmth = of_kind["medium"], of_kind["temperature"].astype(float)
    warmth = (warmth - warmth.mean()) / (warmth.std() or 1.0)
    lost = 1.0 - strains.left().astype(float)
    rows = [range(*strains.offsets[s : s + 2]) for s in range(len(strains))]
    found = np.empty((len(strains), len(strains)))
    for i, j in np.ndindex(found.shape):
        g = 0.0
        for v in rows[i]:
            for w in rows[j]:
                near = np.exp(-((lost[v] - lost[w]) ** 2) / 2 / kernel.strength_length**2)
                g += gene[strains.targets[v], strains.targets[w]] * lost[v] * lost[w] * near
        condition = 1.0 if media[i] == media[j] else kernel.alike
        condition *= np.exp(-((warmth[i] - warmth[j]) ** 2) / 2 / kernel.condition_length**2)
        found[i, j] = (1 + g + g**2 / 2) * condition
    return found


@given(table=weakened(), seed=st.integers(0, 9), number=st.integers(0, 79))
@examples(15)
def test_the_ridge_is_that_of_the_kernel_of_all_pairs(table: Table, seed: int, number: int) -> None:
    strains, y = among(table[0]), table[1]
    similarity = alike(seed)
    models = fitted(strains, y, similarity)
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
    whole = [model.predict(strains) for model in fitted(strains, y, unlike(5))]
    monkeypatch.setattr(beyond_deletions, "MOST_COMPARED", 200)
    pieces = [model.predict(strains) for model in fitted(strains, y, unlike(5))]
    np.testing.assert_allclose(pieces, whole)
    empty = strains.take(np.zeros(0, np.int64))
    assert fitted(strains, y, unlike(5))[0].predict(empty).shape == (0,)


def test_similar_genes_and_near_strengths_tell_of_a_new_gene() -> None:
    left = np.linspace(0, 1, 9)
    train = among(Strains.from_names([{f"g{gene}": s} for gene in range(4) for s in left]))
    y = np.concatenate([left, left, 0 * left + 1, 0 * left + 1])
    matrix = np.eye(5, dtype=np.float32)
    matrix[4, 0] = matrix[0, 4] = 1.0
    similarity = GeneSimilarity(np.arange(4), matrix[:, :4])
    new = among(Strains.from_names([{"g4": 0.25}, {"g4": 0.75}]))
    found, without = (
        fitted(train, y, one)[4].predict(new)
        for one in (similarity, GeneSimilarity(np.arange(4), np.zeros((5, 4), np.float32)))
    )
    expected = np.array([0.25, 0.75])
    assert np.abs(found - expected).max() < 0.8 * np.abs(without - expected).max()


def test_where_it_does_not_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    def why_not(strains: Strains) -> str | None:
        return STRAIN_KERNEL.why_not(problem_of(strains, np.ones(len(strains))))

    strains = Strains.from_names([{"g0": 0.5, "g1": 0.2}] * 3)
    assert why_not(strains) is None
    assert why_not(Strains.from_names([["g0"]])) == "needs strains with strengths or conditions"
    monkeypatch.setattr(strain_kernel, "MOST_PAIRS", 30)
    assert why_not(strains) == "would compare 4e+01 pairs of genes, and is limited to 3e+01"


def test_a_large_table_has_landmarks_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    left = np.random.default_rng(0).random(80)
    strains = among(Strains.from_names([{f"g{i % 5}": s} for i, s in enumerate(left)]))
    y = left * (np.arange(80) % 5)
    exact = fitted(strains, y, unlike(5))[-1]
    assert exact.limited == ""
    monkeypatch.setattr(strain_kernel, "MOST_EXACT", 50)
    monkeypatch.setattr(strain_kernel, "LANDMARKS", 60)
    found = fitted(strains, y, unlike(5))[-1]
    assert found.limited == "60 landmarks"
    np.testing.assert_allclose(found.predict(strains), exact.predict(strains), atol=0.1)
    monkeypatch.setattr(problem, "MOST_STRAINS", 70)
    found = fitted(strains, y, unlike(5))[-1]
    assert found.limited == "60 landmarks of a sample of 70 of 80 strains"
    assert len(found.coefficients) == 60

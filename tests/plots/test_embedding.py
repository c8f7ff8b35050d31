"""Maps of embeddings: principal components against a singular value decomposition, UMAP where it is installed."""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dglcell.plots import Embedding, Subject
from dglcell.plots.embedding import embedding_map, embedding_panel, principal_components, principal_map
from tests.plots.invented import embedding, predictions


def test_principal_components_are_those_of_a_singular_value_decomposition() -> None:
    vectors = embedding(80).vectors.astype(np.float64) + 3.0
    positions, shares = principal_components(vectors)
    u, s, vt = np.linalg.svd(vectors - vectors.mean(0), full_matrices=False)
    expected = (u * s)[:, :2] * np.sign([row[np.abs(row).argmax()] for row in vt[:2]])
    np.testing.assert_allclose(positions, expected, atol=1e-10)
    assert shares == pytest.approx((s[:2] ** 2 / (s**2).sum()).tolist())


@pytest.mark.parametrize("width", [1, 2, 3])
def test_narrow_and_constant_embeddings_have_a_map(width: int) -> None:
    positions, shares = principal_components(np.ones((5, width)))
    assert not positions.any()
    assert shares == (0, 0)
    positions, shares = principal_components(np.arange(5.0)[:, None] * np.ones(width))
    assert shares == pytest.approx((1, 0))
    assert np.ptp(positions[:, 0]) == pytest.approx(4 * np.sqrt(width))


def test_only_finite_embeddings_and_at_most_so_many_are_mapped() -> None:
    found = embedding(50)
    found.vectors[7] = np.nan
    mapped = principal_map(found, 20, seed=1)
    assert mapped is not None
    assert len(mapped.strains) == len(mapped.positions) == 20
    assert 7 not in mapped.strains
    assert principal_map(Embedding(np.arange(2), np.ones((2, 3))), 20) is None
    assert principal_map(Embedding(np.arange(5), np.ones((5, 0))), 20) is None


def test_without_umap_the_caption_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "umap", None)
    found = embedding_map(embedding(60), 40)
    assert found is not None
    assert (found.method, found.missing) == ("PCA", True)
    panel = embedding_panel(found, Subject(predictions(60), "fitness"))
    assert "pip install 'dglcell[umap]'" in panel.caption
    assert "of 40 test strains, chosen at random from 60; " in panel.caption
    few = embedding_map(embedding(5), 40)
    assert few is not None
    assert not few.missing


def test_colours_belong_to_the_strains_that_were_chosen() -> None:
    found = principal_map(embedding(60), 10, seed=5)
    assert found is not None
    p = predictions(60)
    rows = embedding_panel(found, Subject(p, "fitness")).table.rows
    for (row, x, y, measured), strain, position in zip(rows, found.strains, found.positions, strict=True):
        assert row == strain + 1
        assert (x, y) == pytest.approx(tuple(position))
        assert measured == pytest.approx(p.measured[strain], nan_ok=True)


def test_umap_is_asked_for_a_reproducible_map(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    class Umap:
        def __init__(self, **options: Any) -> None:
            asked.update(options)

        def fit_transform(self, vectors: np.ndarray) -> np.ndarray:
            return vectors[:, :2].astype(np.float32)

    module = types.ModuleType("umap")
    module.UMAP = Umap  # type: ignore[attr-defined]
    module.__spec__ = importlib.util.spec_from_loader("umap", None, origin="umap")
    monkeypatch.setitem(sys.modules, "umap", module)
    found = embedding_map(embedding(12), 40, seed=3)
    assert found is not None
    assert found.method == "UMAP"
    assert asked == {"n_neighbors": 11, "min_dist": 0.1, "random_state": 3, "n_jobs": 1, "verbose": False}
    assert "long distances mean little" in embedding_panel(found, Subject(predictions(12), "fitness")).caption


@pytest.mark.slow
def test_real_umap_keeps_two_clusters_apart() -> None:
    pytest.importorskip("umap", reason="needs the extra 'umap'")
    vectors = np.concatenate([embedding(60).vectors, embedding(60, seed=1).vectors + 50])
    found = embedding_map(Embedding(np.arange(120), vectors), 200)
    assert found is not None
    assert found.method == "UMAP"
    one, two = found.positions[:60], found.positions[60:]
    assert np.linalg.norm(one.mean(0) - two.mean(0)) > max(one.std(), two.std())


def test_a_folder_called_umap_is_not_umap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "umap").mkdir()
    monkeypatch.delitem(sys.modules, "umap", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    found = embedding_map(embedding(60), 40)
    assert found is not None
    assert found.method == "PCA"

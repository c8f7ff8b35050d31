"""Maps of embeddings are principal components, which are compared with a singular value decomposition."""

from __future__ import annotations

import numpy as np
import pytest

from dglcell.plots import Embedding, Subject
from dglcell.plots.embedding import embedding_panel, principal_components, principal_map
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


def test_the_caption_says_how_the_map_was_made() -> None:
    found = principal_map(embedding(60), 40)
    assert found is not None
    caption = embedding_panel(found, Subject(predictions(60), "fitness")).caption
    assert "of 40 test strains, chosen at random from 60; " in caption
    assert "principal components ({:.0%} and {:.0%} of the variance)".format(*found.explained) in caption


def test_colours_belong_to_the_strains_that_were_chosen() -> None:
    found = principal_map(embedding(60), 10, seed=5)
    assert found is not None
    p = predictions(60)
    rows = embedding_panel(found, Subject(p, "fitness")).table.rows
    for (row, x, y, measured), strain, position in zip(rows, found.strains, found.positions, strict=True):
        assert row == strain + 1
        assert (x, y) == pytest.approx(tuple(position))
        assert measured == pytest.approx(p.measured[strain], nan_ok=True)

"""Size and spread of embeddings, from sums over batches, against all pairs of strains."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dglcell.training.task import embedding_metrics, embedding_sums


def of_all_pairs(z_SD: np.ndarray) -> dict[str, float]:
    """The same figures by their definitions."""
    norms = np.linalg.norm(z_SD, axis=1)
    n, squares = len(z_SD), (norms**2).sum()
    energy = sum(((a - b) ** 2).sum() for a in z_SD for b in z_SD) / (2 * n)
    units = z_SD[norms > 0] / norms[norms > 0, None]
    cosines = [a @ b for i, a in enumerate(units) for j, b in enumerate(units) if i != j]
    return {
        "embedding_norm": norms.mean(),
        "embedding_spread": energy / squares if squares else math.nan,
        "embedding_cosine": float(np.mean(cosines)) if cosines else math.nan,
    }


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.integers(1, 20), st.integers(1, 5), st.integers(1, 7))
def test_batches_add_up_to_all_pairs(seed: int, n: int, width: int, batch: int) -> None:
    rng = np.random.default_rng(seed)
    z_SD = rng.normal(size=(n, width)) + rng.normal(size=width)
    z_SD[rng.random(n) < 0.2] = 0
    found = embedding_metrics([embedding_sums(part) for part in torch.as_tensor(z_SD).split(batch)])
    assert found == pytest.approx(of_all_pairs(z_SD), abs=1e-9, nan_ok=True)


def test_a_collapse_shows() -> None:
    rng = np.random.default_rng(0)
    centre, noise = rng.normal(size=16), rng.normal(size=(200, 16))
    spreads, cosines = [], []
    for size in (10.0, 1.0, 0.1, 0.0):
        found = embedding_metrics([embedding_sums(torch.as_tensor(centre + size * noise).float())])
        spreads.append(found["embedding_spread"])
        cosines.append(found["embedding_cosine"])
    assert spreads == sorted(spreads, reverse=True)
    assert cosines == sorted(cosines)
    assert spreads[0] > 0.95
    assert spreads[-1] == pytest.approx(0, abs=1e-12)
    assert cosines[-1] == pytest.approx(1)


def test_half_precision_is_summed_in_double() -> None:
    z_BD = torch.full((4096, 2), 0.1, dtype=torch.bfloat16)
    found = embedding_metrics([embedding_sums(z_BD)])
    assert found["embedding_norm"] == pytest.approx(float(z_BD[0, 0].double()) * math.sqrt(2), rel=1e-12)
    assert found["embedding_spread"] == pytest.approx(0, abs=1e-12)

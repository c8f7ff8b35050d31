"""Label normalisation."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dglcell.data.transform import Normaliser
from dglcell.errors import DataError


@given(values=st.lists(st.floats(-1e3, 1e3, width=32), min_size=2, max_size=50, unique=True))
def test_normalised_labels_have_mean_zero_and_deviation_one(values: list[float]) -> None:
    labels = torch.tensor([*values, torch.nan]).unsqueeze(1)
    normaliser = Normaliser.fit(labels, ("a",))
    reference = torch.tensor(values, dtype=torch.float64)
    assert float(normaliser.mean) == pytest.approx(float(reference.mean()), rel=1e-5, abs=1e-5)
    assert float(normaliser.sd) == pytest.approx(float(reference.std(unbiased=False)), rel=1e-5, abs=1e-30)
    restored = normaliser.restore(normaliser.normalise(labels))
    torch.testing.assert_close(restored, labels, equal_nan=True, rtol=1e-4, atol=1e-3)


def test_every_phenotype_has_its_own_statistics() -> None:
    labels = torch.tensor([[0.0, 10.0], [2.0, torch.nan], [4.0, 30.0]])
    normaliser = Normaliser.fit(labels, ("a", "b"))
    assert normaliser.mean.tolist() == [2.0, 20.0]
    assert normaliser.sd.tolist() == pytest.approx([(8 / 3) ** 0.5, 10.0])
    assert normaliser.normalise(labels)[:, 1].isnan().tolist() == [False, True, False]


def test_statistics_are_buffers() -> None:
    normaliser = Normaliser.fit(torch.tensor([[1.0], [3.0]]), ("a",))
    assert set(normaliser.state_dict()) == {"mean", "sd"}
    assert not list(normaliser.parameters())
    assert normaliser.double().normalise(torch.tensor([[3.0]])).dtype == torch.float64


def test_constant_and_missing_labels_are_refused() -> None:
    # The mean of seven times 0.1 is not exactly 0.1, so that their deviation is not exactly zero.
    with pytest.raises(DataError, match=r"phenotype 'b' is constant in the training part\n  got: +0.1"):
        Normaliser.fit(torch.stack([torch.arange(7.0), torch.full((7,), 0.1)], dim=1), ("a", "b"))
    with pytest.raises(DataError, match="phenotype 'a' is constant"):
        Normaliser.fit(torch.tensor([[5.0], [torch.nan]]), ("a",))
    with pytest.raises(DataError, match="phenotype 'a' has no label in the training part"):
        Normaliser.fit(torch.full((4, 1), torch.nan), ("a",))

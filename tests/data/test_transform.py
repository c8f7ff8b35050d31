"""Label normalisation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dglcell.data.config import NORMALISATIONS
from dglcell.data.transform import Normaliser
from dglcell.errors import DataError

TINY, HUGE = torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max

columns = st.lists(st.floats(-1e3, 1e3, width=32), min_size=2, max_size=50, unique=True)


def reference(kind: str, values: list[float]) -> tuple[float, float]:
    """Shift and scale by numpy."""
    x = np.array(values, dtype=np.float64)
    if kind == "standard":
        return float(x.mean()), float(x.std())
    return 0.0, 1.0


@given(values=columns, kind=st.sampled_from(["standard", "none"]))
def test_labels_are_shifted_and_scaled_and_come_back(values: list[float], kind: str) -> None:
    labels = torch.tensor([*values, torch.nan]).unsqueeze(1)
    shift, scale = reference(kind, values)
    if not TINY <= scale <= HUGE:
        with pytest.raises(DataError, match=r"does not fit into single precision\n"):
            Normaliser.fit(labels, ("a",), kind)
        return
    normaliser = Normaliser.fit(labels, ("a",), kind)
    assert float(normaliser.shift) == pytest.approx(shift, rel=1e-5, abs=1e-5)
    assert float(normaliser.scale) == pytest.approx(scale, rel=1e-5, abs=1e-30)
    normalised = normaliser.normalise(labels)
    assert normalised[:-1].isfinite().all()
    torch.testing.assert_close(normaliser.restore(normalised), labels, equal_nan=True, rtol=1e-4, atol=1e-3)


def test_under_logistic_labels_stay_and_predictions_are_logits() -> None:
    labels = torch.tensor([[0.0], [1.0], [0.25], [torch.nan]])
    normaliser = Normaliser.fit(labels, ("a",), "logistic")
    torch.testing.assert_close(normaliser.normalise(labels), labels, equal_nan=True)
    logits = torch.tensor([[-100.0], [0.0], [float(np.log(3))]])
    torch.testing.assert_close(normaliser.restore(logits), torch.tensor([[0.0], [0.5], [0.75]]))
    torch.testing.assert_close(normaliser.expect(logits), normaliser.restore(logits))
    standard = Normaliser.fit(labels, ("a",))
    assert standard.expect(logits) is logits


def test_every_phenotype_has_its_own_statistics() -> None:
    labels = torch.tensor([[0.0, 10.0], [2.0, torch.nan], [4.0, 30.0]])
    normaliser = Normaliser.fit(labels, ("a", "b"))
    assert normaliser.shift.tolist() == [2.0, 20.0]
    assert normaliser.scale.tolist() == pytest.approx([(8 / 3) ** 0.5, 10.0])
    assert normaliser.normalise(labels)[:, 1].isnan().tolist() == [False, True, False]


def test_statistics_are_buffers() -> None:
    normaliser = Normaliser.fit(torch.tensor([[1.0], [3.0]]), ("a",))
    assert set(normaliser.state_dict()) == {"shift", "scale"}
    assert not list(normaliser.parameters())
    assert normaliser.double().normalise(torch.tensor([[3.0]])).dtype == torch.float64


@pytest.mark.parametrize("kind", NORMALISATIONS)
def test_constant_and_missing_labels_are_refused(kind: str) -> None:
    # The mean of seven times 0.1 is not exactly 0.1, so that their deviation is not exactly zero.
    both = torch.stack([torch.arange(7.0) / 6, torch.full((7,), 0.1)], dim=1)
    with pytest.raises(DataError, match=r"phenotype 'b' is constant in the training part\n  got: +0.1"):
        Normaliser.fit(both, ("a", "b"), kind)
    with pytest.raises(
        DataError, match=r"'a' is constant in the training part\n  got: +5 in 1 strain\n  do: +add strains"
    ):
        Normaliser.fit(torch.tensor([[5.0], [torch.nan]]), ("a",), kind)
    with pytest.raises(DataError, match="phenotype 'a' has no label in the training part"):
        Normaliser.fit(torch.full((4, 1), torch.nan), ("a",), kind)


@pytest.mark.parametrize("values", [[0.0, 1.4e-45], [1e-40, 2e-40, 5e-40]])
def test_a_spread_beyond_single_precision_is_refused(values: list[float]) -> None:
    labels = torch.tensor(values).unsqueeze(1)
    message = r"phenotype 'a': the spread of its training labels does not fit into single precision\n  got: .*, labels "
    with pytest.raises(DataError, match=message + r".*\n  expected: 1.175e-38 … 3.403e\+38\n  do: .*another unit"):
        Normaliser.fit(labels, ("a",))


def test_labels_that_are_no_probabilities_are_refused_under_logistic() -> None:
    labels = torch.tensor([[0.5, -0.5], [1.0, 0.5]])
    with pytest.raises(DataError, match=r"labels of phenotype 'b' are no probabilities\n  got: +-0.5 … 0.5\n.*0 … 1"):
        Normaliser.fit(labels, ("a", "b"), "logistic")

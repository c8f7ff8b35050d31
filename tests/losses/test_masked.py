"""Losses against their definitions, with missing labels."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dglcell.losses.build import make_loss
from dglcell.losses.config import MaskedConfig
from dglcell.losses.elementwise import ELEMENTS
from dglcell.models.model import Prediction

DEFINITIONS = {
    "mse": lambda e: e * e,
    "huber": lambda e: 0.5 * e * e if abs(e) <= 1 else abs(e) - 0.5,
    "log_cosh": lambda e: math.log(math.cosh(e)),
}


@pytest.mark.parametrize("name", ELEMENTS)
@given(errors=st.lists(st.floats(-50, 50), min_size=1, max_size=8))
def test_element_wise_losses_equal_their_definitions(name: str, errors: list[float]) -> None:
    got = ELEMENTS[name](torch.tensor(errors, dtype=torch.float64))
    expected = torch.tensor([DEFINITIONS[name](e) for e in errors], dtype=torch.float64)
    torch.testing.assert_close(got, expected, atol=1e-12, rtol=1e-12)


def test_log_cosh_is_finite_for_huge_errors() -> None:
    error = torch.tensor([1e4, -1e4], requires_grad=True)
    loss = ELEMENTS["log_cosh"](error)
    loss.sum().backward()
    torch.testing.assert_close(loss.detach(), torch.full((2,), 1e4 - math.log(2)))
    torch.testing.assert_close(error.grad, torch.tensor([1.0, -1.0]))


@pytest.mark.parametrize("name", ELEMENTS)
def test_missing_labels_count_for_nothing(name: str) -> None:
    prediction = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    target = torch.tensor([[0.0, torch.nan], [torch.nan, 1.0]])
    loss = make_loss(MaskedConfig(name), epochs=1)(Prediction(prediction), target, epoch=0).total
    loss.backward()
    expected = (DEFINITIONS[name](1.0) + DEFINITIONS[name](3.0)) / 2
    assert loss.item() == pytest.approx(expected, rel=1e-6)
    assert prediction.grad[0, 1] == prediction.grad[1, 0] == 0


def test_without_weights_labels_count_alike_and_with_weights_phenotypes_do() -> None:
    prediction = Prediction(torch.zeros(3, 3, dtype=torch.float64))
    nan = torch.nan
    target = torch.tensor([[1.0, 2.0, nan], [3.0, nan, nan], [5.0, nan, nan]], dtype=torch.float64)

    def loss(weights: list[float] | None) -> float:
        return make_loss(MaskedConfig("mse", phenotype_weights=weights), epochs=1)(prediction, target, 0).total.item()

    assert loss(None) == pytest.approx((1 + 9 + 25 + 4) / 4)
    assert loss([1.0, 1.0, 1.0]) == pytest.approx((35 / 3 + 4) / 2)
    # The third phenotype has no label here, and then no say.
    assert loss([1.0, 3.0, 100.0]) == pytest.approx((35 / 3 + 3 * 4) / 4)
    assert loss([0.0, 0.0, 1.0]) == 0


def test_a_batch_without_labels_gives_zero_and_zero_gradient() -> None:
    prediction = torch.ones(2, 1, requires_grad=True)
    loss = make_loss(MaskedConfig("mse"), epochs=1)(Prediction(prediction), torch.full((2, 1), torch.nan), 0).total
    loss.backward()
    assert loss.item() == 0
    assert not prediction.grad.any()

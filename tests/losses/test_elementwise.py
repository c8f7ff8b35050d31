"""Losses label by label."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dglcell.errors import ConfigError, DataError
from dglcell.losses.config import BceConfig, GaussianConfig, MaskedConfig
from dglcell.losses.elementwise import ELEMENTS
from dglcell.losses.loss import make_loss
from dglcell.models.model import Prediction

# Losses against their definitions, with missing labels.


DEFINITIONS = {"mse": lambda e: e * e, "huber": lambda e: 0.5 * e * e if abs(e) <= 1 else abs(e) - 0.5}


@pytest.mark.parametrize("name", DEFINITIONS)
@given(errors=st.lists(st.floats(-50, 50), min_size=1, max_size=8))
def test_element_wise_losses_equal_their_definitions(name: str, errors: list[float]) -> None:
    error = torch.tensor(errors, dtype=torch.float64)
    got = ELEMENTS[name](error, torch.zeros_like(error))
    expected = torch.tensor([DEFINITIONS[name](e) for e in errors], dtype=torch.float64)
    torch.testing.assert_close(got, expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("name", DEFINITIONS)
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


# Binary cross-entropy: its definition, its labels, and a run that learns them.


def test_it_is_its_definition_over_the_labels_that_are_there() -> None:
    logits = torch.tensor([[0.3, -2.0], [1.5, 9.0]], dtype=torch.float64, requires_grad=True)
    target = torch.tensor([[1.0, 0.0], [0.25, math.nan]], dtype=torch.float64)
    loss = make_loss(BceConfig(), epochs=1)(Prediction(logits), target, 0).total
    loss.backward()
    pairs = [(0.3, 1.0), (-2.0, 0.0), (1.5, 0.25)]
    chances = [1 / (1 + math.exp(-x)) for x, _ in pairs]
    costs = [-y * math.log(q) - (1 - y) * math.log(1 - q) for q, (_, y) in zip(chances, pairs, strict=True)]
    assert loss.item() == pytest.approx(sum(costs) / 3)
    expected = [(q - y) / 3 for q, (_, y) in zip(chances, pairs, strict=True)]
    assert logits.grad.flatten().tolist() == pytest.approx([*expected, 0.0])


def test_labels_beyond_0_and_1_are_refused() -> None:
    labels = torch.tensor([[0.0, 1.0], [1.0, -0.25], [math.nan, 1.75]])
    with pytest.raises(DataError) as error:
        BceConfig().check_labels(labels, ("dies", "grows"))
    assert str(error.value) == (
        "`loss.name: bce`: labels of phenotype 'grows' are no probabilities\n"
        "  got:      -0.25 … 1.75\n"
        "  expected: 0 … 1\n"
        "  do:       leave it out of `data.phenotypes`, or choose a loss for numbers, e.g. `loss.name: mse`"
    )
    BceConfig().check_labels(labels[:, :1], ("dies",))


# Gaussian likelihood: a noise level for each phenotype.


def test_the_gaussian_loss_is_the_negative_log_likelihood() -> None:
    loss = make_loss(GaussianConfig(), epochs=1).eval()
    loss.load_state_dict({"variance_T": torch.tensor([0.25, 4.0])})
    target = torch.tensor([[1.0, 2.0], [3.0, torch.nan]])
    normal = torch.distributions.Normal(0.0, torch.tensor([0.5, 2.0]))
    expected = -normal.log_prob(target.nan_to_num()).flatten()[:3].mean() - math.log(2 * math.pi) / 2
    torch.testing.assert_close(loss(Prediction(torch.zeros(2, 2)), target, 0).total, expected)
    assert not loss(Prediction(torch.zeros(2, 2)), torch.full((2, 2), torch.nan), 0).total


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"smallest_sd": 0.0}, r"`loss.smallest_sd` is no noise level\n.*0.0\n.*more than 0"),
        ({"memory": 0}, r"`loss.memory` is too small\n.*0\n.*1 or more steps"),
    ],
)
def test_noise_levels_are_checked(keys: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        GaussianConfig(**keys).validate()  # type: ignore[arg-type]

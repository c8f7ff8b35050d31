"""DANGO's schedules and how they weigh the two parts of its loss."""

from __future__ import annotations

import math

import pytest
import torch

from dglcell.errors import ConfigError
from dglcell.losses.config import DangoLossConfig
from dglcell.losses.elementwise import DangoLoss
from dglcell.losses.loss import make_loss
from dglcell.models.model import OnDemand, Prediction

ALPHAS = {
    "pre_then_post": {0: 1, 3: 1, 4: 0, 100: 0},
    "linear_until_uniform": {0: 1, 1: 0.875, 3: 0.625, 4: 0.5, 100: 0.5},
    "linear_until_flipped": {0: 1, 1: 0.75, 3: 0.25, 4: 0, 100: 0},
}


@pytest.mark.parametrize(("schedule", "alphas"), ALPHAS.items())
def test_schedules_weigh_epochs_as_published(schedule: str, alphas: dict[int, float]) -> None:
    config = DangoLossConfig(schedule=schedule, transition_epoch=4)
    assert {epoch: config.alpha(epoch) for epoch in alphas} == pytest.approx(alphas)


def test_the_default_is_that_of_the_original() -> None:
    assert [DangoLossConfig().alpha(epoch) for epoch in (0, 5, 10, 11)] == [1, 0.75, 0.5, 0.5]


def make_prediction() -> tuple[Prediction, torch.Tensor, torch.Tensor, list[int]]:
    """Return a prediction, its leaves, and a list that grows when the reconstruction is read."""
    phenotypes = torch.tensor([[1.0], [3.0], [0.0]], requires_grad=True)
    error, reads = torch.tensor(2.0, requires_grad=True), []

    def read() -> torch.Tensor:
        reads.append(1)
        return error.square()

    return Prediction(phenotypes, auxiliary=OnDemand({"reconstruction": read})), phenotypes, error, reads


TARGET = torch.tensor([[0.5], [torch.nan], [2.0]])


@pytest.mark.parametrize("epoch", [0, 2, 7])
def test_the_total_is_the_weighted_sum_of_its_terms(epoch: int) -> None:
    prediction, phenotypes, error, _ = make_prediction()
    config = DangoLossConfig(transition_epoch=4)
    loss = make_loss(config, epochs=10)
    assert isinstance(loss, DangoLoss)
    result = loss(prediction, TARGET, epoch)
    result.total.backward()
    alpha = config.alpha(epoch)
    interaction = (math.log(math.cosh(0.5)) + math.log(math.cosh(2))) / 2
    expected = {
        "reconstruction": 4.0,
        "interaction": interaction,
        "weighted_reconstruction": alpha * 4,
        "weighted_interaction": (1 - alpha) * interaction,
        "alpha": alpha,
    }
    assert {name: float(term) for name, term in result.terms.items()} == pytest.approx(expected, rel=1e-5, abs=1e-7)
    assert result.total.item() == pytest.approx(alpha * 4 + (1 - alpha) * interaction, rel=1e-6)
    assert not any(term.requires_grad for term in result.terms.values())
    assert error.grad.item() == pytest.approx(alpha * 4)
    slopes = [(1 - alpha) * math.tanh(e) / 2 for e in (0.5, 0, -2)]
    assert phenotypes.grad.flatten().tolist() == pytest.approx(slopes, rel=1e-5)


def test_a_reconstruction_of_no_weight_is_not_computed() -> None:
    prediction, _, _, reads = make_prediction()
    result = DangoLoss(DangoLossConfig(schedule="pre_then_post", transition_epoch=4), 10)(prediction, TARGET, 4)
    assert not reads
    assert set(result.terms) == {"interaction", "weighted_interaction", "alpha"}


def test_a_batch_without_labels_still_reconstructs() -> None:
    prediction, phenotypes, error, _ = make_prediction()
    DangoLoss(DangoLossConfig(), 10)(prediction, torch.full((3, 1), torch.nan), 20).total.backward()
    assert not phenotypes.grad.any()
    assert error.grad.item() == pytest.approx(0.5 * 4)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            {"schedule": "linear"},
            "`loss.schedule` is unknown\n  got:      linear\n  expected: pre_then_post, linear_until_",
        ),
        ({"transition_epoch": -1}, "`loss.transition_epoch` is negative\n  got:      -1\n  expected: 0 or more"),
        ({"final_alpha": 1.5}, "`loss.final_alpha` is no share\n  got:      1.5\n  expected: 0 to 1, or null"),
    ],
)
def test_wrong_values_are_refused_by_key(config: dict, expected: str) -> None:
    with pytest.raises(ConfigError) as error:
        DangoLossConfig(**config).validate()
    assert str(error.value).startswith(expected)

"""Binary cross-entropy: its definition, its labels, and a run that learns them."""

from __future__ import annotations

import math

import pytest
import torch

from dglcell.errors import DataError
from dglcell.losses.build import make_loss
from dglcell.losses.config import BceConfig
from dglcell.models.model import Prediction


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


def test_large_logits_do_not_overflow_in_half_precision() -> None:
    logits = torch.tensor([[3e4], [-3e4]]).bfloat16().requires_grad_()
    loss = make_loss(BceConfig(), epochs=1)(Prediction(logits), torch.tensor([[0.0], [1.0]]), 0).total
    assert float(loss.detach()) == pytest.approx(3e4, rel=0.01)


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

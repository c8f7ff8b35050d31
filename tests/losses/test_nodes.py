"""The loss of values of nodes, beside that of phenotypes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dglcell.losses.config import MaskedConfig
from dglcell.losses.loss import LossTerms
from dglcell.losses.nodes import node_loss, with_nodes

NAN = float("nan")


def test_every_measured_value_counts_alike() -> None:
    predicted = torch.tensor([[1.0, 2.0], [3.0, 5.0]], dtype=torch.float64, requires_grad=True)
    target = torch.tensor([[0.0, NAN], [1.0, 5.0]], dtype=torch.float64)
    loss = node_loss(predicted, target)
    assert loss.item() == pytest.approx((1 + 4 + 0) / 3)
    (gradient,) = torch.autograd.grad(loss, predicted)
    torch.testing.assert_close(gradient, torch.tensor([[2.0, 0.0], [4.0, 0.0]], dtype=torch.float64) / 3)


def test_nothing_measured_costs_nothing() -> None:
    assert node_loss(torch.ones(2, 2), torch.full((2, 2), NAN)).item() == 0


def test_weights_say_what_counts() -> None:
    predicted: dict[str, Tensor] = {"flux": torch.tensor([[2.0]]), "price": torch.tensor([[3.0]])}
    targets = {name: torch.zeros(1, 1) for name in predicted}
    of_phenotypes = LossTerms(torch.tensor(10.0), {"mse": torch.tensor(10.0)})
    found = with_nodes(of_phenotypes, predicted, targets, MaskedConfig(phenotypes=0.5, nodes={"price": 2.0}))
    assert found.total.item() == pytest.approx(0.5 * 10 + 4 + 2 * 9)
    assert {name: term.item() for name, term in found.terms.items()} == {"mse": 10, "flux": 4, "price": 9}


def test_without_values_the_loss_is_as_it_was() -> None:
    loss = LossTerms(torch.tensor(1.0))
    assert with_nodes(loss, {}, {}, MaskedConfig(phenotypes=0.5)) is loss

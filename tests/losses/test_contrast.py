"""Supervised contrast, and what of it changes over the epochs."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dglcell.losses.coupled import CoupledLoss, buffer_share, supcr
from tests.examples import examples
from tests.losses.coupled_losses import make

# Supervised contrast against a triple loop over its definition.


def by_definition(embedding: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """Return one phenotype: for every i and j ≠ i, over all k ≠ i at least as far."""
    there = [i for i in range(len(labels)) if not labels[i].isnan()]
    costs = []
    for i in there:
        for j in there:
            if i == j:
                continue
            distance = abs(labels[i] - labels[j])
            far = [k for k in there if k != i and abs(labels[i] - labels[k]) >= distance]
            similarity = {k: torch.cosine_similarity(embedding[i], embedding[k], dim=0) / temperature for k in far}
            costs.append(-torch.log(torch.exp(similarity[j]) / sum(torch.exp(s) for s in similarity.values())))
    return torch.stack(costs).mean() if costs else embedding.sum() * 0


# Few values, so that distances are often equal; halves, so that they are exact.
LABELS = st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0, 2.0, math.nan]), min_size=0, max_size=7)


@examples(30)
@given(labels=LABELS, temperature=st.sampled_from([0.05, 0.1, 1.0]), seed=st.integers(0, 99))
def test_it_is_its_definition_with_ties_missing_labels_and_gradients(
    labels: list[float], temperature: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    target = torch.tensor(labels, dtype=torch.float64)
    embedding = torch.randn(len(labels), 3, generator=generator, dtype=torch.float64, requires_grad=True)
    (got,) = supcr(embedding, target.unsqueeze(0), temperature)
    expected = by_definition(embedding, target, temperature)
    torch.testing.assert_close(got, expected, rtol=1e-11, atol=1e-12)
    for one, other in zip(torch.autograd.grad(got, embedding), torch.autograd.grad(expected, embedding), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("temperature", [1e-4, 1e4])
def test_no_temperature_overflows(temperature: float) -> None:
    generator = torch.Generator().manual_seed(0)
    embedding = torch.randn(40, 4, generator=generator, requires_grad=True)
    cost = supcr(embedding, torch.randn(1, 40, generator=generator), temperature)
    cost.sum().backward()
    assert cost.isfinite().all()
    assert embedding.grad.isfinite().all()
    if temperature > 1:
        # Nothing is told from anything: −log(1/k) over the k = 1 … 39 that remain.
        assert float(cost.detach()) == pytest.approx(sum(math.log(k) for k in range(1, 40)) / 39, rel=1e-3)


def test_embeddings_of_zeros_are_as_far_from_all() -> None:
    embedding = torch.eye(3, dtype=torch.float64)
    embedding[0] = 0
    embedding.requires_grad_()
    cost = supcr(embedding, torch.tensor([[0.0, 1.0, 3.0]], dtype=torch.float64), 0.1)
    cost.sum().backward()
    assert float(cost.detach()) == pytest.approx(math.log(2) / 2)
    assert not embedding.grad[0].any()
    assert embedding.grad.isfinite().all()


def test_one_label_cannot_be_compared() -> None:
    embedding = torch.ones(3, 2, requires_grad=True)
    cost = supcr(embedding, torch.tensor([[math.nan, 1.0, math.nan]]), 0.1)
    cost.sum().backward()
    assert cost == 0
    assert not embedding.grad.any()


# Temperatures and shares of the buffer by epoch.


def temperature_of(start: float, end: float, schedule: str, epoch: int) -> float:
    keys = {"temperature": start, "temperature_final": end, "temperature_schedule": schedule}
    loss = make("mle_wass_supcr", 4, **keys)
    assert isinstance(loss, CoupledLoss)
    return loss.temperature(epoch)


def test_temperatures_fall_exponentially_by_half_a_wave_or_not_at_all() -> None:
    exponential = [temperature_of(1.0, 0.1, "exponential", e) for e in range(5)]
    assert exponential == pytest.approx([1.0, 10**-0.25, 10**-0.5, 10**-0.75, 0.1])
    cosine = [temperature_of(1.0, 0.1, "cosine", e) for e in range(5)]
    assert cosine == pytest.approx([1.0, 0.55 + 0.45 * math.sqrt(0.5), 0.55, 0.55 - 0.45 * math.sqrt(0.5), 0.1])
    assert {temperature_of(0.3, 0.1, "none", e) for e in range(5)} == {0.3}
    assert temperature_of(1.0, 0.1, "exponential", 9) == pytest.approx(0.1)


def test_the_share_of_the_buffer_rises_in_a_line_then_a_sigmoid_then_stays() -> None:
    assert [buffer_share(e, 100, None, None) for e in (0, 5, 9)] == pytest.approx([0.1, 0.2, 0.28])
    # Half way between epoch 10 and epoch 50.
    assert buffer_share(30, 100, None, None) == pytest.approx(0.6)
    assert buffer_share(10, 100, None, None) == pytest.approx(0.3 + 0.6 / (1 + math.exp(5)))
    assert [buffer_share(e, 100, None, None) for e in (50, 99, 1000)] == [0.9] * 3


def test_its_epochs_can_be_set() -> None:
    assert buffer_share(3, 1000, 4, 8) == pytest.approx(0.25)
    assert buffer_share(6, 1000, 4, 8) == pytest.approx(0.6)
    assert buffer_share(8, 1000, 4, 8) == 0.9
    assert buffer_share(0, 1000, 0, 0) == 0.9
    # A warm-up beyond half of all epochs ends in the last value.
    assert buffer_share(79, 100, 80, None) == pytest.approx(0.1 + 0.2 * 79 / 80)
    assert buffer_share(80, 100, 80, None) == 0.9

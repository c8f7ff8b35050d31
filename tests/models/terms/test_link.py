"""Links: what they do to the wild type, within which bounds they stay, how effects compose, and their gradients."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dglcell.models.config import LinkConfig
from dglcell.models.terms.link import FLOOR, LEAK, Link, log, logistic, minimum, saturation
from dglcell.models.terms.term import Surroundings
from dglcell.nn.config import LINKS
from tests.random_cells import resident_cell

scores = st.floats(-1e4, 1e4, width=32)
fitness = st.floats(0, 1, width=32)


def new_link(name: str, outputs: int = 1) -> Link:
    cell = resident_cell({}, {"gene": 1})
    return Link(LinkConfig(link=name), Surroundings("link", cell, outputs, 4, "relu", 0.0, False, True, {}))


def link(name: str, shift: float = 0.0, scale: float = 1.0) -> Link:
    made = new_link(name)
    made.choose([name], torch.tensor([shift]), torch.tensor([scale]))
    return made


def phenotype(name: str, score: Tensor, bound: Tensor | None = None) -> Tensor:
    return link(name).phenotypes(score[:, None], torch.zeros(1, 1), None if bound is None else bound[:, None])[:, 0]


@pytest.mark.parametrize("name", [name for name in LINKS if name != "identity"])
@given(wild_type=st.floats(-5, 5), shift=st.floats(-1, 1), scale=st.floats(0.1, 3))
def test_the_strain_without_deletions_has_the_wild_type_s_value(
    name: str, wild_type: float, shift: float, scale: float
) -> None:
    score = torch.tensor([[wild_type]])
    out = link(name, shift, scale).phenotypes(score, score, torch.ones(1, 1))
    assert (out * scale + shift).item() == pytest.approx(1.0, abs=1e-5)


@given(score=scores, bound=fitness)
def test_links_stay_within_their_bounds(score: float, bound: float) -> None:
    s, b = torch.tensor([score]), torch.tensor([bound])
    assert log(s) >= 0
    assert 0 <= logistic(s) <= 2
    assert 0 <= saturation(s) <= 1.136
    value = phenotype("minimum", s, b)
    assert 0 <= value <= 1.136
    assert value <= saturation(s).clamp(min=FLOOR) * (1 + 1e-5)
    if score <= 0:
        assert value <= max(bound, FLOOR) * (1 + 1e-5)


@given(first=scores, second=scores, bound=fitness)
def test_more_damage_never_raises_a_phenotype(first: float, second: float, bound: float) -> None:
    low, high = (torch.tensor([value]) for value in sorted((first, second)))
    for name in ("log", "logistic", "saturation", "minimum"):
        assert phenotype(name, low, torch.tensor([bound])) <= phenotype(name, high, torch.tensor([bound])) * (1 + 1e-5)


def test_effects_multiply_under_log_and_for_large_effects_under_saturation() -> None:
    a, b = torch.tensor(-0.3), torch.tensor(-0.7)
    assert torch.allclose(log(a + b), log(a) * log(b))
    steps = saturation(torch.tensor([-20.0, -21.0, -22.0]))
    assert torch.allclose(steps[1:] / steps[:-1], torch.tensor(-1.0).exp().expand(2), rtol=1e-3)


def test_the_worst_decides_under_minimum() -> None:
    for s, b in itertools.product((0.02, 0.3, 1.0), repeat=2):
        found = minimum(torch.tensor(s), torch.tensor(b)).item()
        assert s * b * (1 - 1e-5) <= found <= min(s, b) * (1 + 1e-5)
    assert minimum(torch.tensor(0.2), torch.tensor(0.8)).item() == pytest.approx(0.2, rel=1e-2)


@given(score=scores, bound=fitness)
def test_gradients_are_finite(score: float, bound: float) -> None:
    for name in LINKS:
        s, wild_type = torch.tensor([[score]], requires_grad=True), torch.zeros(1, 1, requires_grad=True)
        link(name).phenotypes(s, wild_type, torch.tensor([[bound]])).sum().backward()
        for tensor in (s, wild_type):
            assert tensor.grad is None or tensor.grad.isfinite().all()


def test_every_phenotype_has_its_own_link() -> None:
    made = new_link("auto", 2)
    made.choose(["log", "identity"], torch.tensor([0.5, 9.0]), torch.tensor([2.0, 9.0]))
    out = made.phenotypes(torch.tensor([[1.0, 3.0]]), torch.tensor([[0.0, 1.0]]), torch.ones(1, 2))
    assert torch.allclose(out, torch.tensor([[(torch.e - 0.5) / 2, 3.0]]))


@given(score=scores, bounds=st.tuples(fitness, fitness))
def test_bounded_is_a_bound_or_the_score_itself(score: float, bounds: tuple[float, float]) -> None:
    least, largest = (torch.tensor([[bound]]) for bound in sorted(bounds))
    made = link("bounded").eval()
    found = made.phenotypes(torch.tensor([[score]]), torch.zeros(1, 1), largest, least)
    expected = min(max(1 + torch.tensor(score).item(), least.item()), largest.item())
    assert found.item() == pytest.approx(expected, abs=1e-6)


def test_bounded_training_slopes_outside_of_its_bounds() -> None:
    made = link("bounded").train()
    score = torch.tensor([[-3.0], [-0.5], [2.0]], requires_grad=True)
    out = made.phenotypes(score, torch.zeros(1, 1), torch.ones(3, 1), torch.zeros(3, 1))
    assert torch.allclose(out[:, 0], torch.tensor([-2 * LEAK, 0.5, 1 + 2 * LEAK]))
    out.sum().backward()
    assert score.grad is not None
    assert torch.allclose(score.grad[:, 0], torch.tensor([LEAK, 1.0, LEAK]))

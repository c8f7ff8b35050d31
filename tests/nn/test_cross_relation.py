"""Learned combinations of relations against naive ones that hold every option of every row at once."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from dglcell.nn.config import CrossRelation
from dglcell.nn.cross_relation import RelationMixer, make_mixer
from dglcell.perturbation.rules import PerturbedTensor
from tests.examples import examples
from tests.nn.naive_cross_relation import ACTIVATIONS, NAIVE
from tests.perturbation.states_of import agree, gradients

EXACT = {"atol": 1e-10, "rtol": 1e-10}


def fresh_mixer(how: str, relations: int, width: int, **changes: object) -> RelationMixer:
    mixer = make_mixer(CrossRelation(how, **changes), relations, width)
    assert mixer is not None
    for parameter in mixer.parameters():
        nn.init.normal_(parameter, std=0.7)
    return mixer.double()


@pytest.mark.parametrize("how", NAIVE)
@examples(20)
@given(
    seed=st.integers(0, 2**32 - 1),
    relations=st.integers(2, 4),
    strains=st.integers(1, 3),
    width=st.sampled_from([2, 4]),
    layers=st.integers(2, 4),
    activation=st.sampled_from(list(ACTIVATIONS)),
    norm=st.sampled_from(["none", "layer"]),
    size=st.sampled_from([1e-6, 1.0]),
)
def test_a_combination_equals_the_naive_one_forward_and_in_every_gradient(
    how: str, seed: int, relations: int, strains: int, width: int, layers: int, activation: str, norm: str, size: float
) -> None:
    """The base's rows, and by how much strains differ, some relations from none."""
    torch.manual_seed(seed)
    options = {"hidden": 3, "layers": layers, "activation": activation, "norm": norm}
    mixer = fresh_mixer(how, relations, width, **options)
    bases = [torch.randn(5, width, dtype=torch.float64, requires_grad=True) for _ in range(relations)]
    deltas = [(size * torch.randn(5 * strains, width).double()).requires_grad_() for _ in range(relations)]
    changed = [None, *deltas[1:]]
    found = mixer(*(PerturbedTensor(b, d, strains) for b, d in zip(bases, changed, strict=True)))

    def naive(rows: list[Tensor]) -> Tensor:
        out: Tensor = mixer.norm(NAIVE[how](mixer.mix, rows, activation)[0])
        return out

    before = [b.repeat_interleave(strains, 0) for b in bases]
    after = [b if d is None else b + d for b, d in zip(before, changed, strict=True)]
    expected = [naive(bases), naive(after) - naive(before)]
    agree([found.base, found.delta], expected)
    leaves = [*bases, *deltas, *mixer.parameters()]
    agree(gradients(torch.cat([found.base, found.delta]), leaves), gradients(torch.cat(expected), leaves))


def test_dropout_draws_in_training_only() -> None:
    mixer = fresh_mixer("pairwise_interaction", 2, 4, dropout=0.5)
    rows = [torch.randn(20, 4).double() for _ in range(2)]
    assert not torch.equal(mixer(*rows), mixer(*rows))
    mixer.eval()
    assert torch.equal(mixer(*rows), mixer(*rows))

"""Learned combinations of relations against naive ones that hold every option of every row at once."""

from __future__ import annotations

from multiprocessing import get_context

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from benchmarks.memory import measured_memory
from dglcell.nn.config import CrossRelation
from dglcell.nn.cross_relation import NODES_AT_ONCE, RelationMixer, make_mixer
from dglcell.perturbation.rules import PerturbedTensor
from dglcell.perturbation.states import DifferenceStates, Execution
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


@pytest.mark.parametrize("how", NAIVE)
def test_mean_weights_are_those_of_all_rows(how: str) -> None:
    torch.manual_seed(0)
    mixer, names = fresh_mixer(how, 3, 4, hidden=3), ["physical", "regulatory", "string"]
    rows = [torch.randn(2 * NODES_AT_ONCE + 7, 4, dtype=torch.float64) for _ in names]
    weights = mixer.mean_weights(*rows)
    _, expected = NAIVE[how](mixer.mix, rows, "gelu")
    torch.testing.assert_close(weights, expected.mean(0).detach(), **EXACT)
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1], dtype=torch.float64))
    assert len(mixer.options(names)) == weights.shape[-1]


def test_options_are_named_after_pairs() -> None:
    assert fresh_mixer("pairwise_interaction", 2, 2).options(["physical", "regulatory"]) == [
        "physical",
        "physical × regulatory",
        "regulatory",
        "mean",
    ]


@pytest.mark.parametrize("how", ["sum", "mean", *NAIVE])
def test_a_single_relation_is_taken_as_it_is(how: str) -> None:
    assert make_mixer(CrossRelation(how, norm="layer"), 1, 8) is None


def test_pairs_are_half_as_wide_inside_unless_told() -> None:
    shapes = [fresh_mixer("pairwise_interaction", 3, 8, hidden=h).mix.first.weight.shape for h in (None, 5)]
    assert shapes == [(6, 16, 4), (6, 16, 5)]


def peak_bytes(form: str, strains: int) -> int:
    """Return the memory of a pass there and back over nine relations of yeast size, all of whose rows differ."""
    K, N, H = 9, 6607, 32
    mixer = make_mixer(CrossRelation("pairwise_interaction"), K, H)
    assert mixer is not None
    rows = [torch.randn(N, strains, H, requires_grad=True) for _ in range(K)]
    with measured_memory("cpu") as peak:
        if form == "naive":
            out = NAIVE["pairwise_interaction"](mixer.mix, [x.view(-1, H) for x in rows], "gelu")[0]
        else:
            states = [DifferenceStates(x[:, 0].detach(), x, None, strains, Execution()) for x in rows]
            out = states[0].sum([(mixer, states)]).dense()  # type: ignore[attr-defined]
        out.sum().backward()
    return peak.bytes


@pytest.mark.slow
def test_a_further_strain_takes_less_than_a_third_of_the_memory_of_all_pairs_at_once() -> None:
    """In a process each, so that none inherits the heap of another."""

    def peak(form: str, strains: int) -> int:
        with get_context("spawn").Pool(1) as pool:
            return pool.apply(peak_bytes, (form, strains))

    ours, naive = (peak(form, 6) - peak(form, 2) for form in ("ours", "naive"))
    assert 3 * ours < naive

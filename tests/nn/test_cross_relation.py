"""Learned combinations of relations against naive ones that hold every option of every row at once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from dglcell.errors import ConfigError
from dglcell.models.config import HeteroCellConfig
from dglcell.nn.config import CrossRelation
from dglcell.nn.cross_relation import NODES_AT_ONCE, RelationMixer, make_mixer
from dglcell.perturbation.rules import PerturbedTensor
from tests.examples import examples
from tests.nn.naive_cross_relation import ACTIVATIONS, NAIVE
from tests.perturbation.states_of import agree, gradients

EXACT = {"atol": 1e-10, "rtol": 1e-10}


def fresh_mixer(how: str, relations: int, width: int, **changes: object) -> RelationMixer:
    mixer = make_mixer(CrossRelation(how, **{"heads": 1, **changes}), relations, width)
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
    options = {"heads": 2, "hidden": 3, "layers": layers, "activation": activation, "norm": norm}
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


@pytest.mark.parametrize(
    ("how", "changes", "message"),
    [
        (
            "max",
            {},
            r"`model.cross_relation` is unknown\n  got:      max\n  expected: sum, mean, cross_attention, pair",
        ),
        (
            "cross_attention",
            {"cross_relation_heads": 3},
            r"`model.cross_relation_heads` does not divide `model.hidden`\n  got:      3",
        ),
        (
            "cross_attention",
            {"cross_relation_heads": 0},
            r"`model.cross_relation_heads` does not divide `model.hidden`\n  got:      0",
        ),
        (
            "pairwise_interaction",
            {"cross_relation_hidden": 0},
            r"`model.cross_relation_hidden` is too small\n  got:      0\n.*1 or more",
        ),
        (
            "pairwise_interaction",
            {"cross_relation_layers": 1},
            r"`model.cross_relation_layers` is too small\n  got:      1\n.*2 or more",
        ),
        (
            "pairwise_interaction",
            {"cross_relation_norm": "batch"},
            r"norm 'batch' takes statistics over nodes or strains",
        ),
        (
            "mean",
            {"cross_relation_norm": "layer"},
            r"`model.cross_relation_norm` has no effect where relations are combined by their m",
        ),
    ],
)
def test_bad_combinations_are_refused(how: str, changes: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        HeteroCellConfig(hidden=8, cross_relation=how, **changes).validate()


@pytest.mark.slow
def test_a_further_strain_takes_less_than_a_third_of_the_memory_of_all_pairs_at_once() -> None:
    """Nine relations of yeast size, in a process each: what is held of one block does not grow with their number."""
    how = "pairwise_interaction"

    def peak(form: str, strains: int) -> int:
        shape = ["9", "6607", str(strains), "32"]
        command = [sys.executable, "-m", "tests.nn.cross_relation_step", how, form, "--shape", *shape]
        done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)["peak_bytes"]

    ours, naive = (peak(form, 6) - peak(form, 2) for form in ("ours", "naive"))
    assert 3 * ours < naive

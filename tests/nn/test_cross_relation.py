"""Learned combinations of relations against naive ones that hold every option of every row at once."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from dglcell.errors import ConfigError
from dglcell.kernels import chain, update
from dglcell.nn.cross_relation import CrossRelation, combine_relations
from dglcell.nn.relation_mixer import RelationMixer
from dglcell.perturbation import row_blocks
from dglcell.perturbation.row_index import RowIndex
from dglcell.perturbation.row_wise import RowWise
from dglcell.perturbation.states import DenseStates, SharedStates, States
from tests.nn.naive_cross_relation import ACTIVATIONS, NAIVE

EXACT = {"atol": 1e-10, "rtol": 1e-10}


def make_mixer(how: str, relations: int, width: int, **changes: object) -> RelationMixer:
    mixer = CrossRelation(how, **{"heads": 1, **changes}).mixer(relations, width)
    assert mixer is not None
    for parameter in mixer.parameters():
        nn.init.normal_(parameter, std=0.7)
    return mixer.double()


class Update(nn.Module):
    """A function of one or two rows, as a convolution's."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width, dtype=torch.float64)

    def forward(self, x: Tensor, received: Tensor) -> Tensor:
        return torch.tanh(self.linear(x) + received)


@dataclass
class Case:
    """States of some relations, as shared and as dense ones, and what turns them to relations' rows."""

    states: list[SharedStates]
    updates: list[Update]
    strains: int

    def dense(self) -> list[Tensor]:
        """[N, B, H] by plain indexing."""
        return [torch.stack([self._column(s, b) for b in range(self.strains)], dim=1) for s in self.states]

    @staticmethod
    def _column(states: SharedStates, strain: int) -> Tensor:
        if states.index is None:
            return states.base_NH
        mine = states.index.strains == strain
        return states.base_NH.index_put((states.index.nodes[mine],), states.rows_KH[mine])

    def leaves(self, *modules: nn.Module) -> list[Tensor]:
        return [s.x_XH for s in self.states] + [p for m in (*self.updates, *modules) for p in m.parameters()]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Two to four relations, and the states of the nodes that they end in, each with changed rows of its own."""
    torch.manual_seed(draw(st.integers(0, 2**32 - 1)))
    nodes, strains, width = draw(st.integers(1, 7)), draw(st.integers(1, 3)), draw(st.sampled_from([2, 4]))
    relations, states = draw(st.integers(2, 4)), []
    for _ in range(relations + 1):
        changed = torch.rand(nodes, strains) < draw(st.sampled_from([0.0, 0.3, 1.0]))
        index = RowIndex.where(changed) if changed.any() else None
        x = torch.randn(nodes + (0 if index is None else len(index)), width, dtype=torch.float64)
        states.append(SharedStates(x.requires_grad_(), index))
    return Case(states, [Update(width) for _ in range(relations)], strains)


def gradients(out: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    upstream = torch.cos(torch.arange(out.numel(), dtype=out.dtype)).view_as(out)
    return list(torch.autograd.grad(out, leaves, upstream, allow_unused=True, materialize_grads=True))


@pytest.mark.parametrize("how", NAIVE)
@settings(max_examples=40)
@given(
    case=cases(),
    layers=st.integers(2, 4),
    activation=st.sampled_from(list(ACTIVATIONS)),
    norm=st.sampled_from(["none", "layer"]),
    recompute=st.booleans(),
    residual=st.booleans(),
    devices=st.sampled_from([("cpu",), ()]),
    form=st.sampled_from(["shared", "dense", "mixed"]),
    block_bytes=st.sampled_from([200, 1 << 20]),
)
def test_a_combination_equals_the_naive_one_forward_and_in_every_gradient(
    how: str,
    case: Case,
    layers: int,
    activation: str,
    norm: str,
    recompute: bool,
    residual: bool,
    devices: tuple[str, ...],
    form: str,
    block_bytes: int,
) -> None:
    width = case.states[0].x_XH.shape[1]
    mixer = make_mixer(how, len(case.updates), width, hidden=3, layers=layers, activation=activation, norm=norm)
    x, *received = case.dense()
    h = [u(x, r).flatten(0, 1) for u, r in zip(case.updates, received, strict=True)]
    expected = mixer.norm(NAIVE[how](mixer.mix, h, activation)[0]).view_as(x) + (x if residual else 0)

    states: list[States] = list(case.states)
    for i in range(len(states)):
        if form == "dense" or (form == "mixed" and i % 2):
            states[i] = DenseStates(case.dense()[i])
    updates = [(RowWise(u, u, recompute), [states[0], r]) for u, r in zip(case.updates, states[1:], strict=True)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(update, "COMPILED_DEVICES", devices)
        patch.setattr(chain, "ROWS", 5)
        patch.setitem(row_blocks.BLOCK_BYTES, "cpu", block_bytes)
        combined = combine_relations(updates, how, [states[0]] if residual else [], mixer)
        got = combined.dense().expand_as(expected)
        torch.testing.assert_close(got, expected, **EXACT)
        leaves = case.leaves(mixer)
        for one, other in zip(gradients(got, leaves), gradients(expected, leaves), strict=True):
            torch.testing.assert_close(one, other, **EXACT)
    assert isinstance(combined, SharedStates) == (form == "shared")


@pytest.mark.parametrize("how", NAIVE)
def test_single_precision_is_as_exact_as_torch(how: str) -> None:
    """Nine relations of width 64, in more rows than are computed at a time."""
    torch.manual_seed(0)
    mixer, upstream = make_mixer(how, 9, 64, heads=4), torch.randn(1100, 64, dtype=torch.float64)
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter *= 0.2
    rows = [torch.randn(1100, 64, dtype=torch.float64) for _ in range(9)]

    def found(dtype: torch.dtype, *devices: str) -> list[Tensor]:
        leaves = [x.to(dtype).requires_grad_() for x in rows]
        updates = [(None, [DenseStates(x.unsqueeze(1))]) for x in leaves]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(update, "COMPILED_DEVICES", devices)
            out = combine_relations(updates, how, mixer=mixer.to(dtype)).dense()[:, 0]
            return [out.detach(), *torch.autograd.grad(out, [*leaves, *mixer.parameters()], upstream.to(dtype))]

    exact = found(torch.float64)
    plain, compiled = (
        torch.stack([(x - y).abs().max() / y.abs().max().clamp(min=1e-3) for x, y in zip(values, exact, strict=True)])
        for values in (found(torch.float32), found(torch.float32, "cpu"))
    )
    assert (compiled < 4 * plain + 2e-6).all()


@pytest.mark.parametrize("recompute", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_dropout_draws_the_same_numbers_when_rows_are_computed_once_more(
    monkeypatch: pytest.MonkeyPatch, recompute: bool, dtype: torch.dtype
) -> None:
    """In several blocks; under autocast too."""
    monkeypatch.setitem(row_blocks.BLOCK_BYTES, "cpu", 400)
    mixer, update = make_mixer("pairwise_interaction", 2, 4, dropout=0.5), Update(4)
    rows = [torch.randn(20, 1, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    states: list[States] = [DenseStates(x) for x in rows]
    updates = [(RowWise(update, update, recompute), [states[0], r]) for r in states[1:]]

    def combined(*unused: Tensor) -> Tensor:
        torch.manual_seed(0)
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            return combine_relations(updates, "pairwise_interaction", mixer=mixer).dense().double()

    assert not torch.equal(combined(), combine_relations(updates, "pairwise_interaction", mixer=mixer).dense())
    if dtype == torch.float64:
        torch.autograd.gradcheck(combined, [*rows, *mixer.parameters()], fast_mode=True)
    combined().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in mixer.parameters())
    mixer.eval()
    torch.testing.assert_close(combined(), combined(), atol=0, rtol=0)


@pytest.mark.parametrize("how", NAIVE)
def test_mean_weights_are_those_of_all_rows(how: str) -> None:
    torch.manual_seed(0)
    mixer, names = make_mixer(how, 3, 4, hidden=3), ["physical", "regulatory", "string"]
    rows = [torch.randn(5000, 4, dtype=torch.float64) for _ in names]
    update = RowWise(torch.tanh, nn.Identity())
    weights = mixer.mean_weights([(update, [DenseStates(x.unsqueeze(1))]) for x in rows])
    _, expected = NAIVE[how](mixer.mix, [x.tanh() for x in rows], "gelu")
    torch.testing.assert_close(weights, expected.mean(0).detach(), **EXACT)
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1], dtype=torch.float64))
    assert len(mixer.options(names)) == weights.shape[-1]


def test_options_are_named_after_pairs() -> None:
    assert make_mixer("pairwise_interaction", 2, 2).options(["physical", "regulatory"]) == [
        "physical",
        "physical × regulatory",
        "regulatory",
        "mean",
    ]


@pytest.mark.parametrize("how", ["sum", "mean", *NAIVE])
def test_a_single_relation_is_taken_as_it_is(how: str) -> None:
    mixer = CrossRelation(how, norm="layer").mixer(1, 8)
    assert mixer is None
    rows = torch.randn(3, 2, 8)
    assert torch.equal(combine_relations([(None, [DenseStates(rows)])], how, mixer=mixer).dense(), rows)


def test_pairs_are_half_as_wide_inside_unless_told() -> None:
    shapes = [make_mixer("pairwise_interaction", 3, 8, hidden=h).mix.first.weight.shape for h in (None, 5)]
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
            {"heads": 3},
            r"`model.cross_relation_heads` does not divide `model.hidden`\n  got:      3",
        ),
        (
            "cross_attention",
            {"heads": 0},
            r"`model.cross_relation_heads` does not divide `model.hidden`\n  got:      0",
        ),
        (
            "pairwise_interaction",
            {"hidden": 0},
            r"`model.cross_relation_hidden` is too small\n  got:      0\n.*1 or more",
        ),
        (
            "pairwise_interaction",
            {"layers": 1},
            r"`model.cross_relation_layers` is too small\n  got:      1\n.*2 or more",
        ),
        ("pairwise_interaction", {"norm": "batch"}, r"norm 'batch' takes statistics over nodes or strains"),
        (
            "mean",
            {"norm": "layer"},
            r"`model.cross_relation_norm` has no effect where relations are combined by their m",
        ),
    ],
)
def test_bad_combinations_are_refused(how: str, changes: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CrossRelation(how, **changes).check(8)


@pytest.mark.slow
@pytest.mark.parametrize("how", NAIVE)
def test_a_step_takes_less_than_a_third_of_the_memory_of_the_naive_one(how: str) -> None:
    """Nine relations of yeast size and the wild type with one strain, in a process each."""

    def peak(form: str) -> int:
        command = [sys.executable, "-m", "tests.nn.cross_relation_step", how, form, "--shape", "9", "6607", "2", "64"]
        done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)["peak_bytes"]

    assert 3 * peak("ours") < peak("naive")

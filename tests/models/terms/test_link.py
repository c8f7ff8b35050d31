"""Links: what they do to the wild type, within which bounds they stay, how effects compose, and their gradients."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dglcell.errors import DataError
from dglcell.graph.cell import CellConfig, build_cell
from dglcell.graph.resident import ResidentCell
from dglcell.models.config import LinkConfig
from dglcell.models.terms import link as module
from dglcell.models.terms.link import FLOOR, LEAK, Link, MeasuredStrains, log, minimum, saturation
from dglcell.models.terms.term import Surroundings
from dglcell.nn.config import LINKS
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.sent import keep_masks
from tests.random_cells import resident_cell, textbook_cell

scores = st.floats(-1e4, 1e4, width=32)
fitness = st.floats(0, 1, width=32)


def link(name: str, shift: float = 0.0, scale: float = 1.0) -> Link:
    cell = resident_cell({}, {"gene": 1})
    made = Link(LinkConfig(link=name), Surroundings("link", cell, 1, 4, "relu", 0.0, False, True, {}))
    made.shift, made.scale = torch.tensor([shift]), torch.tensor([scale])
    return made


def phenotype(name: str, score: Tensor, bound: Tensor | None = None) -> Tensor:
    return link(name).phenotypes(score[:, None], torch.zeros(1, 1), None if bound is None else bound[:, None])[:, 0]


@pytest.mark.parametrize("name", [name for name in LINKS if name != "identity"])
@given(wild_type=st.floats(-5, 5), shift=st.floats(-1, 1), scale=st.floats(0.1, 3))
def test_no_deletions_have_the_wild_type_s_value(name: str, wild_type: float, shift: float, scale: float) -> None:
    score = torch.tensor([[wild_type]])
    out = link(name, shift, scale).phenotypes(score, score, torch.ones(1, 1))
    assert (out * scale + shift).item() == pytest.approx(1.0, abs=1e-5)


@given(score=scores, bound=fitness)
def test_links_stay_within_their_bounds(score: float, bound: float) -> None:
    s, b = torch.tensor([score]), torch.tensor([bound])
    assert log(s) >= 0
    assert 0 <= saturation(s) <= 1.136
    value = phenotype("minimum", s, b)
    assert 0 <= value <= 1.136
    assert value <= saturation(s).clamp(min=FLOOR) * (1 + 1e-5)
    if score <= 0:
        assert value <= max(bound, FLOOR) * (1 + 1e-5)


@given(first=scores, second=scores, bound=fitness)
def test_more_damage_never_raises_a_phenotype(first: float, second: float, bound: float) -> None:
    low, high = (torch.tensor([value]) for value in sorted((first, second)))
    for name in ("log", "saturation", "minimum"):
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


# Measured parts: the smallest label of a strain's, and that no strain is told its own label.

STRAINS = [[0], [1], [2], [0, 1], [1, 2], [0, 1, 2]]
LABELS = [0.9, 0.8, 1.1, 0.3, 0.7, 0.2]


@pytest.fixture(scope="module")
def cell() -> ResidentCell:
    return textbook_cell()


def remembered(cell: ResidentCell, strains: list[list[int]], labels: list[float], by: str = "gene") -> MeasuredStrains:
    made = MeasuredStrains(1, by)
    made.remember(cell, GenotypeBatch.from_lists(strains), torch.tensor(labels)[:, None])
    return made


def bounds(made: MeasuredStrains, cell: ResidentCell, strains: list[list[int]]) -> list[float]:
    return [round(x, 6) for x in made(cell, GenotypeBatch.from_lists(strains))[:, 0].tolist()]


def above(made: MeasuredStrains, cell: ResidentCell, strains: list[list[int]]) -> list[float]:
    return [round(x, 6) for x in made.largest(cell, GenotypeBatch.from_lists(strains))[:, 0].tolist()]


NAN = float("nan")
REPLICATES = [[0], [0, 1], [1, 0]], [0.9, 0.1, 0.2]


@pytest.mark.parametrize(
    ("strains", "labels", "asked", "smallest"),
    [
        (STRAINS, LABELS, [[0, 2], [1, 3], [0, 1, 3], [3], []], [0.9, 0.8, 0.3, 1.0, 1.0]),
        (*REPLICATES, [[0, 1], [0, 1, 2]], [0.9, 0.1]),
        ([[0], [1]], [NAN, 0.5], [[0, 2], [0, 1, 2]], [1.0, 0.5]),
    ],
    ids=["parts", "replicates are not told their own labels", "a missing label bounds nothing"],
)
def test_the_smallest_label_of_parts(cell: ResidentCell, strains, labels, asked, smallest) -> None:
    assert bounds(remembered(cell, strains, labels), cell, asked) == smallest


def test_the_largest_label_of_strains_that_a_strain_is_part_of(cell: ResidentCell) -> None:
    asked = [[], [0], [1], [0, 2], [1, 2], [3]]
    assert above(remembered(cell, STRAINS, LABELS), cell, asked) == [1.1, 0.3, 0.7, 0.2, 0.2, 0.0]
    assert above(remembered(cell, [[0, 1], [0, 2]], [NAN, 0.5]), cell, [[0], [1]]) == [0.5, 0.0]


def test_a_strain_is_not_told_its_own_label(cell: ResidentCell) -> None:
    seen = bounds(remembered(cell, STRAINS, LABELS), cell, STRAINS)
    for number, strain in enumerate(STRAINS):
        others = [i for i in range(len(STRAINS)) if i != number]
        held_out = remembered(cell, [STRAINS[i] for i in others], [LABELS[i] for i in others])
        assert seen[number] == bounds(held_out, cell, [strain])[0]
        changed = [*LABELS[:number], -5.0, *LABELS[number + 1 :]]
        assert bounds(remembered(cell, STRAINS, changed), cell, [strain])[0] == seen[number]
        raised, known = (remembered(cell, STRAINS, of) for of in ([-x for x in changed], [-x for x in LABELS]))
        assert above(raised, cell, [strain]) == above(known, cell, [strain])


def test_parts_by_reactions_are_those_that_lose_no_other_reaction(cell: ResidentCell) -> None:
    """Against all pairs of strains, one by one."""
    generator = torch.Generator().manual_seed(1)
    genes = cell.num_nodes["gene"]
    strains = [torch.randperm(genes, generator=generator)[: 1 + i % 2].tolist() for i in range(60)]
    labels = torch.rand(60, generator=generator).tolist()
    asked = [[*strains[i], *strains[i + 1]] for i in range(20)] + strains
    lost = ~keep_masks(cell, GenotypeBatch.from_lists([*strains, *asked]))["reaction"].T
    found = bounds(remembered(cell, strains, labels, by="reaction"), cell, asked)
    for strain, lost_N, bound in zip(asked, lost[60:], found, strict=True):
        parts = [
            label
            for other, other_N, label in zip(strains, lost[:60], labels, strict=True)
            if set(other) != set(strain) and not (other_N & ~lost_N).any()
        ]
        assert bound == pytest.approx(min([1.0, *parts]), abs=1e-5)
    assert len({bound for bound in found if bound < 1}) > 5


def test_strains_that_say_no_more_than_their_parts_are_left_out(cell: ResidentCell) -> None:
    made = remembered(cell, [[0], [1], [0, 1], [0, 2], [2]], [0.5, 0.8, 0.5, 0.4, 1.0])
    bounds(made, cell, [[0]])
    # Neither [0, 1], of which [0] says as much, nor [2], which is the wild type.
    assert len(made._tables[True].lost) == 3


def test_too_many_strains_are_refused(cell: ResidentCell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CELLS", 800)
    said = r"`model.link` compares .*\n  got: +6 strains, 137 nodes of type gene\n.*800\n.*saturation"
    with pytest.raises(DataError, match=said):
        remembered(cell, STRAINS, LABELS)


def test_where_no_training_strain_loses_such_a_node_nothing_is_bounded(cell: ResidentCell) -> None:
    kept = ~keep_masks(cell, GenotypeBatch.from_lists([[gene] for gene in range(cell.num_nodes["gene"])]))["reaction"]
    busy = kept.any(0).nonzero()[:3].tolist()
    for strains in ([[], []], []):
        made = remembered(cell, strains, [0.2] * len(strains), by="reaction")
        assert bounds(made, cell, [[0], [1, 2], *busy]) == [1.0] * 5
    assert bounds(remembered(cell, [[0], [1]], [1.0, 1.2]), cell, [[0, 1], [2]]) == [1.0, 1.0]


def test_a_reaction_with_another_complex_is_not_lost() -> None:
    graph = build_cell(CellConfig(model="textbook"))
    cell, genes = ResidentCell.of(graph), graph.genes
    acetaldehyde = [genes.index("b0351"), genes.index("b1241")]  # ACALD: b0351 or b1241
    made = MeasuredStrains(1, "reaction", whole=True)
    made.remember(cell, GenotypeBatch.from_lists([acetaldehyde, [acetaldehyde[1]]]), torch.tensor([[0.4], [1.0]]))
    alone = GenotypeBatch.from_lists([[acetaldehyde[0]]])
    assert made.largest(cell, alone).item() == 1.0
    assert made(cell, alone).item() == 1.0
    nodes = MeasuredStrains(1, "reaction")
    nodes.remember(cell, GenotypeBatch.from_lists([acetaldehyde, [acetaldehyde[1]]]), torch.tensor([[0.4], [1.0]]))
    assert nodes.largest(cell, alone).item() == pytest.approx(0.4)

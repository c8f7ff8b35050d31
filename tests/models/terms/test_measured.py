"""The smallest label of a strain's measured parts, and that no strain is told its own label."""

from __future__ import annotations

import math

import pytest
import torch

from dglcell.errors import DataError
from dglcell.graph.cell import CellConfig, build_cell
from dglcell.graph.resident import ResidentCell
from dglcell.models.terms import link as module
from dglcell.models.terms import scores
from dglcell.models.terms.link import MeasuredStrains
from dglcell.models.terms.scores import DeletionAttention
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.sent import keep_masks
from tests.perturbation.states_of import LargestResult
from tests.random_cells import textbook_cell

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
    with pytest.raises(
        DataError, match=r"`model.link` compares .*\n  got: +6 strains, 137 nodes of type gene\n.*800\n.*saturation"
    ):
        remembered(cell, STRAINS, LABELS)


def test_where_no_training_strain_loses_such_a_node_nothing_is_bounded(cell: ResidentCell) -> None:
    kept = ~keep_masks(cell, GenotypeBatch.from_lists([[gene] for gene in range(cell.num_nodes["gene"])]))["reaction"]
    busy = kept.any(0).nonzero()[:3].tolist()
    for strains in ([[], []], []):
        made = remembered(cell, strains, [0.2] * len(strains), by="reaction")
        assert bounds(made, cell, [[0], [1, 2], *busy]) == [1.0] * 5
    assert bounds(remembered(cell, [[0], [1]], [1.0, 1.2]), cell, [[0, 1], [2]]) == [1.0, 1.0]


def above(made: MeasuredStrains, cell: ResidentCell, strains: list[list[int]]) -> list[float]:
    return [round(x, 6) for x in made.largest(cell, GenotypeBatch.from_lists(strains))[:, 0].tolist()]


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


def test_logits_beyond_what_exponentials_can_hold() -> None:
    query, key = torch.ones(1, 2, 1), torch.tensor([[[400.0], [399.0], [-400.0]]])
    slot, present = torch.tensor([[0, 1], [2, 0], [2, 2]]), torch.tensor([[True, True], [True, True], [True, False]])
    got = scores.pooled_shares(query, key[:, slot], present, torch.ones(2, 3))
    share = 1 / (1 + math.exp(-1))
    expected = 2 * torch.tensor([[[share, 1 - share]], [[0, 1]], [[0, 0]]])
    torch.testing.assert_close(got, expected, atol=1e-6, rtol=1e-6)


def test_no_tensor_has_a_state_for_every_gene_and_strain() -> None:
    genes, strains = 50, 40
    layer = DeletionAttention(64, 2)
    batch = GenotypeBatch.from_lists(torch.randint(0, genes, (strains, 2)).tolist()).padded()
    with LargestResult() as results:
        layer(torch.randn(genes, 64, requires_grad=True), torch.rand(genes, strains), *batch).sum().backward()
    # Two heads, two deleted genes and the key of no deletion.
    assert results.largest <= genes * strains * 2 * 3

"""Activities of single edges: against dense numpy under all strategies, their limits, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dglcell.errors import ConfigError, GenotypeError
from dglcell.graph.schema import EdgeTarget, edge_text, read_edge_targets
from dglcell.graph.vocabulary import Vocabulary
from dglcell.models.config import HeteroCellConfig
from dglcell.perturbation import DGL_STRATEGIES, STRATEGIES
from dglcell.perturbation.edge_perturbation import EdgePerturbations
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import REDUCES, perturb
from tests.examples import examples
from tests.perturbation.states_of import agree, gradients, states_of, values_of
from tests.perturbation.test_strategies import dense_aggregate
from tests.random_cells import Changes, RandomCell, changes_of, genotypes_of, random_cells

WIDTH = 3
PHYSICAL, CONVERTS = ("gene", "physical", "gene"), ("reaction", "converts", "metabolite")


def with_changes(
    cell: RandomCell, strains: list[list[int]], changes: dict[tuple[str, str, str], list[Changes]]
) -> tuple[GenotypeBatch, Tensor]:
    """Return the strains as a batch, and the tensor that holds all activities but 0."""
    entries = [
        (b, r, u, v, s) for r, many in changes.items() for b, one in enumerate(many) for (u, v), s in one.items()
    ]
    leaf = torch.tensor([s for *_, s in entries if s], dtype=torch.float64, requires_grad=True)
    values = iter(leaf.unbind() if len(leaf) else ())
    targets: list[list[EdgeTarget]] = [[] for _ in strains]
    for b, relation, u, v, activity in entries:
        targets[b].append(EdgeTarget(relation[1], u, v, next(values) if activity else 0.0))
    edges = EdgePerturbations.build(cell.resident, targets)
    return replace(GenotypeBatch.from_lists(strains), edges=edges), leaf


@examples(8)
@given(data=st.data(), cell=random_cells(), reduce=st.sampled_from(REDUCES))
def test_aggregation_equals_the_reduced_graph(data: Any, cell: RandomCell, reduce: str) -> None:
    strains = data.draw(genotypes_of(cell))
    changes = data.draw(changes_of(cell, len(strains)))
    for relation in cell.edges:
        values = data.draw(values_of(cell.sizes[relation[0]], len(strains), WIDTH))
        x_NBH, found = values.whole(len(strains)), []
        expected = dense_aggregate(cell, relation, strains, x_NBH, reduce, changes.get(relation))
        for strategy in DGL_STRATEGIES:
            batch, activities = with_changes(cell, strains, changes)
            perturbed = perturb(cell.resident, batch, strategy)
            y = perturbed.aggregate(relation, states_of(perturbed, values), reduce).whole()
            agree([y], [expected], strategy)
            found.append(gradients(y, [*values.leaves, activities]))
        for one in found[1:]:
            agree(found[0], one)


def small_cell() -> RandomCell:
    """Return genes 0 → 1 twice, 2 → 1; reaction 0 → metabolite 0 of weight 2."""
    sizes = {"gene": 3, "reaction": 1, "metabolite": 1}
    edges = {PHYSICAL: (np.array([0, 2, 0]), np.array([1, 1, 1])), CONVERTS: (np.array([0]), np.array([0]))}
    return RandomCell(sizes, edges, {CONVERTS: np.array([2.0])})


def of(source: int, destination: int, activity: float = 0.0, relation: str = "physical") -> EdgeTarget:
    return EdgeTarget(relation, source, destination, activity)


def test_batches_take_strains_that_are_described_once() -> None:
    edges = EdgePerturbations.build(small_cell().resident, [[of(0, 1)], [], [of(2, 1, 0.5), of(0, 1, 2.0)]])
    taken = edges.take(torch.tensor([2, 1, 0, 2]))
    batch = replace(GenotypeBatch.from_lists([[]] * 4), edges=taken.to("cpu"))
    perturbed = perturb(small_cell().resident, batch, "auto")
    ones = perturbed.start(torch.ones(3, 1, dtype=torch.float64))
    assert perturbed.aggregate(PHYSICAL, ones).whole().sum((0, 2)).tolist() == [4.5, 3.0, 1.0, 4.5]


def named_cell() -> Any:
    cell = small_cell().resident
    cell.names = {"gene": Vocabulary(("YAL001C", "YAL002W", "YAL003W"))}
    return cell


def test_edges_are_named_as_tables_write_them() -> None:
    edges = EdgePerturbations.build(named_cell(), ["physical:yal003w>YAL002W:0.25", "none", ""], spelled=True)
    (changes,) = edges.relations.values()
    assert (edges.num_strains, changes.strains.tolist(), changes.activities.tolist()) == (3, [0], [0.25])


BAD: dict[str, tuple[str | list[EdgeTarget], str]] = {
    "relation": (
        "genetic:YAL001C>YAL002W",
        r"no relation of the cell graph: 'genetic:.*\n  got: .*genetic\n.*physical",
    ),
    "gene": ("physical:YAL003C>YAL002W", r"'physical:YAL003C>YAL002W' names an unknown gene 'YAL003C'"),
    "direction": ("physical:YAL002W>YAL001C", r"is not in the cell graph: '.*'\n.*\n.*\n  do: .*check the direction"),
    "both": ("physical:YAL001C<>YAL002W", r"is not in the cell graph: 'physical:YAL002W>YAL001C'"),
    "twice": (
        "physical:YAL001C>YAL002W; physical:YAL001C>YAL002W:0.5",
        r"is named twice in a strain: .*\n  got: .*:0.5",
    ),
    "index": ([of(3, 0)], r"'physical:3>0' names no gene by its index\n  got:      3\n  expected: 0 … 2"),
    **{
        str(s): ([of(0, 1, s)], r"has an activity that is no amount: 'ph.*\n.*\n.*from 1e-06")
        for s in (-1.0, math.nan, 1e-9)
    },
}


@pytest.mark.parametrize(("changed", "message"), BAD.values(), ids=BAD)
def test_edges_that_cannot_be_changed_so_are_refused(changed: str | list[EdgeTarget], message: str) -> None:
    with pytest.raises(GenotypeError, match=message):
        EdgePerturbations.build(named_cell(), ["", changed])


def test_another_number_of_strains_is_refused() -> None:
    cell = small_cell().resident
    batch = replace(GenotypeBatch.from_lists([[], []]), edges=EdgePerturbations.build(cell, [[of(0, 1)]]))
    with pytest.raises(GenotypeError, match=r"different numbers of strains\n  got:      1 and 2\n  do: .*every strain"):
        perturb(cell, batch, "edge_mask")


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name not in DGL_STRATEGIES])
def test_strategies_without_single_edges_refuse_them(strategy: str) -> None:
    cell = small_cell().resident
    batch = GenotypeBatch.from_lists([[]])
    message = rf"needs a strategy that has single edges\n  got:      {strategy}\n.*\n.*strategy: edge_mask`.*dgl==1"
    with pytest.raises(ConfigError, match="a strain that changes single edges " + message):
        perturb(cell, replace(batch, edges=EdgePerturbations.build(cell, [[of(0, 1)]])), strategy)
    perturbed = perturb(cell, batch, strategy)
    states = perturbed.start(torch.ones(3, 1))
    with pytest.raises(ConfigError, match="attention " + message):
        perturbed.attend(PHYSICAL, states, states, lambda keys, queries, weights: keys)
    with pytest.raises(ConfigError, match="`model.conv: gatv2` " + message):
        HeteroCellConfig(conv="gatv2", strategy=strategy).validate()
    HeteroCellConfig(conv="gatv2").validate()


# Changed edges as tables write them.

NAMES = st.sampled_from(["b0008", "TALA#1+", "13dpg_c", "YAL001C", "EX_glc(e)", "a.b-c"])
RELATIONS, ACTIVITIES = st.sampled_from(["physical", "catalyses"]), st.sampled_from([0.0, 0.25, 3.0])
TARGETS = st.builds(EdgeTarget, RELATIONS, NAMES, NAMES, ACTIVITIES, st.booleans())


@given(st.lists(TARGETS, max_size=4), st.randoms())
def test_what_is_written_is_read_and_equal_changes_are_equal_texts(targets: list[EdgeTarget], random: object) -> None:
    written = [str(target) for target in targets]
    assert read_edge_targets("; ".join(written)) == targets
    assert edge_text(";".join(reversed(written))) == edge_text(" ; ".join(written))


def test_a_text_may_change_nothing() -> None:
    assert read_edge_targets("") == read_edge_targets("none") == read_edge_targets(" ; ") == []
    assert edge_text("") == "none"
    assert edge_text("physical:a > b : 0 ;catalyses:c<>d:1e0") == "catalyses:c<>d:1; physical:a>b"


@pytest.mark.parametrize("text", ["a>b", "physical:a", "physical:a>b>c", "physical:>b", "physical:a-b"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(GenotypeError, match=r"changed edge cannot be read\n  got: .*\n  expected: RELATION:SOURCE>"):
        read_edge_targets(f"physical:x>y; {text}")


@pytest.mark.parametrize("amount", ["-1", "half", "nan", "inf", "1e-9"])
def test_activities_that_are_no_amounts_are_refused(amount: str) -> None:
    with pytest.raises(GenotypeError, match=rf"the activity of an edge is no amount: 'p:a>b:{amount}'\n.*'{amount}'"):
        read_edge_targets(f"p:a>b:{amount}")

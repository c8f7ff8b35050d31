"""All strategies against each other and against dense numpy on the physically reduced graph, in float64."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dglcell.errors import ConfigError, GenotypeError, MissingDependencyError
from dglcell.graph.schema import Relation
from dglcell.models import cell_model
from dglcell.models.cell_model import HeteroCell
from dglcell.models.config import HeteroCellConfig
from dglcell.perturbation import DGL_STRATEGIES, STRATEGIES, execution
from dglcell.perturbation.execution import COMPILED_DENSE_SHARE, ROWS_WORTH_COMPILING, Choices
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import check_strategy_device, perturb
from dglcell.perturbation.states import DifferenceStates, States, WholeStates
from dglcell.perturbation.targets import EdgeChanges, Perturbations
from tests.examples import examples
from tests.random_cells import (
    Changes,
    RandomCell,
    agree,
    changes_of,
    genotypes_of,
    gradients,
    make_cell,
    random_cells,
    resident_cell,
)

WIDTH = 4


def dense_aggregate(
    cell: RandomCell, relation: Relation, strains: list, x_NBH: Tensor, reduce: str,
    changes: list[Changes] | None = None,
) -> Tensor:  # fmt: skip
    """[M, B, H] by the adjacency of every strain's reduced graph."""
    columns = []
    for b, strain in enumerate(strains):
        matrix, degree = cell.adjacency(relation, strain, changes and changes[b])
        y = matrix @ x_NBH[:, b].detach().numpy()
        columns.append(y / np.where(degree == 0, 1, degree)[:, None] if reduce == "mean" else y)
    return torch.as_tensor(np.stack(columns, axis=1))


def with_changes(
    cell: RandomCell, strains: list[list[int]], changes: dict[Relation, list[Changes]]
) -> tuple[Perturbations, list[Tensor]]:
    """Return the strains with their changed edges, parallel ones alike, and the activities of these but 0."""
    found, leaves = {}, []
    for relation, many in changes.items():
        given = list(zip(*(ends.tolist() for ends in cell.edges[relation]), strict=True))
        entries = [(e, b, one[ends]) for b, one in enumerate(many) for e, ends in enumerate(given) if ends in one]
        edges, numbers, left = zip(*entries, strict=True) if entries else ((), (), ())
        places = cell.resident[relation].places[torch.tensor(edges, dtype=torch.int64)]
        activities = torch.tensor(left, dtype=torch.float64)
        leaves.append(activities[activities != 0].requires_grad_())
        activities = activities.masked_scatter(activities != 0, leaves[-1])
        found[relation] = EdgeChanges(places, torch.tensor(numbers, dtype=torch.int64), activities)
    perturbations = dataclasses.replace(GenotypeBatch.from_lists(strains).perturbations, edges=found)
    return perturbations, leaves


def random_states(cell: RandomCell, node_type: str, strains: list[list[int]]) -> WholeStates:
    shape = cell.sizes[node_type], 1 + len(strains), WIDTH
    return WholeStates(torch.randn(shape, dtype=torch.float64, requires_grad=True), len(strains))


@examples(8)
@given(data=st.data(), cell=random_cells(), reduce=st.sampled_from(["sum", "mean"]))
def test_aggregation_over_changed_edges_equals_the_reduced_graph(data: Any, cell: RandomCell, reduce: str) -> None:
    strains = data.draw(genotypes_of(cell))
    changes = data.draw(changes_of(cell, len(strains)))
    for relation in cell.edges:
        x, found = random_states(cell, relation[0], strains), []
        expected = dense_aggregate(cell, relation, strains, x.whole(), reduce, changes.get(relation))
        for strategy in DGL_STRATEGIES:
            batch, activities = with_changes(cell, strains, changes)
            perturbed = perturb(cell.resident, batch, strategy)
            y = perturbed.aggregate(relation, x, reduce).whole()
            agree([y], [expected], strategy)
            found.append(gradients(y, [x.x_NCH, *activities]))
        agree(*found)


def products(keys: Tensor, queries: Tensor, weights: Tensor | None) -> Tensor:
    return (keys * queries).sum(-1, keepdim=True)


@examples(8)
@given(data=st.data(), cell=random_cells())
def test_attention_over_changed_edges_is_alike_in_both_strategies(data: Any, cell: RandomCell) -> None:
    strains = data.draw(genotypes_of(cell))
    changes = data.draw(changes_of(cell, len(strains)))
    for relation in cell.edges:
        keys, queries = (random_states(cell, node_type, strains) for node_type in relation[::2])
        found = []
        for strategy in DGL_STRATEGIES:
            batch, activities = with_changes(cell, strains, changes)
            perturbed = perturb(cell.resident, batch, strategy)
            y = perturbed.attend(relation, keys, queries, products).whole()
            found.append([y, *gradients(y, [keys.x_NCH, queries.x_NCH, *activities])])
        agree(*found)


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name not in DGL_STRATEGIES])
def test_strategies_without_single_edges_refuse_them(strategy: str) -> None:
    cell = RandomCell({"gene": 3}, {PHYSICAL: (np.arange(2), np.arange(2) + 1)}, {})
    message = rf"needs a strategy that has single edges\n  got:      {strategy}\n.*\n.*strategy: edge_mask`.*dgl==1"
    with pytest.raises(ConfigError, match="a strain that changes single edges " + message):
        perturb(cell.resident, with_changes(cell, [[]], {PHYSICAL: [{(0, 1): 0.0}]})[0], strategy)
    perturbed = perturb(cell.resident, GenotypeBatch.from_lists([[]]), strategy)
    states = perturbed.start(torch.ones(3, 1))
    with pytest.raises(ConfigError, match="attention " + message):
        perturbed.attend(PHYSICAL, states, states, lambda keys, queries, weights: keys)
    with pytest.raises(ConfigError, match="`model.conv: gatv2` " + message):
        HeteroCellConfig(conv="gatv2", strategy=strategy).validate()
    HeteroCellConfig(conv="gatv2").validate()


@examples(12)
@given(data=st.data(), cell=random_cells(), shared=st.lists(st.just(0), max_size=1))
def test_keep_masks_follow_the_definition(data: Any, cell: RandomCell, shared: list[int]) -> None:
    """Where all strains delete a gene in common, the base lacks it."""
    strains = [[*shared, *strain] for strain in data.draw(genotypes_of(cell))]
    batch = dataclasses.replace(GenotypeBatch.from_lists(strains), shared=tuple(shared))
    kept = perturb(cell.resident, batch).kept
    base = cell.keep(shared)
    for node_type, expected in base.items():
        np.testing.assert_array_equal(kept[node_type].base_N1[:, 0].numpy(), expected, err_msg=node_type)
    for b, strain in enumerate(strains):
        for node_type, expected in cell.keep(strain).items():
            np.testing.assert_array_equal(kept[node_type].strains_NB[:, b].numpy(), expected, err_msg=node_type)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine on which DGL has no GPU")
def test_strategies_that_need_dgl_on_the_device_are_refused_without_it() -> None:
    for strategy in STRATEGIES:
        check_strategy_device(strategy, "cpu")
        if strategy in DGL_STRATEGIES:
            with pytest.raises(MissingDependencyError, match=r"cuda support\n  expected: node_mask, difference"):
                check_strategy_device(strategy, "cuda")
        else:
            check_strategy_device(strategy, "cuda")


@examples(15)
@given(
    strains=st.lists(st.lists(st.integers(0, 20), max_size=10), max_size=6),
    shared=st.lists(st.integers(0, 20), max_size=3, unique=True),
)
def test_padding_keeps_every_gene_in_order_and_the_strain_of_shared_deletions_has_no_other(
    strains: list[list[int]], shared: list[int]
) -> None:
    batch = dataclasses.replace(GenotypeBatch.from_lists(strains), shared=tuple(shared))
    genes, present = batch.padded()
    assert genes.shape == (len(strains), max((len(s) for s in strains), default=0))
    found = [row[mask].tolist() for row, mask in zip(genes, present, strict=True)]
    assert found == [list(dict.fromkeys(s)) for s in strains]
    base = batch.of_shared()
    assert (base.genes.tolist(), base.offsets.tolist(), base.most) == (shared, [0, len(shared)], len(shared))


def test_a_batch_seen_in_inference_mode_can_be_learned_from() -> None:
    with torch.inference_mode():
        batch = GenotypeBatch.from_lists([[1], []])
        batch.padded()
    weight = torch.ones(3, 2, requires_grad=True)
    genes_BK, present_BK = batch.padded()
    torch.nn.functional.embedding(genes_BK, weight)[present_BK].sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [[0, 0], [1, 1], [0, 0]]


AMOUNT = r"an activity of genes is no amount\n  got:      .*\n  expected: 0 for a deletion, 1 for"


@pytest.mark.parametrize(
    ("strains", "said"),
    [
        ([[0], [7, 1]], r"strain 1: there are no such genes\n  got:      7\n.*whole numbers, 0 … 4"),
        ([[-1]], "got:      -1"),
        *(([{3: 0.3}, {4: wrong}], AMOUNT) for wrong in (-0.1, 1e-9, float("nan"), float("inf"))),
    ],
    ids=str,
)
def test_what_is_no_gene_or_no_amount_is_refused(strains: Any, said: str) -> None:
    with pytest.raises(GenotypeError, match=said):
        GenotypeBatch.from_lists(strains, num_genes=5)


LONG, SHORT = 2 * ROWS_WORTH_COMPILING, 0.5 * ROWS_WORTH_COMPILING


@pytest.mark.parametrize(
    ("device", "rows", "given", "compiled", "half"),
    [
        ("cuda", LONG, {}, True, True),
        ("cuda", LONG, {"one_kernel": True}, False, True),
        ("cuda", SHORT, {"one_kernel": True}, False, False),
        ("cuda", SHORT, {}, False, False),
        ("cuda", LONG, {"compiled": "false"}, False, False),
        ("cuda", LONG, {"precision": "32-true"}, True, False),
        ("cuda", LONG, {"precision": "64-true"}, True, False),
        ("cuda", SHORT, {"precision": "bf16"}, False, True),
        ("cpu", LONG, {}, False, False),
        ("cpu", LONG, {"compiled": "true"}, True, False),
        ("cpu", SHORT, {"compiled": "true", "precision": "bf16"}, True, True),
    ],
)
def test_layers_are_compiled_in_long_runs_on_a_gpu(
    device: str, rows: float, given: dict[str, Any], compiled: bool, half: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "compiler_works", lambda device_type: True)
    monkeypatch.setattr(execution, "multiplies_bfloat16_fast", lambda device_type: device_type == "cuda")
    found = Choices.default(device).for_run(device, rows, **given)
    assert found.strategy == {"cpu": "difference", "cuda": "node_mask"}[device]
    assert (found.compiled, found.half) == (compiled, half)
    assert (found.dense_share == COMPILED_DENSE_SHARE) == compiled
    monkeypatch.setattr(execution, "compiler_works", lambda device_type: False)
    assert not Choices.default(device).for_run(device, rows, **given).compiled


def test_the_log_says_what_computes_and_why(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="dglcell")
    model = HeteroCell(make_cell().resident, HeteroCellConfig(hidden=8, local_heads=2))
    model.choose_for_run("cpu", 100)
    said = "strategy difference (the default on cpu), kernel tiled, differences in the base's precision"
    assert caplog.messages[-1] == f"{said}, layers not compiled"
    model.config.strategy, model.config.kernel = "node_mask", "csr"
    model.choose_for_run("cpu", 100, "bf16")
    assert caplog.messages[-1].startswith("strategy node_mask (as configured), kernel csr, differences in bfloat16")
    model.config.strategy = "difference"
    assert model.choices_in_words("cuda").startswith("strategy node_mask (lists are for a CPU), kernel csr")
    attending = HeteroCell(make_cell().resident, HeteroCellConfig(hidden=8, local_heads=2, conv="gatv2"))
    attending.choose_for_run("cpu", 100)
    assert caplog.messages[-1].startswith("strategy edge_mask (for single edges), kernel of DGL")


@pytest.mark.parametrize("how", ["sum", "pairwise_interaction"])
def test_layers_are_computed_once_more_where_they_do_not_fit(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = HeteroCell(make_cell().resident, HeteroCellConfig(hidden=8, layers=1, local_heads=2, cross_relation=how))
    needed = model.encoder.kept_of_strain(False, torch.float32) * 4 * torch.float32.itemsize
    for strategy, room, expected in (
        *(("node_mask", 2 * needed, [False] * 2), ("node_mask", needed, [True] * 2), ("node_mask", None, [False] * 2)),
        ("difference", needed, [True, False]),  # before the first batch all rows may differ
    ):
        monkeypatch.setattr(cell_model, "free_memory", lambda device, room=room: room)
        model._recomputing.clear()
        model.config.strategy, model._differing = strategy, 0.0
        for recomputes in expected:
            assert model.recomputes(4, Choices(strategy)) == recomputes
            assert model(GenotypeBatch.from_lists([[0], [], [], []])).phenotypes.requires_grad


@pytest.mark.parametrize(("room", "size"), [(None, 256), (1 << 50, 256), (0, 1)])
def test_as_many_strains_are_predicted_as_fit(room: int | None, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = HeteroCell(make_cell().resident, HeteroCellConfig(hidden=8, local_heads=2))
    monkeypatch.setattr(cell_model, "free_memory", lambda device: room)
    assert model.fitting_batch(256) == size


PHYSICAL = ("gene", "physical", "gene")


@pytest.mark.parametrize(
    ("strains", "shared", "rounds", "share", "listed"),
    [
        ([[], [3], [3, 7]], (), 1, 0.5, {(3, 1), (4, 1), (3, 2), (4, 2), (7, 2), (8, 2)}),
        ([[], [3], [3, 7]], (), 2, 0.5, {(3, 1), (4, 1), (5, 1), (3, 2), (4, 2), (5, 2), (7, 2), (8, 2), (9, 2)}),
        ([[3], [3, 7]], (3,), 1, 0.5, {(7, 1), (8, 1)}),
        ([[], []], (), 1, 0.5, set()),
        ([[0], [4]], (), 1, 0.2, {(0, 0), (1, 0), (4, 1), (5, 1)}),
        ([[0], [4]], (), 1, 0.05, None),  # 4 of 40 pairs differ, so that all are computed
    ],
)  # fmt: skip
def test_only_the_pairs_next_to_a_deletion_are_listed(
    strains: list[list[int]], shared: tuple[int, ...], rounds: int, share: float, listed: set[tuple[int, int]] | None
) -> None:
    """On a ring whose gene i acts on gene i + 1, from ones."""
    batch = dataclasses.replace(GenotypeBatch.from_lists(strains), shared=shared)
    source = np.arange(20)
    cell = RandomCell({"gene": 20}, {PHYSICAL: (source, (source + 1) % 20)}, {})
    perturbed = perturb(cell.resident, batch, "difference", choices=Choices("difference", dense_share=share))
    states: States = perturbed.start(torch.ones(20, 1, dtype=torch.float64))
    for _ in range(rounds):
        states = perturbed.aggregate(PHYSICAL, states)
    assert isinstance(states, DifferenceStates)
    pairs = [] if states.index is None else zip(states.index.nodes.tolist(), states.index.strains.tolist(), strict=True)
    assert (states.delta is not None and states.index is None) == (listed is None)
    assert {*pairs} == (listed or set())
    before = [{(node - step) % 20 for step in range(rounds + 1)} for node in range(20)]
    assert states.whole().squeeze(-1).tolist() == [[float(not reach & {*s}) for s in strains] for reach in before]


@pytest.mark.parametrize("strategy", ["node_mask", "difference"])
@pytest.mark.parametrize("left", [0.1, 1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize(
    ("dtype", "bound"), [(torch.float32, 1e-6), (torch.bfloat16, 2e-2)], ids=["float32", "bfloat16"]
)
def test_means_stay_where_sources_weaken_alike(strategy: str, left: float, dtype: torch.dtype, bound: float) -> None:
    """The first node's sources all weaken, half of the second's, and the third's last one stays alone."""
    u, v = [3, 4, 5, 6, 3, 4, 7, 8, 3, 4, 5, 6, 7], [0] * 4 + [1] * 4 + [2] * 5
    cell = resident_cell({PHYSICAL: (u, v)}, {"gene": 9})
    x_NH = torch.randn(9, WIDTH, generator=torch.Generator().manual_seed(0)) + 3
    strains = GenotypeBatch.from_lists([dict.fromkeys([3, 4, 5, 6], left), {3: left}])
    perturbed = perturb(
        cell, strains, strategy, choices=Choices(strategy, half=dtype == torch.bfloat16, dense_share=1.0)
    )
    found = perturbed.aggregate(PHYSICAL, perturbed.start(x_NH), "mean").whole()[:3]
    a_BN = torch.ones(2, 9, dtype=torch.float64)
    a_BN[0, 3:7], a_BN[1, 3] = left, left
    for node in range(3):
        sources = [one for one, to in zip(u, v, strict=True) if to == node]
        expected = (a_BN[:, sources] @ x_NH[sources].double()) / a_BN[:, sources].sum(1, keepdim=True)
        torch.testing.assert_close(found[node].double(), expected, rtol=bound, atol=0)


def test_lists_of_activities_are_read() -> None:
    batch = GenotypeBatch.from_lists([{3: 0.3, 1: 2.0}, [5], {}])
    assert batch.activities is not None
    assert (batch.genes.tolist(), batch.offsets.tolist()) == ([3, 1, 5], [0, 2, 3, 3])
    assert batch.activities.tolist() == [0.3, 2.0, 0.0]
    genes_BK, removed_BK = batch.padded()
    assert genes_BK.tolist() == [[3, 1], [5, 0], [0, 0]]
    assert removed_BK.tolist() == [[0.7, -1.0], [1.0, 0.0], [0.0, 0.0]]

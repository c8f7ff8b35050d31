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

from dglcell.errors import GenotypeError, MissingDependencyError
from dglcell.graph.schema import Relation
from dglcell.models import cell_model
from dglcell.models.cell_model import HeteroCell
from dglcell.models.config import HeteroCellConfig
from dglcell.perturbation import DGL_STRATEGIES, STRATEGIES
from dglcell.perturbation import perturb as choices
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import (
    COMPILED_DENSE_SHARE,
    ROWS_WORTH_COMPILING,
    Choices,
    check_strategy_device,
    perturb,
)
from tests.examples import examples
from tests.models.test_base_cache import fixed_cell
from tests.perturbation.states_of import batches_of
from tests.random_cells import Changes, RandomCell, random_cells

WIDTH = 4


def dense_aggregate(
    cell: RandomCell,
    relation: Relation,
    strains: list,
    x_NBH: Tensor,
    reduce: str,
    changes: list[Changes] | None = None,
) -> Tensor:
    """[M, B, H] by the adjacency of every strain's reduced graph."""
    columns = []
    for b, strain in enumerate(strains):
        matrix, degree = cell.adjacency(relation, strain, changes and changes[b])
        y = matrix @ x_NBH[:, b].detach().numpy()
        columns.append(y / np.where(degree == 0, 1, degree)[:, None] if reduce == "mean" else y)
    return torch.as_tensor(np.stack(columns, axis=1))


@examples(12)
@given(data=st.data(), cell=random_cells())
def test_keep_masks_follow_the_definition(data: Any, cell: RandomCell) -> None:
    strains, batch = data.draw(batches_of(cell))
    kept = perturb(cell.resident, batch).kept
    base = cell.keep(list(batch.shared))
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


STRAINS = st.lists(st.lists(st.integers(0, 20), max_size=10), max_size=6)


@examples(15)
@given(strains=STRAINS)
def test_padding_keeps_every_gene_in_order(strains: list[list[int]]) -> None:
    genes, present = GenotypeBatch.from_lists(strains).padded()
    assert genes.shape == (len(strains), max((len(s) for s in strains), default=0))
    assert [row[mask].tolist() for row, mask in zip(genes, present, strict=True)] == [
        list(dict.fromkeys(s)) for s in strains
    ]


def test_a_batch_seen_in_inference_mode_can_be_learned_from() -> None:
    with torch.inference_mode():
        batch = GenotypeBatch.from_lists([[1], []])
        batch.padded()
    weight = torch.ones(3, 2, requires_grad=True)
    genes_BK, present_BK = batch.padded()
    torch.nn.functional.embedding(genes_BK, weight)[present_BK].sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [[0, 0], [1, 1], [0, 0]]


@examples(15)
@given(strains=STRAINS, shared=st.lists(st.integers(0, 20), max_size=3, unique=True))
def test_the_strain_of_shared_deletions_deletes_nothing_else(strains: list[list[int]], shared: list[int]) -> None:
    batch = dataclasses.replace(GenotypeBatch.from_lists(strains), shared=tuple(shared))
    base = batch.of_shared()
    assert (base.genes.tolist(), base.offsets.tolist(), base.most) == (shared, [0, len(shared)], len(shared))


def test_indices_outside_the_cell_are_refused() -> None:
    with pytest.raises(
        GenotypeError, match=r"strain 1: there are no such genes\n  got:      7\n.*whole numbers, 0 … 4"
    ):
        GenotypeBatch.from_lists([[0], [7, 1]], num_genes=5)
    with pytest.raises(GenotypeError, match="got:      -1"):
        GenotypeBatch.from_lists([[-1]])


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
    monkeypatch.setattr(choices, "compiler_works", lambda device_type: True)
    monkeypatch.setattr(choices, "multiplies_bfloat16_fast", lambda device_type: device_type == "cuda")
    found = Choices.default(device).for_run(device, rows, **given)
    assert found.strategy == {"cpu": "difference", "cuda": "node_mask"}[device]
    assert (found.compiled, found.half) == (compiled, half)
    assert (found.dense_share == COMPILED_DENSE_SHARE) == compiled
    monkeypatch.setattr(choices, "compiler_works", lambda device_type: False)
    assert not Choices.default(device).for_run(device, rows, **given).compiled


def test_the_log_says_what_computes_and_why(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="dglcell")
    model = HeteroCell(fixed_cell().resident, HeteroCellConfig(hidden=8, local_heads=2))
    model.choose_for_run("cpu", 100)
    assert caplog.messages[-1] == (
        "strategy difference (the default on cpu), kernel tiled, differences in the base's precision, "
        "layers not compiled"
    )
    model.config.strategy, model.config.kernel = "node_mask", "csr"
    model.choose_for_run("cpu", 100, "bf16")
    assert caplog.messages[-1].startswith("strategy node_mask (as configured), kernel csr, differences in bfloat16")
    attending = HeteroCell(fixed_cell().resident, HeteroCellConfig(hidden=8, local_heads=2, conv="gatv2"))
    attending.choose_for_run("cpu", 100)
    assert caplog.messages[-1].startswith("strategy edge_mask (for single edges), kernel of DGL")


@pytest.mark.parametrize("how", ["sum", "pairwise_interaction"])
def test_layers_are_computed_once_more_where_they_do_not_fit(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = HeteroCell(fixed_cell().resident, HeteroCellConfig(hidden=8, local_heads=2, cross_relation=how))
    needed = model.encoder.kept_of_strain(False, torch.float32) * 4 * torch.float32.itemsize
    for room, recomputes in ((2 * needed, False), (needed, True), (None, False)):
        monkeypatch.setattr(cell_model, "free_memory", lambda device, room=room: room)
        model.choose(Choices("node_mask"))
        model._recomputing.clear()
        assert model.recomputes(4, Choices("node_mask")) == recomputes
        assert model(GenotypeBatch.from_lists([[0], [1], [2], []])).phenotypes.requires_grad


@pytest.mark.parametrize(("room", "size"), [(None, 256), (1 << 50, 256), (0, 1)])
def test_as_many_strains_are_predicted_at_once_as_fit(
    room: int | None, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = HeteroCell(fixed_cell().resident, HeteroCellConfig(hidden=8, local_heads=2))
    monkeypatch.setattr(cell_model, "free_memory", lambda device: room)
    assert model.fitting_batch(256) == size

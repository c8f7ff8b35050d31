"""What ``auto`` stands for follows from device, model and length of the run."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dglcell.models import cell_model
from dglcell.models.cell_model import HeteroCell
from dglcell.models.config import HeteroCellConfig
from dglcell.perturbation import perturb as choices
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import COMPILED_DENSE_SHARE, ROWS_WORTH_COMPILING, Choices
from tests.models.test_base_cache import fixed_cell

LONG, SHORT = 2 * ROWS_WORTH_COMPILING, 0.5 * ROWS_WORTH_COMPILING


@pytest.mark.parametrize(
    ("device", "of_edges", "strategy"),
    [
        ("cpu", None, "difference"),
        ("cuda", None, "node_mask"),
        ("cpu", "edge_mask", "edge_mask"),
        ("cuda", "edge_subgraph", "edge_subgraph"),
    ],
)
def test_the_strategy_follows_from_the_device(device: str, of_edges: str | None, strategy: str) -> None:
    assert Choices.default(device, of_edges=of_edges).strategy == strategy


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
    assert (found.compiled, found.half) == (compiled, half)
    execution = found.execution(recompute=True)
    assert (execution.compile, execution.dtype) == (compiled, torch.bfloat16 if half else None)
    assert (execution.dense_share == COMPILED_DENSE_SHARE) == compiled
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
    needed = model.encoder.kept_of_strain(compiled=False) * 4 * torch.float32.itemsize
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

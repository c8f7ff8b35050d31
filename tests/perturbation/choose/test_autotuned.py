"""What ``auto`` stands for, kept and applied."""

from __future__ import annotations

import pytest
import torch

from dglcell.errors import CheckpointError, ConfigError
from dglcell.graph.resident import ResidentCell
from dglcell.kernels import spmm as module
from dglcell.kernels.spmm import choose_kernel
from dglcell.perturbation.choose.autotuned import COMPILED_DENSE_SHARE, Autotuned
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import Engine, perturb
from dglcell.perturbation.strategies.difference import Difference
from dglcell.perturbation.strategies.node_mask import NodeMask
from tests.graph.test_resident import small_cell

PHYSICAL = ("gene", "physical", "gene")


@pytest.fixture
def cell() -> ResidentCell:
    """Return two relations."""
    return small_cell()


def test_choices_survive_a_round_trip() -> None:
    kernels = {"gene/physical/gene": {64: "dgl", 576: "tiled"}}
    autotuned = Autotuned("difference", 0.7, kernels, shares=True)
    assert Autotuned.from_dict(autotuned.to_dict(), "here") == autotuned


def test_lists_end_earlier_where_layers_are_compiled() -> None:
    autotuned = Autotuned("difference", 0.7)
    assert autotuned.for_layers(compiled=False, half=False).dense_share == 0.7
    compiled = autotuned.for_layers(compiled=True, half=True)
    assert (compiled.dense_share, compiled.compile, compiled.differences) == (COMPILED_DENSE_SHARE, True, "bfloat16")
    assert Autotuned("difference", 0.1).for_layers(compiled=True, half=False).dense_share == 0.1


def test_the_nearest_number_of_columns_counts(cell: ResidentCell) -> None:
    Autotuned("difference", 0.7, {"gene/physical/gene": {64: "dgl", 1024: "csr"}}).apply(cell)
    kernels = {columns: choose_kernel(cell[PHYSICAL], "cpu", columns) for columns in (1, 64, 255, 257, 10**6)}
    assert kernels == {1: "dgl", 64: "dgl", 255: "dgl", 257: "csr", 10**6: "csr"}
    Autotuned("difference").apply(cell)
    assert choose_kernel(cell[PHYSICAL], "cpu", 64) == "tiled"


def test_kernels_of_another_device_are_passed_over(cell: ResidentCell) -> None:
    found = Autotuned("node_mask", 0.7, {"gene/physical/gene": {64: "triton", 8: "csr"}})
    found.apply(cell)
    assert choose_kernel(cell[PHYSICAL], "cpu", 64) == "csr"


def test_a_product_follows_the_choice(cell: ResidentCell, monkeypatch: pytest.MonkeyPatch) -> None:
    used = []
    chosen = dict.fromkeys(module.KERNELS, lambda edges, x, weighted: used.append("other"))
    chosen["reference"] = lambda edges, x, weighted: used.append("reference")  # type: ignore[assignment,func-returns-value]
    monkeypatch.setattr(module, "KERNELS", chosen)
    Autotuned("difference", 0.7, {"gene/physical/gene": {8: "reference"}}).apply(cell)
    module.spmm(cell[PHYSICAL], torch.ones(cell[PHYSICAL].num_src, 8))
    assert used == ["reference"]


def test_auto_is_the_strategy_chosen(cell: ResidentCell) -> None:
    batch = GenotypeBatch.from_lists([[0], []])

    def engine(strategy: str, autotuned: Autotuned | None = None) -> Engine:
        return perturb(cell, batch, strategy, autotuned=autotuned).engine

    assert isinstance(engine("auto"), Difference)
    assert type(engine("auto", Autotuned("node_mask"))) is NodeMask
    chosen = engine("auto", Autotuned("difference", dense_share=0.4))
    assert isinstance(chosen, Difference)
    assert chosen.execution.dense_share == 0.4
    assert Autotuned.default("cuda").strategy == "node_mask"
    assert type(engine("node_mask", Autotuned("difference"))) is NodeMask, "pinned"


def test_what_is_no_choice_is_refused() -> None:
    with pytest.raises(
        CheckpointError, match=r"'x.json' does not hold choices of strategy and kernels\n  got:      Key"
    ):
        Autotuned.from_dict({"strategy": "difference"}, "x.json")


def test_whether_deletions_are_shared_is_yes_or_no() -> None:
    content = {**Autotuned("difference").to_dict(), "shares": "yes"}
    with pytest.raises(CheckpointError, match="shares 'yes'"):
        Autotuned.from_dict(content, "autotuned.json")


def test_choices_of_earlier_versions_are_read() -> None:
    content = {**Autotuned("difference").to_dict(), "attention": "triton"}
    assert Autotuned.from_dict(content, "x.json") == Autotuned("difference")


def test_an_unknown_strategy_names_auto_too(cell: ResidentCell) -> None:
    with pytest.raises(ConfigError, match="expected: auto, edge_subgraph"):
        perturb(cell, GenotypeBatch.from_lists([[0]]), "fastest")

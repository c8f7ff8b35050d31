"""The calibration before the first step: what is timed, kept, taken again, refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from dglcell.cli import main
from dglcell.errors import CheckpointError
from dglcell.graph.cell import CellConfig, build_cell
from dglcell.graph.resident import ResidentCell
from dglcell.kernels.spmm import KERNELS
from dglcell.models.config import HeteroCellConfig
from dglcell.models.hetero_cell import HeteroCell
from dglcell.perturbation.autotuned import Autotuned, Share
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.training import autotune
from dglcell.training.autotune import Autotuning, autotuned_for, choose_strategy, read_autotuned, write_autotuned
from tests.tiny import Tiny

BATCH = GenotypeBatch.from_lists([[0, 5], [7], [11, 30, 31]])
RELATION = ("gene", "physical", "gene")


@pytest.fixture(autouse=True)
def no_step_is_too_short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Calibrate small cells too, wholly however long it takes, with a cache of the test's own."""
    monkeypatch.setattr(autotune, "SMALL_STEP", 0)
    monkeypatch.setattr(autotune, "SECONDS", float("inf"))
    monkeypatch.setenv("DGLCELL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "autotuned"


@pytest.fixture(scope="module")
def model() -> HeteroCell:
    """Two layers over the E. coli core cell."""
    cell = build_cell(CellConfig(model="textbook", derived=["shares_complex"]))
    torch.manual_seed(0)
    return HeteroCell(ResidentCell.of(cell), HeteroCellConfig(hidden=8, layers=2, local_heads=2))


def test_a_calibration_names_a_kernel_for_every_product_and_says_why(model: HeteroCell) -> None:
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    found = autotuned_for(model, BATCH)
    used = {"/".join(relation) for layer in model.encoder.plan for relation in layer}
    assert set(found.autotuned.kernels) == used
    for by_columns in found.autotuned.kernels.values():
        assert set(by_columns) == {8, 24}
        assert set(by_columns.values()) <= set(KERNELS)
    assert 0.3 <= found.autotuned.dense_share <= 1
    assert len(found.reasons["layers"]) == 2
    assert "of rows" in found.reasons["layers"][0]["gene/shares_complex/gene"]
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


def test_it_is_made_once_for_a_machine_and_a_cell(
    model: HeteroCell, no_step_is_too_short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = autotuned_for(model, BATCH)
    (kept,) = no_step_is_too_short.iterdir()
    monkeypatch.setattr(autotune, "autotune", lambda *arguments: pytest.fail("calibrated again"))
    assert autotuned_for(model, BATCH).autotuned == first.autotuned
    kept.write_text("{")
    monkeypatch.setattr(autotune, "autotune", lambda *arguments: Autotuning(Autotuned("node_mask"), {}))
    assert autotuned_for(model, BATCH).autotuned == Autotuned("node_mask")
    assert read_autotuned(kept).autotuned == Autotuned("node_mask")


def test_another_batch_size_or_model_is_another_calibration(model: HeteroCell) -> None:
    about = autotune.describe(model, BATCH)
    assert autotune.describe(model, GenotypeBatch.from_lists([[], [0, 5], [7], [11, 30, 31]])) != about
    assert autotune.describe(model, BATCH) == about


def test_short_steps_take_the_defaults(model: HeteroCell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autotune, "SMALL_STEP", 1 << 40)
    assert autotuned_for(model, BATCH).autotuned == Autotuned.default("cpu")


def test_the_strategy_is_the_one_with_fewer_rows() -> None:
    assert choose_strategy([{RELATION: Share(0.5, 0.1, 100)}], dense_share=0.8) == "difference"
    assert choose_strategy([{RELATION: Share(0.9, 0.9, 100)}], dense_share=0.8) == "node_mask"
    mixed = [{RELATION: Share(0.01, 0.0, 100)}, {RELATION: Share(1.0, 1.0, 100)}]
    assert choose_strategy(mixed, dense_share=0.8) == "difference"


def test_choices_are_read_as_written(tmp_path: Path) -> None:
    found = Autotuning(Autotuned("difference", 0.6, {"a/b/c": {4: "csr"}}), {"why": "measured"})
    write_autotuned(tmp_path / "autotuned.json", found)
    assert read_autotuned(tmp_path / "autotuned.json") == found


@pytest.mark.parametrize(
    ("content", "text"),
    [(None, "not found\n  expected: autotuned.json of a run"), ("[]", "does not hold choices"), ("{", "is no JSON")],
)
def test_files_that_hold_no_choices_are_refused(tmp_path: Path, content: str | None, text: str) -> None:
    path = tmp_path / "autotuned.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(CheckpointError, match=text):
        read_autotuned(path)


def test_a_run_keeps_its_choices_and_another_can_take_them(tiny: Tiny, tmp_path: Path) -> None:
    options = [f"data.store={tiny.store}", "trainer.epochs=1", "model.strategy=auto", "model.kernel=auto"]
    first = [*options, f"paths.runs={tmp_path / 'first'}"]
    assert main(["train", str(tiny.file), *first]) == 0
    (autotuned,) = (tmp_path / "first").rglob("autotuned.json")
    content = json.loads(autotuned.read_text())
    assert content["strategy"] in ("difference", "node_mask")
    content["strategy"] = "node_mask"
    content["dense_share"] = 0.123
    pinned = tmp_path / "pinned.json"
    pinned.write_text(json.dumps(content))
    second = [*options, f"paths.runs={tmp_path / 'second'}", f"model.autotuned={pinned}"]
    assert main(["train", str(tiny.file), *second]) == 0
    (taken,) = (tmp_path / "second").rglob("autotuned.json")
    assert json.loads(taken.read_text())["dense_share"] == 0.123

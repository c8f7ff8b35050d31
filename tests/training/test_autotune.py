"""What ``auto`` takes."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
import torch

from dglcell.checks import check_values
from dglcell.cli import main
from dglcell.config.experiment import TrainerConfig, check_precision
from dglcell.errors import CheckpointError, ConfigError
from dglcell.graph.cell import CellConfig, build_cell
from dglcell.graph.resident import ResidentCell
from dglcell.kernels.spmm import KERNELS
from dglcell.models.config import HeteroCellConfig
from dglcell.models.hetero_cell import HeteroCell
from dglcell.perturbation import execution as compiled
from dglcell.perturbation.choose.autotuned import Autotuned, Share
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.training import autotune
from dglcell.training.autotune import (
    Autotuning,
    autotuned_for,
    choose_strategy,
    lightning_precision,
    read_autotuned,
    resolve_execution,
    write_autotuned,
)
from tests.random_cells import resident_cell
from tests.tiny import BARE, Tiny

CPU = torch.device("cpu")


def small_cell() -> ResidentCell:
    """40 genes, two networks of 200 edges."""
    generator = torch.Generator().manual_seed(0)
    ends = {name: torch.randint(0, 40, (2, 200), generator=generator) for name in ("one", "two")}
    return resident_cell({("gene", name, "gene"): (u, v) for name, (u, v) in ends.items()}, {"gene": 40})


@pytest.mark.parametrize(
    ("name", "theirs"),
    [("auto", "32-true"), ("bf16", "32-true"), ("bf16-mixed", "32-true"), ("64-true", "64-true"), ("64", "64-true")],
)
def test_weights_and_bases_are_single_or_double_whatever_differences_are(name: str, theirs: str) -> None:
    check_precision("trainer.precision", name)
    assert lightning_precision(name) == theirs


def test_an_unknown_precision_is_refused_before_anything_is_read() -> None:
    with pytest.raises(ConfigError, match=r"`trainer.precision` is unknown\n  got:      16\n  expected: auto, 32-true"):
        check_values(TrainerConfig(precision="16"), "trainer")


def test_bf16_mixed_of_other_programs_stands_for_differences_in_bfloat16_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, logger="dglcell"):
        autotuned = resolve_execution(Autotuned("difference"), "bf16-mixed", "false", CPU, 1e12)
    assert autotuned.execution(recompute=True).dtype == torch.bfloat16
    assert "`trainer.precision: bf16-mixed` stands for `bf16` here" in caplog.text


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("works", [False, True])
@pytest.mark.parametrize("rows", [1e3, 1e12])
def test_auto_takes_bfloat16_where_it_is_fast_and_layers_are_compiled(
    fast: bool, works: bool, rows: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autotune, "multiplies_bfloat16_fast", lambda device: fast)
    monkeypatch.setattr(autotune, "compiler_works", lambda device_type: works)
    execution = resolve_execution(Autotuned("difference"), "auto", "auto", CPU, rows).execution(recompute=True)
    assert execution.compile == (works and rows > 1e9)
    assert execution.dtype == (torch.bfloat16 if execution.compile and fast else None)


@pytest.mark.parametrize("precision", ["auto", "bf16", "32-true"])
@pytest.mark.parametrize("compiled", ["auto", "true", "false"])
@pytest.mark.parametrize("known", [Autotuned("difference"), Autotuned("difference", 0.4, {}, "bfloat16", True)])
def test_choices_of_another_run_are_what_auto_takes_and_nothing_else(
    known: Autotuned, compiled: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dglcell.training.autotune.compiler_works", lambda device_type: True)
    found = resolve_execution(known, precision, compiled, CPU, 1e12, pinned=True)
    assert found.compile == (known.compile if compiled == "auto" else compiled == "true")
    assert found.differences == (known.differences if precision == "auto" else {"bf16": "bfloat16"}.get(precision))


@pytest.mark.parametrize("strategy", ["node_mask", "difference"])
def test_a_model_with_differences_in_bfloat16_trains_as_one_in_float32_does(strategy: str) -> None:
    cell = small_cell()
    strains = GenotypeBatch.from_lists([[3], [5, 9], [1, 2, 30]])
    found = {}
    for differences in (None, "bfloat16"):
        torch.manual_seed(0)
        model = HeteroCell(cell, HeteroCellConfig(hidden=32, layers=2, metabolism=False, strategy=strategy))
        model.autotuned = Autotuned(strategy, 0.5, {}, differences)
        prediction = model(strains)
        assert prediction.phenotypes.dtype == torch.float32
        prediction.phenotypes.sum().backward()
        gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        found[differences] = prediction.embedding, gradient
    for exact, half in zip(found[None], found["bfloat16"], strict=True):
        assert exact is not None
        assert half is not None
        assert 0 < (half - exact).norm() <= 0.02 * exact.norm()


def test_a_machine_without_a_compiler_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(function: object) -> object:
        raise RuntimeError("no working C++ compiler\nlong advice")

    compiled.compiler_works.cache_clear()
    monkeypatch.setattr(torch, "compile", fails)
    assert not compiled.compiler_works("cpu")
    assert not compiled.compiler_works("cpu")
    compiled.compiler_works.cache_clear()
    assert caplog.text.count("torch.compile does not work on this machine") == 1
    assert "long advice" not in caplog.text


@pytest.mark.slow
def test_compiled_layers_compute_what_plain_ones_do() -> None:
    cell = small_cell()
    strains = GenotypeBatch.from_lists([[3], [5, 9], [1, 2, 30]])
    found = []
    for compile_layers in (False, True):
        torch.manual_seed(0)
        model = HeteroCell(cell, HeteroCellConfig(hidden=32, layers=2, metabolism=False)).double()
        model.autotuned = Autotuned("node_mask", 0.5, {}, None, compile_layers)
        prediction = model(strains)
        prediction.phenotypes.square().sum().backward()
        found.append([prediction.embedding, *(p.grad for p in model.parameters())])
    for plain, fast in zip(*found, strict=True):
        torch.testing.assert_close(fast, plain, atol=1e-12, rtol=1e-9)


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
    """Return two layers over the E. coli core cell."""
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


def test_a_cache_that_cannot_be_written_is_a_warning(
    model: HeteroCell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "in the way").touch()
    monkeypatch.setenv("DGLCELL_CACHE", str(tmp_path / "in the way"))
    monkeypatch.setattr(autotune, "autotune", lambda *arguments: Autotuning(Autotuned("node_mask"), {}))
    assert autotuned_for(model, BATCH).autotuned == Autotuned("node_mask")
    assert "what was measured is not kept for other runs: [Errno 20] Not a directory: " in caplog.text


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
    found = Autotuning(Autotuned("difference", 0.6, {"a/b/c": {4: "csr"}}, "bfloat16", True), {"why": "measured"})
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
    options = [f"data.store={tiny.store}", *BARE, "trainer.epochs=1", "model.strategy=auto", "model.kernel=auto"]
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

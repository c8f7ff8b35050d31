"""Precision of a run: what the names stand for, what `auto` takes, and what bfloat16 does to differences."""

from __future__ import annotations

import logging

import pytest
import torch

from dglcell.config import TrainerConfig, check_precision
from dglcell.errors import ConfigError
from dglcell.graph.resident import ResidentCell
from dglcell.models.config import HeteroCellConfig
from dglcell.models.hetero_cell import HeteroCell
from dglcell.perturbation import execution as compiled
from dglcell.perturbation.autotuned import Autotuned
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.training import autotune
from dglcell.training.autotune import lightning_precision, resolve_execution
from tests.random_cells import resident_cell

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
    check_precision(name)
    assert lightning_precision(name) == theirs


def test_an_unknown_precision_is_refused_before_anything_is_read() -> None:
    with pytest.raises(ConfigError, match=r"`trainer.precision` is unknown\n  got:      16\n  expected: auto, 32-true"):
        TrainerConfig(precision="16").validate()


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
    monkeypatch.setattr(autotune, "compiler_works", lambda: works)
    execution = resolve_execution(Autotuned("difference"), "auto", "auto", CPU, rows).execution(recompute=True)
    assert execution.compile == (works and rows > 1e9)
    assert execution.dtype == (torch.bfloat16 if execution.compile and fast else None)


@pytest.mark.parametrize("precision", ["auto", "bf16", "32-true"])
@pytest.mark.parametrize("compiled", ["auto", "true", "false"])
@pytest.mark.parametrize("known", [Autotuned("difference"), Autotuned("difference", 0.4, {}, "bfloat16", True)])
def test_choices_of_another_run_are_what_auto_takes_and_nothing_else(
    known: Autotuned, compiled: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dglcell.training.autotune.compiler_works", lambda: True)
    found = resolve_execution(known, precision, compiled, CPU, 1e12, pinned=True)
    assert found.compile == (known.compile if compiled == "auto" else compiled == "true")
    assert found.differences == (known.differences if precision == "auto" else {"bf16": "bfloat16"}.get(precision))


def test_choices_of_a_run_come_back_with_their_precision() -> None:
    autotuned = Autotuned("difference", 0.4, {}, "bfloat16", True)
    assert Autotuned.from_dict(autotuned.to_dict(), "autotuned.json") == autotuned


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
    assert not compiled.compiler_works()
    assert not compiled.compiler_works()
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

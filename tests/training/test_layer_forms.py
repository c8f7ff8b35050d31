"""Forms of layers: which are open, and that the one with the fastest steps is taken."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path

import pytest

from dglcell.data.strains import Strains
from dglcell.perturbation.choose.autotuned import Autotuned
from dglcell.training import layer_forms
from dglcell.training.layer_forms import PLAIN, Form, Steps, choose_form, forms_of

HALF = Form(compiled=True, half=True)
COMPILED = Form(compiled=True, half=False)
FORMS = [PLAIN, COMPILED, HALF]


@pytest.mark.parametrize(
    ("precision", "compiled", "expected"),
    [
        ("auto", "auto", FORMS),
        ("auto", "false", [PLAIN]),
        ("auto", "true", [COMPILED, HALF]),
        ("32-true", "auto", [PLAIN, COMPILED]),
        ("64-true", "false", [PLAIN]),
        ("bf16", "auto", [Form(compiled=False, half=True), HALF]),
    ],
)
def test_forms_that_a_configuration_leaves_open(
    precision: str, compiled: str, expected: list[Form], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layer_forms, "compiler_works", lambda device_type: True)
    monkeypatch.setattr(layer_forms, "multiplies_bfloat16", lambda: True)
    assert forms_of(precision, compiled) == expected


def test_forms_of_a_machine_without_compiler_or_products_of_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer_forms, "compiler_works", lambda device_type: False)
    monkeypatch.setattr(layer_forms, "multiplies_bfloat16", lambda: True)
    assert forms_of("auto", "true") == [PLAIN]
    monkeypatch.setattr(layer_forms, "compiler_works", lambda device_type: True)
    monkeypatch.setattr(layer_forms, "multiplies_bfloat16", lambda: False)
    assert forms_of("auto", "auto") == [PLAIN, COMPILED]


class Machine:
    """Steps that take so long in each form, and are counted."""

    def __init__(self, seconds: dict[Form, float], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.seconds, self.now, self.done = seconds, 0.0, dict.fromkeys(seconds, 0)
        self.form = PLAIN
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def choose(self, autotuned: Autotuned) -> None:
        self.form = Form(autotuned.compile, autotuned.differences == "bfloat16")

    def step(self, batch: Strains) -> None:
        self.now += self.seconds[self.form]
        self.done[self.form] += 1

    def steps(self, planned: int) -> Steps:
        batch = Strains.from_indices(("gene",), [[0]]).to("cpu")
        return Steps(self.choose, self.step, [batch, batch], planned, {"cell": "tiny"})


@pytest.mark.parametrize("best", FORMS)
def test_the_form_with_the_fastest_steps_is_taken(
    best: Form, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    machine = Machine({form: 0.5 if form == best else 1.0 for form in FORMS}, monkeypatch, tmp_path)
    with caplog.at_level(logging.INFO, logger="dglcell"):
        found, seconds = choose_form(FORMS, Autotuned("difference"), machine.steps(10_000))
    assert (found, seconds[str(best)]) == (best, 0.5)
    assert f"layers in {best} (a step in " in caplog.text
    # A second run looks up what the first one has measured.
    done = dict(machine.done)
    assert choose_form(FORMS, Autotuned("difference"), machine.steps(10_000)) == (found, seconds)
    assert machine.done == done


def test_nothing_is_compiled_for_a_short_run_or_for_little(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine = Machine({PLAIN: 1.0, COMPILED: 0.98, HALF: 0.97}, monkeypatch, tmp_path)
    asked = list[str]()
    monkeypatch.setattr(layer_forms, "compiler_works", lambda device_type: not asked.append(device_type))
    assert choose_form(FORMS, Autotuned("difference"), machine.steps(100))[0] == PLAIN
    assert machine.done[COMPILED] == machine.done[HALF] == 0
    assert asked == [], "finding out whether a compiler works takes longer than a short run"
    assert choose_form(FORMS, Autotuned("difference"), machine.steps(10_000))[0] == PLAIN
    assert machine.done[HALF]
    machine.seconds[HALF] = 0.1
    # What was kept says that the plain form takes a second: too little to gain in a short run.
    assert choose_form(FORMS, Autotuned("difference"), machine.steps(100))[0] == PLAIN


def test_a_long_run_without_a_compiler_is_plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine = Machine({PLAIN: 1.0, COMPILED: 0.5, HALF: 0.5}, monkeypatch, tmp_path)
    monkeypatch.setattr(layer_forms, "compiler_works", lambda device_type: False)
    assert choose_form(FORMS, Autotuned("difference"), machine.steps(10_000))[0] == PLAIN
    assert machine.done[COMPILED] == machine.done[HALF] == 0


def test_a_damaged_record_of_times_is_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    machine = Machine({PLAIN: 1.0, COMPILED: 0.5, HALF: 0.6}, monkeypatch, tmp_path)
    choose_form(FORMS, Autotuned("difference"), machine.steps(10_000))
    (kept,) = tmp_path.rglob("layers-*.json")
    for damage in (b"", b"{", b"[]", b'{"seconds": {"float32, compiled": "x"}}'):
        kept.write_bytes(damage)
        assert choose_form(FORMS, Autotuned("difference"), machine.steps(10_000))[0] == COMPILED
        assert "layers are timed anew" in caplog.text
        assert set(json.loads(kept.read_text())["seconds"]) == {str(form) for form in FORMS}
        caplog.clear()

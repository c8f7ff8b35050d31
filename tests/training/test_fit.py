"""Callbacks and trainers follow what a terminal shows."""

from __future__ import annotations

import io
import logging
import sys

import pytest

from dglcell.config.read import load_config
from dglcell.training.fit import shows_bar
from tests.docs.pages import ROOT


class Terminal(io.StringIO):
    """Text that says of itself that a person reads it."""

    def isatty(self) -> bool:
        return True


def test_bars_are_drawn_on_terminals_and_not_for_quiet_commands(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = load_config(ROOT / "conf" / "quickstart.yaml")
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert not shows_bar(config)
    monkeypatch.setattr(sys, "stdout", Terminal())
    with caplog.at_level(logging.INFO, logger="dglcell"):
        assert shows_bar(config)
        assert not shows_bar(load_config(ROOT / "conf" / "quickstart.yaml", ["trainer.progress=false"]))
    with caplog.at_level(logging.WARNING, logger="dglcell"):
        assert not shows_bar(config)

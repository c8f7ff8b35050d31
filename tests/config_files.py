"""Configurations written by tests, and those of the repository."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from dglcell.config.experiment import Config
from dglcell.config.read import load_config
from dglcell.errors import DglcellError

CONF = Path(__file__).resolve().parents[1] / "conf"
CONFIGURATIONS = sorted(path for path in CONF.rglob("*.yaml"))
"""These are the experiments of the repository, and the parts that they extend."""


@functools.cache
def config_of(path: Path) -> Config:
    """Load an experiment of the repository once for all tests of a process, which do not change it."""
    return load_config(path)


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def refusal(path: Path, *overrides: str) -> str:
    """Return the message with which a configuration is refused."""
    with pytest.raises(DglcellError) as error:
        load_config(path, overrides)
    return str(error.value)

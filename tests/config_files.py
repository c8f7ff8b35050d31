"""Configurations written by tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from dglcell.config.read import load_config
from dglcell.errors import DglcellError


def write(folder: Path, name: str, text: str) -> Path:
    """Write a configuration file."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def refusal(path: Path, *overrides: str) -> str:
    """Return the message with which a configuration is refused."""
    with pytest.raises(DglcellError) as error:
        load_config(path, overrides)
    return str(error.value)

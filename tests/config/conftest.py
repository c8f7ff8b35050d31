"""What tests of configurations share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.config_files import write


@pytest.fixture
def minimal(tmp_path: Path) -> Path:
    """Return a valid experiment."""
    return write(tmp_path, "minimal.yaml", "cell: {model: textbook}\n")

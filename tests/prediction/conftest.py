"""What tests of predictions share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from dglcell.runs.directory import RunDirectory
    from dglcell.training.checkpoint import Trained


@pytest.fixture(scope="module")
def trained(tiny_run: RunDirectory) -> Trained:
    """Return the tiny heterograph model."""
    from dglcell.training.checkpoint import load_trained

    return load_trained(tiny_run)

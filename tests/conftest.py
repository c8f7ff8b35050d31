"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("dglcell", deadline=None)
settings.load_profile("dglcell")

SIBLING = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def raw() -> Path:
    """The folder with the raw yeast files: ``DGLCELL_RAW``, else ``../shared/data`` beside the checkout."""
    folder = Path(os.environ.get("DGLCELL_RAW") or SIBLING)
    if not folder.is_dir():
        pytest.skip(f"raw yeast files not found at {folder}: set DGLCELL_RAW")
    return folder

"""The cluster that these tests run on."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import LoopbackCluster, missing


@pytest.fixture(scope="session")
def cluster() -> Iterator[LoopbackCluster]:
    """Two nodes on loopback, for all tests."""
    if missing():
        pytest.skip(f"not installed: {', '.join(missing())} (Debian packages slurm-wlm and munge)")
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    folder.chmod(0o755)
    cluster = LoopbackCluster(folder / "c")
    try:
        cluster.up()
    except AssertionError as error:
        # Daemons that cannot run here say nothing about this package.
        pytest.skip(f"SLURM does not start on this machine: {error}")
    yield cluster
    cluster.down()
    shutil.rmtree(folder, ignore_errors=True)

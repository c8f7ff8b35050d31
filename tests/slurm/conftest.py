"""The cluster that these tests run on."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import LoopbackCluster, missing
from tests.tiny import process_environment


@pytest.fixture(scope="session")
def cluster() -> Iterator[LoopbackCluster]:
    if missing():
        pytest.skip(f"not installed: {', '.join(missing())} (Debian packages slurm-wlm and munge)")
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    folder.chmod(0o755)
    cluster = LoopbackCluster(folder / "c")
    try:
        try:
            cluster.up()
        except AssertionError as error:
            # Daemons that cannot run here say nothing about this package.
            pytest.skip(f"SLURM does not start on this machine: {error}")
        yield cluster
    finally:
        cluster.down()
        shutil.rmtree(folder, ignore_errors=True)


def login_node(cluster: LoopbackCluster, folder: Path) -> dict[str, str]:
    """Return a login node's environment, with `dglcell` on the path."""
    programs = folder / "bin"
    programs.mkdir()
    script = programs / "dglcell"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m dglcell "$@"\n')
    script.chmod(0o755)
    variables = process_environment(**cluster.environment)
    return {**variables, "PATH": f"{programs}:{variables['PATH']}"}

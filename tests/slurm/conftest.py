"""The cluster that these tests run on."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.slurm.cluster import ACCOUNTING, LoopbackCluster, missing
from tests.tiny import process_environment


@pytest.fixture(scope="session")
def cluster() -> Iterator[LoopbackCluster]:
    """Provide two nodes on loopback, for all tests."""
    if missing():
        pytest.skip(f"not installed: {', '.join(missing())} (Debian packages slurm-wlm and munge)")
    with _running(accounts=False) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def cluster_with_accounts() -> Iterator[LoopbackCluster]:
    """Provide two more nodes, of a cluster that keeps accounts of finished jobs."""
    lacking = missing(*ACCOUNTING)
    if lacking:
        packages = "slurm-wlm, munge, slurmdbd, slurm-wlm-mysql-plugin and mariadb-server"
        pytest.skip(f"not installed: {', '.join(lacking)} (Debian packages {packages})")
    with _running(accounts=True) as cluster:
        yield cluster


@contextmanager
def _running(*, accounts: bool) -> Iterator[LoopbackCluster]:
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    folder.chmod(0o755)
    cluster = LoopbackCluster(folder / "c", accounts)
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
    """Return a login node's environment, with `dglcell` on the path.

    Args:
        cluster: that SLURM's commands talk to.
        folder: for the program.
    """
    programs = folder / "bin"
    programs.mkdir()
    script = programs / "dglcell"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m dglcell "$@"\n')
    script.chmod(0o755)
    variables = process_environment(**cluster.environment)
    return {**variables, "PATH": f"{programs}:{variables['PATH']}"}

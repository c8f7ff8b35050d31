"""W&B as a view of the run: offline, without network, one run however often it is continued."""

from __future__ import annotations

from pathlib import Path

import pytest

from dglcell.runs.directory import RunDirectory
from dglcell.training.tracking import run_id
from tests.integration.processes import PATIENCE, start
from tests.tiny import Tiny

wandb = pytest.importorskip("wandb")

OFFLINE = "tracking.wandb=offline"

# A process in which every connection but those of the machine itself fails.
NO_NETWORK = """
import socket
connect = socket.socket.connect
def refuse(self, address):
    if self.family != socket.AF_UNIX:
        raise AssertionError(f"network: {address}")
    return connect(self, address)
socket.socket.connect = refuse
"""


def test_offline_runs_are_one_run_and_need_no_network(tiny: Tiny, tmp_path: Path) -> None:
    home = {name: str(tmp_path / "home") for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR")}
    directory = RunDirectory(tmp_path / "tiny" / "seed-0")
    ids = set()
    for epochs in (1, 2):
        process = start(tiny, tmp_path, OFFLINE, f"trainer.epochs={epochs}", before=NO_NETWORK, **home)
        _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, said
        ids.add(directory.wandb_id.read_text())
    files = [*directory.path.glob("wandb/offline-run-*/run-*.wandb")]
    assert {file.stem.removeprefix("run-") for file in files} == ids
    assert (len(files), len(ids)) == (2, 1)


@pytest.mark.parametrize("content", [b"", b"0a1", b"\xff\x00", b"0a1b2c3d\n"])
def test_a_damaged_id_is_replaced(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "wandb_id.txt"
    file.write_bytes(content)
    found = run_id(file)
    assert run_id(file) == found
    assert (found == "0a1b2c3d") == (len(content) > 8)

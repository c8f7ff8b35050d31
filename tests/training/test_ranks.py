"""Which process writes, and how the others wait."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from dglcell.errors import DataError
from dglcell.training import signals
from dglcell.training.signals import RANK_VARIABLES, is_rank_zero, wait_for


@pytest.mark.parametrize(
    ("environment", "first"),
    [
        ({}, True),
        ({"SLURM_PROCID": "0"}, True),
        ({"SLURM_PROCID": "3"}, False),
        ({"RANK": "0", "LOCAL_RANK": "0"}, True),
        ({"RANK": "4", "LOCAL_RANK": "0"}, False),
        ({"LOCAL_RANK": "1"}, False),
        ({"NODE_RANK": "1", "LOCAL_RANK": "0"}, False),
    ],
)
def test_launchers_say_which_process_is_first(
    environment: dict[str, str], first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in RANK_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    assert is_rank_zero() == first


def test_the_others_wait_until_the_path_is_there(tmp_path: Path) -> None:
    path, seen = tmp_path / "store", []
    thread = threading.Thread(target=lambda: (wait_for(path, 60), seen.append(path.exists())))
    thread.start()
    time.sleep(0.1)
    assert not seen
    path.mkdir()
    thread.join()
    assert seen == [True]


def test_nobody_waits_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "POLL_SECONDS", 0.01)
    with pytest.raises(DataError, match=r"first process has not made '.*store' within `trainer.timeout`\n.*after 0 s"):
        wait_for(tmp_path / "store", 0.05)

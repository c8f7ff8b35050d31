"""Which of several processes this is, as launchers say it."""

from __future__ import annotations

import pytest

from dglcell.errors import ConfigError
from dglcell.machine.processor import Ranks


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, Ranks()),
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, Ranks(3, 8, 1, 2)),
        ({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "1"}, Ranks(1, 2, 1, 1)),
        # The script of a job is one process, however many tasks the job has.
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, Ranks()),
    ],
)
def test_launchers_say_which_process_this_is(environment: dict[str, str], expected: Ranks) -> None:
    assert Ranks.of(environment) == expected


def test_what_launchers_cannot_mean_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"the variables RANK and WORLD_SIZE contradict each other\s+got: +RANK=2, WORLD_SIZE=2"
    ):
        Ranks.of({"RANK": "2", "WORLD_SIZE": "2"})
    with pytest.raises(ConfigError, match=r"the variable WORLD_SIZE is no number\s+got: +two"):
        Ranks.of({"RANK": "0", "WORLD_SIZE": "two"})

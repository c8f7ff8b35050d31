"""Which of several processes this is, as torchrun or srun say it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from dglcell.errors import ConfigError

LAUNCHERS = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    # Not SLURM_NTASKS, which a job's script has too, although it is one process.
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"),
)


@dataclass(frozen=True)
class Ranks:
    """One of several processes.

    Attributes:
        rank: number of this process, from 0.
        size: how many there are.
        local: number of this process on its machine.
        here: how many there are on its machine, 1 where that is not known.
    """

    rank: int = 0
    size: int = 1
    local: int = 0
    here: int = 1

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> Ranks:
        """As the launcher of this process says; a process of its own where there is none.

        Raises:
            ConfigError: a variable of the launcher is no number, or the rank is not below the number of processes.
        """
        for names in LAUNCHERS:
            if names[0] in environment and names[1] in environment:
                found = cls(*(_number(environment, name, d) for name, d in zip(names, (0, 1, 0, 1), strict=True)))
                if found.rank >= found.size:
                    raise ConfigError(
                        f"the variables {names[0]} and {names[1]} contradict each other",
                        got=f"{names[0]}={found.rank}, {names[1]}={found.size}",
                        do="start the processes with torchrun or srun, which set them",
                    )
                return found
        return cls()

    @property
    def name(self) -> str:
        """For messages; from 1."""
        return f"process {self.rank + 1} of {self.size}"


ALONE = Ranks()


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ConfigError(f"the variable {name} is no number", got=text, do="torchrun and srun set it: do not set it")
    return int(text)

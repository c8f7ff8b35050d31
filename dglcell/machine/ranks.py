"""Find out which of several processes this is, as torchrun or srun tell it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from dglcell.errors import ConfigError

LAUNCHERS = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    # SLURM_NTASKS is not used: a job's script has it too, although it is a single process.
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"),
)


@dataclass(frozen=True)
class Ranks:
    """Hold the number of this process among the processes of a run, and how many there are.

    Attributes:
        rank: number of this process, from 0.
        size: number of processes.
        local: number of this process on its machine.
        here: number of processes on its machine, 1 where that is not known.
    """

    rank: int = 0
    size: int = 1
    local: int = 0
    here: int = 1

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> Ranks:
        """Return the ranks that the launcher of this process gives; without a launcher the process is the only one.

        Raises:
            ConfigError: a variable of the launcher is not a number, or the rank is not below the number of processes.
        """
        for names in LAUNCHERS:
            if names[0] in environment and names[1] in environment:
                found = cls(*(number_of(environment, name, d) for name, d in zip(names, (0, 1, 0, 1), strict=True)))
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
        """Return the name of this process for messages, counted from 1."""
        return f"process {self.rank + 1} of {self.size}"


ALONE = Ranks()


def number_of(environment: Mapping[str, str], name: str, default: int) -> int:
    """Return the number in a variable that torchrun or SLURM sets, or a default where it is not set.

    Raises:
        ConfigError: the variable is not a number.
    """
    text = environment.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ConfigError(f"the variable {name} is no number", got=text, do="torchrun or SLURM sets it: do not set it")
    return int(text)

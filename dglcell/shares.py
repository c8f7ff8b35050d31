"""Several processes of one prediction: each takes a share of the strains, and the last one puts the shares together."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dglcell.designs import footer
from dglcell.errors import ConfigError, DataError
from dglcell.files import only_writer

# Which process this is, as torchrun or srun say it.


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


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ConfigError(f"the variable {name} is no number", got=text, do="torchrun and srun set it: do not set it")
    return int(text)


# Shares beside the output.


class Shares:
    """The files ``OUTPUT.share-0-of-4.parquet`` and so on, one for each process.

    A share appears whole or not at all. Whichever process finds all of them puts them together and removes them, the
    first one last: so an output beside the first share is one that was made of shares.

    Args:
        output: the file that they become.
        ranks: which process this is; no more processes than ``strains`` have a share.
        strains: of the output.
        describe: first and last + 1 of some strains → what their share says of itself.

    Attributes:
        bounds: first and last + 1 of the strains of every share; they differ by one in number at most.
        paths: of all shares, in order.

    Raises:
        DataError: shares of another number of processes are there, or parts of a single one.
    """

    def __init__(
        self, output: Path, ranks: Ranks, strains: int, describe: Callable[[int, int], Mapping[str, Any]]
    ) -> None:
        self.output, self.ranks = output, ranks
        size = min(ranks.size, strains)
        self.bounds = [(strains * rank // size, strains * (rank + 1) // size) for rank in range(size)]
        self.paths = [output.with_name(f"{output.name}.share-{rank}-of-{size}.parquet") for rank in range(size)]
        self._about = [describe(*bounds) for bounds in self.bounds]
        self._refuse_others()

    @property
    def has_one(self) -> bool:
        """Whether there is a share for this process."""
        return self.ranks.rank < len(self.paths)

    @property
    def mine(self) -> tuple[Path, tuple[int, int], Mapping[str, Any]]:
        """File, bounds and description of this process's share."""
        return self.paths[self.ranks.rank], self.bounds[self.ranks.rank], self._about[self.ranks.rank]

    def is_made(self, rank: int) -> bool:
        """Whether a process's share is there, and of these strains."""
        return bool(footer(self.paths[rank]) == self._about[rank])

    def _refuse_others(self) -> None:
        pattern = f"-of-{len(self.paths)}.parquet"
        alone = self.output.with_name(f"{self.output.name}.parts")
        beside = self.output.parent.glob(f"{glob.escape(self.output.name)}.share-*")
        others = [path for path in beside if pattern not in path.name] + [alone] * alone.exists()
        if others:
            raise DataError(
                f"'{others[0]}' was begun by another number of processes",
                got=f"{self.ranks.size} processes",
                do="start as many as before, remove what they left to begin anew, or choose another output",
            )

    def join(self, write: Callable[[Sequence[Path]], None]) -> bool:
        """Let ``write`` make the output of the shares, if all are there.

        Returns:
            whether it is complete; else other processes are still at work.
        """
        if not self._all_made():
            return self.output.exists() and not (self.has_one and self.is_made(self.ranks.rank))
        with only_writer(self.output):
            if self._all_made():  # and no other process has put them together meanwhile
                write(self.paths)
                self.remove()
        return True

    def _all_made(self) -> bool:
        return all(map(self.is_made, range(len(self.paths))))

    def remove(self) -> None:
        """Remove the shares, the first one last."""
        for path in reversed(self.paths):
            path.unlink(missing_ok=True)

"""Several processes of one prediction: each takes a share of the strains, and the last one puts the shares together."""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dglcell.errors import DataError
from dglcell.files.atomic import only_writer
from dglcell.machine.ranks import Ranks
from dglcell.prediction.designs import footer

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

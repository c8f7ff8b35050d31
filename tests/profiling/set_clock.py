"""A clock that a test moves."""

from __future__ import annotations

from dglcell.profiling.spans import HostClock


class SetClock(HostClock):
    """Stands still until it is set.

    Attributes:
        now: nanoseconds.
    """

    title = "set by hand"

    def __init__(self) -> None:
        self.now = 0

    def mark(self) -> int:
        """What it shows."""
        return self.now

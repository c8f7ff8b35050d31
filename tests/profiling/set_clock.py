"""A clock that a test moves."""

from __future__ import annotations

from collections.abc import Sequence


class SetClock:
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

    def nanoseconds(self, marks: Sequence[int]) -> list[int]:
        """As they are."""
        return list(marks)

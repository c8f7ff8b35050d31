"""A stream of bytes that counts lines and separators as they pass, so that short rows do not go unnoticed."""

from __future__ import annotations

import io
from typing import IO

NEWLINE = b"\n"


class CountingStream(io.RawIOBase):
    """Passes on what it reads.

    Args:
        source: where the bytes come from.
        separator: the byte that separates cells.

    Attributes:
        separators: how many have passed.
        lines: how many lines have begun, the last one with or without an end.
    """

    def __init__(self, source: IO[bytes], separator: bytes) -> None:
        super().__init__()
        self._source = source
        self._separator = separator
        self._ended = True
        self.separators = 0
        self.lines = 0

    def readable(self) -> bool:
        """Yes."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Up to ``size`` bytes, all where −1."""
        block = self._source.read(size)
        if block:
            self.separators += block.count(self._separator)
            # A line begins with the first byte after the end of another.
            self.lines += block.count(NEWLINE) + self._ended - block.endswith(NEWLINE)
            self._ended = block.endswith(NEWLINE)
        return block

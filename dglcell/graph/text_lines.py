"""Lines of published text files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dglcell.errors import GraphError
from dglcell.files import DAMAGE, open_text


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines that are not blank, with their numbers from 1, without their ends; plain or ``.gz``.

    Raises:
        GraphError: the file is damaged.
    """
    try:
        with open_text(path) as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line.rstrip("\r\n")
    except DAMAGE as error:
        raise GraphError(
            f"'{path.name}' cannot be read to its end",
            got=str(error),
            expected="a text file, plain or .gz",
            do="copy or download the file again",
        ) from error

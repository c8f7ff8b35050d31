"""What a hostile input is, and how it is driven through the command line in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dglcell.cli import main

EXPERIMENT = "experiment.yaml"
MINIMAL = "cell: {model: textbook}\n"

LONGEST_MESSAGE = 5_000
"""Characters of a message, at most: a hostile value is not repeated at length."""


@dataclass(frozen=True)
class Input:
    """A command line that has to be refused.

    Attributes:
        name: of the test.
        arguments: after ``dglcell``.
        says: what the message has to name: the key, file, line or gene to mend.
        files: path below the working folder → content.
        environment: variables.
    """

    name: str
    arguments: tuple[str, ...]
    says: str
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


def cases(inputs: Iterator[Input]) -> pytest.MarkDecorator:
    """Return a test with each of the inputs."""
    return pytest.mark.parametrize("hostile", [pytest.param(one, id=one.name) for one in inputs])


def write(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Put files below a folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return everything below a folder: path → kind and content."""
    return {
        str(path.relative_to(folder)): (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in sorted(folder.rglob("*"))
    }


def status_of(arguments: tuple[str, ...]) -> int:
    """Return the exit status of a command line; argparse exits by itself."""
    try:
        return main(arguments)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1


def check_message(said: str, names: str) -> None:
    """One message, which names what to mend and is fit for a terminal."""
    assert said.startswith(("error: ", "usage: dglcell")), said
    assert said.count("error: ") == 1, said
    assert "Traceback" not in said
    assert names in said, said[:1_000]
    assert len(said) < LONGEST_MESSAGE, len(said)
    assert said.replace("\n", "").isprintable()

"""Small pieces of Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[object]], align: str = "") -> str:
    """A table; ``align`` has a letter for every column, ``l`` or ``r``."""
    marks = ["--:" if letter == "r" else "---" for letter in align.ljust(len(header), "l")]
    lines = [header, marks, *rows]
    return "\n".join("| " + " | ".join(cell(value) for value in line) + " |" for line in lines) + "\n"


def cell(value: object) -> str:
    """What may stand in a cell."""
    return re.sub(r"[ \n]+", " ", str(value)).strip().replace("|", "\\|")


def code(value: object) -> str:
    """As code, unless empty."""
    return f"`{value}`" if str(value) else ""


def block(language: str, text: str) -> str:
    """A fenced block."""
    return f"```{language}\n{text.rstrip()}\n```\n"


def folded(title: str, body: str) -> str:
    """What opens on a click."""
    return f"<details><summary>{title}</summary>\n\n{body}\n</details>\n"

"""The blocks and headings of the documentation's pages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(p for p in DOCS.rglob("*.md") if not {"_build", "_generated"} & set(p.parts))]

FENCE = re.compile(r"^```(\w+|\{code-cell\})\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    page: Path  #: it is on
    line: int  #: of its first line of content
    language: str  #: behind the fence; that of a notebook's cell is ``{code-cell}``
    text: str  #: inside

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(*languages: str) -> list[Block]:
    """Return all blocks of some languages, page by page in order."""
    found = []
    for page in PAGES:
        text = page.read_text()
        for match in FENCE.finditer(text):
            if match[1] in languages:
                found.append(Block(page, text.count("\n", 0, match.start(2)) + 1, match[1], match[2]))
    return found


def commands(block: Block) -> list[str]:
    """Its command lines without comments; of a console, those behind ``$``."""
    lines = block.text.splitlines()
    if block.language == "console":
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return [line.partition("  #")[0].strip() for line in lines if line.strip() and not line.startswith("#")]


def headings(page: Path, level: int) -> list[str]:
    return re.findall(rf"^{'#' * level} (.*)$", page.read_text(), flags=re.MULTILINE)

"""Pages that are made from the package, its experiments and its results when the site is built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from site_extension import commands, configuration, experiments, modules, sources
from site_extension.directives import Drawing, Unsearched, UnsearchedNode, visit_unsearched

DOCS = Path(__file__).resolve().parents[1]
GENERATED = DOCS / "_generated"


def generate(app: Sphinx) -> None:
    """Write all of them below ``_generated``; files that say the same as before are left alone."""
    pages: dict[str, str] = {}
    for maker in (commands, configuration, experiments, modules, sources):
        pages |= maker.pages(DOCS.parent)
    for name, text in pages.items():
        path = GENERATED / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_text() != text:
            path.write_text(text)
    for path in GENERATED.rglob("*"):
        if path.is_file() and path.relative_to(GENERATED).as_posix() not in pages:
            path.unlink()


def keep_colons(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Napoleon takes what stands before a colon in an attribute's first line for its type; let that be a comment."""
    if what in ("attribute", "data"):
        lines[:0] = ["..", ""]


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("builder-inited", generate)
    app.connect("autodoc-process-docstring", keep_colons, priority=400)
    app.add_node(UnsearchedNode, html=(visit_unsearched, None))
    app.add_directive("unsearched", Unsearched)
    app.add_directive("drawing", Drawing)
    return {"parallel_read_safe": True}

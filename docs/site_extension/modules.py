"""The API reference: the names that ``import dglcell`` gives, layers, and names that pages import."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterable
from pathlib import Path

import dglcell
from site_extension.markdown import block

IMPORT = re.compile(r"^ *from (dglcell[\w.]*) import (\([^)]*\)|[^(\n#]+)", re.MULTILINE)

LETTERS = """\
Letters in names and shapes: N nodes of a type, E edges, B strains in the batch, H hidden width, K deleted genes of a
strain (at most), P deleted genes of the whole batch, T phenotypes, S strains of a data set."""

INDEX = f"""\
# API reference

[Public names](public.md) are what `import dglcell` gives. [Layers](layers.md) are in `dglcell.nn`. [Names for
extensions](extend.md) are those that guides import, for example to write a term, a loss or a source. All other names
may change in any release.

{LETTERS}

```{{toctree}}
:maxdepth: 1

public
layers
extend
```
"""


def pages(root: Path) -> dict[str, str]:
    """A page for each of the three, and the list of them."""
    public = [*(("dglcell", name) for name in dglcell.__all__), ("dglcell.errors", "DglcellError")]
    layers = [("dglcell.nn", name) for name in dglcell.nn.__all__]
    known = {described(*pair): pair for pair in (*public, *layers)}
    others = {described(*pair): pair for pair in imported(root)}
    head = "These names are what `import dglcell` gives. [The guide](../../guides/python.md) shows them at work."
    return {
        "api/index.md": INDEX,
        "api/public.md": _page("Public names", head, public),
        "api/layers.md": _page("Layers", "[The guide](../../guides/any-graph.md) shows layers at work.", layers),
        "api/extend.md": _page(
            "Names for extensions",
            "These names are imported on pages of this site.",
            [pair for what, pair in others.items() if what not in known],
        ),
    }


def imported(root: Path) -> list[tuple[str, str]]:
    """Return (module, name) of what the pages import, once each, by module."""
    found = set()
    for path in [root / "README.md", *(root / "docs").rglob("*.md")]:
        if "_generated" not in path.parts:
            for module, names in IMPORT.findall(path.read_text()):
                found |= {(module, name.split(" as ")[0].strip("() \n")) for name in names.split(",")}
    return sorted(pair for pair in found if pair[1])


def described(module: str, name: str) -> tuple[str, str] | None:
    """Return the directive and the full name of a class or function; None of anything else."""
    found = getattr(importlib.import_module(module), name)
    if not (inspect.isclass(found) or inspect.isfunction(found)):
        return None
    return "class" if inspect.isclass(found) else "function", f"{found.__module__}.{found.__qualname__}"


def _page(title: str, head: str, names: Iterable[tuple[str, str]]) -> str:
    sections = []
    for module, name in names:
        if what := described(module, name):
            sections.append(f"## {module}.{name}\n\n" + block("{eval-rst}", f".. auto{what[0]}:: {what[1]}"))
    return "\n".join([f"# {title}", "", head, "", *sections])

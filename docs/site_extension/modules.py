"""The API reference: a page per folder of the package, a section per module."""

from __future__ import annotations

from pathlib import Path

import dglcell
from site_extension.markdown import block

FOLDERS = {
    "graph": "Cell graph",
    "perturbation": "Strains' graphs",
    "kernels": "Kernels",
    "nn": "Layers",
    "models": "Models",
    "losses": "Losses",
    "data": "Data",
    "training": "Training",
    "prediction": "Prediction",
    "explain": "Explanations",
    "new_experiment": "First experiments",
    "cluster": "Jobs",
    "config": "Configuration",
    "runs": "Run directories",
    "report": "Report pages",
    "baselines": "Null models",
    "uncertainty": "Uncertainty",
    "cli": "Command line",
    "published": "Published files",
    "machine": "Machine",
    "files": "Files",
    "": "Python interface, metrics, optimisers and the rest",
}


def pages(root: Path) -> dict[str, str]:
    """A page for each folder, and the list of them."""
    package = root / "dglcell"
    found: dict[str, list[str]] = {folder: [] for folder in FOLDERS}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if module in ("dglcell", "dglcell.__main__") or not path.read_text().strip():
            continue
        found[_folder(module, package)].append(module)
    made = {f"api/{_page(folder)}.md": _text(folder, modules) for folder, modules in found.items()}
    listing = "\n".join(_page(folder) for folder in FOLDERS)
    return {**made, "api/public.md": _public(), "api/index.md": _index(listing)}


def _public() -> str:
    """The names that ``import dglcell`` gives."""
    sections = []
    for name in dglcell.__all__:
        found = getattr(dglcell, name)
        kind = "class" if isinstance(found, type) else "function"
        directive = f".. auto{kind}:: {found.__module__}.{found.__qualname__}\n   :no-index:"
        sections.append(f"## dglcell.{name}\n\n" + block("{eval-rst}", directive))
    head = "These names are what `import dglcell` gives. [The guide](../../guides/python.md) shows them at work."
    return "\n".join(["# Public names", "", head, "", *sections])


def _folder(module: str, package: Path) -> str:
    top = module.split(".")[1]
    # A folder without a title of its own is an oversight that the build should show.
    return top if (package / top).is_dir() else ""


def _page(folder: str) -> str:
    return folder or "top"


def _text(folder: str, modules: list[str]) -> str:
    title = f"# {FOLDERS[folder]}"
    where = f"Package `dglcell.{folder}`." if folder else "Modules directly in `dglcell`."
    sections = [
        f"## {module.removeprefix('dglcell.')}\n\n" + block("{eval-rst}", f".. automodule:: {module}")
        for module in modules
    ]
    return "\n".join([title, "", where, "", *sections])


def _index(listing: str) -> str:
    return f"""\
# API reference

[Public names](public.md) are what `import dglcell` gives. The other pages are for those who extend the package or read
its code: every name with its docstring, folder by folder. Imports go one way, from `graph` and `kernels`
through `perturbation`, `nn` and `models` to `training` and `cli`.

Letters in names and shapes: N nodes of a type, E edges, B strains in the batch, H hidden width, K deleted genes of a
strain (at most), P deleted genes of the whole batch, T phenotypes, S strains of a data set.

```{{toctree}}
:maxdepth: 1

public
{listing}
```
"""

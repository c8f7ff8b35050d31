"""Programs within strings of tests import names that exist; with or without SLURM or a GPU to run them on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name

IMPORT = re.compile(r"^(?:.*; )?from (dglcell[\w.]*) import ([\w, ]+)", re.MULTILINE)


def imported(path: Path) -> Iterator[str]:
    """Names that the strings of a file import from the package."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for module, names in IMPORT.findall(node.value):
                yield from (f"{module}.{name.split(' as ')[0].strip()}" for name in names.split(","))


def exists(name: str) -> bool:
    try:
        resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def test_programs_import_names_that_exist() -> None:
    found = {(path.name, name) for path in Path(__file__).parent.rglob("*.py") for name in imported(path)}
    assert len(found) > 30
    assert not {(file, name) for file, name in found if not exists(name)}
    assert not exists("dglcell.training.ownership")

"""Every public name of the package says what it is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.docs.pages import ROOT

PACKAGE = ROOT / "dglcell"


def public_names(node: ast.Module | ast.ClassDef, prefix: str) -> Iterator[tuple[str, ast.AST]]:
    """Classes, functions, methods and properties without a leading underscore, with those inside classes."""
    for child in node.body:
        if not isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or child.name.startswith("_"):
            continue
        decorators = [ast.unparse(decorator) for decorator in child.decorator_list]
        if any(name.endswith((".setter", "overload")) for name in decorators):
            continue
        yield f"{prefix}.{child.name}", child
        if isinstance(child, ast.ClassDef):
            yield from public_names(child, f"{prefix}.{child.name}")


def names_of(path: Path) -> list[tuple[str, ast.AST]]:
    """Public names of a module, the module itself included."""
    tree = ast.parse(path.read_text())
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return [(module, tree), *public_names(tree, module)] if tree.body else []


def methods(node: ast.AST) -> set[str]:
    """Return names of a class's documented methods."""
    children = node.body if isinstance(node, ast.ClassDef) else []
    return {c.name for c in children if isinstance(c, ast.FunctionDef) and ast.get_docstring(c)}


def test_every_public_name_has_a_docstring() -> None:
    """Methods that do what a method of another class says need none of their own."""
    known = [pair for path in sorted(PACKAGE.rglob("*.py")) for pair in names_of(path)]
    inherited = set().union(*(methods(node) for _, node in known if isinstance(node, ast.ClassDef)))
    missing = [name for name, node in known if not ast.get_docstring(node)]  # type: ignore[arg-type]
    top = {name for name, node in known if isinstance(node, ast.ClassDef)}
    assert not [n for n in missing if n.rpartition(".")[0] not in top or n.rpartition(".")[2] not in inherited]


def test_a_missing_one_is_found(tmp_path: Path) -> None:
    tree = ast.parse('"""Module."""\nclass A:\n    """A."""\n    def f(self): ...\n    def _g(self): ...\n')
    assert [name for name, node in public_names(tree, "m") if not ast.get_docstring(node)] == ["m.A.f"]

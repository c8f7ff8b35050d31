"""Every promise of the page on faults names a test that exists."""

from __future__ import annotations

import ast
import re

import pytest

from tests.docs.pages import DOCS, ROOT

ROWS = [
    line
    for line in (DOCS / "guides" / "faults.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("|") and not re.match(r"\|(-|.*\| Test \|$)", line)
]


@pytest.mark.parametrize("row", ROWS)
def test_a_promise_names_tests_that_exist(row: str) -> None:
    promise = re.findall(r"`(tests/[^`]*)`", row)
    assert promise, "no test is named"
    for name in promise:
        path, *within = name.split("::")
        found: ast.AST = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        for wanted in within:
            (found,) = (node for node in ast.iter_child_nodes(found) if getattr(node, "name", None) == wanted)
        assert isinstance(found, ast.FunctionDef)


def test_there_are_promises() -> None:
    assert len(ROWS) > 30

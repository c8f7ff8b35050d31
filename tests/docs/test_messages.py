"""What the page of failures calls messages are messages of the package."""

from __future__ import annotations

import ast
import functools
import re

import pytest

from tests.docs.pages import DOCS, ROOT

ANY = "…"


def rendered(node: ast.expr) -> list[str]:
    """Return what a message looks like with ``…`` for values; both where it is one of two."""
    if isinstance(node, ast.Constant):
        return [str(node.value)]
    if isinstance(node, ast.JoinedStr):
        return ["".join(ANY if isinstance(part, ast.FormattedValue) else str(part.value) for part in node.values)]
    if isinstance(node, ast.IfExp):
        return rendered(node.body) + rendered(node.orelse)
    if isinstance(node, ast.BinOp):
        return [left + right for left in rendered(node.left) for right in rendered(node.right)]
    return [ANY]


def plain(text: str) -> str:
    """Without backquotes, line ends and several ``…`` in a row; only the first line."""
    return re.sub(r"…[ :]*(?=…)", "", text.split("\n")[0].replace("`", "").strip())


@functools.cache
def messages() -> set[str]:
    """Return the first argument of every error of the package."""
    found = set()
    for path in (ROOT / "dglcell").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
            if isinstance(node, ast.Call) and name.endswith("Error") and node.args:
                found |= {plain(message) for message in rendered(node.args[0])}
    return found


PAGE = (DOCS / "messages.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"^\| `([^|]*)` \|", PAGE[PAGE.index("| message |") :], flags=re.MULTILINE)


@pytest.mark.parametrize("shown", SHOWN)
def test_messages_of_the_page_are_messages(shown: str) -> None:
    assert plain(shown) in messages()


def test_messages_are_found() -> None:
    assert len(messages()) > 200
    assert len(SHOWN) > 10
    assert "unknown strategy" in messages()

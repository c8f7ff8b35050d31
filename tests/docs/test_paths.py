"""Files that the documentation names are there, and hold what it says they hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT

PATH = re.compile(r"`((?:dglcell|tests|benchmarks|conf|jobs)/[\w./-]+)`")
HOLDS = re.compile(r"`(dglcell/[\w/]+\.py)`: `([\w.]+)`")
WRITTEN = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]


@pytest.mark.parametrize("page", [pytest.param(p, id=str(p.relative_to(ROOT))) for p in WRITTEN])
def test_paths_exist(page: Path) -> None:
    assert not [path for path in PATH.findall(page.read_text()) if not (ROOT / path).exists()]


@pytest.mark.parametrize("page", [pytest.param(p, id=str(p.relative_to(ROOT))) for p in WRITTEN])
def test_files_define_what_is_named_behind_them(page: Path) -> None:
    for path, name in HOLDS.findall(page.read_text()):
        source = (ROOT / path).read_text()
        for part in name.split("."):
            assert re.search(rf"\b(class|def) {part}\b|^{part}\b.* = ", source, flags=re.MULTILINE), f"{path}: {name}"


def test_the_architecture_names_files() -> None:
    assert len(HOLDS.findall((ROOT / "docs" / "architecture.md").read_text())) > 20

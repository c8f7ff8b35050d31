"""The version is written in several files, and says the same in all of them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

import dglcell

ROOT = Path(__file__).parents[1]


def test_the_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert project["version"] == dglcell.__version__ == citation["version"]
    assert citation["license"] == project["license"]


def test_the_changelog_says_when_it_was_released() -> None:
    released = re.search(r"^## \[(.*)\] - (.*)$", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert released is not None
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert released.groups() == (citation["version"], citation["date-released"].isoformat())


def test_constraints_are_exact_and_name_torch_once() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9-]+==[\w.]+( ; .*)?", line) for line in lines)
    assert sum(line.startswith("torch==") for line in lines) == 1

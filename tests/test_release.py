"""The version is written in several files, and says the same in all of them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
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


@pytest.mark.parametrize("recipe", ["Dockerfile", "dglcell.def", "dglcell-dgl.def"])
def test_container_recipes_copy_what_the_package_is_built_from(recipe: str) -> None:
    text = (ROOT / "containers" / recipe).read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    needed = {"constraints.txt", "pyproject.toml", "README.md", "LICENSE", "dglcell", *included}
    copied = set(re.findall(r"[\w./-]+", text)) & {path.name for path in ROOT.iterdir()}
    assert needed <= copied
    (extras,) = re.findall(r'"/source\[(.*)\]"', text)
    assert set(extras.split(",")) <= set(project["project"]["optional-dependencies"])
    (version,) = re.findall(r"python:(3\.\d+)-slim", text)
    assert f"Programming Language :: Python :: {version}" in project["project"]["classifiers"]

"""What messages look like."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import dglcell
from dglcell.errors import DataError, DglcellError, and_more, count, did_you_mean, listing


def test_a_message_has_a_line_for_each_answer() -> None:
    error = DataError("what is wrong", got=3, expected="a word", do="mend it")
    assert isinstance(error, DglcellError)
    assert str(error) == "what is wrong\n  got:      3\n  expected: a word\n  do:       mend it"
    assert str(DataError("what is wrong", got=0)) == "what is wrong\n  got:      0"
    assert str(DataError("what is wrong")) == "what is wrong"


def test_long_lists_are_cut_and_counted() -> None:
    assert listing(range(3)) == "0, 1, 2"
    assert listing("abc", limit=3) == "a, b, c"
    assert listing(range(1500), limit=2) == "0, 1 … and 1,498 more"


def test_counts_of_one_are_singular() -> None:
    assert [count(number, "row") for number in (0, 1, 2000)] == ["0 rows", "1 row", "2,000 rows"]
    assert [and_more(number, "row") for number in (0, 1, 2)] == ["", " (and 1 more row)", " (and 2 more rows)"]


def test_close_names_are_suggested_in_any_case() -> None:
    assert did_you_mean("fitnes", ["Fitness", "growth"]) == "did you mean Fitness?"
    assert did_you_mean("conditions", ["condition", "gene"]) == "did you mean condition?"
    assert did_you_mean("strength_from", ["activity_from"]) == "did you mean activity_from?"
    assert did_you_mean("RANDOM", ["random", "none"]) == "did you mean random?"
    assert did_you_mean("x", ["random"], "see the list") == "see the list"


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
    (extras,), known = re.findall(r'"/source\[(.*)\]"', text), project["project"]["optional-dependencies"]
    assert set(extras.split(",")) <= set(known) == {"all", *re.findall(r"\w+", known["all"][0])[1:]}
    (version,) = re.findall(r"python:(3\.\d+)-slim", text)
    assert f"Programming Language :: Python :: {version}" in project["project"]["classifiers"]

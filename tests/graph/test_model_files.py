from __future__ import annotations

import gzip
import json
import logging
import subprocess
import sys
import warnings
from pathlib import Path

import cobra
import pytest

from dglcell.errors import GraphError
from dglcell.graph.metabolism import Metabolism
from dglcell.graph.model_files import MOST_NESTED, SHIPPED, locate_model, read_model
from tests.tiny import process_environment


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_models_are_in_the_installed_cobra(name: str) -> None:
    assert locate_model(name).is_file()


def test_a_home_folder_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    """cobra makes a folder there as it is imported."""
    (tmp_path / "in the way").touch()
    code = (
        "import logging, os\nlogging.basicConfig()\n"
        "from dglcell.graph.model_files import read_model\n"
        "print(len(read_model('textbook').genes), 'XDG_CACHE_HOME' in os.environ)"
    )
    environment = process_environment(HOME=str(tmp_path / "in the way"))
    environment.pop("XDG_CACHE_HOME", None)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout == "137 False\n", done.stderr
    assert "cobra's folder for its cache cannot be made, and is not needed: [Errno 20] Not a directory" in done.stderr


WRITERS = {
    "xml": cobra.io.write_sbml_model,
    "sbml": cobra.io.write_sbml_model,
    "json": cobra.io.save_json_model,
    "yml": cobra.io.save_yaml_model,
    "yaml": cobra.io.save_yaml_model,
    "mat": cobra.io.save_matlab_model,
}


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("extension", WRITERS)
def test_every_format_gives_the_same_metabolism(toy: cobra.Model, tmp_path: Path, extension: str, zipped: bool) -> None:
    path = tmp_path / f"toy.v2.{extension}"
    WRITERS[extension](toy, str(path))
    if zipped:
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        path = path.with_name(path.name + ".gz")
    expected, read = Metabolism.from_model(toy), Metabolism.read(str(path))
    assert read.genes == expected.genes
    assert read.reactions == expected.reactions
    assert read.metabolites == expected.metabolites
    assert read.catalyses.tolist() == expected.catalyses.tolist()
    edges = [sorted(zip(*m.converts.tolist(), m.stoichiometry.tolist(), strict=True)) for m in (read, expected)]
    assert edges[0] == edges[1]


def test_cobra_stays_quiet_and_keeps_its_log_level(capfd: pytest.CaptureFixture[str]) -> None:
    level = logging.getLogger("cobra").level
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_model("mini")
    assert capfd.readouterr() == ("", "")
    assert logging.getLogger("cobra").level == level


def test_unknown_name_lists_the_shipped_models() -> None:
    message = r"no metabolic model is called 'iJR904'\n.*yeast-GEM_9.0.2.*textbook, iJO1366, salmonella, mini"
    with pytest.raises(GraphError, match=message):
        read_model("iJR904")


@pytest.mark.parametrize("extension", WRITERS)
def test_truncated_files(toy: cobra.Model, tmp_path: Path, extension: str) -> None:
    path = tmp_path / f"toy.{extension}"
    WRITERS[extension](toy, str(path))
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(GraphError, match=rf"'toy.{extension}' cannot be parsed as[\s\S]*check that the file is whole"):
        read_model(str(path))
    packed = tmp_path / f"half.{extension}.gz"
    packed.write_bytes(gzip.compress(content)[: len(content) // 9])
    with pytest.raises(GraphError, match="' is not a whole gzip file"):
        read_model(str(packed))


@pytest.mark.parametrize("limit", [1_000, 5_000])
def test_a_rule_that_is_nested_deep_is_refused_at_once(toy: cobra.Model, tmp_path: Path, limit: int) -> None:
    # As deep as this, cobra alone would visit more operands than there are seconds in a year, unless Python's limit of
    # recursion stops it; hypothesis and others raise this limit.
    rule, path = "g1", tmp_path / "deep.json"
    for level in range(MOST_NESTED + 24):
        rule = f"(g2 {'and' if level % 2 else 'or'} {rule})"
    cobra.io.save_json_model(toy, path)
    content = json.loads(path.read_text())
    content["reactions"][0]["gene_reaction_rule"] = rule
    path.write_text(json.dumps(content))
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(limit)
    try:
        with pytest.raises(GraphError, match=r"1 gene rules are nested too deep\n  got: +reactions .*\n.*at most 16"):
            read_model(str(path))
    finally:
        sys.setrecursionlimit(before)

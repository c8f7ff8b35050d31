"""What ``--output`` may replace, for every command that has it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dglcell.cli import main
from dglcell.cli.outputs import KINDS, check_output
from dglcell.cli.parser import make_parser
from dglcell.errors import ConfigError
from dglcell.runs.directory import RunDirectory
from tests.cli.test_main import verbs_of
from tests.tiny import Tiny

COMMANDS = {
    "predict": ["predict", "{run}", "{table}"],
    "explain": ["explain", "{run}", "{table}"],
    "report": ["report", "{run}"],
    "baselines": ["baselines", "{experiment}", "data.store={store}", "paths.runs={runs}"],
    "models": ["models", "{run}", "--organism", "E. coli", "--licence", "MIT", "--limit", "It is tiny."],
    "job render": ["job", "render", "{experiment}"],
}
"""Verb → its arguments without ``--output``."""

TARGETS = ["experiment", "store", "run file", "checkpoint", "table", "foreign table", "symbolic link", "hard link"]

CASES = [("report", what) for what in TARGETS]
CASES += [(verb, what) for verb in COMMANDS if verb != "report" for what in ("run file", "foreign table", "hard link")]
"""One verb with every target: all of them ask `check_output`."""


def test_every_verb_with_an_output_is_tested() -> None:
    found = {
        " ".join(verb)
        for verb, parser in verbs_of(make_parser())
        if any("--output" in action.option_strings or action.dest == "output" for action in parser._actions)
    }
    assert found == set(COMMANDS)


@pytest.fixture
def place(tiny: Tiny, tiny_run: RunDirectory, tmp_path: Path) -> dict[str, Path]:
    """A run, a store, an experiment and a table of one's own, which nothing may change."""
    run = RunDirectory(tmp_path / "runs" / "tiny" / "seed-0")
    shutil.copytree(tiny_run.path, run.path)
    shutil.copytree(tiny.store, tmp_path / "store")
    (tmp_path / "mine.yaml").write_text(tiny.file.read_text())
    (tmp_path / "table.csv").write_text("genes\nb0008;b0114\n")
    (tmp_path / "foreign.csv").write_text("what,else\n1,2\n")
    return {
        "run": run.path, "runs": tmp_path / "runs", "experiment": tmp_path / "mine.yaml",
        "store": tmp_path / "store", "table": tmp_path / "table.csv",
    }  # fmt: skip


@pytest.mark.parametrize(("verb", "what"), CASES)
def test_nothing_of_another_kind_is_replaced(
    verb: str, what: str, place: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = {
        "experiment": place["experiment"],
        "store": place["store"] / "data.mdb",
        "run file": place["run"] / "config.yaml",
        "checkpoint": place["run"] / "checkpoints" / "last.ckpt",
        "table": place["table"],
        "foreign table": tmp_path / "foreign.csv",
    }.get(what, place["experiment"])
    output = target
    if what.endswith("link"):
        output = tmp_path / "out.csv"
        output.symlink_to(target) if what == "symbolic link" else output.hardlink_to(target)
    before = target.read_bytes()
    words = [word.format(**place) for word in COMMANDS[verb]]
    assert main([*words, "--output", str(output)]) == 2
    said = capsys.readouterr().err
    refused = (
        "would overwrite",
        "is there and is something else than",
        "may be written",
        "the suffix does not say",
        "is Markdown",
    )
    assert any(text in said for text in refused)
    assert "output" in said.partition("  do:  ")[2]
    assert target.read_bytes() == before
    assert not list(tmp_path.rglob("*.partial*"))


def test_an_earlier_output_is_replaced(place: dict[str, Path], tmp_path: Path) -> None:
    words = [word.format(**place) for word in COMMANDS["job render"]]
    (tmp_path / "out").touch()
    for _ in range(2):  # over an empty file, and over an output
        assert main([*words, "--output", str(tmp_path / "out")]) == 0


def test_nothing_is_written_beside_a_store(place: dict[str, Path]) -> None:
    for kind in KINDS:
        with pytest.raises(ConfigError, match="is a store, in which nothing else may be written"):
            check_output(place["store"] / "new.csv", kind)
        with pytest.raises(ConfigError, match="is a folder"):
            check_output(place["runs"], kind)

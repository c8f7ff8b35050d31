"""Everything that the documentation shows is run, or at least read by what would run it."""

from __future__ import annotations

import contextlib
import difflib
import io
import re
import shlex
import shutil
import sys
import tomllib
import types
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from dglcell import config
from dglcell.cli import main
from dglcell.cli.parser import make_parser
from dglcell.config_io import load_config
from dglcell.data.sources.screens import LABORATORIES
from dglcell.graph.derived import DERIVED
from dglcell.models.build import MODELS
from tests.docs.pages import DOCS, ROOT, Block, blocks, commands

PYTHON = {page: list(group) for page, group in groupby(blocks("python"), key=lambda block: block.page)}
SHELL = blocks("sh", "console")
SLOW = {DOCS / "extend" / "model.md"}
"""Pages that train."""

REGISTERS = (MODELS, LABORATORIES, DERIVED, config.KINDS["model"])
OVER = {"extends": "conf/base.yaml", "cell": "{model: textbook}"}


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the experiments, as after ``git clone``."""
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def registers() -> Iterator[None]:
    """What a page enters into the package's dictionaries is taken out again."""
    before = [dict(register) for register in REGISTERS]
    yield
    for register, content in zip(REGISTERS, before, strict=True):
        register.clear()
        register.update(content)


@pytest.mark.parametrize(
    "page",
    [pytest.param(p, marks=pytest.mark.slow if p in SLOW else (), id=str(p.relative_to(ROOT))) for p in PYTHON],
)
def test_python_blocks_run(page: Path, clone: Path, registers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    # A module of its own: dataclasses and pickles look their module up.
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for block in PYTHON[page]:
        # Numbered like the page, so that a traceback points there.
        code = compile("\n" * (block.line - 1) + block.text, str(page), "exec", dont_inherit=True)
        exec(code, module.__dict__)


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_commands_are_ones_that_exist(block: Block, clone: Path) -> None:
    for command in commands(block):
        words = shlex.split(command)
        program = Path(words[0]).name
        if program == "dglcell" and block.language == "sh":
            check_dglcell(words[1:])
        elif program == "make":
            assert all(re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE) for target in words[1:])
        elif program == "pip":
            check_extras(words)
        else:
            assert program in ("dglcell", "python3.11"), f"{block}: nothing checks '{command}'"


def check_dglcell(words: list[str]) -> None:
    """The parser takes it, and the experiment that it names is valid with its overrides."""
    options, rest = make_parser().parse_known_args(words)
    assert all("=" in word for word in rest), rest
    file = getattr(options, "config", None) or getattr(options, "experiment", None)
    if file is not None and file.name != "FILE" and file.suffix == ".yaml":
        load_config(file, [*options.overrides, *rest])


def check_extras(words: list[str]) -> None:
    """Extras are those of the package."""
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for word in words:
        if match := re.search(r"\[(.*)\]", word):
            assert set(match[1].split(",")) <= set(known)


@pytest.mark.parametrize("block", blocks("console"), ids=str)
def test_consoles_say_what_the_page_says(block: Block, clone: Path) -> None:
    for command, expected in sessions(block):
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            main(shlex.split(command)[1:])
        assert_shown(expected, output.getvalue().splitlines(), command)


def sessions(block: Block) -> list[tuple[str, list[str]]]:
    """Each command with the lines below it."""
    found: list[tuple[str, list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append((line.removeprefix("$ "), []))
        else:
            found[-1][1].append(line)
    return found


def assert_shown(expected: list[str], printed: list[str], command: str) -> None:
    """Every line of the page was printed, in order; only ``…`` stands for lines that are left out."""
    position, gap = 0, False
    for line in expected:
        if line.strip() == "…":
            gap = True
            continue
        rest = printed[position:] if gap else printed[position : position + 1]
        close = difflib.get_close_matches(line, printed, n=1)
        assert line in rest, f"`{command}` does not print '{line}'; it prints {close or printed[:20]}"
        position, gap = position + rest.index(line) + 1, False
    assert gap or position == len(printed), f"`{command}` prints more: {printed[position:]}"


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_configurations_are_valid(block: Block, clone: Path) -> None:
    keys = re.findall(r"^(\w+):", block.text, flags=re.MULTILINE)
    missing = "".join(f"{key}: {value}\n" for key, value in OVER.items() if key not in keys)
    (clone / "shown.yaml").write_text(missing + block.text)
    load_config("shown.yaml")


def test_there_is_something_to_test() -> None:
    assert len(PYTHON) > 8
    assert len(SHELL) > 12
    assert len(blocks("yaml")) > 8

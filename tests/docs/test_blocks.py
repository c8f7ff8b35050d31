"""Everything that the documentation shows is run, or at least read by what would run it."""

from __future__ import annotations

import ast
import contextlib
import difflib
import functools
import io
import re
import shutil
import sys
import types
from collections.abc import Iterator
from itertools import combinations, groupby
from pathlib import Path
from typing import Any

import pytest

from dglcell.api import load_cell
from dglcell.cli import main
from dglcell.config.read import load_config
from dglcell.data.sources.laboratory import LABORATORIES
from dglcell.graph.metabolism import DERIVED
from dglcell.training.tuning import Search, read_space
from tests.docs.commands import call, check, why_not
from tests.docs.pages import DOCS, PAGES, ROOT, Block, blocks, commands

CELL = "{code-cell}"
PYTHON = {page: list(group) for page, group in groupby(blocks("python", CELL), key=lambda block: block.page)}
SHELL = blocks("sh")
WITH_COMMANDS = {page: list(group) for page, group in groupby(blocks("sh"), key=lambda block: block.page)}
ON_SMALL = {ROOT / "README.md", DOCS / "guides" / "python.md", DOCS / "extend" / "trainer.md"}
"""Pages that train the quickstart."""

FILE = re.compile(r"# (\w+\.(?:py|yaml))\n")
"""First line of a block that is a file of its own."""

REGISTERS = (LABORATORIES, DERIVED)
SMALL = (
    ("bases/ecoli_core.yaml", 'triples: "20000"', 'triples: none\n      pairs: "150"\n      processes: 1'),
    ("bases/ecoli_core.yaml", "hidden: 32", "hidden: 8"),
    ("quickstart.yaml", "layers: 2", "layers: 1"),
    ("quickstart.yaml", "batch_size: 128", "batch_size: 64"),
    ("quickstart.yaml", "epochs: 3", "epochs: 1\n  threads: 1"),
    ("106-ecoli-core/gene_disjoint.yaml", "size: 15000", "size: 250"),
)
"""What makes the quickstart and the demo small: files of conf, and texts in them."""

FEWER = {r"pairs=800": "pairs=150", r'pairs: "800"': 'pairs: "150"', r"epochs(=|: )\d+": r"epochs\g<1>1"}
"""What makes a notebook of the gallery short."""

OVER = {"extends": "conf/base.yaml", "cell": "{model: textbook}"}


@pytest.fixture
def registers() -> Iterator[None]:
    """What a page enters into the package's dictionaries is taken out again."""
    before = [dict(register) for register in REGISTERS]
    yield
    for register, content in zip(REGISTERS, before, strict=True):
        register.clear()
        register.update(content)


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the experiments, as after ``git clone``."""
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_files(page: Path) -> None:
    """Write the blocks of a page that are files into the working folder; modules of that name are forgotten."""
    for block in blocks("python", "yaml"):
        if block.page == page and (name := FILE.match(block.text)):
            Path(name[1]).write_text(block.text)
            sys.modules.pop(Path(name[1]).stem, None)


def make_small(conf: Path) -> None:
    for name, old, new in SMALL:
        text = (conf / name).read_text()
        assert old in text
        (conf / name).write_text(text.replace(old, new))


def shorten(cell: str) -> str:
    """Return the same cell with few strains and one epoch, and without what it says of its picture."""
    if (head := re.match(r"---\n.*?\n---\n", cell, flags=re.DOTALL)) is not None:
        cell = "\n" * head[0].count("\n") + cell[head.end() :]
    for long, short in FEWER.items():
        cell = re.sub(long, short, cell)
    return cell


def named(page: Path, *marks: pytest.MarkDecorator) -> Any:
    return pytest.param(page, id=str(page.relative_to(ROOT)), marks=marks)


# `make docs` runs the cells of the gallery in full.
@pytest.mark.parametrize("page", [named(p, *[pytest.mark.slow] * (p.parent.name == "gallery")) for p in PYTHON])
def test_python_blocks_run(page: Path, clone: Path, registers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(page)
    monkeypatch.syspath_prepend(clone)  # as Python does with the folder of a script
    if page in ON_SMALL:
        make_small(Path("conf"))
        with open("conf/quickstart.yaml", "a") as file:
            file.write("plot: false\n")
    # A module of its own: dataclasses and pickles look their module up.
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for block in PYTHON[page]:
        # Numbered like the page, so that a traceback points there.
        text = "\n" * (block.line - 1) + (shorten(block.text) if block.language == CELL else block.text)
        code = compile(text, str(page), "exec", dont_inherit=True)
        exec(code, module.__dict__)


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_commands_are_ones_that_exist(block: Block, clone: Path) -> None:
    write_files(block.page)
    for command in commands(block):
        check(command)


@pytest.fixture(scope="session")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a clone whose quickstart has few strains and one epoch; it was run with two seeds, the demo with one."""
    folder = tmp_path_factory.mktemp("worked")
    shutil.copytree(ROOT / "conf", folder / "conf")
    make_small(folder / "conf")
    (folder / "genotypes.csv").write_text("strain,gene_1,gene_2\nfirst,b0008,b2464\nsecond,b0727,\n")
    names = load_cell(ROOT / "conf/quickstart.yaml").genes.names
    triples = ["gene_1,gene_2,gene_3", *map(",".join, combinations(names[:8], 3))]
    (folder / "candidates.csv").write_text("\n".join(triples) + "\n")
    pairs = combinations(names[:16], 2)
    rows = [f"{first},{second},{0.5 + number / 240:.4f}\n" for number, (first, second) in enumerate(pairs)]
    (folder / "strains.csv").write_text("gene_1,gene_2,fitness\n" + "".join(rows))
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        for seed in (0, 1):
            assert main(["train", "conf/quickstart.yaml", f"seed={seed}"]) == 0
        assert main(["train", "conf/106-ecoli-core/gene_disjoint.yaml", "split.seed=0"]) == 0
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("page", [named(page) for page in WITH_COMMANDS])
def test_commands_run(page: Path, worked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(worked, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    write_files(page)
    if any("seed=1" in block.text for block in WITH_COMMANDS[page]):
        shutil.rmtree(tmp_path / "runs" / "quickstart" / "seed-1")  # the page makes it with keys of its own
    if any("data build" in block.text for block in WITH_COMMANDS[page]):
        shutil.rmtree(tmp_path / "data")  # a store that is there is not built again
    for block in WITH_COMMANDS[page]:
        for command in commands(block):
            if why_not(command) is None:
                said = io.StringIO()
                with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                    status = call(command)
                assert not status, f"{block}: {command}\n{said.getvalue()}"


@pytest.mark.parametrize("block", blocks("console"), ids=str)
def test_consoles_say_what_the_page_says(block: Block, clone: Path) -> None:
    for command, expected in sessions(block):
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            call(command)
        assert_shown(expected, output.getvalue().splitlines(), command)


def sessions(block: Block) -> list[tuple[str, list[str]]]:
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
def test_configurations_are_valid(block: Block, clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(block.page)
    monkeypatch.syspath_prepend(clone)
    if block.text.startswith("# space.yaml\n"):
        Search.of(Path("conf/quickstart.yaml"), (), read_space(Path("space.yaml")))
        return
    keys = re.findall(r"^(\w+):", block.text, flags=re.MULTILINE)
    missing = "".join(f"{key}: {value}\n" for key, value in OVER.items() if key not in keys)
    (clone / "shown.yaml").write_text(missing + block.text)
    load_config("shown.yaml")


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
    """Return the texts of the package, among them the first line of every error."""
    trees = [ast.parse(path.read_text()) for path in (ROOT / "dglcell").rglob("*.py")]
    texts = [n for tree in trees for n in ast.walk(tree) if isinstance(n, ast.Constant | ast.JoinedStr | ast.BinOp)]
    return {plain(message) for text in texts for message in rendered(text)}


PAGE = (DOCS / "messages.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"^\| `([^|]*)` \|", PAGE[PAGE.index("| message |") :], flags=re.MULTILINE)


@pytest.mark.parametrize("shown", SHOWN)
def test_messages_of_the_page_are_messages(shown: str) -> None:
    assert plain(shown) in messages()


PATH = re.compile(r"`((?:dglcell|tests|benchmarks|conf|jobs)/[\w./-]+)`")
HOLDS = re.compile(r"`(dglcell/[\w/]+\.py)`: `([\w.]+)`")
WRITTEN = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]


@pytest.mark.parametrize("page", [named(page) for page in WRITTEN])
def test_paths_exist_and_define_what_is_named_behind_them(page: Path) -> None:
    text = page.read_text()
    assert not [path for path in PATH.findall(text) if not (ROOT / path).exists()]
    for path, name in HOLDS.findall(text):
        source = (ROOT / path).read_text()
        for part in name.split("."):
            assert re.search(rf"\b(class|def) {part}\b|^{part}\b.* = ", source, flags=re.MULTILINE), f"{path}: {name}"


def test_there_is_something_to_test() -> None:
    assert min(len(PYTHON), len(SHELL), len(blocks("yaml")), len(SHOWN)) > 8
    assert "unknown strategy" in messages()
    assert len(HOLDS.findall((ROOT / "docs" / "architecture.md").read_text())) > 20

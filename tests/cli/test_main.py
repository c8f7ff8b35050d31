"""The command line as a user meets it: what it prints, where, with which exit code, and which files it replaces."""

from __future__ import annotations

import argparse
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from dglcell.cli import main, make_parser
from dglcell.config.read import load_config
from dglcell.errors import MissingDependencyError
from dglcell.runs import RunDirectory
from tests.tiny import BARE, Tiny, process_environment


def verbs_of(parser: argparse.ArgumentParser, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the words of every verb and group of verbs, with its parser."""
    yield above, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb, below in action.choices.items():
                yield from verbs_of(below, (*above, verb))


@pytest.mark.parametrize("verb", [verb for verb, _ in verbs_of(make_parser())], ids=" ".join)
def test_every_verb_has_help_that_fits_a_terminal(
    verb: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as stop:
        main([*verb, "--help"])
    assert stop.value.code == 0
    printed = capsys.readouterr().out
    assert printed.startswith(" ".join(["usage: dglcell", *verb]))
    assert [line for line in printed.splitlines() if len(line) > 80 and "{" not in line] == []


def imported(packages: str, commands: list[list[str]], folder: Path) -> list[list[str]]:
    """Return which of these packages a process has imported after each of some commands."""
    code = (
        "import sys, dglcell.cli\n"
        f"for command in {commands!r}:\n"
        "    try: assert dglcell.cli.main(command) == 0\n"
        "    except SystemExit as stop: assert not stop.code\n"
        f"    print('imported', *sorted(set({packages.split()!r}) & set(sys.modules)), file=sys.stderr)"
    )
    environment = process_environment()
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [line.split()[1:] for line in done.stderr.splitlines() if line.startswith("imported")]


def test_help_and_configurations_import_nothing_heavy_predictions_and_evaluations_little(
    tiny: Tiny, tiny_run: RunDirectory, tmp_path: Path
) -> None:
    (tmp_path / "in.csv").write_text("genes\nb0008\n")
    file, run = str(tiny.file), str(tiny_run.path)
    light = [["--help"], ["--version"], ["config", "show", file], ["config", "validate", file]]
    commands = [*light, ["predict", run, "in.csv", "-o", "out.csv"], ["evaluate", run]]
    never, late = "pytorch_lightning cobra matplotlib wandb", "torch._dynamo scipy.stats dgl"
    *first, after_predict, after_evaluate = imported(f"{never} {late} torch scipy pandas numba", commands, tmp_path)
    assert first == [[], [], [], []]
    assert not {*f"{never} {late}".split()} & {*after_predict}
    assert not {*never.split()} & {*after_evaluate}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("trainer.accelerator=gpu", "device 'cuda' asked for, but torch sees no GPU"),
        ("model.strategy=edge_mask", "DGL cannot be imported"),
    ],
)
def test_what_the_machine_lacks_is_said_before_a_screen_is_computed(
    changed: str, message: str, tiny: Tiny, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object) -> None:
        raise MissingDependencyError("DGL cannot be imported")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("dglcell.training.run.check_strategy_device", lambda s, d: s == "edge_mask" and missing())
    monkeypatch.setattr("dglcell.data.sources.insilico.load_insilico", lambda *_: pytest.fail("computed a screen"))
    monkeypatch.chdir(tmp_path)
    assert main(["train", str(tiny.file), changed, "data.store=new", f"paths.runs={tmp_path}"]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_threads_that_wait_for_each_other_sleep_unless_they_shall_not() -> None:
    code = "import sys, dglcell, os; assert 'torch' not in sys.modules; print(os.environ['OMP_WAIT_POLICY'])"
    for given in ({"OMP_WAIT_POLICY": "ACTIVE"}, {}):
        environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"} | given
        said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert said.stdout.strip() == given.get("OMP_WAIT_POLICY", "PASSIVE")


def test_experiments_are_shown_and_checked(tiny: Tiny, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", str(tiny.file), "seed=3", "paths.raw=somewhere"]) == 0
    again = tmp_path / "again.yaml"
    again.write_text(capsys.readouterr().out)
    assert load_config(again) == load_config(tiny.file, ["seed=3", "paths.raw=somewhere"])
    assert main(["config", "validate", str(tiny.file), "seed=3"]) == 0
    assert capsys.readouterr().out == f"{tiny.file}: valid; the run directory will be runs/tiny/seed-3\n"


def test_a_store_is_built_described_and_checked(tiny: Tiny, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "stores" / "pairs"
    build = ["data", "build", str(tiny.file), f"data.store={store}", "data.source.insilico.pairs=none"]
    assert main(build) == 0
    described = capsys.readouterr().out
    assert "137" in described
    assert main(["data", "stats", str(store)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(described.rstrip())
    assert re.search(r"^fitness +137 +[\d.]+ ", printed, re.MULTILINE)
    assert main(["data", "stats", "--verify", str(store)]) == 0
    assert f"{store}: 137 strains, all columns and hashes are right (" in capsys.readouterr().out
    assert main(build) == 2
    assert "exists already\n  do:       pass `--overwrite`" in capsys.readouterr().err
    assert main([*build, "--overwrite"]) == 0


def test_graphs_of_experiments_and_runs_are_described(
    tiny: Tiny, tiny_run: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    said = []
    for of in (tiny.file, tiny_run.path):
        assert main(["graph", "describe", str(of)]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert "137" in said[0]


@pytest.mark.parametrize(
    ("command", "status", "out", "error"),
    [
        ("{show} | head -1", 0, "experiment:\n", ""),
        ("{show} <&- | head -1", 0, "experiment:\n", ""),
        ("LC_ALL=C PYTHONUTF8=0 {show}", 0, "\n  - \\xe9 \\u2192 \\xef\n", ""),
        (
            "{show} > /dev/full",
            2,
            "",
            "error: a file cannot be written: No space left on device\n  do:       make room",
        ),
        ("{show} >&-", 0, "", ""),
        ("ulimit -v 300000; {dglcell} data build tiny.yaml", 2, "", "memory is not enough: "),
    ],
)
def test_shells_and_machines_of_all_kinds_do(command: str, status: int, out: str, error: str, tmp_path: Path) -> None:
    text = 'experiment: {name: tiny, tags: ["é → ï"]}\ncell: {model: textbook}\n'
    (tmp_path / "tiny.yaml").write_text(text, encoding="utf-8")
    words = {"dglcell": f"{sys.executable} -m dglcell", "show": f"{sys.executable} -m dglcell config show tiny.yaml"}
    shell = ["bash", "-c", command.format(**words)]
    done = subprocess.run(shell, cwd=tmp_path, env=process_environment(), capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    assert out in done.stdout
    assert error in done.stderr if error else not done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("trian x", "no verb is called 'trian'; did you mean 'train'? `dglcell --help` lists them"),
        ("data bulid", "no verb is called 'bulid'; did you mean 'build'? `dglcell data --help` lists them"),
        ("xyzzy", "no verb is called 'xyzzy'; `dglcell --help` lists them"),
        ("train quickstart --gpu", "unrecognized arguments: --gpu; set trainer.accelerator=gpu"),
        ("train quickstart --epochs 3", "unrecognized arguments: --epochs 3; set trainer.epochs=N"),
        ("report runs/a --outptu b.html", "arguments: --outptu b.html; did you mean '--output'?"),
        ("predict run --all-pairs --activity 0,5", "'0,5' has a decimal comma: write 0.5, or 0.0,5 for two activities"),
        ("train x --control 1", "unrecognized arguments: --control 1; did you mean '--without-messages'?"),
        ("train x --without-mesages 1", "--without-mesages 1; did you mean '--without-messages'?"),
        ("doctor --nothing", "unrecognized arguments: --nothing\n"),
        ("-q doctor", "unrecognized arguments: -q; give it after the verb"),
        ("--verbose doctor", "unrecognized arguments: --verbose; give it after the verb"),
        ("", "\n  dglcell train quickstart  "),
        ("data", "the following arguments are required: VERB\n"),
        ("train", "the following arguments are required: FILE\n"),
        ("predict", "the following arguments are required: RUN\n"),
    ],
)
def test_near_misses_are_answered_with_a_suggestion(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words.split())
    printed = capsys.readouterr().err
    assert printed.startswith("usage: dglcell")
    assert said in printed


def test_quiet_commands_print_results_alone(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for option, level in (("-q", logging.WARNING), ("-v", logging.DEBUG), (None, logging.INFO)):
        assert main(["config", "validate", str(tiny.file), *([option] if option else [])]) == 0
        assert logging.getLogger("dglcell").level == level
        assert "valid" in capfd.readouterr().out
    monkeypatch.chdir(tmp_path)
    Path("strains.csv").write_text("gene_1,fitness\nb0008,1.0\nb0114,0.5\n")
    assert main(["init", "mine", "--table", "strains.csv", "--cell", "ecoli-core", "-q"]) == 0
    assert capfd.readouterr() == ("", "")
    assert main(["train", str(tiny.file), "-q", *tiny.overrides(Path("runs"), *BARE)]) == 0
    said = capfd.readouterr().out
    assert "epoch " not in said
    assert "dglcell predict" not in said
    assert "hetero_cell" in said
    assert said.endswith("run      runs/tiny/seed-0\n")
    design = ["--all-pairs", "--limit", "20", "-o", "pairs.parquet"]
    assert main(["predict", "runs/tiny/seed-0", *design, "-q"]) == 0
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("words", [["data", "list"], ["config", "show"], ["models"]], ids=" ".join)
def test_lists_fit_a_terminal(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > 80 and "/" not in line] == []  # paths are not broken


def test_bugs_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr("dglcell.config.read.load_config", broken)
    with pytest.raises(KeyError, match="a bug"):
        main(["config", "show", "quickstart"])


COMMANDS = {
    "predict": ("predict {run} {table} -o {out}", "out.csv"),
    "predict a design": ("predict {run} --all-singles --genes {genes} -o {out}", "out.parquet"),
    "predict a ranking": ("predict {run} --all-singles --genes {genes} --top 2 -o {out}", "out.csv"),
    "explain": ("explain {run} {table} -o {out}", "out.csv"),
    "report": ("report {run} -o {out}", "page.html"),
    "report several": ("report {run} {copy} -o {out}", "page.html"),
    "report their numbers": ("report {run} {copy} -o page.html", "page.csv"),
    "baselines": ("baselines {experiment} data.store={store} paths.runs={runs} -o {out}", "out.json"),
    "models": ("models {run} --organism E.coli --licence MIT --limit Tiny. -o {out}", "model"),
    "job render": ("job render {experiment} -o {out}", "job.sh"),
    "init": ("init {out} --table {labels} --cell textbook", "mine.yaml"),
    "init a clean copy": ("init new --table {labels} --cell textbook --write-clean {out}", "clean.csv"),
}
"""Words of a command, and the name of the file that it is to write."""

NO_OTHER = ("models", "init a clean copy")
"""These replace only what is a model, and write only where there are faults."""

KINDS: dict[str, Callable[[Path, Path], object]] = {
    "an earlier output": lambda out, other: out.write_text("genes,predicted_fitness\nb0008,1\n"),
    "measurements": lambda out, other: out.write_text("gene_1,predicted_fitness,measured\nb0008,1,2\n"),
    "a link": lambda out, other: out.symlink_to(other),
    "a link to nowhere": lambda out, other: out.symlink_to("nowhere"),
    "another name": lambda out, other: out.hardlink_to(other),
}
"""What is there → a function that puts it there, given another file of the user's."""


def test_every_verb_with_an_output_is_tested() -> None:
    verbs = dict(verbs_of(make_parser()))
    with_output = {
        " ".join(verb)
        for verb, parser in verbs.items()
        if any("--output" in action.option_strings or action.dest == "output" for action in parser._actions)
    }
    assert with_output | {"init"} == {name for name in COMMANDS if tuple(name.split()) in verbs}
    can = {" ".join(verb) for verb, parser in verbs.items() if "--overwrite" in parser._option_string_actions}
    assert can == with_output | {"init", "data build"}


@pytest.fixture
def place(tiny: Tiny, tiny_run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    monkeypatch.chdir(tmp_path)
    files = tmp_path / "files"
    files.mkdir()
    (files / "mine.yaml").write_text(tiny.file.read_text())
    (files / "table.csv").write_text("genes\nb0008;b0114\n")
    (files / "genes.txt").write_text("b0008\nb0114\nb0115\n")
    shutil.copy(tiny_run.predictions("test"), files / "labels.csv")
    copy = shutil.copytree(tiny_run.path, files / "copy" / "seed-1")
    return {
        "copy": copy,
        "run": tiny_run.path, "runs": tmp_path / "runs", "experiment": files / "mine.yaml", "store": tiny.store,
        "table": files / "table.csv", "genes": files / "genes.txt", "labels": files / "labels.csv",
    }  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_what_exists_is_left_alone(
    kind: str, place: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, name in COMMANDS.values():
        out = tmp_path / name
        KINDS[kind](out, place["genes"])
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        assert main([word.format(**place, out=out) for word in words.split()]) == 2
        said = capsys.readouterr().err
        shown = out if "{out}" in words else out.relative_to(tmp_path)
        assert f"'{shown}' exists already; nothing was writ" in said
        assert "\n  do:       name another file, or replace it: `--overwrite`\n" in said
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
        out.unlink()


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in NO_OTHER])
def test_it_is_replaced_where_that_is_asked_for(name: str, place: dict[str, Path], tmp_path: Path) -> None:
    words, file = COMMANDS[name]
    out = tmp_path / file
    out.symlink_to(place["genes"])
    assert main([word.format(**place, out=out) for word in [*words.split(), "--overwrite"]]) == 0
    assert not out.is_symlink()
    assert out.stat().st_size > 20
    assert not place["runs"].exists()
    assert place["genes"].read_text() == "b0008\nb0114\nb0115\n"
    table = place["table"]
    assert main(["explain", str(place["run"]), str(table), "-o", str(table), "--overwrite"]) == 2
    (link := tmp_path / "link.csv").symlink_to(table)
    for given, output in ((link, table), (link, link)):
        assert main(["predict", str(place["run"]), str(given), "-o", str(output), "--overwrite"]) == 2
    assert table.read_text() == "genes\nb0008;b0114\n"


def test_a_folder_is_no_file(place: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "page.html").mkdir()
    assert main(["report", str(place["run"]), "-o", "page.html", "--overwrite"]) == 2
    assert "error: 'page.html' is a folder; nothing was written" in capsys.readouterr().err

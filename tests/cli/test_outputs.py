"""What exists is replaced only where ``--overwrite`` says so, by every verb that writes a file that the user names."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dglcell.cli import main, make_parser
from dglcell.runs import RunDirectory
from tests.cli.test_main import verbs_of
from tests.tiny import Tiny

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

"""Files of a run that somebody has damaged: every command that reads one says so in one error."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from dglcell.cli import main
from dglcell.data.store import Store
from dglcell.data.store_build import build_store
from dglcell.runs.directory import EpochLog, RunDirectory
from dglcell.training.checkpoint import load_trained
from tests.tiny import BARE, Tiny


def objects(path: Path) -> None:
    """Python objects in numpy's format, under the names of all arrays that there may be."""
    names = ("part", "meta", "strains", "vectors", "0_src", "0_dst")
    with path.open("wb") as file:
        np.savez(file, **dict.fromkeys(names, np.array([{}], dtype=object)), allow_pickle=True)


def bomb(path: Path) -> None:
    """An array that says that it unpacks to two gigabytes."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("part.npy", bytes(100))
        file.infolist()[0].file_size = 2**31


ANY: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "no text": lambda path: path.write_bytes(b"\xff\xfe\x00" + path.read_bytes()),
    "a list": lambda path: path.write_text("[1, 2]\n"),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}
"""What happens to any file."""

JSON: dict[str, Callable[[Path], object]] = {"no keys": lambda path: path.write_text("{}")}

NPZ: dict[str, Callable[[Path], object]] = {"objects": objects}


def text_of(old: str, new: str) -> Callable[[Path], object]:
    """Replace a text that is there."""

    def do(path: Path) -> None:
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new, 1))

    return do


FILES: dict[str, tuple[str, dict[str, Callable[[Path], object]]]] = {
    # file: (a command that reads it, what happens to it)
    "config.yaml": ("predict", ANY | {"a text": text_of("plot_points: 10000", "plot_points: many")}),
    "environment.json": ("report", ANY | JSON | {"threads as text": text_of('"threads": 1', '"threads": "1"')}),
    "results.json": ("report", ANY | JSON | {"no rows": text_of('"rows"', '"row"')}),
    "metrics.jsonl": (
        "train",
        {
            "a folder": ANY["a folder"],
            "zeros": lambda path: path.write_bytes(bytes(300) + b"\n"),
            "a loss as text": text_of('"train/loss": ', '"train/loss": "high", "x": '),
        },
    ),
    "split.npz": ("evaluate", ANY | NPZ | {"a bomb": bomb}),
    "predictions_test.csv": (
        "report",
        ANY
        | {
            "a column less": text_of("predicted_fitness", "guessed_fitness"),
            "a word": lambda path: path.write_text(path.read_text().rstrip() + "x\n"),
            "a cell less": lambda path: path.write_text(path.read_text().rstrip().rpartition(",")[0] + "\n"),
        },
    ),
    "cell/cell.json": ("predict", ANY | JSON | {"another hash": text_of('"sha256": "', '"sha256": "0')}),
    "cell/edges.npz": ("predict", ANY | NPZ),
    "cell": ("predict", {"gone": shutil.rmtree}),
}

CASES = [(file, damage) for file, (_, damages) in FILES.items() for damage in damages]


@dataclass(frozen=True)
class Runs:
    """A finished run that is copied before it is damaged, and how its commands are given."""

    tiny: Tiny
    directory: RunDirectory
    genotypes: Path

    def arguments(self, verb: str, folder: Path) -> list[str]:
        """Return a command that reads the copy below ``folder``."""
        run, output = folder / "tiny" / "seed-0", str(folder / "out.csv")
        if verb == "train":
            more = (*BARE, "split.subset=null", "trainer.epochs=3")
            return ["train", str(self.tiny.file), *self.tiny.overrides(folder, *more)]
        return {
            "report": ["report", str(run)],
            "compare": ["report", str(self.directory.path), str(run), "-o", str(folder / "out.html")],
            "predict": ["predict", str(run), str(self.genotypes), "-o", output],
            "evaluate": ["evaluate", str(run)],
        }[verb]


@pytest.fixture(scope="module")
def runs(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """A run of two epochs on few strains, for reading only."""
    folder = tmp_path_factory.mktemp("runs")
    build_store(Store(tiny.store).read().slice(137, 437), folder / "store", command="tests")
    tiny = Tiny(tiny.file, folder / "store")
    directory = tiny.train(folder, "split.subset=null").directory
    genotypes = folder / "genotypes.csv"
    genotypes.write_text(f"genes\n{load_trained(directory).cell.genes.names[0]}\n")
    return Runs(tiny, directory, genotypes)


@pytest.fixture
def run(runs: Runs, tmp_path: Path) -> RunDirectory:
    """Return a copy, to be damaged."""
    run = RunDirectory(tmp_path / "tiny" / "seed-0")
    shutil.copytree(runs.directory.path, run.path, ignore=shutil.ignore_patterns("report.*"))
    return run


@pytest.mark.parametrize(("file", "damage"), CASES)
def test_a_damaged_file_is_named(
    runs: Runs, run: RunDirectory, file: str, damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verb, damages = FILES[file]
    damages[damage](run.path / file)
    before = sorted(tmp_path.rglob("*"))
    assert main(runs.arguments(verb, tmp_path)) == 2
    message = capsys.readouterr().err
    assert message.count("error: ") == 1
    assert str(run.path) in message
    assert "allow_pickle" not in message
    assert sorted(tmp_path.rglob("*")) == before


def test_a_last_epoch_that_a_crash_has_torn_is_left_out(runs: Runs, run: RunDirectory, tmp_path: Path) -> None:
    whole = run.metrics.read_bytes()
    for torn in (b'{"epoch": 2, "st', b"\xff", bytes(40), b"7"):
        run.metrics.write_bytes(whole + torn)
        assert len(EpochLog(run.metrics, 2).read()) == 2
    assert main(runs.arguments("compare", tmp_path)) == 0


def test_the_error_of_a_line_names_it(run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = run.metrics.read_text().splitlines()
    run.metrics.write_text(f"{first}\n{{\n{second}\n")
    assert main(["report", str(run.path)]) == 2
    assert capsys.readouterr().err == (
        f"error: the record '{run.metrics}' is damaged: line 2 is no record of an epoch\n"
        "  got:      {\n"
        "  expected: an object of numbers a line, `epoch` among them\n"
        "  do:       remove the line, or put the file back; then run the `dglcell train` command of the run again\n"
    )


def test_a_damaged_field_is_named(run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    text_of('"epoch": ', '"epoch": -')(run.results)
    assert main(["report", str(run.path)]) == 2
    assert capsys.readouterr().err.startswith(
        f"error: '{run.results}' is damaged: `epoch` is wrong\n  got:      -1\n  expected: a whole number, 0 or more\n"
    )

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
from tests.training.test_damaged_checkpoints import ADVICE, SAME, become, cases


def objects(path: Path) -> None:
    """Python objects in numpy's format, under the names of all arrays that there may be."""
    names = ("part", "meta", "strains", "vectors", "0_src", "0_dst")
    with path.open("wb") as file:
        np.savez(file, **dict.fromkeys(names, np.array([{}], dtype=object)), allow_pickle=True)


def embed(path: Path, strains: object, vectors: object) -> None:
    """Embeddings of these strains."""
    with path.open("wb") as file:
        np.savez(file, strains=np.array(strains), vectors=np.array(vectors))


def bomb(path: Path) -> None:
    """An array that says that it unpacks to two gigabytes."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("part.npy", bytes(100))
        file.infolist()[0].file_size = 2**31


ANY: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "no text": lambda path: path.write_bytes(b"\xff\xfe\x00" + path.read_bytes()),
    "a list": lambda path: path.write_text("[1, 2]\n"),
    "a number": lambda path: path.write_text("3\n"),
    "a folder": lambda path: become(path, Path.mkdir),
    "a link in a circle": lambda path: become(path, lambda p: p.symlink_to(p)),
}
"""What happens to any file."""

JSON: dict[str, Callable[[Path], object]] = {
    "no keys": lambda path: path.write_text("{}"),
    "deep": lambda path: path.write_text("[" * 100_000),
    "a number beyond numbers": lambda path: path.write_text('{"epoch": ' + "9" * 5000 + "}"),
}

NPZ: dict[str, Callable[[Path], object]] = {"objects": objects}

REPORTS = ("report", "compare")
"""Of one run, and of several."""


@dataclass(frozen=True)
class File:
    """A file of a run.

    Attributes:
        verbs: commands that read it.
        damages: what happens to it.
    """

    verbs: tuple[str, ...]
    damages: dict[str, Callable[[Path], object]]


def text_of(old: str, new: str) -> Callable[[Path], object]:
    """Replace a text that is there."""

    def do(path: Path) -> None:
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new, 1))

    return do


FILES = {
    "config.yaml": File(
        (*REPORTS, "predict", "evaluate", "train"),
        ANY | {"no seed": text_of("seed: 0", "seeds: 0"), "a text": text_of("plot_points: 10000", "plot_points: many")},
    ),
    "environment.json": File(
        REPORTS,
        ANY
        | JSON
        | {"no hashes": text_of('"hashes"', '"hash"'), "threads as text": text_of('"threads": 1', '"threads": "1"')},
    ),
    "results.json": File(
        REPORTS, ANY | JSON | {"a kind": text_of('"kind": "', '"kind": "odd '), "no rows": text_of('"rows"', '"row"')}
    ),
    "metrics.jsonl": File(
        (*REPORTS, "train"),
        {name: do for name, do in ANY.items() if name not in ("empty", "half")}
        | {
            "zeros": lambda path: path.write_bytes(bytes(300) + b"\n"),
            "a line of nothing": lambda path: path.write_bytes(path.read_bytes() + b"\n"),
            "an epoch as text": text_of('"epoch": 0', '"epoch": "0"'),
            "a loss as text": text_of('"train/loss": ', '"train/loss": "high", "x": '),
        },
    ),
    "split.npz": File(("evaluate", "train"), ANY | NPZ | {"a bomb": bomb}),
    "predictions_test.csv": File(
        ("report",),
        {name: do for name, do in ANY.items() if name != "half"}
        | {
            "a column less": text_of("predicted_fitness", "guessed_fitness"),
            "another phenotype": lambda path: path.write_text(path.read_text().replace("fitness", "growth")),
            "a word": lambda path: path.write_text(path.read_text().rstrip() + "x\n"),
        },
    ),
    "predictions_validation.csv": File(("report",), {name: ANY[name] for name in ("empty", "no text", "a folder")}),
    "embedding_test.npz": File(REPORTS, ANY | NPZ | {"a line of numbers": lambda path: embed(path, [0], [0.5])}),
    "relation_weights.json": File(
        REPORTS,
        {
            "no relations": lambda path: path.write_text('{"1, gene": {"weights": [[1.0]]}}'),
            "too few weights": lambda path: path.write_text(
                '{"1, gene": {"relations": ["a", "b"], "weights": [[1.0]]}}'
            ),
            "a word": lambda path: path.write_text('{"1, gene": {"relations": ["a"], "weights": [["much"]]}}'),
        },
    ),
    "explanations_test.json": File(
        ("report",),
        {
            "no keys": JSON["no keys"],
            "no text": lambda path: path.write_bytes(b"\xff\xfe"),
            "a strain without fields": lambda path: path.write_text('{"strains": [{"title": "a"}]}'),
        },
    ),
    "cell": File(("predict", "evaluate", "train"), {}),
    "cell/cell.json": File(
        ("predict", "evaluate", "train"),
        ANY
        | JSON
        | {
            "names that are numbers": text_of('"vocabularies": {', '"vocabularies": {"x": [1], '),
            "relations of two": text_of('"relations": [', '"relations": [["gene", "gene"], '),
            "another hash": text_of('"sha256": "', '"sha256": "0'),
        },
    ),
    "cell/edges.npz": File(("predict", "evaluate", "train"), ANY | NPZ),
}


def lose(path: Path) -> None:
    shutil.rmtree(path)


FILES["cell"].damages.update(
    {
        "gone": lose,
        "an empty folder": lambda path: (lose(path), path.mkdir()),
        "a file": lambda path: (lose(path), path.write_text("cell")),
        "a link in a circle": lambda path: (lose(path), path.symlink_to(path)),
    }
)

TRAINED = {"empty", "no text", "a folder", "another hash", "gone", "a line of nothing"}
"""`train` reads files by the functions of other commands, and takes longest: `make test` gives it only these."""

CASES = [
    case
    for file, about in FILES.items()
    for damage in about.damages
    for case in cases(
        {f"{file}: {damage}": about.verbs}, SAME if damage in TRAINED else SAME | {"train": about.verbs[0]}
    )
]


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
    shutil.copytree(runs.directory.path, run.path, ignore=shutil.ignore_patterns("figures", "report.*"))
    return run


@pytest.mark.parametrize(("name", "verb"), CASES)
def test_a_damaged_file_is_named(
    runs: Runs, run: RunDirectory, name: str, verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, damage = name.split(": ")
    FILES[file].damages[damage](run.path / file)
    before = sorted(tmp_path.rglob("*"))
    assert main(runs.arguments(verb, tmp_path)) == 2
    message = capsys.readouterr().err
    assert message.count("error: ") == 1
    assert str(run.path) in message
    assert not [word for word in ADVICE if word in message]
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


def test_an_embedding_of_strains_that_are_not_there(run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    embed(run.embedding, [0, 10**6], [[0.5], [0.1]])
    assert main(["report", str(run.path)]) == 2
    assert (
        f"'{run.embedding}' is damaged\n  got:      strains that the test part does not have" in capsys.readouterr().err
    )

"""Files of a run that somebody has damaged: every command that reads one says so in one error."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dglcell.cli import main
from dglcell.data.store import Store, build_store
from dglcell.runs import EpochLog, RunDirectory
from dglcell.training.checkpoint import load_trained
from tests.tiny import BARE, Tiny


def objects(path: Path) -> None:
    """Python objects in numpy's format, under the names of all arrays that there may be."""
    names = ("part", "meta", "strains", "vectors", "0_src", "0_dst")
    with path.open("wb") as file:
        np.savez(file, **dict.fromkeys(names, np.array([{}], dtype=object)), allow_pickle=True)


def bomb(path: Path) -> None:
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
    def do(path: Path) -> None:
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new, 1))

    return do


FILES: dict[str, tuple[str, dict[str, Callable[[Path], object]]]] = {
    # file: (a command that reads it, what happens to it)
    "config.yaml": ("predict", ANY | {"a text": text_of("plot_points: 10000", "plot_points: many")}),
    "environment.json": ("report", ANY | JSON | {"genes as text": text_of('"genes": 137', '"genes": "137"')}),
    "results.json": (
        "report",
        ANY
        | JSON
        | {
            "no rows": text_of('"rows"', '"row"'),
            "no test part": lambda path: path.write_text(path.read_text().replace('"part": "test"', '"part": "x"')),
        },
    ),
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

    def use(self, verb: str, path: Path, out: Path) -> int:
        if verb == "resume":
            more = (*BARE, "split.subset=null", "trainer.epochs=3", "experiment.name=other", f"resume={path}")
            return main(["train", str(self.tiny.file), *self.tiny.overrides(out, *more)])
        table = [str(self.genotypes), "-o", str(out / "predicted.csv")] if verb == "predict" else []
        return main([verb, str(self.directory.path), *table, "--checkpoint", str(path)])


@pytest.fixture(scope="module")
def runs(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    folder = tmp_path_factory.mktemp("runs")
    build_store(Store(tiny.store).read().slice(137, 437), folder / "store", command="tests")
    tiny = Tiny(tiny.file, folder / "store")
    directory = tiny.train(folder, "split.subset=null").directory
    genotypes = folder / "genotypes.csv"
    genotypes.write_text(f"genes\n{load_trained(directory).cell.genes.names[0]}\n")
    return Runs(tiny, directory, genotypes)


@pytest.fixture
def run(runs: Runs, tmp_path: Path) -> RunDirectory:
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
        f"error: '{run.results}' is damaged: `epoch` is wrong\n  got:      -1\n  expected: greater than or equal to 0\n"
    )


ADVICE = ("weights_only", "add_safe_globals", "likely succeed", "trust")
"""Words of torch's advice to load a file without care."""

USED = ("predict", "evaluate", "resume")


class Odd:
    """No tensor and no plain container: what runs if a file is read carelessly."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch ran",)


def put(value: Any, *keys: Any) -> Callable[[Path], None]:
    """Set a field of a checkpoint, or take it away where the value is None."""

    def do(path: Path) -> None:
        content = holder = torch.load(path, weights_only=True)
        for key in keys[:-1]:
            holder = holder[key]
        if value is None:
            del holder[keys[-1]]
        else:
            holder[keys[-1]] = value
        torch.save(content, path)

    return do


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


WEIGHT = "model.terms.graph.head.0.weight"
ABOUT, STATE = "dglcell", "state_dict"

DAMAGED: dict[str, tuple[Callable[[Path], object], str, tuple[str, ...]]] = {
    # name: (what is done to a checkpoint, words of the message, commands)
    "empty": (lambda path: path.write_bytes(b""), "cannot be read", USED),
    "cut": (lambda path: path.write_bytes(path.read_bytes()[:5000]), "cannot be read", USED),
    "a flipped byte": (flip, "cannot be read", USED),
    "a script": (lambda path: torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), path), "cannot be read", USED),
    "a link to nowhere": (lambda path: (path.unlink(), path.symlink_to("nowhere")), "not found", USED),
    "a list": (lambda path: torch.save([torch.load(path)], path), "is not a checkpoint of dglcell", USED),
    "an object": (lambda path: torch.save(Odd(), path), "cannot be read", USED),
    "without weights": (put(None, STATE), "is not a checkpoint of dglcell", USED),
    "schema of tomorrow": (put(3, ABOUT, "schema"), "another version of dglcell\n  got:      schema 3\n", USED),
    "without its configuration": (put(None, ABOUT, "config"), "it describes its run wrongly", USED),
    "a configuration that is no YAML": (put("a: [", ABOUT, "config"), "cannot be read as YAML", USED),
    "another cell": (put("0" * 64, ABOUT, "cell_sha256"), "another cell graph", USED),
    "another split": (put("0" * 64, ABOUT, "split_sha256"), "another split", USED[1:]),
    "a weight missing": (put(None, STATE, WEIGHT), "does not fit", USED),
    "a weight too many": (put(torch.zeros(1), STATE, "model.x"), "does not fit", USED),
    "a weight of another shape": (put(torch.zeros(8), STATE, WEIGHT), "does not fit", USED),
    "no normaliser": (put(None, STATE, "normaliser.shift"), "normaliser.shift", USED),
    "without its loops": (put(None, "loops"), "`loops` is missing", USED[2:]),
    "an optimiser of no weight": (put([], "optimizer_states", 0, "param_groups"), "does not fit this run", USED[2:]),
}


@pytest.mark.parametrize(("name", "verb"), [(name, verb) for name, (*_, verbs) in DAMAGED.items() for verb in verbs])
def test_a_damaged_checkpoint_is_refused_and_nothing_is_left_behind(
    runs: Runs, name: str, verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    damage, words, _ = DAMAGED[name]
    path, out = tmp_path / "damaged.ckpt", tmp_path / "out"
    shutil.copy(runs.directory.last, path)
    out.mkdir()
    damage(path)
    assert runs.use(verb, path, out) == 2
    message = capsys.readouterr().err
    assert f"'{path}' " in message
    assert words in message
    assert not [word for word in ADVICE if word in message]
    assert "\n  expected: " in message or "\n  do:  " in message
    assert not [*out.rglob("*.csv"), *out.rglob("*.ckpt")]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["empty", "a flipped byte", "a link to nowhere"])
def test_a_run_does_not_start_anew_over_a_damaged_checkpoint(
    runs: Runs, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RunDirectory(tmp_path / "tiny" / "seed-0")
    shutil.copytree(runs.directory.path, run.path)
    DAMAGED[name][0](run.last)
    before = run.config.read_bytes(), run.metrics.read_bytes()
    assert main(runs.arguments("train", tmp_path)) == 2
    assert f"checkpoint '{run.last}' cannot be read" in capsys.readouterr().err
    assert (run.config.read_bytes(), run.metrics.read_bytes()) == before


def test_the_undamaged_checkpoint_serves_every_command(runs: Runs, tmp_path: Path) -> None:
    path = tmp_path / "copy.ckpt"
    torch.save(torch.load(runs.directory.last, weights_only=True), path)
    for verb in USED:
        (tmp_path / verb).mkdir()
        assert runs.use(verb, path, tmp_path / verb) == 0

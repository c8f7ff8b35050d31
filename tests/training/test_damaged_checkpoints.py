"""Checkpoints that are damaged, or of another run: every command that reads one names it, and writes nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from dglcell.cli import main
from dglcell.runs.directory import RunDirectory
from dglcell.training.checkpoint import load_trained
from tests.tiny import BARE, Tiny

ADVICE = ("weights_only", "add_safe_globals", "likely succeed", "trust")
"""Words of torch's advice to load a file without care."""

USED = ("predict", "evaluate", "resume")


@dataclass(frozen=True)
class Good:
    """A run whose checkpoint is damaged, and how it was started."""

    tiny: Tiny
    directory: RunDirectory
    genotypes: Path

    def run(self, verb: str, path: Path, out: Path) -> int:
        """Return the status of a command that reads the checkpoint at ``path``, writing below ``out``."""
        if verb == "resume":
            more = (*BARE, "trainer.epochs=2", "experiment.name=other", f"resume={path}")
            return main(["train", str(self.tiny.file), *self.tiny.overrides(out, *more)])
        table = [str(self.genotypes), "-o", str(out / "predicted.csv")] if verb == "predict" else []
        return main([verb, str(self.directory.path), *table, "--checkpoint", str(path)])


@pytest.fixture(scope="module")
def good(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Good:
    """A run of one epoch, for reading only."""
    folder = tmp_path_factory.mktemp("good")
    directory = tiny.train(folder, "trainer.epochs=1").directory
    genotypes = folder / "genotypes.csv"
    genotypes.write_text(f"genes\n{load_trained(directory).cell.genes.names[0]}\n")
    return Good(tiny, directory, genotypes)


class Odd:
    """No tensor and no plain container: what runs if a file is read carelessly."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch ran",)


def put(value: Any, *path: Any) -> Callable[[dict[str, Any]], Any]:
    """Set a field, or take it away where the value is None."""

    def do(content: Any) -> Any:
        holder = content
        for key in path[:-1]:
            holder = holder[key]
        if value is None:
            del holder[path[-1]]
        else:
            holder[path[-1]] = value
        return content

    return do


WEIGHT = "model.terms.graph.head.0.weight"
ABOUT, STATE = "dglcell", "state_dict"

CONTENT: dict[str, tuple[Callable[[dict[str, Any]], Any], str, tuple[str, ...]]] = {
    # name: (what is done to the content, words of the message, commands)
    "a list": (lambda c: [c], "is not a checkpoint of dglcell", USED),
    "an object": (lambda c: Odd(), "cannot be read", USED),
    "without weights": (put(None, STATE), "is not a checkpoint of dglcell", USED),
    "schema of tomorrow": (put(3, ABOUT, "schema"), "another version of dglcell\n  got:      schema 3\n", USED),
    "without its configuration": (put(None, ABOUT, "config"), "what it says of its run is wrong", USED),
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


def refused(good: Good, verb: str, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the error of a command, which leaves nothing behind."""
    out = tmp_path / "out"
    out.mkdir()
    assert good.run(verb, path, out) == 2
    message = capsys.readouterr().err
    assert not [word for word in ADVICE if word in message]
    assert "\n  expected: " in message or "\n  do:  " in message
    assert not [*out.rglob("*.csv"), *out.rglob("*.ckpt")]
    return message


@pytest.mark.parametrize(("name", "verb"), [(name, verb) for name, (*_, verbs) in CONTENT.items() for verb in verbs])
def test_damaged_content(
    good: Good, name: str, verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "damaged.ckpt"
    do, words, _ = CONTENT[name]
    torch.save(do(torch.load(good.directory.last, weights_only=True)), path)
    message = refused(good, verb, path, tmp_path, capsys)
    assert f"'{path}' " in message
    assert words in message
    assert not (tmp_path / "ran").exists()


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


FILES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:5000]),
    "a flipped byte": flip,
    "a script of torch": lambda path: torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), path),
    "a link to nowhere": lambda path: (path.unlink(), path.symlink_to("nowhere")),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("verb", USED)
def test_damaged_files(good: Good, name: str, verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "damaged.ckpt"
    shutil.copy(good.directory.last, path)
    FILES[name](path)
    message = refused(good, verb, path, tmp_path, capsys)
    assert f"checkpoint '{path}' " in message
    assert "cannot be read" in message or "not found" in message


@pytest.mark.parametrize("name", ["empty", "a flipped byte", "a link to nowhere"])
def test_a_run_does_not_start_anew_over_a_damaged_checkpoint(
    good: Good, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RunDirectory(tmp_path / "tiny" / "seed-0")
    shutil.copytree(good.directory.path, run.path)
    FILES[name](run.last)
    before = run.config.read_bytes(), run.metrics.read_bytes()
    assert main(["train", str(good.tiny.file), *good.tiny.overrides(tmp_path, *BARE, "trainer.epochs=2")]) == 2
    assert f"checkpoint '{run.last}' cannot be read" in capsys.readouterr().err
    assert (run.config.read_bytes(), run.metrics.read_bytes()) == before


def test_the_undamaged_checkpoint_serves_every_command(good: Good, tmp_path: Path) -> None:
    path = tmp_path / "copy.ckpt"
    torch.save(torch.load(good.directory.last, weights_only=True), path)
    for verb in USED:
        (tmp_path / verb).mkdir()
        assert good.run(verb, path, tmp_path / verb) == 0

"""Checkpoints that somebody has damaged: every command that reads one says what is wrong, and writes nothing."""

from __future__ import annotations

import io
import os
import shutil
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dglcell.cli import main
from dglcell.data.store import Store
from dglcell.data.store_build import build_store
from dglcell.runs.directory import RunDirectory
from dglcell.training.checkpoint import load_trained
from tests.tiny import BARE, Tiny

ADVICE = ("weights_only", "allow_pickle", "add_safe_globals", "likely succeed", "trust")
"""Words of torch's and numpy's advice to load a file without care."""

RICH = (
    "split.subset=null",
    "scheduler.name=plateau",
    "trainer.patience=3",
    "trainer.epochs=1",
    "loss={name: mle_wass_supcr, buffer_size: 40, supcr: 0.001}",
    "data.phenotypes=[fitness]",
)
"""A schedule, early stopping and a loss that keeps strains: all that a checkpoint may hold."""

USED = ("predict", "evaluate", "resume")
PREDICTS, RESUMES, TESTS = ("predict", "evaluate"), ("resume",), ("evaluate", "resume")


@dataclass(frozen=True)
class Good:
    """A run whose checkpoint is damaged, and how it was started."""

    tiny: Tiny
    directory: RunDirectory
    genotypes: Path

    def run(self, verb: str, path: Path, out: Path) -> int:
        """Return the status of a command that reads the checkpoint at ``path``, writing below ``out``."""
        if verb == "resume":
            more = (*BARE, *RICH, "trainer.epochs=2", "experiment.name=other", f"resume={path}")
            return main(["train", str(self.tiny.file), *self.tiny.overrides(out, *more)])
        table = [str(self.genotypes), "-o", str(out / "predicted.csv")] if verb == "predict" else []
        return main([verb, str(self.directory.path), *table, "--checkpoint", str(path)])


@pytest.fixture(scope="module")
def good(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Good:
    """A run of one epoch on few strains, for reading only."""
    folder = tmp_path_factory.mktemp("good")
    build_store(Store(tiny.store).read().slice(137, 437), folder / "store", command="tests")
    tiny = Tiny(tiny.file, folder / "store")
    directory = tiny.train(folder, *RICH).directory
    genotypes = folder / "genotypes.csv"
    genotypes.write_text(f"genes\n{load_trained(directory).cell.genes.names[0]}\n")
    return Good(tiny, directory, genotypes)


@dataclass(frozen=True)
class Damage:
    """What is done to a good checkpoint.

    Attributes:
        do: content → damaged content.
        message: words that the error has to have.
        verbs: the commands that it matters to.
    """

    do: Callable[[Any], Any]
    message: str
    verbs: tuple[str, ...] = USED


def reach(content: Any, path: tuple[Any, ...]) -> Any:
    """Return the container that holds the last key of a path."""
    for key in path[:-1]:
        content = content[key]
    return content


def put(value: Any, *path: Any) -> Callable[[Any], Any]:
    """Set a field; a function gets the old value."""

    def do(content: Any) -> Any:
        holder = reach(content, path)
        holder[path[-1]] = value(holder[path[-1]]) if callable(value) else value
        return content

    return do


def drop(*path: Any) -> Callable[[Any], Any]:
    """Take a field away."""

    def do(content: Any) -> Any:
        del reach(content, path)[path[-1]]
        return content

    return do


def setting(old: str, new: str) -> Callable[[Any], Any]:
    """Change a line of the configuration that the checkpoint holds."""

    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new, 1)

    return put(change, "dglcell", "config")


def first(value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """Change the first number of a tensor."""
    return lambda tensor: torch.cat([torch.full((1,), value), tensor.flatten()[1:]]).reshape(tensor.shape)


ABOUT, STATE = "dglcell", "state_dict"
WEIGHT = "model.global_head.0.weight"
GENES = "model.encoder.embeddings.gene.weight"
SHIFT, SCALE = "normaliser.shift", "normaliser.scale"
KEPT = ("optimizer_states", 0, "state", 3)
GROUP = ("optimizer_states", 0, "param_groups", 0)
LOOP = ("loops", "fit_loop")
EPOCHS = (*LOOP, "epoch_progress", "current")
STEPS = (*LOOP, "epoch_loop.automatic_optimization.optim_progress", "optimizer", "step", "total")
EARLY = "EarlyStopping{'monitor': 'validation/loss', 'mode': 'min'}"


class Odd:
    """No tensor and no plain container."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.path.join, ("a", "b")


def nested(content: Any) -> Any:
    """Lists in lists."""
    deep: list[Any] = []
    for _ in range(200):
        deep = [deep]
    return put(deep, "callbacks")(content)


def circle(content: Any) -> Any:
    """Return a list that holds itself."""
    content["callbacks"] = endless = []
    endless.append(endless)
    return content


CONTENT = {
    # What it is.
    "a list": Damage(lambda c: [c], "is not a checkpoint of dglcell"),
    "a tensor": Damage(lambda c: torch.zeros(3), "is not a checkpoint of dglcell"),
    "an object": Damage(lambda c: Odd(), "cannot be read"),
    "an object inside": Damage(put(Odd(), "hparams"), "cannot be read"),
    "without a word about itself": Damage(drop(ABOUT), "is not a checkpoint of dglcell"),
    "a list about itself": Damage(put([], ABOUT), "is not a checkpoint of dglcell"),
    "without weights": Damage(drop(STATE), "is not a checkpoint of dglcell"),
    "no schema": Damage(
        drop(ABOUT, "schema"),
        "written by an older dglcell\n  got:      schema 0\n  expected: schema 2\n  do:       use the version that",
    ),
    "schema as text": Damage(put("2", ABOUT, "schema"), "`dglcell.schema` is wrong"),
    "schema as a list": Damage(put([2], ABOUT, "schema"), "`dglcell.schema` is wrong"),
    "schema true": Damage(put(True, ABOUT, "schema"), "`dglcell.schema` is wrong"),
    "schema below zero": Damage(put(-1, ABOUT, "schema"), "`dglcell.schema` is wrong"),
    "schema of tomorrow": Damage(
        put(3, ABOUT, "schema"),
        "written by a newer dglcell\n  got:      schema 3\n  expected: schema 2\n  do:       upgrade dglcell",
    ),
    # What it says of itself.
    **{
        f"without {name}": Damage(drop(ABOUT, name), f"`dglcell.{name}` is missing\n  expected: ")
        for name in ("config", "cell_sha256", "split_sha256", "gene_vocabulary_sha256", "phenotypes", "units")
    },
    "a number as configuration": Damage(put(3, ABOUT, "config"), "`dglcell.config` is wrong\n  got:      3"),
    "a configuration that is no YAML": Damage(put("a: [", ABOUT, "config"), "cannot be read as YAML"),
    "a list as configuration": Damage(put("- 1", ABOUT, "config"), "holds no configuration"),
    "a configuration in brackets": Damage(put("[" * 5000, ABOUT, "config"), "cannot be read as YAML"),
    "an unknown key": Damage(setting("seed:", "sed:"), "unknown key `sed`"),
    "a section that is a number": Damage(setting("trainer:\n", "trainer: 3\nother:\n"), "`dglcell.config` is wrong"),
    "a width below one": Damage(setting("hidden: 8", "hidden: -8"), "`model.hidden` is too small"),
    "a batch size that nobody found": Damage(setting("batch_size: 64", "batch_size: auto"), "`data.batch_size`"),
    "half a hash": Damage(put("ab12", ABOUT, "cell_sha256"), "`dglcell.cell_sha256` is wrong\n  got:      'ab12'"),
    "another cell": Damage(put("0" * 64, ABOUT, "cell_sha256"), "another cell graph"),
    "other genes": Damage(put("0" * 64, ABOUT, "gene_vocabulary_sha256"), " gene"),
    "another split": Damage(put("0" * 64, ABOUT, "split_sha256"), "another split", TESTS),
    "phenotypes as text": Damage(put("fitness", ABOUT, "phenotypes"), "`dglcell.phenotypes` is wrong"),
    "numbered phenotypes": Damage(put([1], ABOUT, "phenotypes"), "`dglcell.phenotypes` is wrong"),
    "no phenotypes": Damage(put([], ABOUT, "phenotypes"), "`dglcell.phenotypes` is wrong"),
    "a phenotype twice": Damage(put(["fitness"] * 2, ABOUT, "phenotypes"), "`dglcell.phenotypes` is wrong"),
    "another phenotype": Damage(put(["growth"], ABOUT, "phenotypes"), "its phenotypes do not agree"),
    "units of nothing": Damage(put([], ABOUT, "units"), "its phenotypes do not agree"),
    "no epoch": Damage(drop("epoch"), "`epoch` is missing"),
    "an epoch as text": Damage(put("0", "epoch"), "`epoch` is wrong\n  got:      '0'"),
    "an epoch below zero": Damage(put(-1, "epoch"), "`epoch` is wrong"),
    "an epoch beyond numbers": Damage(put(10**30, "epoch"), "`epoch` is wrong"),
    "no step": Damage(drop("global_step"), "`global_step` is missing"),
    "half a step": Damage(put(4.5, "global_step"), "`global_step` is wrong"),
    # Weights.
    "a list as weights": Damage(put([1, 2], STATE), "`state_dict` is wrong"),
    "a number among the weights": Damage(put(3, STATE, "model.x"), "`state_dict` is wrong"),
    "a weight missing": Damage(drop(STATE, WEIGHT), f"no `{WEIGHT}`"),
    "no weights at all": Damage(put({}, STATE), "does not fit the model"),
    "a weight too many": Damage(put(torch.zeros(1), STATE, "model.x"), "`model.x`, which is no weight"),
    "a weight of no width": Damage(put(torch.zeros(8), STATE, WEIGHT), "float32 [8] instead of float32 [8, 8]"),
    "a turned weight": Damage(put(lambda w: w.T.clone(), STATE, GENES), "instead of float32 [137, 8]"),
    "weights in double": Damage(put(lambda w: w.double(), STATE, WEIGHT), "float64 [8, 8] instead of float32"),
    "weights in half": Damage(put(lambda w: w.half(), STATE, WEIGHT), "float16 [8, 8] instead of float32"),
    "whole weights": Damage(put(lambda w: w.long(), STATE, WEIGHT), "int64 [8, 8] instead of float32"),
    "a weight that is NaN": Damage(put(first(torch.nan), STATE, WEIGHT), f"`state_dict.{WEIGHT}` is not finite"),
    "an infinite weight": Damage(put(first(torch.inf), STATE, GENES), f"`state_dict.{GENES}` is not finite"),
    "a weight of a single number": Damage(
        put(torch.zeros(1).expand(10**6, 10**6), STATE, WEIGHT), "is no plain tensor\n  expected: all its numbers"
    ),
    "a sparse weight": Damage(put(lambda w: w.to_sparse(), STATE, WEIGHT), "is no plain tensor"),
    "a weight without numbers": Damage(put(lambda w: w.to("meta"), STATE, WEIGHT), "is no plain tensor"),
    "complex weights": Damage(put(lambda w: w.to(torch.complex64), STATE, WEIGHT), "is no plain tensor"),
    "another width": Damage(setting("hidden: 8", "hidden: 16"), "does not fit the model", PREDICTS),
    "another width to continue": Damage(setting("hidden: 8", "hidden: 16"), "model.hidden: 16 → 8", RESUMES),
    "a huge width": Damage(setting("hidden: 8", "hidden: 1000000000"), "`model.hidden` is too large", PREDICTS),
    "a large width": Damage(setting("hidden: 8", "hidden: 99840"), "does not fit the model", PREDICTS),
    "endless layers": Damage(setting("layers: 1\n", "layers: 1000000000\n"), "`model.layers` is too large", PREDICTS),
    "many layers": Damage(setting("layers: 1\n", "layers: 90000\n"), "too few weights", PREDICTS),
    "another model": Damage(setting("name: hetero_cell", "name: perceptron"), "`model.name` is unknown"),
    "features of another cell": Damage(
        put(torch.zeros(3, 2), STATE, "model.encoder.features.gene"), "features of 'gene' are wrong", PREDICTS
    ),
    "a normaliser too wide": Damage(put(torch.ones(7), STATE, SCALE), "`normaliser.scale`"),
    "a normaliser of no width": Damage(put(torch.ones(()), STATE, SHIFT), "`normaliser.shift`"),
    "no normaliser": Damage(drop(STATE, SHIFT), "`normaliser.shift`"),
    "a normaliser that is NaN": Damage(put(torch.tensor([torch.nan]), STATE, SHIFT), "is not finite"),
    "a scale of zero": Damage(put(torch.zeros(1), STATE, SCALE), "`normaliser.scale` is no"),
    "a scale below zero": Damage(put(-torch.ones(1), STATE, SCALE), "`normaliser.scale` is no"),
    # What a run needs to go on.
    **{
        f"without {name}": Damage(drop(name), f"`{name}" if name != "loops" else "`loops.fit_loop` is missing", RESUMES)
        for name in (
            "optimizer_states",
            "lr_schedulers",
            "loops",
            "callbacks",
            "rng",
            "unfinished",
            "pytorch-lightning_version",
        )
    },
    "a version that is none": Damage(put(3, "pytorch-lightning_version"), "is wrong\n  got:      3", RESUMES),
    "no optimiser": Damage(put([], "optimizer_states"), "`optimizer_states` is wrong", RESUMES),
    "an optimiser as text": Damage(put(["AdamW"], "optimizer_states"), "`optimizer_states` is wrong", RESUMES),
    "an optimiser without states": Damage(drop("optimizer_states", 0, "state"), "`optimizer_states`", RESUMES),
    "an optimiser without groups": Damage(drop("optimizer_states", 0, "param_groups"), "`optimizer_states`", RESUMES),
    "an empty optimiser": Damage(put({}, "optimizer_states", 0, "state"), "state` is empty", RESUMES),
    "an average missing": Damage(drop(*KEPT, "exp_avg_sq"), "state.3.exp_avg_sq` is wrong\n  got: ", RESUMES),
    "an average that is NaN": Damage(put(first(torch.nan), *KEPT, "exp_avg"), "exp_avg` is not finite", RESUMES),
    "an average of another shape": Damage(put(torch.zeros(3), *KEPT, "exp_avg"), "state.3.exp_avg` is wrong", RESUMES),
    "an average in double": Damage(put(lambda a: a.double(), *KEPT, "exp_avg"), "exp_avg` is wrong", RESUMES),
    "an average as text": Damage(put("0", *KEPT, "exp_avg"), "exp_avg` is wrong\n  got:      '0'", RESUMES),
    "the average of no weight": Damage(
        put({}, "optimizer_states", 0, "state", 10**6), "is of no weight\n  got:      1000000", RESUMES
    ),
    "a group without its rate": Damage(drop(*GROUP, "lr"), "param_groups.0.lr` is wrong", RESUMES),
    "a rate as text": Damage(put("fast", *GROUP, "lr"), "param_groups.0.lr` is wrong\n  got:      'fast'", RESUMES),
    "a group of other weights": Damage(put(lambda p: p[::-1], *GROUP, "params"), "param_groups` is wrong", RESUMES),
    "a group of fewer weights": Damage(put(lambda p: p[1:], *GROUP, "params"), "param_groups.0.params", RESUMES),
    "no schedule": Damage(put([], "lr_schedulers"), "`lr_schedulers.0` is wrong", RESUMES),
    "a schedule too many": Damage(put(lambda s: s * 2, "lr_schedulers"), "`lr_schedulers.1` is wrong", RESUMES),
    "a schedule as text": Damage(put(["plateau"], "lr_schedulers"), "`lr_schedulers.0` is wrong", RESUMES),
    "a schedule without its best": Damage(drop("lr_schedulers", 0, "best"), "lr_schedulers.0.best` is wrong", RESUMES),
    "loops as a list": Damage(put([], "loops"), "`loops.fit_loop` is missing", RESUMES),
    "an empty loop": Damage(put({}, *LOOP), "`loops.fit_loop.", RESUMES),
    "an epoch as text in the loop": Damage(put("1", *EPOCHS, "completed"), "current.completed` is wrong", RESUMES),
    "a step below zero in the loop": Damage(put(-1, *STEPS, "completed"), "total.completed` is wrong", RESUMES),
    "a word too many in the loop": Damage(put(3, *EPOCHS, "reset"), "current.reset` is wrong", RESUMES),
    "another epoch": Damage(put(7, "epoch"), "`epoch` or `global_step` is wrong", RESUMES),
    "another step": Damage(put(7, *STEPS, "completed"), "`epoch` or `global_step` is wrong", RESUMES),
    "callbacks as a list": Damage(put([], "callbacks"), "`callbacks` is wrong", RESUMES),
    "callbacks in lists": Damage(nested, "`callbacks` is wrong", RESUMES),
    "callbacks in a circle": Damage(circle, "`callbacks` is wrong", RESUMES),
    "forgotten patience": Damage(drop("callbacks", EARLY), "is wrong\n  got:      nothing", RESUMES),
    "patience as text": Damage(put("3", "callbacks", EARLY, "wait_count"), "`callbacks` is wrong", RESUMES),
    "a generator cut short": Damage(put(lambda s: s[:100], "rng", "cpu"), "`rng.cpu` is wrong", RESUMES),
    "a generator of fractions": Damage(put(lambda s: s.float(), "rng", "cpu"), "`rng.cpu` is wrong", RESUMES),
    "an unfinished epoch as a list": Damage(put([], "unfinished"), "`unfinished` is wrong", RESUMES),
    "an unfinished epoch without time": Damage(
        put({"seen": [torch.zeros(2, 1)] * 3}, "unfinished"), "`unfinished` is wrong", RESUMES
    ),
    "an unfinished epoch of two phenotypes": Damage(
        put({"seen": [torch.zeros(5, 2)] * 3, "seconds": 1.0}, "unfinished"), "`unfinished.seen` is wrong", RESUMES
    ),
    "a loss that forgot labels": Damage(drop(STATE, "loss.buffer.target"), "does not fit the loss", RESUMES),
    "a loss that kept too little": Damage(
        put(lambda rows: rows[:5], STATE, "loss.buffer.target"), "does not fit the loss", RESUMES
    ),
    "a loss of two phenotypes": Damage(
        put(lambda rows: rows.repeat(1, 2), STATE, "loss.buffer.target"), "does not fit the loss", RESUMES
    ),
    "a loss in double": Damage(
        put(lambda rows: rows.double(), STATE, "loss.buffer.prediction"), "does not fit the loss", RESUMES
    ),
    "a loss with more": Damage(put(torch.zeros(1), STATE, "loss.x"), "does not fit the loss", RESUMES),
}


def refused(good: Good, verb: str, path: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the message of a command that refuses a checkpoint, after which nothing has been written."""
    before = sorted(good.directory.path.rglob("*"))
    out.mkdir()
    assert good.run(verb, path, out) == 2
    message = capsys.readouterr().err
    assert message.count("error: ") == 1
    assert not [word for word in ADVICE if word in message]
    assert not list(out.iterdir()), "nothing is written, and no run is begun"
    assert sorted(good.directory.path.rglob("*")) == before
    return message


SAME = {"evaluate": "predict", "compare": "report", "resume": "predict"}
"""Commands that read as another one does: a run that goes on reads a checkpoint by what `predict` reads, and more."""


def cases(verbs: Mapping[str, Sequence[str]], same: Mapping[str, str] = SAME) -> list[Any]:
    """Return each damage with each of its commands; those that read as another one does are for `make test-slow`."""
    return [
        pytest.param(name, verb, id=f"{name}: {verb}", marks=[pytest.mark.slow] if same.get(verb) in several else [])
        for name, several in verbs.items()
        for verb in several
    ]


@pytest.mark.parametrize(("name", "verb"), cases({name: damage.verbs for name, damage in CONTENT.items()}))
def test_damaged_content(good: Good, name: str, verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage, path = CONTENT[name], tmp_path / "damaged.ckpt"
    torch.save(damage.do(torch.load(good.directory.last, weights_only=True)), path)
    message = refused(good, verb, path, tmp_path / verb, capsys)
    assert damage.message in message
    assert str(path) in message


def rewrite(path: Path, change: Callable[[dict[str, bytes]], dict[str, bytes]], packed: bool = False) -> None:
    """Write the zip file anew with other parts."""
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED) as file:
        for name, content in change(parts).items():
            file.writestr(name, content)


def part_of(parts: dict[str, bytes], name: str) -> str:
    return next(part for part in parts if part.endswith(name))


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def become(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink()
    make(path)


def old_torch(path: Path) -> None:
    torch.save({"dglcell": {}}, path, _use_new_zipfile_serialization=False)


def script(path: Path) -> None:
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), path)


def arrays(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, state_dict=np.zeros(3))


HUGE = b"\x80\x02c__builtin__\nbytearray\n\x8a\x08" + b"\xff" * 7 + b"\x7f\x85R."
"""A pickle of more bytes than there are."""

FILES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "cut to a beginning": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "cut by a byte": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "without a beginning": lambda path: path.write_bytes(path.read_bytes()[5000:]),
    "a flipped byte": flip,
    "text": lambda path: path.write_text("weights_only=False"),
    "an empty zip": lambda path: rewrite(path, lambda parts: {}),
    "without its pickle": lambda path: rewrite(path, lambda p: {k: v for k, v in p.items() if "data.pkl" not in k}),
    "without a tensor": lambda path: rewrite(path, lambda p: {k: v for k, v in p.items() if "data/3" not in k}),
    "a tensor cut short": lambda path: rewrite(path, lambda p: {**p, part_of(p, "data/3"): b"123"}),
    "a pickle cut short": lambda path: rewrite(path, lambda p: {**p, part_of(p, "data.pkl"): b"\x80\x02}"}),
    "a pickle of nothing": lambda path: rewrite(path, lambda p: {**p, part_of(p, "data.pkl"): b""}),
    "a pickle that pops too much": lambda path: rewrite(path, lambda p: {**p, part_of(p, "data.pkl"): b"\x80\x02R."}),
    "a huge number of bytes": lambda path: rewrite(path, lambda p: {**p, part_of(p, "data.pkl"): HUGE}),
    "a bomb": lambda path: rewrite(path, lambda p: {**p, "archive/data/9999": bytes(10**7)}, packed=True),
    "of an old torch": old_torch,
    "a script of torch": script,
    "arrays of numpy": arrays,
    "a folder": lambda path: become(path, Path.mkdir),
    "a link in a circle": lambda path: become(path, lambda p: p.symlink_to(p)),
    "a link to nowhere": lambda path: become(path, lambda p: p.symlink_to("nowhere")),
}


@pytest.mark.parametrize(("name", "verb"), cases(dict.fromkeys(FILES, USED)))
def test_damaged_files(good: Good, name: str, verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "damaged.ckpt"
    shutil.copy(good.directory.last, path)
    FILES[name](path)
    message = refused(good, verb, path, tmp_path / verb, capsys)
    assert f"checkpoint '{path}' " in message
    assert "cannot be read" in message or "not found" in message


@pytest.mark.parametrize("name", ["empty", "a flipped byte", "a folder", "a link in a circle", "a link to nowhere"])
def test_a_run_does_not_start_anew_over_a_damaged_checkpoint(
    good: Good, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RunDirectory(tmp_path / "tiny" / "seed-0")
    shutil.copytree(good.directory.path, run.path)
    FILES[name](run.last)
    before = run.config.read_bytes(), run.metrics.read_bytes()
    overrides = good.tiny.overrides(tmp_path, *BARE, *RICH, "trainer.epochs=2")
    assert main(["train", str(good.tiny.file), *overrides]) == 2
    message = capsys.readouterr().err
    assert f"checkpoint '{run.last}' cannot be read" in message
    assert not [word for word in ADVICE if word in message]
    assert (run.config.read_bytes(), run.metrics.read_bytes()) == before


def test_the_undamaged_checkpoint_serves_every_command(good: Good, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    torch.save(torch.load(good.directory.last, weights_only=True), buffer)
    path = tmp_path / "copy.ckpt"
    path.write_bytes(buffer.getvalue())
    for verb in USED:
        (tmp_path / verb).mkdir()
        assert good.run(verb, path, tmp_path / verb) == 0

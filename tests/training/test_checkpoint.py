"""Runs go on as if they had not stopped, with all that their models keep beside weights."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from omegaconf import OmegaConf

from dglcell.config.experiment import Config
from dglcell.config.read import parse_config, to_yaml
from dglcell.errors import CheckpointError
from dglcell.nn.config import LINKS
from dglcell.runs.directory import RunDirectory
from dglcell.training.callbacks import CheckpointFiles, LossWatch
from dglcell.training.checkpoint import SCHEMA_VERSION, ReadCheckpoint, load_trained, read_checkpoint
from dglcell.training.run import train
from tests.tiny import BARE, TINY, Tiny, history

KEEPING = ("model.link=auto",)
OPERATOR = ("model.name=set_operator", "model.local_heads=2")


@pytest.mark.parametrize("model", [(), OPERATOR], ids=["hetero_cell", "set_operator"])
def test_a_run_goes_on_and_predicts_with_what_its_checkpoint_keeps(
    tiny: Tiny, tmp_path: Path, model: tuple[str, ...]
) -> None:
    whole = tiny.train(tmp_path / "whole", *KEEPING, *model).directory
    part = tiny.train(tmp_path / "part", *KEEPING, *model, "trainer.epochs=1").directory
    again = tiny.train(tmp_path / "part", *KEEPING, *model).directory
    assert part.path == again.path
    one, other = (load_trained(directory, "last").model.state_dict() for directory in (whole, again))
    assert all(torch.equal(other[name], weight) for name, weight in one.items())
    assert history(whole) == history(again)
    assert len(one["terms.link.measured.genes"]) > 0
    assert LINKS[int(one["terms.link.codes"][0])] == "minimum"


CONTENT = {
    "state_dict": {"w": torch.arange(50_000.0)},
    "dglcell": {
        "schema": SCHEMA_VERSION,
        "config": to_yaml(parse_config(OmegaConf.create(TINY), where="tests")),
        **dict.fromkeys(("cell_sha256", "split_sha256", "gene_vocabulary_sha256"), "0" * 64),
        "phenotypes": ["fitness"],
        "units": [""],
    },
    "epoch": 0,
    "pytorch-lightning_version": pl.__version__,
    "loops": {"fit_loop": {}},
    "callbacks": {},
    "optimizer_states": [{"state": {}, "param_groups": []}],
    "lr_schedulers": [],
    "unfinished": None,
    "rng": {"cpu": torch.get_rng_state()},
}


def write(path: Path, step: int = 0) -> Path:
    CheckpointFiles().save_checkpoint({**CONTENT, "global_step": step}, path)
    return path


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "new/last.ckpt", 3)
    assert [p.name for p in path.parent.iterdir()] == ["last.ckpt"]
    content = CheckpointFiles().load_checkpoint(path)
    assert torch.equal(content["state_dict"]["w"], CONTENT["state_dict"]["w"])
    assert content["global_step"] == 3


def test_a_continued_run_reads_its_checkpoint_once(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tiny.train(tmp_path, "trainer.epochs=1").directory
    loaded: list[object] = []
    load = torch.load

    def note(path: Path, *arguments: Any, **options: Any) -> Any:
        loaded.append(path)
        return load(path, *arguments, **options)

    monkeypatch.setattr(torch, "load", note)
    tiny.train(tmp_path, "trainer.epochs=2", "trainer.checkpoint=best_loss")
    assert loaded.count(run.last) == 1


def test_a_checkpoint_is_handed_over_once(tmp_path: Path) -> None:
    path = write(tmp_path / "last.ckpt")
    files = CheckpointFiles()
    files.read = ReadCheckpoint(path)
    content = files.read.content
    path.unlink()
    assert files.load_checkpoint(path) is content
    with pytest.raises(AssertionError):
        _ = files.read.content


def watched(*losses: float) -> LossWatch:
    """Return a batch of three strains for each loss."""
    watch = LossWatch()
    for i, loss in enumerate(losses):
        strains = torch.arange(3) + 10 * i
        watch.note(torch.tensor(loss, requires_grad=True) * 1, strains, step=i // 2 + 1, epoch=1, batch=i + 1)
    return watch


def test_finite_losses_are_forgotten() -> None:
    watch = watched(0.0, -1e30, 1e30)
    assert watch.found() is None
    assert not watch._pending


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_the_first_bad_batch_is_kept(value: float) -> None:
    watch = watched(1.0, 2.0, value, math.nan, 1.0)
    for wait in (False, True, False):
        found = watch.found(wait=wait)
        assert found is not None
        assert (found.step, found.epoch, found.batch, found.strains) == (2, 1, 3, [20, 21, 22])
        assert str(found.loss) == str(value)


STILL = ("optimizer={name: SGD, lr: 1.0e-30}", "trainer.epochs=1")
"""With these settings no weight changes."""


@pytest.fixture(scope="module")
def first(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Return a run that others begin with; for reading only."""
    return tiny.train(tmp_path_factory.mktemp("first"), "experiment.name=first", "trainer.checkpoint=last").directory


def weights(run: RunDirectory) -> dict[str, torch.Tensor]:
    """Return the weights of the last checkpoint."""
    found: dict[str, torch.Tensor] = read_checkpoint(run.last)["state_dict"]
    return found


def test_all_weights_are_taken(
    tiny: Tiny, first: RunDirectory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="dglcell")
    run = tiny.train(tmp_path, *STILL, "seed=1", f"start_from={first.path}").directory
    for name, weight in weights(first).items():
        torch.testing.assert_close(weights(run)[name], weight, rtol=0, atol=1e-20, msg=name)
    assert f"starting from the weights of '{first.last}' after 2 epochs" in caplog.text
    assert "these weights are not in it" not in caplog.text
    assert "training a new run: no checkpoint in" in caplog.text


def test_weights_of_other_shapes_stay_fresh(
    tiny: Tiny, first: RunDirectory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="dglcell")
    changed = "model.local_kind=factorisation"
    fresh = weights(tiny.train(tmp_path / "fresh", *STILL, "seed=1", changed).directory)
    run = tiny.train(tmp_path / "run", *STILL, "seed=1", changed, f"start_from={first.last}").directory
    for name, weight in weights(run).items():
        source = fresh if name.startswith("model.terms.genes.") else weights(first)
        torch.testing.assert_close(weight, source[name], rtol=0, atol=1e-20, msg=name)
    assert "these weights are not in it, or of another shape: terms.genes.head." in caplog.text


def test_statistics_of_labels_are_those_of_the_new_run(tiny: Tiny, first: RunDirectory, tmp_path: Path) -> None:
    options = (*STILL, "split.train_share=0.1")
    fresh = weights(tiny.train(tmp_path / "fresh", *options).directory)
    begun = weights(tiny.train(tmp_path / "begun", *options, f"start_from={first.path}").directory)
    assert torch.equal(begun["normaliser.scale"], fresh["normaliser.scale"])
    assert not torch.equal(begun["normaliser.scale"], weights(first)["normaliser.scale"])


def test_the_path_may_contain_the_seed(
    tiny: Tiny, first: RunDirectory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="dglcell")
    tiny.train(tmp_path, *STILL, "seed=0", f"start_from={first.path.parent}/seed-${{seed}}")
    assert f"starting from the weights of '{first.last}'" in caplog.text


def test_strains_of_a_run_without_its_split_are_not_known(
    tiny: Tiny, first: RunDirectory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="dglcell")
    shutil.copy(first.last, tmp_path / "alone.ckpt")
    tiny.train(tmp_path, *STILL, f"start_from={tmp_path / 'alone.ckpt'}")
    assert "is not known" in caplog.text


def refused(config: Config, message: str) -> None:
    """Check the error of a training, which leaves no file."""
    with pytest.raises(CheckpointError, match=message):
        train(config)
    assert not RunDirectory(config.run_directory).path.exists()


def test_another_cell_graph_is_refused(tiny: Tiny, first: RunDirectory, tmp_path: Path) -> None:
    options = (*BARE, f"start_from={first.path}", "cell.derived=[isoenzyme]")
    message = r"`start_from`: '.*' belongs to another cell graph\n  got: .*\n  expected: .*, that of this run\n  do: .*"
    refused(tiny.config(tmp_path, *options), message)


def test_a_run_without_a_weight_that_fits_is_refused(tiny: Tiny, first: RunDirectory, tmp_path: Path) -> None:
    options = (*BARE, f"start_from={first.path}", "model.hidden=4")
    message = r"`start_from`: no weight of '.*' fits this model\n  got: .*\n  expected: .*\n  do: .*`model.hidden`"
    refused(tiny.config(tmp_path, *options), message)


def test_a_missing_run_is_refused_before_anything_is_read(tiny: Tiny, tmp_path: Path) -> None:
    refused(tiny.config(tmp_path, *BARE, "start_from=runs/frist"), "run directory 'runs/frist' not found")

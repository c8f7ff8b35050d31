"""Runs that begin with the weights of another run: which they take, what they refuse, and what they record."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from dglcell.config.experiment import Config
from dglcell.errors import CheckpointError
from dglcell.runs.directory import RunDirectory
from dglcell.training.checkpoint import read_checkpoint
from dglcell.training.run import train
from tests.tiny import BARE, Tiny

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

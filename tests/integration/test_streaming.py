"""Runs whose training strains are streamed: as those in memory for the same order, stopped and continued."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from dglcell.config import Config
from dglcell.data.datamodule import StrainDataModule
from dglcell.data.sampler import EpochBatches
from dglcell.data.stream_config import StreamingConfig
from dglcell.data.stream_survey import survey
from dglcell.errors import CheckpointError, ConfigError
from dglcell.training import fit as fit_module
from dglcell.training.checkpoint import read_checkpoint
from dglcell.training.directory import RunDirectory
from dglcell.training.prepare import Prepared
from tests.integration.test_preemption import start, stop_in_an_epoch
from tests.integration.test_resume import assert_same_end
from tests.tiny import Tiny, history

SETTINGS = ("split.subset=null", "data.batch_size=256", "trainer.epochs=2")
STREAMED = ("data.streaming={window: 1000, readers: 2}",)


class _StreamedOrder(EpochBatches):
    """Numbers of strains in memory, in the order in which they are streamed."""

    def __init__(self, whole: Prepared, config: Config) -> None:
        super().__init__(whole.parts["train"], config.data.training_batch, shuffle=True, seed=0)
        streaming = StreamingConfig(1000, 1)
        self.stream = survey(whole.store, whole.cell.genes, whole.split.part, streaming, seed=config.seed).stream

    def __iter__(self) -> Iterator[Tensor]:
        for batch in self.stream.batches(self.epoch, self.batch_size):
            yield batch.rows


def test_losses_are_those_of_strains_in_memory(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    streamed = tiny.train(tmp_path / "streamed", *SETTINGS, *STREAMED).directory

    class InOrder(StrainDataModule):
        def train_dataloader(self) -> torch.utils.data.DataLoader:
            loader = super().train_dataloader()
            return torch.utils.data.DataLoader(
                loader.dataset, sampler=_StreamedOrder(prepared, config), batch_size=None, generator=torch.Generator()
            )

    config = tiny.config(tmp_path / "resident", "plot=false", "null_models=false", *SETTINGS)
    prepared = fit_module.Prepared  # replaced below

    def make(config: Config, whole: Prepared) -> StrainDataModule:
        nonlocal prepared
        prepared = whole
        return InOrder(whole.dataset, whole.parts, batch_size=256, eval_batch_size=256, seed=config.seed)

    monkeypatch.setattr(fit_module, "make_data", make)
    resident = tiny.train(tmp_path / "resident", *SETTINGS).directory
    assert history(streamed) == history(resident)
    assert_same_end(streamed, resident)


def test_a_stopped_run_ends_like_one_that_never_stopped(tiny: Tiny, tmp_path: Path) -> None:
    options = (*SETTINGS, *STREAMED, "data.batch_size=16", "model.dropout=0.2", "trainer.epochs=3")
    run = RunDirectory(tmp_path / "stopped/tiny/seed-0")
    stop_in_an_epoch(start(tiny, tmp_path / "stopped", *options), run, signal.SIGTERM)
    assert read_checkpoint(run.interrupted)["unfinished"] is not None
    # The number of readers is the machine's, not the experiment's.
    tiny.train(tmp_path / "stopped", *options, "data.streaming.readers=1")
    assert_same_end(tiny.train(tmp_path / "whole", *options).directory, run)


def test_two_processes_learn_what_one_does(tiny: Tiny, tmp_path: Path) -> None:
    options = (*SETTINGS, *STREAMED, "trainer.epochs=1")
    one = tiny.train(tmp_path / "one", *options).directory
    done = start(tiny, tmp_path / "two", *options, "data.batch_size=128", "trainer.devices=2")
    _, said = done.communicate(timeout=300)
    assert done.returncode == 0, said
    two = RunDirectory(tmp_path / "two/tiny/seed-0")
    for left, right in zip(history(one), history(two), strict=True):
        assert left["validation/loss"] == pytest.approx(right["validation/loss"], rel=1e-4)


def test_what_needs_all_strains_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    for options, message in (
        (("null_models=true",), "null models are fitted to all training strains"),
        (("data.normalise=robust", "null_models=false"), "needs all training labels in memory"),
        (("split.kind=stratified", "null_models=false"), "needs all strains in memory"),
        (("split.subset={size: 300}", "null_models=false"), "`split.subset` needs all strains in memory"),
    ):
        with pytest.raises(ConfigError, match=message):
            tiny.config(tmp_path, "split.subset=null", *STREAMED, *options)


def test_another_store_is_refused_where_a_run_is_continued(tiny: Tiny, tmp_path: Path) -> None:
    from dglcell.data.store import Store
    from dglcell.data.store_build import build_store

    options = (*SETTINGS, *STREAMED, "trainer.epochs=1")
    store = tmp_path / "store"
    table = Store(tiny.store).read()
    build_store(table, store, command="test")
    tiny.train(tmp_path, *options, f"data.store={store}")
    build_store(table.slice(0, len(table) - 1), store, command="test", overwrite=True)
    with pytest.raises(CheckpointError, match="is not the one this run was started on"):
        tiny.train(tmp_path, *options, f"data.store={store}", "trainer.epochs=2")

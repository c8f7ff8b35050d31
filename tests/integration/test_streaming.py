"""Runs whose training strains are streamed: as those in memory for the same order, stopped and continued."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from dglcell.baselines.fit import NULL_MODELS
from dglcell.config.experiment import Config
from dglcell.data.config import StreamingConfig
from dglcell.data.datamodule import StrainDataModule
from dglcell.data.dataset import EpochBatches
from dglcell.data.store import Store
from dglcell.data.store_build import build_store
from dglcell.data.stream_split import survey
from dglcell.errors import CheckpointError, ConfigError
from dglcell.runs.directory import RunDirectory
from dglcell.training import fit as fit_module
from dglcell.training.checkpoint import read_checkpoint
from dglcell.training.evaluate import evaluate_null_models
from dglcell.training.prepare import Prepared
from dglcell.training.run import train
from tests.integration.processes import start
from tests.integration.test_preemption import stop_at_step
from tests.integration.test_resume import assert_same_end
from tests.tiny import Tiny, history

SETTINGS = ("split.subset=null", "data.batch_size=64", "trainer.epochs=2")
STREAMED = ("data.streaming={window: 100, readers: 2}",)


@pytest.fixture(scope="module")
def small(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """The experiment on 300 of its strains, in small blocks: subsets are not for streams."""
    path = tmp_path_factory.mktemp("small") / "store"
    build_store(Store(tiny.store).read().slice(137, 437), path, command="test", block_strains=20)
    return Tiny(tiny.file, path)


class _StreamedOrder(EpochBatches):
    """Numbers of strains in memory, in the order in which they are streamed."""

    def __init__(self, whole: Prepared, config: Config) -> None:
        super().__init__(whole.parts["train"], config.data.training_batch, shuffle=True, seed=0)
        streaming = StreamingConfig(100, 1)
        self.stream = survey(whole.store, whole.cell.genes, whole.split.part, streaming, seed=config.seed).stream

    def __iter__(self) -> Iterator[Tensor]:
        for batch in self.stream.batches(self.epoch, self.batch_size):
            yield batch.rows


def test_losses_are_those_of_strains_in_memory(small: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    streamed = small.train(tmp_path / "streamed", *SETTINGS, *STREAMED).directory

    class InOrder(StrainDataModule):
        order: _StreamedOrder

        def train_dataloader(self) -> torch.utils.data.DataLoader:
            loader = super().train_dataloader()
            return torch.utils.data.DataLoader(
                loader.dataset, sampler=self.order, batch_size=None, generator=torch.Generator()
            )

    def make(config: Config, whole: Prepared) -> StrainDataModule:
        module = InOrder(whole.dataset, whole.parts, batch_size=64, eval_batch_size=64, seed=config.seed)
        module.order = _StreamedOrder(whole, config)
        return module

    monkeypatch.setattr(fit_module, "make_data", make)
    resident = small.train(tmp_path / "resident", *SETTINGS).directory
    assert history(streamed) == history(resident)
    assert_same_end(streamed, resident)


@pytest.mark.slow
def test_a_stopped_run_ends_like_one_that_never_stopped(small: Tiny, tmp_path: Path) -> None:
    options = (*SETTINGS, *STREAMED, "data.batch_size=2", "model.dropout=0.2", "trainer.epochs=4")
    run = RunDirectory(tmp_path / "stopped/tiny/seed-0")
    stop_at_step(small, tmp_path / "stopped", 150, signal.SIGTERM, *options)
    assert read_checkpoint(run.interrupted)["unfinished"] is not None
    # The number of readers is the machine's, not the experiment's.
    small.train(tmp_path / "stopped", *options, "data.streaming.readers=1")
    assert_same_end(small.train(tmp_path / "whole", *options).directory, run)


@pytest.mark.slow
def test_two_processes_learn_what_one_does(small: Tiny, tmp_path: Path) -> None:
    options = (*SETTINGS, *STREAMED, "trainer.epochs=1")
    one = small.train(tmp_path / "one", *options).directory
    done = start(small, tmp_path / "two", *options, "data.batch_size=32", "trainer.devices=2")
    _, said = done.communicate(timeout=300)
    assert done.returncode == 0, said
    two = RunDirectory(tmp_path / "two/tiny/seed-0")
    for left, right in zip(history(one), history(two), strict=True):
        assert left["validation/loss"] == pytest.approx(right["validation/loss"], rel=1e-4)


def test_what_needs_all_strains_is_refused(small: Tiny, tmp_path: Path) -> None:
    for option, message in (
        ("data.normalise=robust", "needs all training labels in memory"),
        ("split.kind=stratified", "needs all strains in memory"),
        ("split.subset={size: 300}", "`split.subset` needs all strains in memory"),
    ):
        with pytest.raises(ConfigError, match=message):
            small.config(tmp_path, "split.subset=null", *STREAMED, option)


def test_null_models_are_left_out_with_the_reason(small: Tiny, tmp_path: Path) -> None:
    config = small.config(tmp_path, *SETTINGS, *STREAMED, "trainer.epochs=1", "plot=false")
    result = train(config)
    assert {row.model for row in result.rows} == {"hetero_cell"}
    left_out = json.loads(result.directory.results.read_text())["left_out"]["fitness"]
    assert set(left_out) == set(NULL_MODELS)
    assert set(left_out.values()) == {"needs all training strains in memory, and `data.streaming` keeps them out"}
    with pytest.raises(ConfigError, match=r"no null model can be fitted: each needs[\s\S]*set `data.streaming: null`"):
        evaluate_null_models(config)


def test_another_store_is_refused_where_a_run_is_continued(small: Tiny, tmp_path: Path) -> None:
    options = (*SETTINGS, *STREAMED, "trainer.epochs=1")
    store = tmp_path / "store"
    table = Store(small.store).read()
    build_store(table, store, command="test")
    small.train(tmp_path, *options, f"data.store={store}")
    build_store(table.slice(0, len(table) - 1), store, command="test", overwrite=True)
    with pytest.raises(CheckpointError, match="is not the one this run was started on"):
        small.train(tmp_path, *options, f"data.store={store}", "trainer.epochs=2")

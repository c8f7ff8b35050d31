"""What happens around training steps."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from omegaconf import OmegaConf

from dglcell.config.read import parse_config, to_yaml
from dglcell.training import checkpoint_file
from dglcell.training.callbacks import CheckpointFiles, LossWatch
from dglcell.training.checkpoint_file import ReadCheckpoint
from tests.tiny import TINY, Tiny

CONTENT = {
    "state_dict": {"w": torch.arange(50_000.0)},
    "dglcell": {
        "schema": checkpoint_file.SCHEMA_VERSION,
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

"""Pictures during training: as often as asked for, and nothing where they are not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from dglcell.errors import ConfigError, MissingDependencyError
from dglcell.run_directory import RunDirectory
from dglcell.training.callbacks import EpochPictures
from tests.plots.invented import png_size
from tests.tiny import Tiny, history


def test_every_second_epoch_is_drawn(tiny: Tiny, tmp_path: Path) -> None:
    directory = tiny.train(tmp_path, "plot_every=2", "plot_points=9", "trainer.epochs=5").directory
    assert sorted(path.name for path in directory.figures.iterdir()) == ["epoch-002.png", "epoch-004.png"]
    width, height = png_size(directory.epoch_picture(2).read_bytes())
    assert width > 4 * height > 0
    for row in history(directory):
        assert row["validation/embedding_norm"] > 0
        assert 0 < row["validation/embedding_spread"] < 1
        assert -1 < row["validation/embedding_cosine"] < 1


def test_zero_means_never(tiny: Tiny, tmp_path: Path) -> None:
    directory = tiny.train(tmp_path, "plot_every=0", "trainer.epochs=2").directory
    assert not directory.figures.exists()
    pictures = EpochPictures(directory, "", 0, {}, 10, 0)
    assert not any(map(pictures.due, range(100)))


def test_several_phenotypes_and_missing_labels_are_drawn(tmp_path: Path) -> None:
    pictures = EpochPictures(RunDirectory(tmp_path), "run", 1, {"a": "1/h"}, 10, 0)
    measured = torch.randn(30, 2)
    measured[::3, 1] = torch.nan
    pictures.draw(11, ["a", "b"], torch.randn(30, 2), measured, torch.randn(30, 4))
    assert png_size((tmp_path / "figures/epoch-012.png").read_bytes())[0] > 0


@pytest.mark.parametrize(("option", "least"), [("plot_every=-1", "0"), ("plot_points=0", "1")])
def test_numbers_out_of_range_are_refused(tiny: Tiny, tmp_path: Path, option: str, least: str) -> None:
    with pytest.raises(ConfigError, match=rf"`{option.split('=')[0]}` is too small\n.*\n  expected: {least} or more"):
        tiny.config(tmp_path, option)


@pytest.mark.parametrize("option", ["plot=true", "plot_every=3"])
def test_what_is_missing_for_pictures_is_said_before_training(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingDependencyError, match=r"set `plot: false` and `plot_every: 0`"):
        tiny.train(tmp_path, option)
    assert list(tmp_path.iterdir()) == []

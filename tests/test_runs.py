"""The run directory, the record of its epochs, and where it ran."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import dglcell
from dglcell.cli import main
from dglcell.errors import CheckpointError
from dglcell.runs import EpochLog, RunDirectory, environment, git_state
from tests.tiny import Tiny


def test_checkpoints_are_found_by_name_and_by_path_or_those_that_are_there_are_named(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "run")
    with pytest.raises(CheckpointError, match=r"last.ckpt' not found\n  expected: a .*none yet\n  do: +train first"):
        directory.checkpoint("last")
    directory.checkpoints.mkdir(parents=True)
    directory.last.touch()
    (tmp_path / "other.ckpt").touch()
    assert directory.checkpoint("last") == directory.last == tmp_path / "run/checkpoints/last.ckpt"
    assert directory.checkpoint(str(tmp_path / "other.ckpt")) == tmp_path / "other.ckpt"
    with pytest.raises(CheckpointError, match=r"best_loss.ckpt' not found\n  expected: one of last$"):
        directory.checkpoint("best_loss")


FIGURES = {"train/loss": 1.0, "validation/loss": 0.5, "validation/pearson": 0.25, "seconds": 1.25}


@pytest.fixture
def log(tmp_path: Path) -> EpochLog:
    return EpochLog(tmp_path / "metrics.jsonl", 10)


def test_epochs_are_appended_and_said(log: EpochLog) -> None:
    line = log.write(0, 4, FIGURES)
    assert line == "epoch    1/10  loss 1.0000, validation 0.5000  r 0.2500  1.2 s, 0:00:11 left  *"
    assert log.write(1, 8, {**FIGURES, "validation/loss": 0.6}).endswith("1.2 s, 0:00:10 left")
    assert log.write(2, 12, {**FIGURES, "validation/loss": 0.4}).endswith("1.2 s, 0:00:09 left  *")
    last = {**FIGURES, "validation/loss": 0.6, "validation/pearson": float("nan")}
    assert EpochLog(log.path, 4).write(3, 16, last).endswith("r undefined  1.2 s")
    assert [(row["epoch"], row["step"], row["validation/loss"]) for row in log.read()] == [
        (0, 4, 0.5),
        (1, 8, 0.6),
        (2, 12, 0.4),
        (3, 16, 0.6),
    ]


def test_a_resumed_run_rewrites_its_later_epochs_and_torn_lines(log: EpochLog) -> None:
    log.rewind(0)
    assert not log.path.exists()
    for epoch in range(5):
        log.write(epoch, epoch, FIGURES)
    with log.path.open("a") as file:
        file.write('{"epoch": 5, "st')
    assert len(log.read()) == 5
    log.rewind(3)
    assert [json.loads(line)["epoch"] for line in log.path.read_text().splitlines()] == [0, 1, 2]
    log.rewind(0)
    assert log.path.read_text() == ""
    assert [p.name for p in log.path.parent.iterdir()] == ["metrics.jsonl"]


def test_versions_command_and_machine() -> None:
    about = environment("dglcell train x.yaml seed=1")
    assert about["command"] == "dglcell train x.yaml seed=1"
    assert about["dglcell"] == dglcell.__version__
    assert about["packages"]["torch"] == torch.__version__
    assert about["threads"] == torch.get_num_threads()
    assert about["devices"]
    assert about["platform"].startswith(f"{platform.system()}-{platform.machine()}")
    assert platform.release() not in about["platform"]


def test_git_state_is_that_of_a_repository_that_keeps_the_folder(tmp_path: Path) -> None:
    assert git_state(tmp_path) is None
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "x"]):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    state = git_state(tmp_path / "kept")
    assert state is not None
    assert (len(state["commit"]), state["dirty"]) == (40, False)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "installed").touch()
    assert git_state(tmp_path / "kept") == {**state, "dirty": True}
    assert git_state(tmp_path / ".venv") is None, "the commit of somebody's work is none of an installed package"


@pytest.mark.parametrize("name", ["checkpoints", "metrics.jsonl"])
def test_nothing_is_written_through_a_link_in_a_run(
    name: str, tiny: Tiny, run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    if (run.path / name).exists():
        shutil.move(run.path / name, elsewhere / name)
    (run.path / name).symlink_to(elsewhere / name if (elsewhere / name).exists() else elsewhere)
    before = {path: path.read_bytes() for path in elsewhere.rglob("*") if path.is_file()}
    for words in (["report", str(run.path)], ["train", str(tiny.file), *tiny.overrides(tmp_path, "trainer.epochs=9")]):
        assert main(words) == 2
        assert f"/{name}' is a link, and a run is written into its own directory only" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in elsewhere.rglob("*") if path.is_file()} == before

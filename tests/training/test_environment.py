"""What is recorded to run again."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import torch

import dglcell
from dglcell.run_directory import environment, git_state


def test_versions_command_and_machine() -> None:
    about = environment("dglcell train x.yaml seed=1")
    assert about["command"] == "dglcell train x.yaml seed=1"
    assert about["dglcell"] == dglcell.__version__
    assert about["packages"]["torch"] == torch.__version__
    assert about["threads"] == torch.get_num_threads()
    assert about["devices"]
    assert about["platform"].startswith(f"{platform.system()}-{platform.machine()}")
    assert platform.release() not in about["platform"]


def test_git_state_follows_the_folder(tmp_path: Path) -> None:
    assert git_state(tmp_path) is None
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], [*who, "commit", "-q", "--allow-empty", "-m", "x"]):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    state = git_state(tmp_path)
    assert state is not None
    assert len(state["commit"]) == 40
    assert state["dirty"] is False
    (tmp_path / "new").touch()
    assert git_state(tmp_path) == {**state, "dirty": True}

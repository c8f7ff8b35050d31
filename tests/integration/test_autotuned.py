"""Processes that all start at once, as SLURM and torchrun start them, compute by the same autotuned."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dglcell.perturbation.states import DENSE_SHARE
from tests.tiny import Tiny, process_environment

DDP = ("trainer={devices: 2, accelerator: cpu, strategy: ddp, threads: 1, epochs: 1}", "data.batch_size=20")
AUTO = ("model.strategy=auto", "model.kernel=auto")

# What no calibration of this experiment would take.
STALE = {"strategy": "node_mask", "dense_share": 0.123, "kernels": {"gene/catalyses/reaction": {"8": "csr"}}}

RANK = """
import sys
from pathlib import Path
from dglcell.config.read import load_config
from dglcell.runs.directory import RunDirectory
from dglcell.training.fit import fit, make_task
from dglcell.training.prepare import prepare
from dglcell.training.signals import StopSignals
from dglcell.training.fit import make_callbacks, make_trainer

folder, file, *overrides = sys.argv[1:]
config, directory = load_config(file, overrides), RunDirectory(Path(folder))
prepared = prepare(config, command="test")
signals = StopSignals(requeue=False)
trainer = make_trainer(config, directory, make_callbacks(config, directory, prepared.dataset.kinds, signals))
task = make_task(config, prepared, directory)
print("made", flush=True)
with signals:
    fit(config, trainer, prepared, task, directory, None, signals)
print(task.model.autotuned, [task.model.cell[relation].preferred for relation in task.model.cell.relations])
"""


def start(rank: int, port: int, *arguments: object) -> subprocess.Popen[str]:
    """Start one process of two, with what torchrun tells it."""
    variables = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    return subprocess.Popen(
        [sys.executable, "-c", RANK, *map(str, arguments)],
        env=process_environment(**variables, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)),
        stdout=subprocess.PIPE,
        text=True,
    )


@contextmanager
def free_port() -> Iterator[int]:
    """Provide a port that nobody listens on, nor is given while it lasts, but who asks for it by its number."""
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("127.0.0.1", 0))
        yield int(one.getsockname()[1])


@pytest.mark.slow
def test_choices_that_a_dead_run_left_are_read_by_no_rank(tiny: Tiny, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "autotuned.json").write_text(json.dumps(STALE))
    arguments = (folder, tiny.file, *tiny.overrides(tmp_path, *DDP, *AUTO))
    with free_port() as port:
        # The second rank is ready before the first one has written anything.
        second = start(1, port, *arguments)
        assert second.stdout is not None
        assert second.stdout.readline() == "made\n"
        first = start(0, port, *arguments)
        said = [first.communicate()[0].split("\n"), second.communicate()[0].split("\n")]
    assert (first.returncode, second.returncode) == (0, 0)
    assert said[0][-2] == said[1][-2]
    assert f"dense_share={DENSE_SHARE}," in said[0][-2]

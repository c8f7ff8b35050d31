"""A process of several that is there and does nothing: the others end, and say so."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from dglcell.runs import RunDirectory
from dglcell.training.checkpoint import read_checkpoint
from tests.integration.processes import DDP, PATIENCE, wait_until
from tests.tiny import BARE, ENDLESS, Tiny, dglcell, history, process_environment

# Both have imported everything before they meet: that alone may take longer than they are to wait.
RANK = """
import os, sys, time
from pathlib import Path
import dglcell.training.run
from dglcell.cli import main

Path("ready-" + os.environ["RANK"]).touch()
while len(list(Path().glob("ready-*"))) < 2:
    time.sleep(0.01)
sys.exit(main(sys.argv[1:]))
"""


@contextmanager
def free_port() -> Iterator[int]:
    """Provide a port that nobody listens on, nor is given while it lasts, but who asks for it by its number."""
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("127.0.0.1", 0))
        yield int(one.getsockname()[1])


def start(tiny: Tiny, folder: Path, rank: int, port: int) -> subprocess.Popen[str]:
    variables = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    options = tiny.overrides(folder, *BARE, *DDP, *ENDLESS, "trainer.timeout=20")
    return subprocess.Popen(
        [sys.executable, "-c", RANK, "train", str(tiny.file), *options],
        env=process_environment(**variables, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)),
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("stuck", [0, 1])
def test_a_process_that_hangs_ends_the_run_with_an_error(tiny: Tiny, tmp_path: Path, stuck: int) -> None:
    with free_port() as port:
        processes = [start(tiny, tmp_path, rank, port) for rank in (0, 1)]
        try:
            wait_until(RunDirectory(tmp_path / "tiny" / "seed-0").last.exists, processes[0])
            processes[stuck].send_signal(signal.SIGSTOP)
            _, said = processes[1 - stuck].communicate(timeout=PATIENCE)
        finally:
            processes[stuck].kill()
            processes[stuck].communicate()
    assert processes[1 - stuck].returncode == 2, said
    assert "error: another process of this run has ended, or has not answered within `trainer.timeout`" in said
    assert "got:      Timed out waiting 20000ms for" in said
    assert "raise `trainer.timeout` if one is only slow" in said
    assert "Traceback" not in said


@pytest.mark.slow
def test_two_processes_make_one_run_and_continue_it(tiny: Tiny, tmp_path: Path) -> None:
    # 41 validation strains in batches of 10: three batches of rank 0 would meet two of rank 1 if they were cut naively.
    options = [*BARE, *DDP, "split.subset.size=205", "split.fractions=[0.6,0.2,0.2]", "data.eval_batch_size=20"]
    done, more, whole = (
        dglcell(
            "train", tiny.file, *tiny.overrides(tmp_path / name, *options, f"trainer.epochs={epochs}"), cwd=tmp_path
        )
        for name, epochs in (("parts", 2), ("parts", 3), ("whole", 3))
    )
    assert (done.returncode, more.returncode, whole.returncode) == (0, 0, 0), done.stderr
    assert done.stdout.count("epoch    1/2") == done.stderr.count("training from scratch") == 1
    assert more.stderr.count("continuing from") == 1
    assert not [word for word in ("Warning", "sync_dist") if word in done.stderr]
    run, at_once = (RunDirectory(tmp_path / name / "tiny" / "seed-0") for name in ("parts", "whole"))
    rows = history(run)
    # 123 training strains: both ranks take as many steps, and none counts twice.
    counts = [(row["step"], row["train/fitness/n"], row["validation/fitness/n"]) for row in rows]
    assert counts == [(1, 123, 41), (2, 123, 41), (3, 123, 41)]
    assert history(at_once) == rows
    table = json.loads(run.results.read_text())["rows"]
    assert {row["metrics"]["n"] for row in table if row["model"] == "hetero_cell"} == {41}


@pytest.mark.slow
def test_a_mistake_in_both_processes_ends_both(tiny: Tiny, tmp_path: Path) -> None:
    options = [*BARE, *DDP, "optimizer.name=SGD", "optimizer.lr=1e30", "trainer.gradient_clip_val=null"]
    done = dglcell("train", tiny.file, *tiny.overrides(tmp_path, *options), cwd=tmp_path)
    assert done.returncode == 2
    assert "error: the training loss is not finite" in done.stderr
    assert "Traceback" not in done.stderr


# 241 training strains in global batches of 60: the last one of an epoch is a single strain, which one rank gets, and is
# accumulated alone. Two to five ranks do not divide them evenly.
GLOBAL_BATCH = 60
OPTIONS = (
    "split.subset.size=301",
    "trainer.epochs=3",
    "trainer.accumulate_grad_batches={0: 2}",
    "trainer.strategy=ddp",
)
OPTIONS += ("data.eval_batch_size=7", "scheduler={name: cosine_restarts, interval: step, first_cycle: 4}")
SGD = "optimizer={name: SGD, lr: 0.001, options: {momentum: 0.9}}"
ADAM = "optimizer={name: Adam, lr: 0.001}"
# Ranks add up gradients in another order. Adam divides by them, and some are nothing but rounding errors (a bias before
# a softmax): where gradients differ by d, its steps differ by up to lr · d / eps = 1e5 d. In double precision, with d
# about 1e-15 and nine steps, that is 1e-9; in single precision eps (1e-8) is no larger than d, and nothing is left of
# the sign of such gradients.
CASES = [
    pytest.param("64-true", SGD, (1, 2, 3, 4, 5), 1e-12, id="double, SGD"),
    pytest.param("32-true", SGD, (1, 2, 4), 1e-6, id="single, SGD"),
    pytest.param("64-true", ADAM, (1, 3), 1e-8, id="double, Adam"),
]


def trained(tiny: Tiny, runs: Path, ranks: int, *options: str) -> RunDirectory:
    each = [f"trainer.devices={ranks}", f"data.batch_size={GLOBAL_BATCH // ranks}"]
    arguments = tiny.overrides(runs, *BARE, *OPTIONS, *options, *each)
    done = dglcell("train", tiny.file, *arguments, cwd=runs.parent)
    assert done.returncode == 0, done.stderr
    return RunDirectory(runs / "tiny" / "seed-0")


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "optimizer", "sizes", "tolerance"), CASES)
def test_several_processes_are_one(
    tiny: Tiny, tmp_path: Path, precision: str, optimizer: str, sizes: tuple[int, ...], tolerance: float
) -> None:
    options, rounds = (f"trainer.precision={precision}", optimizer), precision == "32-true"
    runs = {ranks: trained(tiny, tmp_path / str(ranks), ranks, *options) for ranks in sizes}
    one, whole = history(runs[1]), read_checkpoint(runs[1].last)
    assert [row["step"] for row in one] == [3, 6, 9]
    for ranks in sizes[1:]:
        state = read_checkpoint(runs[ranks].last)
        for name, weight in whole["state_dict"].items():
            torch.testing.assert_close(state["state_dict"][name], weight, rtol=tolerance, atol=tolerance, msg=name)
        for row, expected in zip(history(runs[ranks]), one, strict=True):
            for name, value in expected.items():
                # Metrics are of predictions in single precision. So is the loss in such runs: weights that differ by
                # 3e-7 after nine steps give one that differs by 3e-6.
                near = 1e-5 if "loss" not in name else 5e-6 if rounds else tolerance
                assert row[name] == pytest.approx(value, rel=near, abs=near), name
                if name.endswith("/n"):
                    assert row[name] == value == {"train": 241, "validation": 30}[name.split("/")[0]]

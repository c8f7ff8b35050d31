"""W&B as a view of the run: offline, without network, one run however often it is continued."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback

from dglcell.errors import DataError, StoppedError
from dglcell.runs.directory import RunDirectory
from dglcell.training import run as run_module
from dglcell.training.fit import make_callbacks
from dglcell.training.tracking import run_id
from tests.integration.processes import PATIENCE, start
from tests.tiny import Tiny, history

wandb = pytest.importorskip("wandb")

OFFLINE = "tracking.wandb=offline"

# A process in which every connection but those of the machine itself fails.
NO_NETWORK = """
import socket
connect = socket.socket.connect
def refuse(self, address):
    if self.family != socket.AF_UNIX:
        raise AssertionError(f"network: {address}")
    return connect(self, address)
socket.socket.connect = refuse
"""


def test_offline_runs_are_one_run_and_need_no_network(tiny: Tiny, tmp_path: Path) -> None:
    home = {name: str(tmp_path / "home") for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR")}
    directory = RunDirectory(tmp_path / "tiny" / "seed-0")
    ids = set()
    for epochs in (1, 2):
        process = start(tiny, tmp_path, OFFLINE, f"trainer.epochs={epochs}", before=NO_NETWORK, **home)
        _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, said
        ids.add(directory.wandb_id.read_text())
    files = [*directory.path.glob("wandb/offline-run-*/run-*.wandb")]
    assert {file.stem.removeprefix("run-") for file in files} == ids
    assert (len(files), len(ids)) == (2, 1)


class FakeRun:
    """A run of W&B that keeps what it is given."""

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        self.options, self.dir, self.config = options, str(folder / "files"), self
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.given: dict[str, Any] = {}
        self.exit_code: int | None = None
        self.preempted = False

    def update(self, config: dict[str, Any], **_: object) -> None:
        self.given = config

    def log(self, row: dict[str, float], *, step: int, commit: bool) -> None:
        self.rows.append((step, row))

    def mark_preempting(self) -> None:
        self.preempted = True

    def finish(self, exit_code: int) -> None:
        self.exit_code = exit_code

    def define_metric(self, *_: object, **__: object) -> None:
        """Lightning names the axis of steps."""


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[FakeRun]:
    """The runs that W&B was asked to start."""
    runs: list[FakeRun] = []

    def init(**options: Any) -> FakeRun:
        runs.append(FakeRun(tmp_path, options))
        return runs[-1]

    monkeypatch.setattr(wandb, "init", init)
    return runs


def test_every_epoch_is_a_row_under_its_step(tiny: Tiny, tmp_path: Path, started: list[FakeRun]) -> None:
    for epochs in (2, 3):
        directory = tiny.train(
            tmp_path, "tracking.wandb=online", "experiment.tags=[a]", "slurm.environment={TOKEN: s3cret}",
            f"trainer.epochs={epochs}",
        ).directory  # fmt: skip
    first, second = started
    assert first.options["id"] == second.options["id"] == directory.wandb_id.read_text()
    assert (first.options["group"], first.options["tags"]) == ("tiny", ["a"])
    assert first.given["model"]["hidden"] == 8
    assert "s3cret" not in str(first.given)
    recorded = history(directory)
    rows = first.rows + second.rows
    assert [(step, row["epoch"]) for step, row in rows] == [(row["step"] - 1, row["epoch"]) for row in recorded]
    assert [row["train/loss"] for _, row in rows] == [row["train/loss"] for row in recorded]
    assert (first.exit_code, second.exit_code) == (0, 0)


@pytest.mark.parametrize(("job", "mode"), [("7", "offline"), (None, "online")])
def test_auto_is_offline_in_a_job(
    tiny: Tiny, tmp_path: Path, started: list[FakeRun], monkeypatch: pytest.MonkeyPatch, job: str | None, mode: str
) -> None:
    if job:
        monkeypatch.setattr("dglcell.training.tracking.os.environ", {"SLURM_JOB_ID": job})
    tiny.train(tmp_path, "tracking.wandb=auto", "trainer.epochs=1")
    assert started[0].options.get("mode") == mode


class RaisesAtTheEnd(Callback):
    """Raises something when an epoch has ended."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("error", "code", "preempted"),
    [
        (DataError("no"), 1, False),
        (StoppedError(signal.SIGINT), 255, False),
        (StoppedError(signal.SIGUSR1), 128 + signal.SIGUSR1, True),
    ],
)
def test_how_a_run_ended_is_told(
    tiny: Tiny, tmp_path: Path, started: list[FakeRun], monkeypatch: pytest.MonkeyPatch,
    error: BaseException, code: int, preempted: bool,
) -> None:  # fmt: skip
    monkeypatch.setattr(
        run_module, "make_callbacks", lambda *arguments: [*make_callbacks(*arguments), RaisesAtTheEnd(error)]
    )
    with pytest.raises(type(error)):
        tiny.train(tmp_path, OFFLINE, "trainer.epochs=1")
    (run,) = started
    assert (run.exit_code, run.preempted) == (code, preempted)


@pytest.mark.parametrize("content", [b"", b"0a1", b"\xff\x00", b"0a1b2c3d\n"])
def test_a_damaged_id_is_replaced(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "wandb_id.txt"
    file.write_bytes(content)
    found = run_id(file)
    assert run_id(file) == found
    assert (found == "0a1b2c3d") == (len(content) > 8)

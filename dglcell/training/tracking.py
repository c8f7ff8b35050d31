"""Show the run in Weights & Biases; the JSONL record is written in any case."""

from __future__ import annotations

import importlib.util
import json
import logging
import math
import os
import re
import secrets
import signal
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from omegaconf import OmegaConf
from pytorch_lightning.loggers import Logger, WandbLogger
from pytorch_lightning.utilities import rank_zero_only

from dglcell.config.experiment import Config
from dglcell.config.read import without_secrets
from dglcell.errors import DataError, MissingDependencyError, StoppedError, SyncError, listing
from dglcell.files.atomic import atomic_file
from dglcell.runs.directory import EpochLog, RunDirectory
from dglcell.training.signals import is_rank_zero

log = logging.getLogger("dglcell")

# Files that W&B wrote offline: find them, and tell which are complete and which were uploaded.
#
# A run that was continued has several, one for each time it was started, all under one run id.


COMPLETE = "complete"
"""A file of this name lies beside a file to which nothing will be added."""


@dataclass(frozen=True)
class OfflineFile:
    """An offline file is a file that W&B wrote offline.

    Attributes:
        path: path of the ``.wandb`` file.
        ended: whether the training that wrote it has ended, as far as its run directory tells.
    """

    path: Path
    ended: bool

    @property
    def run(self) -> Path:
        """Return the run directory."""
        return self.path.parents[2]

    @property
    def marker(self) -> Path:
        """Return the path of the file that W&B leaves beside a file that it has uploaded."""
        return self.path.with_name(f"{self.path.name}.synced")

    def is_uploaded(self) -> bool:
        """Return whether W&B has uploaded the whole file."""
        return self.marker.exists() and self.marker.stat().st_mtime_ns >= self.path.stat().st_mtime_ns


def find_offline_files(folder: Path) -> list[OfflineFile]:
    """Find the files of a run, or of all runs below a folder; the files of one run are in order, the oldest first.

    A file without an end, left by a killed process, counts as ended if a newer file exists.

    Raises:
        DataError: the folder does not exist.
    """
    if not folder.is_dir():
        raise DataError(
            f"run directory '{folder}' not found", expected="a run, or a folder of runs, as `train` made it"
        )
    # W&B names its folders by date and time.
    paths = sorted(folder.rglob("wandb/offline-run-*/run-*.wandb"))
    newest = {*{path.parents[1]: path for path in paths}.values()}
    return [OfflineFile(path, path not in newest or (path.parent / COMPLETE).exists()) for path in paths]


# Such a file is a log of LevelDB: blocks of 32 KiB with pieces of records, which are protobuf messages.
#
# A piece is its checksum, length, kind (1: whole, 2: first, 3: middle, 4: last) and bytes
# (https://github.com/google/leveldb/blob/main/doc/log_format.md).


BLOCK = 1 << 15
PIECE = struct.Struct("<IHB")


def read_records(path: Path) -> Iterator[bytes]:
    """Yield the records of a file as far as it is whole, because a killed process may leave a torn end."""
    content = path.read_bytes()
    position, pieces = PIECE.size, b""  # after W&B's own header, which has the same length
    while position + PIECE.size <= len(content):
        left = BLOCK - position % BLOCK
        if left < PIECE.size:
            position += left
            continue
        checksum, length, kind = PIECE.unpack_from(content, position)
        if length == 0 and kind == 0:
            position += left
            continue
        data = content[position + PIECE.size : position + PIECE.size + length]
        if len(data) < length or checksum != zlib.crc32(data, zlib.crc32(bytes([kind]))):
            return
        position += PIECE.size + length
        pieces = data if kind in (1, 2) else pieces + data
        if kind in (1, 4):
            yield pieces


def logged_steps(path: Path) -> Iterator[int]:
    """Return the steps of the rows that a file holds."""
    from wandb.proto import wandb_internal_pb2

    for content in read_records(path):
        for item in wandb_internal_pb2.Record.FromString(content).history.item:
            if "_step" in (item.key, *item.nested_key):
                yield int(json.loads(item.value_json))


RUN_ID = re.compile(r"[0-9a-f]{8}")

FLUSH = "x_transaction_log_flush_interval"
FLUSH_SECONDS = 0.2
"""Within that time what was logged is in the file, which a killed process cannot finish; W&B would take 15 seconds."""

KILLED = 255
"""Exit code by which W&B tells a run that its user has ended from one that has failed."""


class StepLogger(WandbLogger):
    """This logger logs each row once, under the optimiser's step.

    W&B would number the rows of every file from 0, so that the numbers of a continued run, which has several files,
    would start again. It would also keep every row open until the next one comes.
    """

    known: set[int]

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Add a row to the history, unless W&B has a row of that step."""
        if step is None or (step >= self.experiment.starting_step and step not in self.known):
            self.experiment.log(dict(metrics), step=step, commit=True)

    def catch_up(self, directory: RunDirectory) -> None:
        """Log the epochs of the record that W&B does not have, because a process may be killed before it logs them."""
        for row in EpochLog(directory.metrics, 0).read():
            metrics = {name: math.nan if value is None else value for name, value in row.items() if name != "step"}
            self.log_metrics(metrics, row["step"] - 1)
            self.known.add(row["step"] - 1)


def run_id(file: Path) -> str:
    """Return the id of the W&B run that ``file`` keeps, or a new id if the file is missing or damaged."""
    kept = file.read_text(encoding="utf-8", errors="replace").strip() if file.exists() else None
    if kept is not None and RUN_ID.fullmatch(kept):
        return kept
    if kept is not None:
        log.warning("'%s' is damaged: in W&B the run goes on as a new one, with all its epochs", file)
    with atomic_file(file) as partial:
        partial.write_text(secrets.token_hex(4), encoding="utf-8")
    return file.read_text(encoding="utf-8")


def _start_run(wandb: ModuleType, config: Config, directory: RunDirectory, own_id: str) -> Any:
    flush = {FLUSH: FLUSH_SECONDS} if FLUSH in wandb.Settings.model_fields else {}
    return wandb.init(
        mode="offline" if config.tracking.wandb == "offline" else "online",
        name=f"{config.experiment.name} seed {config.seed}",
        dir=str(directory.path),
        project=config.tracking.project,
        entity=config.tracking.entity,
        group=config.tracking.group or config.experiment.name,
        tags=list(config.experiment.tags),
        id=own_id,
        resume="allow",
        settings=wandb.Settings(silent=True, **flush),
    )


@contextmanager
def tracked(config: Config, directory: RunDirectory) -> Iterator[Logger | None]:
    """Provide a W&B logger, or None where it is disabled; its run is finished at the end, so that its file is complete.

    The run id is kept in the run directory, so that a continued run stays the same run. Rank 0 alone logs.

    W&B shows a run that ends with 0 as finished, one that was marked before it ends with anything else as preempted,
    and any other as failed (https://docs.wandb.ai/models/sweeps/signal-handling-sweep-runs). A run that a signal has
    stopped is to be continued, so it is marked and ends with the exit code that shells give to the signal. A run that
    its user has stopped with Ctrl-C is shown as killed.

    Epochs of the record that W&B does not have are logged at the beginning.

    Raises:
        MissingDependencyError: wandb is not installed.
    """
    if config.tracking.wandb == "disabled" or not is_rank_zero():
        yield None
        return
    try:
        import wandb
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            "`tracking.wandb` needs the package wandb",
            do="pip install 'dglcell[wandb]', or set `tracking.wandb: disabled`",
        ) from error
    logging.getLogger("wandb").setLevel(logging.WARNING)
    own_id = run_id(directory.wandb_id)
    # Online, W&B says itself how far it has come; what an earlier start wrote offline may still be uploaded.
    kind = "*" if config.tracking.wandb == "offline" else "offline-"
    files = directory.path.glob(f"wandb/{kind}run-*/run-{own_id}.wandb")
    known = {step for file in files for step in logged_steps(file)}
    run = _start_run(wandb, config, directory, own_id)
    exit_code = 1
    try:
        run.config.update(OmegaConf.to_container(without_secrets(config), resolve=True), allow_val_change=True)
        logger = StepLogger(experiment=run)
        logger.known = known
        logger.catch_up(directory)
        yield logger
        exit_code = 0
    except StoppedError as stop:
        if stop.signal == signal.SIGINT:
            exit_code = KILLED
        else:
            run.mark_preempting()
            exit_code = 128 + stop.signal
        raise
    finally:
        folder = Path(run.dir).parent
        run.finish(exit_code)
        (folder / COMPLETE).touch()


PATIENCE = {"WANDB_X_GRAPHQL_RETRY_MAX": "3", "WANDB_X_GRAPHQL_RETRY_WAIT_MAX_SECONDS": "5"}
"""Without a network W&B would try for half an hour before it says so; the user's own settings come first."""


@dataclass(frozen=True)
class Plan:
    """A plan holds the files that are to be uploaded.

    Attributes:
        files: the files to upload; those of one run are in order.
        uploaded: number of files that W&B has already.
        training: runs whose last file has no end, because they train or were killed.
    """

    files: list[OfflineFile]
    uploaded: int
    training: list[Path]


def plan_sync(folders: Sequence[Path], *, force: bool = False) -> Plan:
    """Look for files that are to be uploaded.

    Args:
        folders: run directories, or folders of them.
        force: whether to take the files of runs that may still be training as well.

    Raises:
        DataError: a folder does not exist, or has no such file.
    """
    found: dict[Path, OfflineFile] = {}
    for folder in folders:
        files = find_offline_files(folder)
        if not files:
            raise DataError(
                f"'{folder}' holds nothing that W&B wrote offline", do="train with `tracking.wandb=offline` first"
            )
        found |= {file.path.resolve(): file for file in files}
    left = [file for file in found.values() if not file.is_uploaded()]
    training = [] if force else [file.run for file in left if not file.ended]
    return Plan([file for file in left if file.ended or force], len(found) - len(left), training)


def upload(files: Sequence[OfflineFile]) -> None:
    """Let W&B upload files under the run ids they were written with; W&B reports its progress on stderr.

    Raises:
        MissingDependencyError: wandb is not installed.
        SyncError: W&B did not take all of them: no login, no network, or a broken file.
    """
    if not files:
        return
    if importlib.util.find_spec("wandb") is None:
        raise MissingDependencyError("`dglcell sync` needs the package wandb", do="pip install 'dglcell[wandb]'")
    for file in files:
        file.marker.unlink(missing_ok=True)
    # Its logs go where W&B has the others. Without a terminal it asks for no login, which nobody may be there to give.
    environment = {**PATIENCE, **os.environ, "WANDB_DIR": str(files[0].run)}
    command = [sys.executable, "-m", "wandb", "sync", *(str(file.path) for file in files)]
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL)
    # W&B exits with 0 even if it could not upload.
    missing = [file.path.parent for file in files if not file.marker.exists()]
    if missing:
        raise SyncError(
            f"{len(missing)} of {len(files)} files were not uploaded (`wandb sync` ended with {done.returncode})",
            got=listing(missing, 3),
            do="see what W&B says above: `wandb login` once, work where there is a network, and give the same command",
        )

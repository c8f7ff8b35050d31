"""Show the run in Weights & Biases; the JSONL record is written in any case."""

from __future__ import annotations

import logging
import os
import re
import secrets
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from omegaconf import OmegaConf
from pytorch_lightning.loggers import Logger, WandbLogger
from pytorch_lightning.utilities import rank_zero_only

from dglcell.config.experiment import Config
from dglcell.config.read import without_secrets
from dglcell.errors import MissingDependencyError, StoppedError
from dglcell.files.atomic import atomic_file
from dglcell.runs.directory import RunDirectory
from dglcell.training.signals import is_rank_zero

log = logging.getLogger("dglcell")

RUN_ID = re.compile(r"[0-9a-f]{8}")

KILLED = 255
"""Exit code by which W&B tells a run that its user has ended from one that has failed."""


class StepLogger(WandbLogger):
    """This logger numbers rows by the optimiser's step, so that a continued run counts on."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Add a row to the history."""
        self.experiment.log(dict(metrics), step=step, commit=True)


def run_id(file: Path) -> str:
    """Return the id of the W&B run that ``file`` keeps, or a new id if the file is missing or damaged."""
    kept = file.read_text(encoding="utf-8", errors="replace").strip() if file.exists() else ""
    if not RUN_ID.fullmatch(kept):
        kept = secrets.token_hex(4)
        with atomic_file(file) as partial:
            partial.write_text(kept, encoding="utf-8")
    return kept


@contextmanager
def tracked(config: Config, directory: RunDirectory) -> Iterator[Logger | None]:
    """Provide a W&B logger, or None where it is disabled; rank 0 alone logs.

    The run id is kept in the run directory, so that a continued run stays the same run. A run that a signal has stopped
    is to be continued: W&B shows it as preempted, and one that its user has stopped with Ctrl-C as killed.

    Raises:
        MissingDependencyError: wandb is not installed.
    """
    mode = config.tracking.wandb
    if mode == "disabled" or not is_rank_zero():
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
    # Nodes of a cluster often reach no network.
    offline = mode == "offline" or (mode == "auto" and "SLURM_JOB_ID" in os.environ)
    logger = StepLogger(
        name=f"{config.experiment.name} seed {config.seed}",
        save_dir=directory.path,
        project=config.tracking.project,
        id=run_id(directory.wandb_id),
        mode="offline" if offline else "online",
        entity=config.tracking.entity,
        group=config.tracking.group or config.experiment.name,
        tags=list(config.experiment.tags),
        settings=wandb.Settings(silent=True),
    )
    run, exit_code = logger.experiment, 1
    try:
        run.config.update(OmegaConf.to_container(without_secrets(config), resolve=True), allow_val_change=True)
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
        if offline:
            log.info("W&B: upload with `wandb sync %s`", folder)

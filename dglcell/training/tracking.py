"""Weights & Biases, as a view of the run; the JSONL record is written in any case."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from omegaconf import OmegaConf
from pytorch_lightning.loggers import Logger, WandbLogger
from pytorch_lightning.utilities import rank_zero_only

from dglcell.config import Config
from dglcell.errors import MissingDependencyError, StoppedError
from dglcell.training.directory import RunDirectory
from dglcell.training.offline_files import mark_complete
from dglcell.training.ranks import is_rank_zero

KILLED = 255
"""Exit code by which W&B tells a run that its user has ended from one that has failed."""


class StepLogger(WandbLogger):
    """Logs under the optimiser's step.

    W&B would number the rows of every file from 0, and a continued run, which is several files, would go back.
    """

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """A row of the history."""
        self.experiment.log(dict(metrics), step=step)


@contextmanager
def tracked(config: Config, directory: RunDirectory) -> Iterator[Logger | None]:
    """A W&B logger, or None where it is disabled; its run is finished at the end, so that its file is complete.

    The run id is kept in the run directory, so that a continued run stays the same run. Rank 0 alone logs.

    W&B shows a run that ends with 0 as finished, one that was marked before it ends with anything else as preempted,
    and any other as failed (https://docs.wandb.ai/models/sweeps/signal-handling-sweep-runs). A run that a signal has
    stopped is to be continued: marked, with the exit code that shells give to the signal.

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
            do="pip install 'dglcell[train]', or set `tracking.wandb: disabled`",
        ) from error
    logging.getLogger("wandb").setLevel(logging.WARNING)
    if not directory.wandb_id.exists():
        directory.wandb_id.write_text(secrets.token_hex(4))
    run = wandb.init(
        mode="offline" if config.tracking.wandb == "offline" else "online",
        name=f"{config.experiment.name} seed {config.seed}",
        dir=str(directory.path),
        project=config.tracking.project,
        entity=config.tracking.entity,
        group=config.tracking.group or config.experiment.name,
        tags=list(config.experiment.tags),
        id=directory.wandb_id.read_text().strip(),
        resume="allow",
        settings=wandb.Settings(silent=True),
    )
    exit_code = 1
    try:
        run.config.update(OmegaConf.to_container(OmegaConf.structured(config)), allow_val_change=True)
        yield StepLogger(experiment=run)
        exit_code = 0
    except StoppedError as stop:
        run.mark_preempting()
        exit_code = 128 + stop.signal
        raise
    except KeyboardInterrupt:
        exit_code = KILLED
        raise
    finally:
        folder = Path(run.dir).parent
        run.finish(exit_code)
        mark_complete(folder)

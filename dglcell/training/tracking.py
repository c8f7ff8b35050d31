"""Weights & Biases, as a view of the run; the JSONL record is written in any case."""

from __future__ import annotations

import logging
import secrets

from pytorch_lightning.loggers import Logger

from dglcell.config import Config, to_yaml
from dglcell.errors import MissingDependencyError
from dglcell.training.directory import RunDirectory


def make_logger(config: Config, directory: RunDirectory) -> Logger | None:
    """A W&B logger, or None where it is disabled.

    The run id is kept in the run directory, so that a continued run stays the same run. Lightning starts W&B on
    rank 0 only.

    Raises:
        MissingDependencyError: wandb is not installed.
    """
    if config.tracking.wandb == "disabled":
        return None
    try:
        import wandb  # noqa: F401
        from pytorch_lightning.loggers import WandbLogger
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            "`tracking.wandb` needs the package wandb",
            do="pip install 'dglcell[train]', or set `tracking.wandb: disabled`",
        ) from error
    logging.getLogger("wandb").setLevel(logging.WARNING)
    id_file = directory.path / "wandb_id.txt"
    if not id_file.exists():
        id_file.write_text(secrets.token_hex(4))
    logger = WandbLogger(
        name=f"{config.experiment.name} seed {config.seed}",
        save_dir=str(directory.path),
        offline=config.tracking.wandb == "offline",
        project=config.tracking.project,
        entity=config.tracking.entity,
        group=config.tracking.group or config.experiment.name,
        tags=list(config.experiment.tags),
        id=id_file.read_text().strip(),
        resume="allow",
        settings={"silent": True},
    )
    logger.log_hyperparams({"config": to_yaml(config)})
    return logger

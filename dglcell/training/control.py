"""Train the control of a run on its split: the same model without messages."""

from __future__ import annotations

import dataclasses
import json
import logging
from typing import Any

from dglcell.config.experiment import Config
from dglcell.data.split import Split
from dglcell.errors import ConfigError
from dglcell.files.atomic import write_json
from dglcell.metrics import ResultRow
from dglcell.report.run_page import write_report
from dglcell.runs.directory import RunDirectory
from dglcell.training.evaluate import CONTROL, WITHOUT_MESSAGES, control_rows, rows_as_json
from dglcell.training.run import train
from dglcell.training.signals import StopSignals

log = logging.getLogger("dglcell")

MORE_EPOCHS = 8
"""The control has so many times as many epochs.  Two rounds of messages make an epoch of ``hetero_cell`` about twenty
times as long, so that the control is given less time than the model, and it is seldom better for more.
"""


def without_messages(config: Config, epochs: int | None = None) -> Config:
    """Return the same experiment with no round of messages, and without reactions that are lost because others are.

    The best epoch is chosen on the validation part, even if the experiment would take the last one.

    Args:
        epochs: number of epochs of the control; None for eight times those of the experiment.

    Raises:
        ConfigError: the model passes no messages, or has no rounds.
    """
    model = config.model
    quiet = model.without_messages()
    if quiet is None:
        raise ConfigError(
            "there is no control without messages, because the model itself passes none in rounds",
            got=f"`model.name: {model.name}`, `model.layers: {getattr(model, 'layers', 'no such key')}`",
            expected="`model.layers: 1` or more",
            do="leave `--without-messages` out",
        )
    best = "best_loss" if config.trainer.checkpoint == "last" else config.trainer.checkpoint
    control = dataclasses.replace(
        config,
        experiment=dataclasses.replace(config.experiment, name=f"{config.experiment.name}{CONTROL}", expected=None),
        cell=dataclasses.replace(config.cell, lose_blocked=False),
        model=quiet,
        trainer=dataclasses.replace(
            config.trainer, epochs=epochs or MORE_EPOCHS * config.trainer.epochs, checkpoint=best
        ),
        null_models=False,
        plot=False,
    )
    control.validate()
    return control


def train_control(
    config: Config, epochs: int | None, command: str, signals: StopSignals | None = None
) -> list[ResultRow]:
    """Train the control of ``without_messages``, or continue it, and add its rows to the results of the run.

    The rows are returned; there are none if the run is not finished.

    Raises:
        DglcellError: there is a fault that the user can mend.
        StoppedError: a signal came, and what is needed to continue is on disk.
    """
    control = without_messages(config, epochs)
    log.info("training %s for at most %d epochs", control.experiment.name, control.trainer.epochs)
    train(control, command, signals)
    run = RunDirectory(config.run_directory)
    if not run.results.exists():
        return []
    rows = control_rows(run.path, Split.load(run.split).sha256)
    results: dict[str, Any] = json.loads(run.results.read_text(encoding="utf-8"))
    kept = [row for row in results["rows"] if row["model"] != WITHOUT_MESSAGES]
    write_json(run.results, {**results, "rows": kept + rows_as_json(rows)})
    if config.plot:
        write_report(run.path)
    return rows


def rows_with(rows: list[ResultRow], control: list[ResultRow]) -> list[ResultRow]:
    """Return the rows of a run with those of its control, in place of earlier ones."""
    return [row for row in rows if row.model != WITHOUT_MESSAGES] + control

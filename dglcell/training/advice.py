"""Warn of a training whose schedule does not fit its strains, before it starts and after it has ended."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

from dglcell.errors import count
from dglcell.training.signals import is_rank_zero

log = logging.getLogger("dglcell")

HANDFUL, ENOUGH = 5, 500
"""An epoch of so many steps has few; a whole training of so many steps has enough all the same."""

SMALL = 8
"""Batches of so many strains are not made smaller."""

SHORT = 5
"""A training of fewer epochs is meant to be short, so its end says nothing about the loss."""

FALL = 0.02
"""A loss still falls if it has lost this share of its value in the last quarter of the epochs."""


def warn_of_warm_up(warm_up: int, steps: int) -> None:
    """Warn if the learning rate rises for most of the training."""
    if 2 * warm_up > steps and is_rank_zero():
        log.warning(
            "the training has %s, and the learning rate rises during the first %d of them: lower `scheduler.warmup` or "
            "`data.batch_size`, or raise `trainer.epochs`",
            count(steps, "step"),
            warm_up,
        )


def warn_of_few_steps(batches: int, batch_size: int, steps: int) -> None:
    """Warn if batches are so large that there are hardly any steps."""
    if batches < HANDFUL and steps < ENOUGH and batch_size > SMALL and is_rank_zero():
        log.warning(
            "an epoch has %s, and the training %s: lower `data.batch_size`, which is %d, or raise `trainer.epochs`",
            count(batches, "step"),
            count(steps, "step"),
            batch_size,
        )


def warn_of_falling_loss(epochs: Sequence[Mapping[str, Any]]) -> None:
    """Warn if a longer training would have gone on learning."""
    figure = "validation/loss" if epochs and epochs[-1].get("validation/loss") is not None else "train/loss"
    losses = [row[figure] for row in epochs if row.get(figure) is not None]
    if len(losses) >= SHORT and is_rank_zero() and still_falling(losses):
        log.warning(
            "the %s was still falling at the end, and is %.4g: train longer, e.g. `trainer.epochs=%d` in another run "
            "directory",
            figure.replace("/", " "),
            losses[-1],
            more_epochs(len(losses), int(epochs[-1]["step"])),
        )


def still_falling(losses: Sequence[float]) -> bool:
    """Return whether the loss was lowest at the end and clearly lower than before the last quarter of epochs."""
    if len(losses) < 2:
        return False
    before = min(losses[: -max(1, len(losses) // 4)])
    return losses[-1] <= min(losses) and before - losses[-1] > FALL * abs(before)


def more_epochs(epochs: int, steps: int) -> int:
    """Return how many epochs to train if so many epochs of so many steps together were too few."""
    return max(3 * epochs, math.ceil(ENOUGH * epochs / max(steps, 1)))

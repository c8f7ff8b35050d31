"""What to say of a training whose schedule does not fit its strains, before it starts and after it has ended."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from dglcell.errors import count
from dglcell.training.signals import is_rank_zero

log = logging.getLogger("dglcell")

HANDFUL, ENOUGH = 5, 500
"""Steps of an epoch that are a handful; steps of a whole training that are enough all the same."""

SMALL = 8
"""Batches of so many strains are not made smaller."""

TAIL, FALL = 5, 0.02
"""A loss still falls if it has fallen by this part over the last fifth of the epochs, and is lowest in the last one."""


def warn_of_warm_up(warm_up: int, steps: int) -> None:
    """Say so where the learning rate rises for most of the training."""
    if 2 * warm_up > steps and is_rank_zero():
        log.warning(
            "the training has %s, and the learning rate rises during the first %d of them: lower `scheduler.warmup` or "
            "`data.batch_size`, or raise `trainer.epochs`",
            count(steps, "step"),
            warm_up,
        )


def warn_of_few_steps(batches: int, batch_size: int, steps: int) -> None:
    """Say so where batches are so large that there are hardly any steps."""
    if batches < HANDFUL and steps < ENOUGH and batch_size > SMALL and is_rank_zero():
        log.warning(
            "an epoch has %s, and the training %s: lower `data.batch_size`, which is %d, or raise `trainer.epochs`",
            count(batches, "step"),
            count(steps, "step"),
            batch_size,
        )


def warn_of_falling_loss(epochs: Sequence[Mapping[str, Any]]) -> None:
    """Say so where a longer training would have gone on learning.

    Args:
        epochs: records of all epochs, as `EpochLog` has them.
    """
    figure = "validation/loss" if epochs and epochs[-1].get("validation/loss") is not None else "train/loss"
    losses = [row[figure] for row in epochs if row.get(figure) is not None]
    if len(losses) < TAIL or not is_rank_zero():
        return
    last, tail = losses[-1], max(1, len(losses) // TAIL)
    earlier = losses[-1 - tail]
    if last <= min(losses) and last < earlier - FALL * abs(earlier):
        log.warning(
            "the %s was still falling at the end, from %.4g to %.4g in the last %s: train longer, e.g. "
            "`trainer.epochs=%d` in another run directory",
            figure.replace("/", " "),
            earlier,
            last,
            count(tail, "epoch"),
            2 * len(losses),
        )

"""Warn after a training that would have gone on learning."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from dglcell.training.signals import is_rank_zero

log = logging.getLogger("dglcell")

SHORT = 5
"""A training of fewer epochs is meant to be short, so its end says nothing about the loss."""

FALL = 0.02
"""A loss still falls if it has lost this share of its value in the last quarter of the epochs."""


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
            3 * len(losses),
        )


def still_falling(losses: Sequence[float]) -> bool:
    """Return whether the loss was lowest at the end and clearly lower than before the last quarter of epochs."""
    if len(losses) < 2:
        return False
    before = min(losses[: -max(1, len(losses) // 4)])
    return losses[-1] <= min(losses) and before - losses[-1] > FALL * abs(before)

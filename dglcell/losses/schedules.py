"""What changes over the epochs: the temperature of the contrast, and how much buffered strains count."""

from __future__ import annotations

import math

TEMPERATURE_SCHEDULES = ("none", "exponential", "cosine")


def temperature_at(epoch: int, epochs: int, start: float, end: float, schedule: str) -> float:
    r"""τ of an epoch, falling from ``start`` towards ``end``, which it would reach in epoch ``epochs``.

    Args:
        epoch: from 0.
        epochs: of the whole training.
        start, end: τ₀ and τ₁.
        schedule: ``none`` keeps τ₀; ``exponential``: :math:`\tau_0 (\tau_1/\tau_0)^{e/E}`; ``cosine``: half a wave.
    """
    share = min(epoch / epochs, 1.0)
    if schedule == "exponential":
        return start * (end / start) ** share
    if schedule == "cosine":
        return end + (start - end) * (1 + math.cos(math.pi * share)) / 2
    return start


def buffer_share(epoch: int, epochs: int, warmup: int | None, stable: int | None) -> float:
    r"""w, the share of buffered strains among those compared: little while predictions still change quickly.

    From 0.1 to 0.3 in a straight line during the warm-up, then :math:`0.3 + 0.6\,\sigma(10 (p - \tfrac12))` with p
    from 0 to 1, then 0.9.

    Args:
        epoch: from 0.
        epochs: of the whole training.
        warmup: epochs of the straight line; a tenth of all where None.
        stable: the first epoch with 0.9; at half of all where None, but not before the end of the warm-up.
    """
    begin = 0.1 * epochs if warmup is None else warmup
    end = max(0.5 * epochs, begin) if stable is None else stable
    if epoch < begin:
        return 0.1 + 0.2 * epoch / begin
    if epoch < end:
        return 0.3 + 0.6 / (1 + math.exp(-10 * ((epoch - begin) / (end - begin) - 0.5)))
    return 0.9

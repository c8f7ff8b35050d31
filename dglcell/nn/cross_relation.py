"""Combine what several relations say about the same nodes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from dglcell.perturbation.states import States


def _sum(*outputs: Tensor) -> Tensor:
    total = outputs[0]
    for output in outputs[1:]:
        total = total + output
    return total


def _mean(*outputs: Tensor) -> Tensor:
    return torch.div(_sum(*outputs), len(outputs))


CROSS_RELATION: dict[str, Callable[..., Tensor]] = {"sum": _sum, "mean": _mean}


def combine_relations(outputs: list[States], how: str) -> States:
    """Sum or mean over relations, row by row.

    Args:
        outputs: R states [N, B, H] of the same nodes.
        how: a key of ``CROSS_RELATION``.
    """
    return States.combine(CROSS_RELATION[how], outputs)

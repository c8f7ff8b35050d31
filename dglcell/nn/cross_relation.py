"""Combine what several relations say about the same nodes."""

from __future__ import annotations

from collections.abc import Callable

from dglcell.perturbation.states import States, sum_states


def _mean(outputs: list[States]) -> States:
    return sum_states(outputs).map(lambda total: total / len(outputs))


CROSS_RELATION: dict[str, Callable[[list[States]], States]] = {"sum": sum_states, "mean": _mean}


def combine_relations(outputs: list[States], how: str) -> States:
    """Sum or mean over relations, row by row.

    Args:
        outputs: R states [N, B, H] of the same nodes.
        how: a key of ``CROSS_RELATION``.
    """
    return CROSS_RELATION[how](outputs)

"""Combine what several relations say about the same nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dglcell.perturbation.states import Addend, States, sum_states, sum_updates


def _sum(addends: Sequence[Addend], residual: Sequence[States]) -> States:
    return sum_updates([*addends, *((None, [x]) for x in residual)])


def _mean(addends: Sequence[Addend], residual: Sequence[States]) -> States:
    mean = sum_updates(addends).map(lambda total: total / len(addends))
    return sum_states([mean, *residual])


CROSS_RELATION: dict[str, Callable[[Sequence[Addend], Sequence[States]], States]] = {"sum": _sum, "mean": _mean}


def combine_relations(addends: Sequence[Addend], how: str, residual: Sequence[States] = ()) -> States:
    """Sum or mean over relations, row by row, plus a residual.

    Args:
        addends: for each of R relations, new states [N, B, H] of the same nodes as a row-wise function.
        how: a key of ``CROSS_RELATION``.
        residual: states to add.
    """
    return CROSS_RELATION[how](addends, residual)

"""Say how far a model is ahead of another predictor of values of nodes, by drawing strains and genes again."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from dglcell.data.strains import Strains
from dglcell.uncertainty.paired import FEWEST_GENES, INTERVAL, LARGEST, gene_weights, strain_weights

CONSTANT = 1e-13
"""Below this variance relative to their mean square, values are constant with rounding errors."""

LARGEST_PRODUCT = 2_000_000_000
"""Of larger parts fewer draws are made, so that strains × values × draws is no more than this; at least `FEWEST`."""

FEWEST = 100
"""With fewer draws the ends of an interval would say nothing."""

Values = NDArray[np.floating]


def correlations(sums: Values) -> tuple[Values, NDArray[np.bool_]]:
    """Return Pearson's r of each node, and whether its measured value varies; r is 0 where either side is constant.

    Args:
        sums: [6, …, M] the number of strains, Σt, Σt², Σp, Σp² and Σtp of measured values t and predictions p.
    """
    n, t, tt, p, pp, tp = sums
    number = np.maximum(n, 1)
    of_t, of_p, of_both = tt - t * t / number, pp - p * p / number, tp - t * p / number
    varies = (n > 1) & (of_t > CONSTANT * np.maximum(tt, np.finfo(float).tiny))
    moves = of_p > CONSTANT * np.maximum(pp, np.finfo(float).tiny)
    r = np.divide(of_both, np.sqrt(np.maximum(of_t * of_p, 0)), out=np.zeros_like(of_t), where=varies & moves)
    return np.clip(r, -1, 1), varies


def terms(predicted_BM: Values, target_BM: Values) -> list[Values]:
    """Return the terms of the sums of `correlations`, [B, M] each; targets are NaN where not measured."""
    measured = ~np.isnan(target_BM)
    t, p = (np.where(measured, x, 0).astype(np.float64) for x in (target_BM, predicted_BM))
    return [measured.astype(np.float64), t, t * t, p, p * p, t * p]


def node_draws(strains: Strains, nodes: int) -> dict[str, Values]:
    """Return how often each strain counts in each draw, [R, S]: of strains, and of genes where there are enough.

    The names are those of `dglcell.uncertainty.paired.ahead`. The first row of each counts every strain once. There is
    nothing for parts of so many strains that too few draws could be made.

    Args:
        strains: the strains of the part, in numpy.
        nodes: number of values of nodes.
    """
    number = len(strains)
    if number < 2 or number > LARGEST // FEWEST:
        return {}
    most = max(LARGEST_PRODUCT // (number * max(nodes, 1)), FEWEST)
    once = np.ones((1, number))
    found = {"ahead": _first(chain([once], strain_weights(number)), most)}
    if len(np.unique(strains.targets)) >= FEWEST_GENES:
        found["ahead_genes"] = _first(chain([once], gene_weights(strains)), most)
    return found


def _first(chunks: Iterator[Values], most: int) -> Values:
    """Return the first rows of chunks, one more than ``most``, because the first is no draw."""
    found: list[Values] = []
    for chunk in chunks:
        found.append(chunk[: most + 1 - sum(map(len, found))])
        if sum(map(len, found)) > most:
            break
    return np.concatenate(found)


class DrawnNodes:
    """Add up mean correlations over nodes in each draw of strains, batch by batch, so that no whole table is held.

    Args:
        draws: as of `node_draws`.
    """

    def __init__(self, draws: Mapping[str, Values], nodes: int) -> None:
        self.draws = draws
        self._done = 0
        self._sums = {over: np.zeros((6, len(weights), nodes)) for over, weights in draws.items()}

    def add(self, of_batch: Sequence[Values]) -> None:
        """Take in the terms of the next strains (`terms`)."""
        start, self._done = self._done, self._done + len(of_batch[0])
        for over, weights in self.draws.items():
            for total, values in zip(self._sums[over], of_batch, strict=True):
                total += weights[:, start : self._done] @ values

    def scores(self, over: str) -> Values:
        """Return the mean correlation over the nodes that vary, [R]; NaN in draws in which none does."""
        r, varies = correlations(self._sums[over])
        with np.errstate(invalid="ignore"):
            found: Values = np.where(varies, r, 0).sum(-1) / varies.sum(-1)
        return found

    def ahead_of(self, other: DrawnNodes) -> dict[str, float]:
        """Return by how much this predictor is ahead of another, with intervals at 95 %.

        Returns:
            The metrics of `dglcell.uncertainty.paired.ahead`; none where the score of one is not defined.
        """
        found: dict[str, float] = {}
        for over in self.draws:
            leads = self.scores(over) - other.scores(over)
            if not math.isfinite(leads[0]):
                return {}
            low, high = np.nanquantile(leads[1:], INTERVAL)
            found |= {"ahead": float(leads[0]), f"{over}_low": float(low), f"{over}_high": float(high)}
        return found

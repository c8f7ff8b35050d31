"""Rows of one strain that contradict each other: by sign, by size, or by the direction of the cross."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dglcell.data.sources.measurements import Measurements
from dglcell.data.sources.replicates_config import ConflictConfig


@dataclass(frozen=True)
class Conflicts:
    """What was found.

    Attributes:
        strains: [S] whether rows of the strain contradict each other.
        counts: by kind, for the provenance; empty where the source has no p-values.
    """

    strains: NDArray[np.bool_]
    counts: dict[str, int]


def find_conflicts(
    rows: Measurements, keys: NDArray[np.int64], first: NDArray[np.int64], config: ConflictConfig
) -> Conflicts:
    """Compare the rows of each strain, in phenotypes that have p-values.

    Two crosses of the same genes, A × B and B × A, are told apart by their array gene, which stands last.

    Args:
        rows: R measurements.
        keys: [R] strain of each row, 0 … S − 1, by first appearance.
        first: [S] first row of each strain.
        config: when rows contradict each other.
    """
    sizes = np.bincount(keys, minlength=len(first))
    repeated = np.flatnonzero(sizes[keys] > 1)
    conflicting = np.zeros(len(first), dtype=bool)
    if not rows.p_values:
        return Conflicts(conflicting, {})
    # Strains of several rows, numbered anew, their rows side by side.
    order = repeated[np.argsort(keys[repeated], kind="stable")]
    strains, starts, group = np.unique(keys[order], return_index=True, return_inverse=True)
    groups = len(strains)
    last = rows.genotypes.last(order)
    turned = last != rows.genotypes.last(first[keys[order]])
    opposite, apart, directions_apart = (np.zeros(groups, dtype=bool) for _ in range(3))
    for name, p_values in rows.p_values.items():
        values, significant = rows.phenotypes[name][order].astype(np.float64), p_values[order] < config.p
        opposite |= _any(significant & (values < 0), group, groups) & _any(significant & (values > 0), group, groups)
        if config.difference is not None and groups:
            spread = np.fmax.reduceat(values, starts) - np.fmin.reduceat(values, starts)
            apart |= spread > config.difference
            between = _mean(values, ~turned, group, groups) - _mean(values, turned, group, groups)
            directions_apart |= np.abs(between) > config.difference
    conflicting[strains[opposite | apart]] = True
    counts = {
        "strains_of_opposite_significant_signs": int(opposite.sum()),
        "strains_whose_rows_differ": int(apart.sum()),
        "strains_crossed_both_ways": int(_any(turned, group, groups).sum()),
        "strains_whose_ways_differ": int(directions_apart.sum()),
    }
    return Conflicts(conflicting, counts)


def _any(flags: NDArray[np.bool_], group: NDArray[np.intp], groups: int) -> NDArray[np.bool_]:
    """[groups] whether a row of the group has the flag."""
    return np.bincount(group[flags], minlength=groups) > 0


def _mean(
    values: NDArray[np.float64], chosen: NDArray[np.bool_], group: NDArray[np.intp], groups: int
) -> NDArray[np.float64]:
    """[groups] mean over the chosen measured rows; NaN where there are none."""
    chosen = chosen & ~np.isnan(values)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.bincount(group[chosen], values[chosen], groups) / np.bincount(group[chosen], minlength=groups)

"""A random split that meets its shares in every number of deletions and for every phenotype."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dglcell.data.partition import Bins, Parts, gene_set_keys, shuffled
from dglcell.data.table import StrainTable


def stratified_parts(table: StrainTable, bins: Bins, seed: int) -> Parts:
    """Divide at random, in the shares of ``bins`` among strains of each number of deletions and with each phenotype.

    Strains with the same number of deletions and the same measured phenotypes form a stratum, which is divided as
    its shares say but for fewer than one strain a part. Strains that this rounding leaves over go one by one to
    the part that is furthest below its target, relative to the target, for their number of deletions and their
    phenotypes. This is what torchcell's ``CellDataModule`` (seed 42) aims at with an independent cut of each key;
    its own draws are read from its files (`split_file`).

    Strains with the same gene set share a part, and count as one that has all their phenotypes.

    Args:
        table: the strains.
        bins: what they are dealt into.
        seed: of the shuffle.
    """
    order = shuffled(gene_set_keys(table), seed)
    _, first, group = np.unique(order, return_index=True, return_inverse=True)
    keys, stratum_of = _strata(table, first, group)
    quotas = _quotas(np.bincount(stratum_of, minlength=keys.shape[1]), keys, bins.shares)
    # Groups are numbered in the order of the shuffle, which a stable sort keeps within each stratum.
    turn = np.argsort(stratum_of, kind="stable")
    dealt = np.empty(len(first), np.int64)
    dealt[turn] = np.repeat(np.tile(np.arange(len(bins.shares)), len(quotas)), quotas.ravel())
    return bins.parts_of(dealt[group])


def _strata(
    table: StrainTable, first: NDArray[np.int64], group: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Which keys a stratum has, [K, M], and the stratum of each group.

    A key is a number of deletions or a phenotype.
    """
    stratum = table.num_deletions[first]
    columns = [stratum == number for number in np.unique(stratum)]
    for labels in table.phenotypes.values():
        measured = np.zeros(len(first), bool)
        measured[group[~np.isnan(labels)]] = True
        columns.append(measured)
        stratum = np.unique(2 * stratum + measured, return_inverse=True)[1]
    _, example, stratum = np.unique(stratum, return_index=True, return_inverse=True)
    return np.array([column[example] for column in columns if column.any()]), stratum


def _quotas(sizes: NDArray[np.int64], keys: NDArray[np.bool_], shares: Sequence[float]) -> NDArray[np.int64]:
    """[M, n] groups of each stratum in each bin.

    Args:
        sizes: [M] groups of each stratum.
        keys: [K, M] which keys a stratum has.
        shares: [n] of the bins.
    """
    exact = sizes[:, None] * np.array(shares)
    quotas = np.floor(exact + 1e-9).astype(np.int64)
    targets = (keys @ sizes)[:, None] * np.array(shares)
    for stratum in np.flatnonzero(quotas.sum(1) < sizes):
        relative = ((keys @ quotas - targets) / targets)[keys[:, stratum]].sum(0)
        # One at most to a bin, and none to one that has its exact share: each stays within one of it.
        relative[exact[stratum] - quotas[stratum] < 1e-9] = np.inf
        left = sizes[stratum] - quotas[stratum].sum()
        quotas[stratum, np.argsort(relative, kind="stable")[:left]] += 1
    return quotas

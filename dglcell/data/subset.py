"""A smaller split: fewer strains, the same proportions of the parts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dglcell.data.partition import PARTS, UNUSED, Parts, gene_set_keys, shuffled
from dglcell.data.table import StrainTable
from dglcell.errors import DataError


def subset_parts(
    parts: Parts, table: StrainTable, size: int, seed: int, genes: NDArray[np.bool_] | None = None
) -> Parts:
    """Keep ``size`` strains of a split; the others become unused.

    Each part keeps its share. Within a part, strains with at most one deletion are taken first, then the others
    evenly over their numbers of deletions; which ones is random in ``seed``.

    Args:
        parts: [S] the whole split.
        table: the strains.
        size: strains to keep in all parts together.
        seed: of the choice.
        genes: [N] keep only strains that delete one of these, where given.

    Raises:
        DataError: there are fewer than ``size`` strains to choose from.
    """
    eligible = parts != UNUSED
    if genes is not None:
        eligible &= _deletes_any(table, genes)
    if eligible.sum() < size:
        raise DataError(
            "the subset is larger than what it is taken from",
            got=f"size {size:,}",
            expected=f"at most {int(eligible.sum()):,} strains" + ("" if genes is None else " with a listed gene"),
            do="lower the size of the subset, or list more genes",
        )
    order = shuffled(gene_set_keys(table), seed)
    members = [np.flatnonzero(eligible & (parts == part)) for part in range(len(PARTS))]
    kept = np.full_like(parts, UNUSED)
    for strains, quota in zip(members, _proportional([len(m) for m in members], size), strict=True):
        for number, take in _takes(table.num_deletions[strains], quota):
            level = strains[table.num_deletions[strains] == number]
            chosen = level[np.argsort(order[level], kind="stable")[:take]]
            kept[chosen] = parts[chosen]
    return kept


def _deletes_any(table: StrainTable, genes: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """[S] whether a strain deletes one of ``genes``."""
    hits = np.concatenate([[0], np.cumsum(genes[table.genes])])
    return hits[table.offsets[1:]] > hits[table.offsets[:-1]]


def _proportional(sizes: Sequence[int], total: int) -> list[int]:
    """Divide ``total`` in proportion to ``sizes`` (largest remainders)."""
    exact = np.asarray(sizes) * total / sum(sizes)
    shares = np.floor(exact).astype(np.int64)
    shares[np.argsort(shares - exact, kind="stable")[: total - shares.sum()]] += 1
    return shares.tolist()


def _takes(deletions: NDArray[np.int64], quota: int) -> list[tuple[int, int]]:
    """(number of deletions, strains to take with it): at most one deletion first, then evenly over the rest."""
    numbers, available = np.unique(deletions, return_counts=True)
    takes = []
    few = numbers <= 1
    for number, count in zip(numbers[few].tolist(), available[few].tolist(), strict=True):
        takes.append((number, min(count, quota)))
        quota -= takes[-1][1]
    # From the scarcest on, each takes an even share of what is left, so that its shortfall goes to the others.
    many = sorted(zip(available[~few].tolist(), numbers[~few].tolist(), strict=True))
    for turn, (count, number) in enumerate(many):
        takes.append((number, min(count, quota // (len(many) - turn))))
        quota -= takes[-1][1]
    return takes

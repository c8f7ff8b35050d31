r"""List the subsets of a strain's changes, with the signs by which their predictions add up to an interaction.

The interaction of the changes S of a strain is what the prediction has beyond all that fewer of them do:
:math:`\sum_{T \subseteq S} (-1)^{|S| - |T|} y_T`. Of a pair it is :math:`y_{ij} - y_i - y_j + y_0`. It is linear in
predictions, so that shares of the same subsets, added up with the same signs, sum to it as exactly as each of them sums
to its own change.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dglcell.data.strains import Strains
from dglcell.errors import GenotypeError, listing

MOST_CHANGES = 6
"""A strain that changes more genes than this has too many subsets: there are 2 to the power of their number."""


@dataclass(frozen=True)
class Subsets:
    """Hold all subsets of the changes of B strains, strain by strain, each strain's own changes last.

    Attributes:
        strains: Q subsets as strains, in the conditions of their owners.
        owners: [Q] the strain that each is a subset of.
        signs: [Q] 1 or −1.
    """

    strains: Strains
    owners: NDArray[np.int64]
    signs: NDArray[np.float64]

    @property
    def whole(self) -> NDArray[np.int64]:
        """Return where the strains themselves stand, [B]."""
        return np.flatnonzero(np.diff(self.owners, append=len(self.owners)))

    def sums(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Return the signed sums of values over the subsets of each strain, [..., Q] → [..., B]."""
        starts = np.concatenate([[0], self.whole[:-1] + 1])
        return np.add.reduceat(values * self.signs, starts, axis=-1) if len(self.signs) else values[..., :0]


def check_changes(strains: Strains) -> None:
    """Refuse strains that have no interaction, and those with too many subsets.

    Raises:
        GenotypeError: a strain changes fewer than two genes, or more than ``MOST_CHANGES``.
    """
    numbers = [len(places) for places in _changes(strains)]
    wrong = [strain for strain, number in enumerate(numbers) if not 2 <= number <= MOST_CHANGES]
    if wrong:
        raise GenotypeError(
            "an interaction is between several changed genes",
            got=f"{numbers[wrong[0]]} in strain {listing(wrong)}",
            expected=f"2 to {MOST_CHANGES} different genes in every strain",
            do="leave these strains out, or explain their whole change",
        )


def subsets_of(strains: Strains) -> Subsets:
    """Return all subsets of the changes of strains, in arrays; a gene that is named twice counts once."""
    owners, signs, places = list[int](), list[float](), list[NDArray[np.int64]]()
    for strain, genes in enumerate(_changes(strains)):
        for chosen in range(2 ** len(genes)):
            inside = [place for bit, place in enumerate(genes) if chosen >> bit & 1]
            owners.append(strain)
            signs.append((-1.0) ** (len(genes) - len(inside)))
            places.append(np.array(inside, np.int64))
    arrays = strains.numpy()
    of_owner = arrays.take(np.array(owners, np.int64))
    every = np.concatenate(places) if places else np.zeros(0, np.int64)
    found = of_owner.with_(
        targets=arrays.targets[every],
        offsets=np.concatenate([[0], np.cumsum([len(one) for one in places])]).astype(np.int64),
        strengths=None if arrays.strengths is None else arrays.strengths[every],
        columns=of_owner.columns,
    )
    return Subsets(found, np.array(owners, np.int64), np.array(signs))


def _changes(strains: Strains) -> list[NDArray[np.int64]]:
    """Return for each strain where the different genes that it changes stand among all targets."""
    arrays, found = strains.numpy(), list[NDArray[np.int64]]()
    for first, last in itertools.pairwise(arrays.offsets):
        _, places = np.unique(arrays.targets[first:last], return_index=True)
        found.append(first + np.sort(places))
    return found

"""Read what strains have beyond deletions: activities of their genes, and covariates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dglcell.data.columns import COVARIATE
from dglcell.data.strains import Strains
from dglcell.errors import DataError


def refuse_activities(strains: Strains, name: str) -> Strains:
    """Return strains if they only delete genes; ``name`` is that of the baseline that asks.

    Raises:
        DataError: they have activities.
    """
    if strains.activities is not None:
        do = "leave activities such as `:0.3` out, or predict with the network: `--with network`"
        raise DataError(f"{name}: this baseline cannot express activities", do=do)
    return strains


def lost(strains: Strains) -> NDArray[np.float64]:
    """Return how much of each target a strain lacks, [P], 1 minus its activity."""
    return 1.0 - strains.left().astype(np.float64)


def owners(strains: Strains) -> NDArray[np.int64]:
    """Return the strain of each target, [P]."""
    return np.repeat(np.arange(len(strains)), strains.num_deletions)


def summed(values: NDArray[np.float64], strains: Strains) -> NDArray[np.float64]:
    """Return the sum of the ``values`` of targets, [P], over each strain, [S]."""
    return np.bincount(owners(strains), values, minlength=len(strains)).astype(np.float64)


def adding(owner: NDArray[np.int64], strains: int) -> sparse.csr_array:
    """Return a matrix that adds up what belongs to each strain, [S, P]; ``owner``, [P], says to which it belongs."""
    shape = (strains, len(owner))
    return sparse.csr_array((np.ones(len(owner), np.float32), (owner, np.arange(len(owner)))), shape=shape)


MOST_COMPARED = 2**24
"""Most pairs of strains that are compared at a time."""


def blocks(size: int, others: int) -> Iterator[slice]:
    """Yield slices of ``size`` strains that are compared with ``others`` together."""
    rows = max(1, MOST_COMPARED // max(others, 1))
    for start in range(0, size, rows):
        yield slice(start, min(start + rows, size))


@dataclass(frozen=True)
class Covariate:
    """Hold a covariate as the training strains have it."""

    name: str  #: name of the covariate, by which it is found in other tables
    categories: tuple[str, ...]  #: the categories that training strains have; none where values are numbers
    #: [K] the share of training strains in each of the categories; or [1] the mean of the numbers
    mean: NDArray[np.float64]
    scale: float = 1.0  #: standard deviation of the numbers; 1 where they are all the same, and for categories

    @classmethod
    def of(cls, name: str, categories: tuple[str, ...], values: NDArray[np.floating]) -> Self:
        """Return a covariate from its ``values``, [S], of which ``categories`` are the names."""
        if not categories:
            numbers = values.astype(np.float64)
            return cls(name, (), np.array([numbers.mean()]), float(numbers.std()) or 1.0)
        # A category that no training strain has is as unknown as one of another table.
        found, counts = np.unique(values.astype(np.int64), return_counts=True)
        return cls(name, tuple(categories[code] for code in found), counts / len(values))

    def values(self, strains: Strains) -> NDArray[np.float64]:
        """Return indices of categories, or numbers, [S].

        They are NaN where a category is unknown, and everywhere if the strains do not have this covariate.
        """
        for column, values in strains.columns.items():
            if (column.kind, column.name, bool(column.categories)) == (COVARIATE, self.name, bool(self.categories)):
                if not self.categories:
                    return values.astype(np.float64)
                place = {category: float(code) for code, category in enumerate(self.categories)}
                codes = np.array([*(place.get(category, np.nan) for category in column.categories), np.nan])
                return codes[values.astype(np.int64)]
        return np.full(len(strains), np.nan)

    def standardised(self, strains: Strains) -> NDArray[np.float64]:
        """Return numbers whose mean over the training strains is 0, [S], and 0 for what is unknown."""
        return np.nan_to_num((self.values(strains) - self.mean[0]) / self.scale)

    def columns(self, strains: Strains) -> sparse.csr_array:
        """Return a column for each category, [S, K], or the standardised numbers, [S, 1].

        A strain has 1 in the column of its category, and the training strains' share in each if that is unknown.
        """
        if not self.categories:
            return sparse.csr_array(self.standardised(strains)[:, None])
        values = self.values(strains)
        known, unknown = np.flatnonzero(~np.isnan(values)), np.isnan(values).astype(np.float64)
        shape = (len(strains), len(self.categories))
        found = sparse.csr_array((np.ones(len(known)), (known, values[known].astype(np.int64))), shape=shape)
        return found + sparse.csr_array(unknown[:, None]) @ sparse.csr_array(self.mean[None])


@dataclass(frozen=True)
class Covariates:
    """Read the covariates of strains, matched by the names of covariates and of their categories."""

    known: tuple[Covariate, ...]  #: the covariates of the training strains, in the order of their names

    @classmethod
    def of(cls, strains: Strains) -> Self:
        """Return the covariates of the training strains."""
        columns = sorted((item for item in strains.columns.items() if item[0].kind == COVARIATE), key=lambda x: x[0])
        return cls(tuple(Covariate.of(column.name, column.categories, values) for column, values in columns))

    def columns(self, strains: Strains) -> sparse.csr_array:
        """Return the columns of all covariates side by side, [S, K]."""
        return sparse.csr_array(sparse.hstack([one.columns(strains) for one in self.known]))

    @property
    def mean(self) -> NDArray[np.float64]:
        """Return the means of these columns over the training strains, [K]."""
        return np.concatenate([one.mean if one.categories else np.zeros(1) for one in self.known])

    def codes(self, strains: Strains) -> NDArray[np.float64]:
        """Return the index of each strain's category, [S, covariates with categories], NaN where it is unknown."""
        return self._side_by_side([one.values(strains) for one in self.known if one.categories], strains)

    def numbers(self, strains: Strains) -> NDArray[np.float64]:
        """Return the standardised numbers, [S, covariates with numbers], 0 where they are unknown."""
        return self._side_by_side([one.standardised(strains) for one in self.known if not one.categories], strains)

    @staticmethod
    def _side_by_side(found: list[NDArray[np.float64]], strains: Strains) -> NDArray[np.float64]:
        return np.stack(found, axis=1) if found else np.zeros((len(strains), 0))

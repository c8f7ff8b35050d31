"""Read what strains have beyond deletions: strengths of their genes, and conditions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dglcell.data.strains import CONDITION, Strains
from dglcell.errors import DataError


def refuse_strengths(strains: Strains, name: str) -> Strains:
    """Return strains that only delete genes.

    Args:
        strains: the strains to predict or to learn from.
        name: name of the null model, or a word for several, for the message.

    Raises:
        DataError: they have strengths.
    """
    if strains.strengths is not None:
        raise DataError(
            f"{name}: this null model cannot express strengths",
            got="strains with weakened genes",
            expected="strains that only delete genes",
            do="predict with the run's own model, or with another null model, such as additive ridge",
        )
    return strains


def lost(strains: Strains) -> NDArray[np.float64]:
    """Return how much of each target a strain lacks, [P], 1 minus its strength."""
    return 1.0 - strains.left().astype(np.float64)


def owners(strains: Strains) -> NDArray[np.int64]:
    """Return the strain of each target, [P]."""
    return np.repeat(np.arange(len(strains)), strains.num_deletions)


def summed(values: NDArray[np.float64], strains: Strains) -> NDArray[np.float64]:
    """Return the sum of the ``values`` of targets, [P], over each strain, [S]."""
    return np.bincount(owners(strains), values, minlength=len(strains)).astype(np.float64)


@dataclass(frozen=True)
class Condition:
    """Hold a condition as the training strains have it.

    Attributes:
        name: name of the condition, by which it is found in other tables.
        categories: the categories that training strains have; none where values are numbers.
        mean: [K] the share of training strains in each of the categories; or [1] the mean of the numbers.
        scale: standard deviation of the numbers; 1 where they are all the same, and for categories.
    """

    name: str
    categories: tuple[str, ...]
    mean: NDArray[np.float64]
    scale: float = 1.0

    @classmethod
    def of(cls, name: str, categories: tuple[str, ...], values: NDArray[np.floating]) -> Self:
        """Return a condition from its ``values``, [S], of which ``categories`` are the names."""
        if not categories:
            numbers = values.astype(np.float64)
            return cls(name, (), np.array([numbers.mean()]), float(numbers.std()) or 1.0)
        # A category that no training strain has is as unknown as one of another table.
        found, counts = np.unique(values.astype(np.int64), return_counts=True)
        return cls(name, tuple(categories[code] for code in found), counts / len(values))

    def values(self, strains: Strains) -> NDArray[np.float64]:
        """Return indices of categories, or numbers, [S].

        They are NaN where a category is unknown, and everywhere if the strains do not have this condition.
        """
        for column, values in strains.columns.items():
            if (column.kind, column.name, bool(column.categories)) == (CONDITION, self.name, bool(self.categories)):
                if not self.categories:
                    return values.astype(np.float64)
                place = {category: float(code) for code, category in enumerate(self.categories)}
                codes = np.array([place.get(category, np.nan) for category in column.categories])
                return codes[values.astype(np.int64)]
        return np.full(len(strains), np.nan)

    def centred(self, strains: Strains) -> NDArray[np.float64]:
        """Return columns whose mean over the training strains is 0, [S, K] or [S, 1], and rows of 0 for the unknown."""
        values = self.values(strains)
        if self.categories:
            columns = (values[:, None] == np.arange(len(self.categories))) - self.mean
        else:
            columns = (values[:, None] - self.mean) / self.scale
        return np.where(np.isnan(values)[:, None], 0.0, columns)


@dataclass(frozen=True)
class Conditions:
    """Read the conditions of strains, matched by the names of conditions and of their categories.

    Attributes:
        known: the conditions of the training strains, in the order of their names.
    """

    known: tuple[Condition, ...]

    @classmethod
    def of(cls, strains: Strains) -> Self:
        """Return the conditions of the training strains."""
        columns = sorted((item for item in strains.columns.items() if item[0].kind == CONDITION), key=lambda x: x[0])
        return cls(tuple(Condition.of(column.name, column.categories, values) for column, values in columns))

    def columns(self, strains: Strains) -> NDArray[np.float64]:
        """Return a centred column for each category and each number, [S, K]; 0 is what is unknown, or the mean."""
        return np.concatenate([np.zeros((len(strains), 0)), *(one.centred(strains) for one in self.known)], axis=1)

    def codes(self, strains: Strains) -> NDArray[np.float64]:
        """Return the index of each strain's category, [S, conditions with categories], NaN where it is unknown."""
        return self._side_by_side([one.values(strains) for one in self.known if one.categories], strains)

    def numbers(self, strains: Strains) -> NDArray[np.float64]:
        """Return the standardised numbers, [S, conditions with numbers], 0 where they are unknown."""
        return self._side_by_side([one.centred(strains)[:, 0] for one in self.known if not one.categories], strains)

    @staticmethod
    def _side_by_side(found: list[NDArray[np.float64]], strains: Strains) -> NDArray[np.float64]:
        return np.stack(found, axis=1) if found else np.zeros((len(strains), 0))

"""The record of a training as curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class History:
    """One row an epoch, as in ``metrics.jsonl``.

    Attributes:
        rows: key → value; ``epoch`` counts from 0, None stands for what is undefined.
    """

    rows: Sequence[Mapping[str, float | None]] = ()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def epochs(self) -> NDArray[np.int64]:
        """Counted from 1, as the log prints them."""
        return np.array([int(row["epoch"] or 0) + 1 for row in self.rows], dtype=np.int64)

    def curve(self, key: str) -> NDArray[np.float64]:
        """One value an epoch, NaN where there is none."""
        return np.array([_value(row.get(key)) for row in self.rows], dtype=np.float64)

    def keys(self, prefix: str = "") -> list[str]:
        """The keys below ``prefix`` that have a value in any epoch, in the order of their first appearance."""
        found = dict.fromkeys(key for row in self.rows for key in row if key.startswith(prefix))
        return [key for key in found if np.isfinite(self.curve(key)).any()]

    @property
    def minutes(self) -> float:
        """How long all epochs took together."""
        return float(np.nansum(self.curve("seconds"))) / 60


def _value(value: float | None) -> float:
    return math.nan if value is None else float(value)

"""By which metric models are compared."""

from __future__ import annotations

from typing import NamedTuple

from dglcell.data.kinds import CLASSIFICATION, REGRESSION


class Score(NamedTuple):
    """A metric of which more is better.

    Attributes:
        metric: its key.
        name: as axes show it.
        title: short.
    """

    metric: str
    name: str
    title: str


SCORES = {
    REGRESSION: Score("pearson", "Pearson correlation", "Pearson"),
    CLASSIFICATION: Score("average_precision", "Average precision", "average precision"),
}
"""Kind of labels → metric by which models are compared."""


def curve_key(phenotype: str, kind: str) -> str:
    """Key of a phenotype's validation score in the record."""
    return f"validation/{phenotype}/{SCORES[kind].metric}"

"""Describe CRISPRi guides by their mismatches, which say how strongly they repress a gene."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dglcell.data.table import read_numbers
from dglcell.errors import DataError

SITE, MISMATCH, DISTANCE = "site", "mismatch", "distance"
"""Covariates of a guide: where it binds, where it mismatches, and how far from the start of the gene that is."""

BASES = "ACGT"


@dataclass
class GuideConfig:
    """Configure the features of guides, which become covariates of strains.

    A covariate ``site`` says where a guide binds, by the names of columns and the sequence there; ``mismatch_20`` to
    ``mismatch_1`` say where the guide does not match it, by the distance to the PAM. Guides of one site are one guide
    with mismatches, so that the most frequent base at each position is taken for that of the site; where there are few
    guides, a mismatch cannot be told. A table to predict is read with the sites of the training.
    """

    #: column of sequences without the PAM, from the end that is far from it; empty where there is no guide
    sequence: str = ""
    site: list[str] = field(default_factory=list)  # columns that together name the place that a guide binds
    #: column of numbers that say how far from the start of the gene this is, which becomes the covariate ``distance``;
    #: none if empty. Cells of guides that bind no gene are empty.
    distance: str = ""
    #: whether the columns of ``site`` leave open which place a guide binds. Guides that differ at up to a quarter of
    #: their positions then bind one place, and each place is a site of its own. In a table to predict, a guide binds a
    #: place of the training that it matches at half of its positions or more.
    places_by_sequence: bool = False

    @property
    def columns(self) -> list[str]:
        """Return all columns: that of sequences, that of distances if there is one, and those of sites."""
        return [self.sequence, *([self.distance] if self.distance else []), *self.site]

    def covariates(
        self, rows: Sequence[Sequence[str]], where: str, known: Sequence[str] = ()
    ) -> dict[str, NDArray[np.generic]]:
        """Return the covariates of strains whose cells stand in the order of `columns`; see `guide_covariates`.

        Raises:
            DataError: a distance is no number, or as ``guide_covariates`` says.
        """
        before = len(self.columns) - len(self.site)
        sites = [" ".join(filter(None, map(str.strip, row[before:]))) or NO_SITE for row in rows]
        found = guide_covariates([row[0] for row in rows], sites, where, known, self.places_by_sequence)
        return found | ({DISTANCE: _distances([row[1] for row in rows], where)} if self.distance else {})


NO_SITE = "none"

FEW, HALF = 0.25, 0.5
"""Shares of the positions at which guides of one place differ from the next, and from a place that is known; sequences
by chance differ at three quarters."""


def guide_covariates(
    sequences: Sequence[str], sites: Sequence[str], where: str, known: Sequence[str] = (), apart: bool = False
) -> dict[str, NDArray[np.generic]]:
    """Return the covariates of strains with these guides.

    Args:
        sequences: [S] sequences, all of one length; empty where there is no guide.
        sites: [S] names of the sites, without their sequences.
        where: name of the table, for messages.
        known: sites whose sequences are known, as this function returns them.
        apart: whether guides of a site may bind several places.

    Returns:
        ``site`` → [S] names with sequences, and ``mismatch_20`` … ``mismatch_1`` → [S] 0 or 1.

    Raises:
        DataError: a sequence has other letters, or another length than the others.
    """
    upper = [sequence.strip().upper() for sequence in sequences]
    wrong = next((s for s in upper if set(s) - set(BASES)), None)
    lengths = sorted({len(sequence) for sequence in upper if sequence})
    if wrong is not None or len(lengths) != 1:
        got = f"'{wrong}'" if wrong is not None else f"lengths {', '.join(map(str, lengths)) or 'none'}"
        expected = f"letters {', '.join(BASES)}, and one length for all"
        raise DataError(f"'{where}': sequences of guides cannot be compared", got=got, expected=expected)
    (length,) = lengths
    bases = np.array([[BASES.index(base) for base in s] if s else [-1] * length for s in upper], dtype=np.int64)
    names, site = np.unique(np.asarray(sites, dtype=str), return_inverse=True)
    references: dict[str, list[list[int]]] = {}
    for name, _, sequence in (one.rpartition(" ") for one in known if one != NO_SITE):
        if len(sequence) == length:
            references.setdefault(name, []).append([BASES.index(base) for base in sequence])
    matching = np.zeros_like(bases)
    for number, name in enumerate(names.tolist()):
        rows = np.flatnonzero(site == number)
        there = np.array(references.get(name, []), dtype=np.int64).reshape(-1, length)
        matching[rows] = _places(bases[rows], there, apart and name != NO_SITE)
    mismatch = (bases != matching) & (bases >= 0)
    columns = {f"{MISMATCH}_{length - i}": mismatch[:, i].astype(np.float32) for i in range(length)}
    places, place = np.unique(np.column_stack([site, matching]), axis=0, return_inverse=True)
    shown = [
        NO_SITE if names[number] == NO_SITE else f"{names[number]} {''.join(BASES[i] for i in sequence)}"
        for number, *sequence in places.tolist()
    ]
    return {SITE: np.array(shown)[place.reshape(-1)], **columns}


def _places(bases_NL: NDArray[np.int64], known_KL: NDArray[np.int64], apart: bool) -> NDArray[np.int64]:
    """Return the sequences of the places that the guides of a site bind, [N, L].

    Where there is one place, it has the most frequent bases. Otherwise (``apart``) guides that differ at a few
    positions bind one place, and so do those between which there is a series of such guides. It is the known one, of
    ``known_KL``, that a guide of them matches best, if that is at half of the positions or more, and else one with
    their most frequent bases. Numbers of bases are −1 where there is no guide.
    """
    found_NL = np.repeat(known_KL[:1] if len(known_KL) else _most_frequent(bases_NL), len(bases_NL), axis=0)
    rows = np.flatnonzero(bases_NL[:, 0] >= 0)
    if not apart or not len(rows):
        return found_NL
    from scipy.sparse.csgraph import connected_components
    from scipy.spatial.distance import cdist

    known = len(known_KL)
    guides = np.concatenate([known_KL, bases_NL[rows]])
    differ = cdist(guides, guides, "hamming")
    places = connected_components(differ <= FEW, directed=False)[1][known:]
    for place in np.unique(places):
        members = np.flatnonzero(places == place)
        nearest = differ[known + members, :known].min(axis=0)
        near = nearest.min(initial=1) <= HALF
        found_NL[rows[members]] = known_KL[nearest.argmin()] if near else _most_frequent(guides[known + members])
    return found_NL


def _most_frequent(bases_NL: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the most frequent base at each position, [1, L]; the first in alphabetical order of equal ones."""
    return np.stack([(bases_NL == base).sum(axis=0) for base in range(len(BASES))]).argmax(axis=0)[None]


def _distances(cells: Sequence[str], where: str) -> NDArray[np.generic]:
    """Return how far guides bind from the start of their genes, [S], 0 where they bind none."""
    import pandas as pd

    found, nowhere = read_numbers(pd.Series(cells, dtype=str), ".", ())
    wrong = ~nowhere & ~(np.abs(found) <= np.finfo(np.float32).max)
    if wrong.any():
        got, expected = cells[int(np.argmax(wrong))], "a number, or an empty cell for a guide that binds no gene"
        do = "mend the cell, or leave `distance` of `guides` out"
        raise DataError(f"'{where}': a guide has no distance", got=f"'{got}'", expected=expected, do=do)
    return np.where(nowhere, 0, found).astype(np.float32)

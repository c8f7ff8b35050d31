"""Describe CRISPRi guides by their mismatches, which say how strongly they repress a gene."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dglcell.data.sources.text_table import read_numbers
from dglcell.errors import DataError

SITE, MISMATCH, DISTANCE = "site", "mismatch", "distance"
"""Conditions of a guide: where it binds, where it mismatches, and how far from the start of the gene that is."""

BASES = "ACGT"


@dataclass
class GuideConfig:
    """Configure the features of guides, which become conditions of strains.

    A condition ``site`` says where a guide binds, by the names of columns and the sequence there; ``mismatch_20`` to
    ``mismatch_1`` say where the guide does not match it, by the distance to the PAM. Guides of one site are one guide
    with mismatches, so that the most frequent base at each position is taken for that of the site; where there are few
    guides, a mismatch cannot be told. A table to predict is read with the sites of the training.

    Attributes:
        sequence: column of sequences without the PAM, from the end that is far from it; empty where there is no guide.
        site: columns that together name the place that a guide binds.
        distance: column of numbers that say how far from the start of the gene this is, which becomes the condition
            ``distance``; none if empty. Cells of guides that bind no gene are empty.
    """

    sequence: str = ""
    site: list[str] = field(default_factory=list)
    distance: str = ""

    @property
    def columns(self) -> list[str]:
        """Return all columns: that of sequences, that of distances if there is one, and those of sites."""
        return [self.sequence, *([self.distance] if self.distance else []), *self.site]

    def conditions(
        self, rows: Sequence[Sequence[str]], where: str, known: Sequence[str] = ()
    ) -> dict[str, NDArray[np.generic]]:
        """Return the conditions of strains whose cells stand in the order of `columns`; see `guide_conditions`.

        Raises:
            DataError: a distance is no number, or as ``guide_conditions`` says.
        """
        before = len(self.columns) - len(self.site)
        sequences, sites = [row[0] for row in rows], [site_name(row[before:]) for row in rows]
        found = guide_conditions(sequences, sites, where, known)
        return found | ({DISTANCE: _distances([row[1] for row in rows], where)} if self.distance else {})


NO_SITE = "none"


def site_name(cells: Sequence[str]) -> str:
    """Return the name of a site from the cells of its columns."""
    return " ".join(cell.strip() for cell in cells if cell.strip()) or NO_SITE


def guide_conditions(
    sequences: Sequence[str], sites: Sequence[str], where: str, known: Sequence[str] = ()
) -> dict[str, NDArray[np.generic]]:
    """Return the conditions of strains with these guides.

    Args:
        sequences: [S] sequences, all of one length; empty where there is no guide.
        sites: [S] names of the sites, without their sequences.
        where: name of the table, for messages.
        known: sites whose sequences are known, as this function returns them.

    Returns:
        ``site`` → [S] names with sequences, and ``mismatch_20`` … ``mismatch_1`` → [S] 0 or 1.

    Raises:
        DataError: a sequence has other letters, or another length than the others.
    """
    upper = [sequence.strip().upper() for sequence in sequences]
    wrong = next((s for s in upper if set(s) - set(BASES)), None)
    lengths = sorted({len(sequence) for sequence in upper if sequence})
    if wrong is not None or len(lengths) != 1:
        raise DataError(
            f"'{where}': sequences of guides cannot be compared",
            got=f"'{wrong}'" if wrong is not None else f"lengths {', '.join(map(str, lengths)) or 'none'}",
            expected=f"letters {', '.join(BASES)}, and one length for all",
        )
    (length,) = lengths
    bases = np.array([[BASES.index(base) for base in s] if s else [-1] * length for s in upper], dtype=np.int64)
    names, site = np.unique(np.asarray(sites, dtype=str), return_inverse=True)
    counts = np.zeros((len(names), length, len(BASES)), dtype=np.int64)
    guided = np.flatnonzero(bases[:, 0] >= 0)
    for position in range(length):
        np.add.at(counts[:, position], (site[guided], bases[guided, position]), 1)
    matching = counts.argmax(axis=2)
    references = dict(one.rsplit(" ", 1) for one in known if one != NO_SITE)
    for number, name in enumerate(names.tolist()):
        if len(references.get(name, "")) == length:
            matching[number] = [BASES.index(base) for base in references[name]]
    mismatch = (bases != matching[site]) & (bases >= 0)
    columns = {f"{MISMATCH}_{length - i}": mismatch[:, i].astype(np.float32) for i in range(length)}
    shown = [f"{name} {''.join(BASES[i] for i in row)}" for name, row in zip(names, matching.tolist(), strict=True)]
    with_sequence = np.array([NO_SITE if name == NO_SITE else of for name, of in zip(names, shown, strict=True)])
    return {SITE: with_sequence[site], **columns}


def _distances(cells: Sequence[str], where: str) -> NDArray[np.generic]:
    """Return how far guides bind from the start of their genes, [S], 0 where they bind none."""
    import pandas as pd

    found, nowhere = read_numbers(pd.Series(cells, dtype=str), ".", ())
    wrong = ~nowhere & ~(np.abs(found) <= np.finfo(np.float32).max)
    if wrong.any():
        raise DataError(
            f"'{where}': a guide has no distance",
            got=f"'{cells[int(np.argmax(wrong))]}'",
            expected="a number, or an empty cell for a guide that binds no gene",
            do="mend the cell, or leave `distance` of `guides` out",
        )
    return np.where(nowhere, 0, found).astype(np.float32)

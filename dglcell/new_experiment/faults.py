"""Find what looks wrong with a user's own table although it can be read, and write a copy without faults."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dglcell.data.sources.config import CsvConfig
from dglcell.data.sources.csv_table import Measured
from dglcell.data.sources.replicates import strain_numbers
from dglcell.data.table import Issue, Rows, by_text
from dglcell.errors import count
from dglcell.files.atomic import atomic_file

CONTRADICTING = "contradiction"
"""Issues of this kind are alike, so that a few examples of them say enough."""

SPREAD = 3.0
"""Rows of the same genes may differ by so many standard deviations, estimated by the median deviation."""

NEARLY_ALL, FEW_BLANK = 0.95, 20
"""Where so large a part of the rows fill all columns of genes, and fewer rows than that do not, a blank is a fault."""


def blank_genes(found: Measured, config: CsvConfig) -> list[Issue]:
    """Return rows whose blank gene stands out; a screen with single deletions on purpose has more such rows."""
    wanted, rows, numbers = len(config.genes), found.rows, found.changes.numbers
    fewer = np.flatnonzero((numbers > 0) & (numbers < wanted)).tolist()
    full = int((numbers == wanted).sum())
    if config.ignore_genes or len(fewer) >= FEW_BLANK or full < NEARLY_ALL * len(rows):
        return []
    others = f"while {full:,} of {count(len(rows), 'row')} name {wanted} genes (if that is meant: `--keep-blank`)"
    blank = by_text(
        (" and ".join(name for name in config.genes if not rows.frame[name].iloc[row].strip()), row) for row in fewer
    )
    return rows.issues({f"{n} {'are' if ' and ' in n else 'is'} blank, {others}": where for n, where in blank.items()})


def unequal_rows(found: Measured, config: CsvConfig, *, contradicting: bool) -> list[Issue]:
    """Return rows of the same strain with different values.

    Args:
        contradicting: only those whose values differ by more than different strains do, and by more than half the
            effect.
    """
    issues = list[Issue]()
    numbers, changed = strain_numbers(found.strains), (found.changes.numbers > 0) | config.has_conditions
    for name, column in found.strains.phenotypes.items():
        values, cells, said = column.astype(np.float64), found.rows.frame[config.phenotypes[name]], {}
        known = values[np.isfinite(values)]
        if len(known) < 2:
            continue
        centre = float(np.median(known))
        limit = SPREAD * (1.4826 * float(np.median(np.abs(known - centre))) or float(known.std()))
        usable = np.flatnonzero(np.isfinite(values) & changed)
        usable = usable[np.bincount(numbers[usable], minlength=1)[numbers[usable]] > 1]
        for where in by_text((str(numbers[row]), row) for row in usable.tolist()).values():
            effect = float(np.abs(values[where] - centre).max())
            if np.ptp(values[where]) > (max(limit, effect / 2) if contradicting else 0):
                texts = [cells.iloc[row].strip() for row in where]
                least, most = (texts[int(pick(values[where]))] for pick in (np.argmin, np.argmax))
                shown = " and ".join(texts) if len(texts) < 4 else f"from {least} to {most} in {len(texts)} rows"
                how = "contradicting" if contradicting else "several"
                said[f"{named(found, config, where[0])} has {how} values: {name} {shown}"] = where
        issues += found.rows.issues(said, kind=CONTRADICTING if contradicting else "strain with several values")
    return issues


def named(found: Measured, config: CsvConfig, row: int) -> str:
    """Return the genes of a row with their strengths, and its conditions."""
    written = zip(*found.changes.of_row(row), strict=True)
    genes = [f"{name}:{left}" if left else name for name, left in written]
    guides = [] if config.guides is None else [name for name in config.guides.columns if name not in config.genes]
    apart = [*config.conditions.values(), *guides]
    return ", ".join([*genes, *(f"{name} {found.rows.frame[name].iloc[row].strip()}" for name in apart)])


def write_clean(rows: Rows, issues: Sequence[Issue], file: Path) -> int:
    """Write a table without its faults as CSV: cells are mended or emptied, and rows are left out.

    Returns:
        how many rows were left out.
    """
    frame, out = rows.frame.copy(), np.zeros(len(rows), dtype=bool)
    for issue in issues:
        chosen = np.isin(rows.lines, issue.lines)
        if issue.column is None:
            out |= chosen
        else:
            frame.loc[chosen, issue.column] = issue.cell
    with atomic_file(file) as partial:
        frame[~out].to_csv(partial, index=False, lineterminator="\n")
    return int(out.sum())

"""Find what the columns of a user's own table hold: genes, activities, covariates, guides and phenotypes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from dglcell.checks import STRONGEST
from dglcell.data.changes import WITHIN_CELL, split_activity
from dglcell.data.columns import MEDIUM
from dglcell.data.sources.config import DECIMALS, CsvConfig, GuideConfig
from dglcell.data.sources.csv_table import BASES
from dglcell.data.sources.text_table import refuse_lost
from dglcell.data.table import MISSING, Rows, read_numbers
from dglcell.errors import DataError, count, listing
from dglcell.graph.vocabulary import Vocabulary
from dglcell.new_experiment.cell import Wanted

# Columns with such names hold what these names say.
GENE = re.compile(r"genes|gene[_ ]?(\d*|[a-d])", re.IGNORECASE)
ACTIVITY = re.compile(r"(?:activit(?:y|ies)|strengths?)[_ ]?(\d*|[a-d])([_ ]*[([]?(%|percent)[)\]]?)?", re.IGNORECASE)
MEDIA = re.compile(r"(growth[_ ])?(medium|media)|carbon[_ ]source", re.IGNORECASE)
ALLELES = re.compile(r"allele([_ ](class|type))?", re.IGNORECASE)
COVARIATES = re.compile(
    r"(condition|covariate)s?([_ ].+)?|temp(erature)?|dose|concentration|drug|compound", re.IGNORECASE
)
SEQUENCE = re.compile(r"(guide[_ ]?|spacer[_ ]?)?(sequence|seq)|guide|spacer", re.IGNORECASE)
SITE = re.compile(r"series|site|(target[_ ]|pam[_ ])?(site|position|location)", re.IGNORECASE)
BESIDE = re.compile(
    r"unnamed: \d+|index|row|column|line|well|plate|batch|no\.?|n|((bio|tech)(logical|nical)?[_ ]?)?rep(licate)?s?"
    r"|(.*[_ .-])?(s\.?[de]\.?(m\.?)?|std|std[_ ]?(dev|err)|variance|(standard|std)[_ ](deviation|error)"
    r"|[pq]|[pq][-_. ]?val(ue)?s?|fdr|p[-_. ]?adj)",
    re.IGNORECASE,
)
"""Numbers in such columns stand beside a measurement: where it was made, how often, and how sure it is."""

SHORTEST_GUIDE, MOST_CLASSES = 15, 5
"""A shorter sequence is no guide, and a column with more different words is no column of classes."""


def find_columns(rows: Rows, wanted: Wanted, genes: Vocabulary) -> tuple[CsvConfig, list[str]]:
    """Find the columns of a table, and return them with what the user has to know about it.

    Columns that the user does not name are found by their names. Those of genes are also found by what they hold, and
    phenotypes are all others that are mostly numbers.
    """
    for option in ("genes", "phenotypes", "activities", "covariates"):
        for name in getattr(wanted, option) or ():
            rows.column(name, f"--{option}")
    of_genes = list(wanted.genes) or _gene_columns(rows, genes)
    activities = _activity_columns(rows, of_genes) if wanted.activities is None else list(wanted.activities)
    guides = _guide_columns(rows) if wanted.covariates is None and of_genes else []
    taken = [*of_genes, *activities, *guides]
    covariates, constant = list(wanted.covariates or ()), list[str]()
    if wanted.covariates is None:
        named = [
            name for name in rows.frame.columns if any(kind.fullmatch(name) for kind in (MEDIA, ALLELES, COVARIATES))
        ]
        free = [name for name in named if name not in [*taken, *wanted.phenotypes]]
        covariates = [name for name in free if rows.frame[name].str.strip().nunique() > 1]
        constant = [name for name in free if name not in covariates]  # these tell no strain apart
    if not of_genes and not covariates:
        raise _which(rows, "genes", "gene_1, gene_2, … or genes")
    phenotypes, decimal, left = _phenotype_columns(rows, wanted, [*taken, *covariates, *constant])
    notes = [f"the same in all rows, so no covariate: {listing(constant)}"] if constant else []
    notes += left
    if len(phenotypes) > 1 and not wanted.phenotypes:
        notes.append("phenotypes are all other columns of numbers; choose with `--phenotypes COLUMN …`")
    medium = next(filter(MEDIA.fullmatch, covariates), None)  # the first column of media is the covariate `medium`
    config = CsvConfig(
        str(wanted.table),
        of_genes,
        {name: name for name in phenotypes},
        decimal=decimal,
        missing="drop",
        activities=activities,
        covariates={MEDIUM if name == medium else name: name for name in covariates},
        guides=GuideConfig(guides[0], [*of_genes, *guides[1:]], places_by_sequence=len(guides) < 2) if guides else None,
        ignore_genes=list(wanted.ignore),
    )
    return replace(config, na_values=list(wanted.na_values)) if wanted.na_values else config, notes


def column_keys(config: CsvConfig) -> dict[str, Any]:
    """Return the keys of `data.source.csv` that differ from their defaults."""
    default, keys = asdict(CsvConfig()), asdict(config)
    if config.guides is not None:
        keys["guides"] = {name: value for name, value in keys["guides"].items() if value}
    return {name: value for name, value in keys.items() if value != default[name]}


def about_words(rows: Rows, column: str, most: int | None = None) -> str:
    """Return what to do about a column of words; an empty text where it has one, or more than ``most``."""
    cells = rows.frame[column].str.strip()
    words = sorted({*cells[~cells.str.lower().isin(MISSING)]})
    if most is not None and not 1 < len(words) <= most:
        return ""
    return f"phenotypes are numbers: write 0 and 1 in place of {listing(map(repr, words))} in column '{column}'"


def _which(rows: Rows, what: str, expected: str, do: str = "") -> DataError:
    got, do = "columns " + listing(rows.frame.columns, 30), do or f"name them: `--{what} COLUMN …`"
    return DataError(f"'{rows.file}': which columns are {what}?", got=got, expected=expected, do=do)


def _gene_columns(rows: Rows, genes: Vocabulary) -> list[str]:
    """Return the columns that are named so; where these have no gene of the cell graph, those that mostly have."""

    def known(column: str) -> float:
        cells = {part.strip() for cell in rows.frame[column].unique() for part in cell.split(WITHIN_CELL)} - {""}
        return sum(genes.find(split_activity(cell)[0]) in genes for cell in cells) / max(1, len(cells))

    named = [name for name in rows.frame.columns if GENE.fullmatch(name)]
    return named if any(map(known, named)) else [name for name in rows.frame.columns if known(name) >= 0.5] or named


def _activity_columns(rows: Rows, genes: Sequence[str]) -> list[str]:
    found = {name: named for name in rows.frame.columns if (named := ACTIVITY.fullmatch(name))}
    for name, named in found.items():
        cells = rows.frame[name].str.strip()
        numbers, _ = read_numbers(cells.str.removesuffix("%").str.replace(",", "."), ".", ())
        largest = np.fmax.reduce(numbers, initial=0.0)
        if largest > STRONGEST or cells.str.endswith("%").any() or named[2]:
            got, expected = f"up to {largest:g} in column '{name}'", "0 for a deletion, 0.3 for a knock-down to 30 %"
            do = "divide them by 100; or use `--activities COLUMN …` if they are multiples of the wild type"
            raise DataError(f"'{rows.file}': activities look like percent", got=got, expected=expected, do=do)
    if found and len(found) != len(genes):
        what, got = "the columns of activities do not fit the columns of genes", f"{listing(found)}; {listing(genes)}"
        expected = "a column of activities for each column of genes, in the same order"
        do = "name them with `--activities COLUMN …`, or give `--activities` alone if they are none"
        raise DataError(f"'{rows.file}': {what}", got=got, expected=expected, do=do)
    return [*found]


def _guide_columns(rows: Rows) -> list[str]:
    """Return the column of sequences of guides, and those that name sites beside the gene; there may be none."""
    for name in filter(SEQUENCE.fullmatch, rows.frame.columns):
        cells = {*rows.frame[name].str.strip().str.upper()} - {""}
        if len({*map(len, cells)}) == 1 and len(min(cells)) >= SHORTEST_GUIDE and not set("".join(cells)) - set(BASES):
            return [name, *[site for site in rows.frame.columns if SITE.fullmatch(site) and site != name]]
    return []


def _phenotype_columns(rows: Rows, wanted: Wanted, others: Sequence[str]) -> tuple[list[str], str, list[str]]:
    """Return the columns of phenotypes that vary, the decimal mark, and notes on columns that are left out."""
    free = [name for name in rows.frame.columns if name not in others]
    for name in free:
        refuse_lost(rows.file, name)
    asked = list(wanted.phenotypes)
    read = {
        mark: [read_numbers(rows.frame[name], mark, wanted.na_values) for name in asked or free] for mark in DECIMALS
    }
    # This is the decimal mark with which most cells are numbers, or a point where both marks do equally well.
    decimal = max(DECIMALS, key=lambda mark: sum(int((~np.isnan(values)).sum()) for values, _ in read[mark]))
    cells = dict(zip(asked or free, read[decimal], strict=True))
    found = asked or [name for name, (x, gone) in cells.items() if 2 * (~gone & np.isnan(x)).sum() < (~gone).sum()]
    if not found:
        advice = (about_words(rows, name, MOST_CLASSES) for name in free)
        raise _which(rows, "phenotypes", "a column of numbers", next(filter(None, advice), ""))
    constant = [name for name in found if np.fmin.reduce(cells[name][0]) == np.fmax.reduce(cells[name][0])]
    varied = [name for name in found if name not in constant]
    if constant and (asked or not varied):
        what, got = f"nothing can be learned from {listing(constant)}", f"the same value in {count(len(rows), 'row')}"
        do = "leave such columns out" if varied else "add strains with other values"
        raise DataError(f"'{rows.file}': {what}", got=got, expected="strains that differ in it", do=do)
    measured = asked or [name for name in varied if not BESIDE.fullmatch(name)] or varied
    beside = [name for name in varied if name not in measured]
    notes = [f"the same in all rows, so no phenotype: {listing(constant)}"] if constant else []
    if beside:
        notes.append(f"no phenotypes by their names: {listing(beside)}; choose with `--phenotypes COLUMN …`")
    return measured, decimal, notes

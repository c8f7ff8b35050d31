"""Find what the columns of a user's own table hold: genes, strengths, conditions, guides and phenotypes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dglcell.checks import STRONGEST
from dglcell.data.changes import WITHIN_CELL, split_strength
from dglcell.data.columns import MEDIUM
from dglcell.data.sources.config import DECIMALS, CsvConfig
from dglcell.data.sources.guides import BASES, GuideConfig
from dglcell.data.sources.text_table import refuse_lost
from dglcell.data.table import MISSING, Rows, read_numbers
from dglcell.errors import DataError, count, listing
from dglcell.graph.vocabulary import Vocabulary

GENE = re.compile(r"genes|gene[_ ]?(\d*|[a-d])", re.IGNORECASE)
STRENGTH = re.compile(r"strengths?[_ ]?(\d*|[a-d])([_ ]*[([]?(%|percent)[)\]]?)?", re.IGNORECASE)
MEDIA = re.compile(r"(growth[_ ])?(medium|media)|carbon[_ ]source", re.IGNORECASE)
ALLELES = re.compile(r"allele([_ ](class|type))?", re.IGNORECASE)
CONDITIONS = re.compile(r"conditions?([_ ].+)?|temp(erature)?|dose|concentration|drug|compound", re.IGNORECASE)
SEQUENCE = re.compile(r"(guide[_ ]?|spacer[_ ]?)?(sequence|seq)|guide|spacer", re.IGNORECASE)
SITE = re.compile(r"series|site|(target[_ ]|pam[_ ])?(site|position|location)", re.IGNORECASE)
"""Columns with such names hold what these names say."""

BESIDE = re.compile(
    r"unnamed: \d+|index|row|column|line|well|plate|batch|no\.?|n|((bio|tech)(logical|nical)?[_ ]?)?rep(licate)?s?"
    r"|(.*[_ .-])?(s\.?[de]\.?(m\.?)?|std|std[_ ]?(dev|err)|variance|(standard|std)[_ ](deviation|error)"
    r"|[pq]|[pq][-_. ]?val(ue)?s?|fdr|p[-_. ]?adj)",
    re.IGNORECASE,
)
"""Columns of numbers with such names stand beside a measurement: where it was made, how often, and how sure it is."""

SHORTEST_GUIDE = 15
"""A shorter sequence is no guide."""

MOST_WORDS = 5
"""A column of so few different words looks like one of classes."""


@dataclass(frozen=True)
class WantedTable:
    """These settings say how the user wants a table to be read.

    Attributes:
        path: path of the table.
        genes: its gene columns; found by their names where empty.
        phenotypes: its columns of phenotypes; all other columns of numbers where empty.
        aliases: other names of genes; found where None.
        na_values: cells that mean "not measured", beside empty ones, NA, N/A and NaN.
        clean: where a copy without faults is written, which is then read in its place.
        keep_blank: whether rows with a blank gene are strains with fewer deletions, however few they are.
        strengths: its columns of strengths, in the order of ``genes``; found by their names where None.
        conditions: its columns of conditions; found by their names where None.
        average: whether rows of the same strain are averaged, however much their values differ.
        ignore: names that stand for no deletion, as those of controls do; ``*`` stands for any text in them.
    """

    path: Path
    genes: Sequence[str] = ()
    phenotypes: Sequence[str] = ()
    aliases: str | None = None
    na_values: Sequence[str] = ()
    clean: Path | None = None
    keep_blank: bool = False
    strengths: Sequence[str] | None = None
    conditions: Sequence[str] | None = None
    average: bool = False
    ignore: Sequence[str] = ()


def find_columns(rows: Rows, wanted: WantedTable, genes: Vocabulary) -> tuple[CsvConfig, list[str]]:
    """Find the columns of a table, and return them with what the user has to know about it.

    Columns that the user does not name are found by their names. Those of genes are also found by what they hold, and
    phenotypes are all others that are mostly numbers.

    Args:
        rows: the table.
        wanted: what the user names.
        genes: the genes of the cell graph.

    Raises:
        DataError: there is no column of genes or of phenotypes, or a column that is named does not exist.
    """
    for option in ("genes", "phenotypes", "strengths", "conditions"):
        for name in getattr(wanted, option) or ():
            rows.column(name, f"--{option}")
    notes, of_genes = list[str](), _gene_columns(rows, wanted, genes)
    strengths, guides = _strength_columns(rows, wanted, of_genes), _guide_columns(rows, wanted, of_genes)
    taken = [*of_genes, *strengths, *guides]
    conditions, constant = _condition_columns(rows, wanted, taken)
    if constant:
        notes.append(f"the same in all rows, so no condition: {listing(constant)}")
    if not of_genes and not conditions:
        raise _which(rows, "genes", "gene_1, gene_2, … or genes")
    taken += [*conditions, *constant]
    phenotypes, decimal = _phenotype_columns(rows, wanted, taken)
    if not phenotypes:
        raise _which(rows, "phenotypes", "a column of numbers", _about_words(rows, taken))
    phenotypes, left = _varied_phenotypes(rows, wanted, phenotypes, decimal)
    notes += left
    if len(phenotypes) > 1 and not wanted.phenotypes:
        notes.append("phenotypes are all other columns of numbers; choose with `--phenotypes COLUMN …`")
    medium = next(filter(MEDIA.fullmatch, conditions), None)
    config = CsvConfig(
        str(wanted.path),
        of_genes,
        {name: name for name in phenotypes},
        decimal=decimal,
        missing="drop",
        strengths=strengths,
        # The first column of media is the condition `medium`.
        conditions={MEDIUM if name == medium else name: name for name in conditions},
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


def no_numbers(rows: Rows, column: str, config: CsvConfig) -> bool:
    """Return whether no cell of a column that says anything says a number."""
    values, missing = read_numbers(rows.frame[column], config.decimal, config.na_values)
    return bool(not missing.all() and np.isnan(values[~missing]).all())


def about_words(rows: Rows, column: str) -> str:
    """Return what to do about a column of words."""
    words = listing(map(repr, _words(rows, column)))
    return f"phenotypes are numbers: write 0 and 1 in place of {words} in column '{column}'"


def _words(rows: Rows, column: str) -> list[str]:
    """Return the different cells of a column, but for those that mean "not measured"."""
    cells = rows.frame[column].str.strip()
    return sorted({*cells[~cells.str.lower().isin(MISSING)]})


def _which(rows: Rows, what: str, expected: str, do: str = "") -> DataError:
    return DataError(
        f"'{rows.file}': which columns are {what}?",
        got="columns " + listing(rows.frame.columns, 30),
        expected=expected,
        do=do or f"name them: `--{what} COLUMN …`",
    )


def _gene_columns(rows: Rows, wanted: WantedTable, genes: Vocabulary) -> list[str]:
    """Return the columns that are named so; where these have no gene of the cell graph, those that have."""
    if wanted.genes:
        return list(wanted.genes)
    named = [name for name in rows.frame.columns if GENE.fullmatch(name)]
    if any(_known(rows, name, genes) for name in named):
        return named
    return [name for name in rows.frame.columns if _known(rows, name, genes) >= 0.5] or named


def _known(rows: Rows, column: str, genes: Vocabulary) -> float:
    """Return the share of the filled cells of a column that name genes of the cell graph."""
    cells = {part.strip() for cell in rows.frame[column].unique() for part in cell.split(WITHIN_CELL)} - {""}
    known = [genes.find(split_strength(cell)[0]) in genes for cell in cells]
    return sum(known) / max(1, len(known))


def _strength_columns(rows: Rows, wanted: WantedTable, genes: Sequence[str]) -> list[str]:
    if wanted.strengths is not None:
        return list(wanted.strengths)
    named = [name for name in rows.frame.columns if STRENGTH.fullmatch(name)]
    _refuse_percent(rows, named)
    if named and len(named) != len(genes):
        raise DataError(
            f"'{rows.file}': the columns of strengths do not fit the columns of genes",
            got=f"{listing(named)} beside {listing(genes)}",
            expected="a column of strengths for each column of genes, in the same order",
            do="name them with `--strengths COLUMN …`, or give `--strengths` alone if they are none",
        )
    return named


def _refuse_percent(rows: Rows, strengths: Sequence[str]) -> None:
    """Refuse columns of strengths whose names, cells or sizes say that they are percent."""
    for name in strengths:
        cells = rows.frame[name].str.strip()
        numbers, _ = read_numbers(cells.str.removesuffix("%").str.replace(",", "."), ".", ())
        largest = np.fmax.reduce(numbers, initial=0.0)
        named = STRENGTH.fullmatch(name)
        if largest > STRONGEST or cells.str.endswith("%").any() or (named and named[2]):
            raise DataError(
                f"'{rows.file}': strengths look like percent",
                got=f"up to {largest:g} in column '{name}'",
                expected="0 for a deletion, 0.3 for a knock-down to 30 %, 1 for the wild type",
                do="divide them by 100; or use `--strengths COLUMN …` if they are multiples of the wild type",
            )


def _guide_columns(rows: Rows, wanted: WantedTable, genes: Sequence[str]) -> list[str]:
    """Return the column of sequences of guides, and those that name sites beside the gene; there may be none."""
    if wanted.conditions is not None or not genes:
        return []
    for name in rows.frame.columns:
        cells = {*rows.frame[name].str.strip().str.upper()} - {""}
        are_guides = len({*map(len, cells)}) == 1 and len(min(cells)) >= SHORTEST_GUIDE
        if SEQUENCE.fullmatch(name) and are_guides and not set("".join(cells)) - set(BASES):
            return [name, *[site for site in rows.frame.columns if SITE.fullmatch(site) and site != name]]
    return []


def _condition_columns(rows: Rows, wanted: WantedTable, others: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the columns of conditions, and those that have one value and so tell no strain apart."""
    if wanted.conditions is not None:
        return list(wanted.conditions), []
    kinds = MEDIA, ALLELES, CONDITIONS
    named = [name for name in rows.frame.columns if any(kind.fullmatch(name) for kind in kinds)]
    free = [name for name in named if name not in [*others, *wanted.phenotypes]]
    varied = [name for name in free if rows.frame[name].str.strip().nunique() > 1]
    return varied, [name for name in free if name not in varied]


def _phenotype_columns(rows: Rows, wanted: WantedTable, others: Sequence[str]) -> tuple[list[str], str]:
    """Return the columns of phenotypes, and the decimal mark of their numbers."""
    for name in rows.frame.columns:
        if name not in others:
            refuse_lost(rows.file, name)
    names = [name for name in rows.frame.columns if name not in others and name in (wanted.phenotypes or [name])]
    read = {mark: [read_numbers(rows.frame[name], mark, wanted.na_values) for name in names] for mark in DECIMALS}
    # This is the decimal mark with which most cells are numbers, or a point where both marks do equally well.
    decimal = max(DECIMALS, key=lambda mark: sum(int((~np.isnan(values)).sum()) for values, _ in read[mark]))
    if wanted.phenotypes:
        return list(wanted.phenotypes), decimal
    cells = zip(names, read[decimal], strict=True)
    return [
        name for name, (values, missing) in cells if 2 * (~missing & np.isnan(values)).sum() < (~missing).sum()
    ], decimal


def _varied_phenotypes(
    rows: Rows, wanted: WantedTable, names: Sequence[str], decimal: str
) -> tuple[list[str], list[str]]:
    """Return the phenotypes that vary and do not only stand beside another, and notes on those that are left out."""
    seen = [read_numbers(rows.frame[name], decimal, wanted.na_values)[0] for name in names]
    constant = [name for name, x in zip(names, seen, strict=True) if np.fmin.reduce(x) == np.fmax.reduce(x)]
    varied = [name for name in names if name not in constant]
    if constant and (wanted.phenotypes or not varied):
        raise DataError(
            f"'{rows.file}': nothing can be learned from {listing(constant)}",
            got=f"the same value in {count(len(rows.frame), 'row')}",
            expected="strains that differ in their phenotype",
            do="leave such columns out" if varied else "add strains with other values",
        )
    measured = list(wanted.phenotypes) or [name for name in varied if not BESIDE.fullmatch(name)] or varied
    beside = [name for name in varied if name not in measured]
    notes = [f"the same in all rows, so no phenotype: {listing(constant)}"] if constant else []
    if beside:
        notes.append(f"no phenotypes by their names: {listing(beside)}; choose with `--phenotypes COLUMN …`")
    return measured, notes


def _about_words(rows: Rows, others: Sequence[str]) -> str:
    """Return what to do about the first column of a few words, which may be classes; empty where there is none."""
    free = [name for name in rows.frame.columns if name not in others]
    few = [name for name in free if 1 < len(_words(rows, name)) <= MOST_WORDS]
    return about_words(rows, few[0]) if few else ""

"""Read what a user gives for an experiment: the cell graph, and the table with its columns, names and faults."""

from __future__ import annotations

import logging
import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dglcell.checks import STRONGEST
from dglcell.config.experiment import Config
from dglcell.config.published import fetch_all, format_offer, needs
from dglcell.config.read import PACKAGED, load_config
from dglcell.data.columns import MEDIUM
from dglcell.data.sources.config import DECIMALS, CsvConfig, GuideConfig
from dglcell.data.sources.csv_table import BASES, MISMATCH, Measured, find_measured, strain_numbers
from dglcell.data.sources.text_table import read_rows, refuse_lost
from dglcell.data.table import (
    THOUSANDS,
    WITHIN_CELL,
    Issue,
    IssuesError,
    Rows,
    describe_issues,
    read_numbers,
    split_activity,
)
from dglcell.errors import ConfigError, DataError, GraphError, count, did_you_mean, listing
from dglcell.files.atomic import atomic_file, find_raw, raw_folder
from dglcell.graph.catalogue import GENE_SETS, MODELS, add_names, names_of_genes
from dglcell.graph.cell import build_cell
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.metabolism import Metabolism, derived_edges
from dglcell.graph.model_files import FORMATS, SHIPPED, named_aliases
from dglcell.graph.vocabulary import Vocabulary, form_of, way_out
from dglcell.published.file import PublishedFile

log = logging.getLogger("dglcell")

DERIVED = ["shares_complex", "isoenzyme", "metabolic_neighbour"]

CELLS = {"yeast": "yeast", "ecoli-core": "textbook", "ecoli": "iJO1366"}
"""`--cell` takes these names beside those of models and paths: name → cell graph or model."""

EXPECTED = (
    f"{', '.join(CELLS)}, a metabolic model ({', '.join([*MODELS, *SHIPPED])}), or its file ({', '.join(FORMATS)})"
)


@dataclass(frozen=True)
class Wanted:
    """Hold the options of `dglcell init`, by their names."""

    file: Path  #: to be written
    table: Path  #: of strains
    cell: str = "yeast"  #: a metabolic model, or a key of `CELLS`
    split: str = "random"
    model: str | None = None  #: a key of `BASES`; chosen where None
    genes: Sequence[str] = ()  #: columns of the table; found by their names where empty
    phenotypes: Sequence[str] = ()  #: columns; all other columns of numbers where empty
    activities: Sequence[str] | None = None  #: columns in the order of ``genes``; found by their names where None
    covariates: Sequence[str] | None = None  #: columns; found by their names where None
    aliases: str | None = None  #: other names of genes; found where None
    na_values: Sequence[str] = ()  #: cells that mean "not measured", beside empty ones, NA, N/A and NaN
    ignore: Sequence[str] = ()  #: names that stand for no deletion; ``*`` stands for any text in them
    write_clean: Path | None = None  #: where a copy without faults is written, which is then read in place of the table
    fetch: bool = False  #: whether missing files are downloaded
    command: str = "dglcell init …"  #: which messages tell the user to repeat


def find_cell(wanted: Wanted) -> tuple[CellGraph, dict[str, Any]]:
    """Build the cell graph, and return it with the keys that an experiment's file has for it.

    Missing files are downloaded if the user asks for it, also those that only have names of genes.
    """
    meant, config = CELLS.get(wanted.cell, wanted.cell), Config()
    packaged = {path.stem for path in (PACKAGED / "cells").glob("*.yaml")}
    keys: dict[str, Any] = {"extends": ["base.yaml"]}
    if meant in packaged:
        keys["extends"].append(f"cells/{meant}.yaml")
        config = load_config(PACKAGED / keys["extends"][-1])
    elif meant not in {*SHIPPED, *MODELS} and "/" not in meant and not Path(meant).suffix:
        close = did_you_mean(wanted.cell, [*CELLS, *SHIPPED, *MODELS, *packaged])
        raise ConfigError(f"no cell graph is called '{wanted.cell}'", expected=EXPECTED, do=close)
    else:
        config.cell.model = meant
    config.data.source.name = "csv"
    only_names = {source.file.path for source in GENE_SETS.values() if source.names}
    needed = [file for file in needs(config) if file.downloads]
    if any(file.path not in only_names and not file.is_here(raw_folder()) for file in needed):
        _download(needed, f"`{wanted.cell}` needs files that are not here", wanted)
    try:
        if meant not in packaged:
            metabolism = Metabolism.read(meant, config.paths.raw)
            config.cell.derived = [one for one in DERIVED if derived_edges(one, metabolism).size]
            if empty := [one for one in DERIVED if one not in config.cell.derived]:
                said = "the model has no pairs of genes for these relations, which are left out: %s"
                log.warning(said, listing(empty))
            keys["cell"] = {"model": meant, "derived": config.cell.derived}
        cell = build_cell(config.cell, config.paths.raw)
    except (DataError, GraphError) as error:
        if Path(wanted.cell).suffix and not Path(wanted.cell).exists():
            what = f"the file of the metabolic model '{wanted.cell}' is not there"
            raise ConfigError(what, expected=EXPECTED) from error
        raise
    if not wanted.fetch or not (files := _files_of_names(cell)):
        return cell, keys
    try:
        _download(files, f"`{wanted.cell}` has other names of genes", wanted)
    except DataError as error:  # the table may not need them
        log.warning("%s", error)
        return cell, keys
    return cell.with_genes(add_names(cell.genes, [cell.genes], None)[0]), keys


def _download(files: Sequence[PublishedFile], why: str, wanted: Wanted) -> None:
    """Download those of some files that are not here, or refuse to go on without them."""
    folder = raw_folder()
    missing = [file for file in files if not file.is_here(folder)]
    offer = format_offer(missing)
    if not wanted.fetch:
        expected = f"them in '{folder}', or in the folder DGLCELL_RAW"
        do = f"`{wanted.command} --fetch` downloads them and goes on"
        raise ConfigError(why, got=offer, expected=expected, do=do)
    log.info("%s: %s, into %s", why, offer, folder)
    for text in fetch_all(missing, folder):
        log.info("%s", text)


def _files_of_names(cell: CellGraph) -> list[PublishedFile]:
    """Return the file of the catalogue that names genes like these, if it is not here."""
    listed = names_of_genes(cell.genes)
    files = [] if listed is None else [GENE_SETS[listed].file.whole]
    return [file for file in files if not file.is_here(raw_folder())]


def _names_to_fetch(cell: CellGraph, wanted: Wanted) -> list[str]:
    """Return advice on how to download the catalogue's names, where they are not here."""
    files = [] if wanted.aliases else _files_of_names(cell)
    return [f"`{wanted.command} --fetch` downloads other names of genes ({format_offer(files)})"] if files else []


def _choose_aliases(other: dict[str, str], model: str | None) -> str | None:
    """Choose the gene set of the catalogue, or the metabolic model, with most of the names that are not systematic."""
    best, most = None, 0
    for name in filter(None, (names_of_genes(other.values()), model)):
        with suppress(DataError, GraphError):
            found, _ = named_aliases(name)[0].resolve(list(other), spelled=True)
            known = sum(gene == meant for gene, meant in zip(found, other.values(), strict=True))
            best, most = (name, known) if known > most else (best, most)
    return best


def _is_like_genes(name: str, genes: Vocabulary) -> bool:
    listed = names_of_genes(genes)
    return form_of(name) in genes.forms or bool(listed and re.fullmatch(GENE_SETS[listed].names, name, re.IGNORECASE))


OTHER_CELL = "choose another `--cell`, or give a table of other names of genes with `--aliases FILE`"


class OwnTable(NamedTuple):
    """Describe a table without faults as an experiment reads it."""

    config: CsvConfig  #: what its columns hold
    notes: list[str]  #: what the user has to know
    activity_from: list[str]  #: covariates that what is left of genes is learned from


def read_own_table(wanted: Wanted, cell: CellGraph, model: str | None) -> OwnTable:
    """Read a table, find its columns and the names of its genes, and refuse faults or leave them out.

    ``model`` is the metabolic model that the experiment names.
    """
    path = find_raw(str(wanted.table))
    rows = read_rows(path)
    aliases = named_aliases(wanted.aliases)[0]
    config, notes = find_columns(rows, wanted, cell.genes.joined(aliases), _names_to_fetch(cell, wanted))
    found = find_measured(rows, config, aliases, cell.genes)
    if wanted.aliases is None and found.changes.unknown(cell.genes):
        # Genes that the catalogue knows and the cell graph lacks are no mistakes.
        with suppress(DataError):  # its file is not here
            aliases = named_aliases(names_of_genes(cell.genes))[0]
            found = find_measured(rows, config, aliases, cell.genes)
    unknown = found.changes.unknown(cell.genes)
    if unknown and len(unknown) == len(found.changes.meant):
        do = way_out(unknown, cell.genes) or "; ".join([*_names_to_fetch(cell, wanted), OTHER_CELL])
        what, expected = "the cell graph has none of the genes that are deleted", f"names like {cell.genes.examples()}"
        raise DataError(what, got=listing(unknown), expected=expected, do=do)
    # Genes whose names are like those of others may be right, and missing from the cell graph.
    issues = found.changes.unknown_issues(cell.genes, lambda name: _is_like_genes(name, cell.genes))
    if issues := [*found.issues, *issues]:
        if (clean := wanted.write_clean) is None:
            raise IssuesError(rows, issues, *_advice(rows, issues, found, config, wanted, cell))
        if clean.exists() and clean.samefile(path):
            raise ConfigError("`--write-clean` names the table itself", got=clean, do="choose another file")
        mended = rows.mended(issues)
        with atomic_file(clean) as partial:
            mended.frame.to_csv(partial, index=False, lineterminator="\n")
        left_out = count(len(rows) - len(mended), "row")
        notes += [f"clean copy  {clean}: {left_out} left out, other faults mended", *describe_issues(rows, issues)]
        rows, config = read_rows(clean), replace(config, path=str(clean))
        found = find_measured(rows, config, aliases, cell.genes)
    lacking = len(rows) - len(found.rows)
    other = {text: gene for text, gene in found.changes.meant.items() if gene in cell.genes and text != gene}
    chosen = wanted.aliases or (_choose_aliases(other, model) if other else None)
    config = replace(config, missing="drop" if lacking else "refuse", aliases=chosen)
    if chosen is not None:
        are = "is no systematic one" if len(other) == 1 else "are not systematic"
        of = count(len(found.changes.meant), "name")
        notes.append(f"names       {len(other):,} of {of} {are}: `aliases: {chosen}`")
    learned = [MISMATCH] if config.guides else list(filter(ALLELES.fullmatch, config.covariates))
    notes += _notes(found, config, lacking)
    return OwnTable(config, notes, learned if found.changes.activities is None else [])


# Columns with such names hold what these names say.
GENE = re.compile(r"genes|gene[_ ]?(\d*|[a-d])", re.IGNORECASE)
AN_ACTIVITY = r"activit(?:y|ies)|strengths?|(?:remaining|residual)[_ ](?:activity|expression)|(?:%|percent)[_ ]?left"
ACTIVITY = re.compile(rf"(?:{AN_ACTIVITY})[_ ]?(\d*|[a-d])([_ ]*[([]?(%|percent)[)\]]?)?", re.IGNORECASE)
MEDIA = re.compile(r"(growth[_ ])?(medium|media)|carbon[_ ]source", re.IGNORECASE)
ALLELES = re.compile(r"allele([_ ](class|type))?", re.IGNORECASE)
OTHERS = r"(condition|covariate)s?([_ ].+)?|temp(erature)?|dose|concentration|drug|compound"
COVARIATES = re.compile(f"{MEDIA.pattern}|{ALLELES.pattern}|{OTHERS}", re.IGNORECASE)
SEQUENCE = re.compile(r"(guide[_ ]?|spacer[_ ]?)?(sequence|seq)|guide|spacer", re.IGNORECASE)
SITE = re.compile(r"series|site|(target[_ ]|pam[_ ])?(site|position|location)", re.IGNORECASE)
BESIDE = re.compile(
    r"unnamed: \d+|index|row|column|line|well|plate|batch|no\.?|n|((bio|tech)(logical|nical)?[_ ]?)?rep(licate)?s?"
    r"|(.*[_ .-])?(s\.?[de]\.?(m\.?)?|std|std[_ ]?(dev|err)|variance|(standard|std)[_ ](deviation|error)"
    r"|[pq]|[pq][-_. ]?val(ue)?s?|fdr|p[-_. ]?adj|__index_level_\d+__)"
    r"|((?-i:sd|se)|sem|std|std[_ ]?(dev|err)|standard[_ ](deviation|error)|[pq][-_. ]?value|replicates)[_ .(]\D.*",
    re.IGNORECASE,
)
"""Numbers in such columns stand beside a measurement: where it was made, how often, and how sure it is. Capitals as in
"SD glucose" mean a medium."""


def find_columns(rows: Rows, wanted: Wanted, genes: Vocabulary, fetch: Sequence[str]) -> tuple[CsvConfig, list[str]]:
    """Find the columns of a table, and return them with what the user has to know about it.

    Columns that the user does not name are found by their names. Those of genes are also found by what they hold, and
    phenotypes are all others that are mostly numbers. ``fetch`` is advice on how to get other names of genes.
    """
    for option in ("genes", "phenotypes", "activities", "covariates"):
        for name in getattr(wanted, option) or ():
            rows.column(name, f"--{option}")
    of_genes = list(wanted.genes) or _gene_columns(rows, genes)
    activities = _activity_columns(rows, of_genes) if wanted.activities is None else list(wanted.activities)
    guides = _guide_columns(rows) if wanted.covariates is None and of_genes else []
    no_sites = [f"no column names the sites of guides, so no covariate: {guides[0]}"] if len(guides) == 1 else []
    guides = [] if no_sites else guides
    taken = [*of_genes, *activities, *guides]
    covariates, constant = list(wanted.covariates or ()), list[str]()
    if wanted.covariates is None:
        named = filter(COVARIATES.fullmatch, rows.frame.columns)
        free = [name for name in named if name not in [*taken, *wanted.phenotypes]]
        covariates = [name for name in free if rows.frame[name].str.strip().nunique() > 1]
        constant = [name for name in free if name not in covariates]  # these tell no strain apart
    others = [name for name in rows.frame.columns if name not in [*taken, *covariates, *constant]]
    texts = [name for name in others if name not in wanted.phenotypes and _is_text(rows, name, wanted.na_values)]
    unread = [name for name in texts if rows.frame[name].nunique() > 1]
    if not of_genes and not (covariates and all(map(BESIDE.fullmatch, unread))):
        advice = [*fetch, "name them: `--genes COLUMN …`"]
        advice += [f"leave {listing(unread)} out if no gene is changed"] if covariates else []
        raise _which(rows, "genes", "gene_1, gene_2, … or genes", "; or ".join(advice))
    phenotypes, decimal, left = _phenotype_columns(rows, wanted, others, texts)
    wild_type = "no column of genes was found, so all rows are the wild type; `--genes COLUMN` names one"
    notes = [*no_sites, *[wild_type] * (not of_genes), *[f"not read    {listing(unread)}"] * bool(unread)]
    notes += [*[f"the same in all rows, so no covariate: {listing(constant)}"] * bool(constant), *left]
    if len(phenotypes) > 1 and not wanted.phenotypes:
        notes.append("phenotypes are all other columns of numbers; choose with `--phenotypes COLUMN …`")
    medium = MEDIUM if MEDIUM in covariates else next(filter(MEDIA.fullmatch, covariates), None)
    config = CsvConfig(
        str(wanted.table),
        of_genes,
        {name: name for name in phenotypes},
        decimal=decimal,
        missing="drop",
        activities=activities,
        covariates={MEDIUM if name == medium else name: name for name in covariates},
        guides=GuideConfig(guides[0], [*of_genes, *guides[1:]]) if guides else None,
        ignore_genes=list(wanted.ignore),
    )
    return replace(config, na_values=list(wanted.na_values)) if wanted.na_values else config, notes


def _which(rows: Rows, what: str, expected: str, do: str = "") -> DataError:
    got, do = "columns " + listing(rows.frame.columns, 30), do or f"name them: `--{what} COLUMN …`"
    return DataError(f"'{rows.file}': which columns are {what}?", got=got, expected=expected, do=do)


def _gene_columns(rows: Rows, genes: Vocabulary) -> list[str]:
    """Return the columns that are named so, or others where these have far fewer genes of the cell graph.

    Of columns that mostly name the same genes, the fullest is taken, as many genes have no common name.
    """

    def meaning(cell: str) -> str:
        return WITHIN_CELL.join(genes.find(split_activity(part.strip())[0]) for part in cell.split(WITHIN_CELL))

    columns = [name for name in rows.frame.columns if not COVARIATES.fullmatch(name)]
    meant = rows.frame.loc[:: max(1, len(rows) // 1_000), columns].apply(lambda cells: cells.map(meaning))
    names = {name: {*WITHIN_CELL.join(cells).split(WITHIN_CELL)} - {""} for name, cells in meant.items()}
    known = {name: np.mean([gene in genes for gene in of] or [False]) for name, of in names.items()}
    found, most = [name for name in columns if GENE.fullmatch(name)], max(known.values(), default=0)
    if most >= 0.3 and most > 2 * max((known[name] for name in found), default=0):
        found = [name for name in columns if known[name] > most / 3]
    fullest = sorted(columns, key=lambda name: (known[name] * (meant[name] != "").mean(), name in found), reverse=True)

    def best(name: str) -> str:
        cells = meant[name][meant[name] != ""]
        return next(of for of in fullest if of == name or 2 * (meant.loc[cells.index, of] == cells).sum() > len(cells))

    return list(dict.fromkeys(map(best, found)))


def _activity_columns(rows: Rows, genes: Sequence[str]) -> list[str]:
    found = {name: named for name in rows.frame.columns if (named := ACTIVITY.fullmatch(name))}
    for name in found:
        cells = rows.frame[name].str.strip()
        numbers, _ = read_numbers(cells.str.removesuffix("%").str.replace(",", "."), ".", ())
        largest = np.fmax.reduce(numbers, initial=0.0)
        if largest > STRONGEST or cells.str.endswith("%").any() or re.search("%|percent", name, re.I):
            got, expected = f"up to {largest:g} in column '{name}'", "0 for a deletion, 0.3 for a knock-down to 30 %"
            do = "divide them by 100; or use `--activities COLUMN …` if they are multiples of the wild type"
            raise DataError(f"'{rows.file}': activities look like percent", got=got, expected=expected, do=do)
    if found and len(found) != len(genes):
        what, got = "the columns of activities do not fit the columns of genes", f"{listing(found)}; {listing(genes)}"
        expected = "a column of activities for each column of genes, in the same order"
        do = "name them with `--activities COLUMN …`, or give `--activities` alone if they are none"
        raise DataError(f"'{rows.file}': {what}", got=got, expected=expected, do=do)
    of = {named[1].lower(): name for name, named in found.items()}
    ends = [(named[1] or "").lower() if (named := GENE.fullmatch(gene)) else "" for gene in genes]
    return [of[end] for end in ends] if {*ends} == {*of} and len(of) == len(found) else [*found]


def _guide_columns(rows: Rows) -> list[str]:
    """Return the column of sequences of guides, and those that name sites beside the gene; there may be none."""
    for name in filter(SEQUENCE.fullmatch, rows.frame.columns):
        cells = {*rows.frame[name].str.strip().str.upper()} - {""}
        if len({*map(len, cells)}) == 1 and len(min(cells)) >= 15 and not set("".join(cells)) - set(BASES):
            return [name, *filter(SITE.fullmatch, rows.frame.columns)]
    return []


def _is_text(rows: Rows, name: str, na_values: Sequence[str]) -> bool:
    read = (read_numbers(rows.frame[name], decimal, na_values) for decimal in DECIMALS)
    return all(2 * np.isnan(x[~gone]).sum() >= (~gone).sum() for x, gone in read)


def _phenotype_columns(
    rows: Rows, wanted: Wanted, free: Sequence[str], texts: Sequence[str]
) -> tuple[list[str], str, list[str]]:
    """Return those of the ``free`` columns that are phenotypes and vary, the decimal mark, and notes on others."""
    for name in free:
        refuse_lost(rows.file, name)
    asked, columns = list(wanted.phenotypes), list(wanted.phenotypes) or free
    read = {mark: [read_numbers(rows.frame[one], mark, wanted.na_values) for one in columns] for mark in DECIMALS}
    # This is the decimal mark with which most cells are numbers, or a point where both marks do equally well.
    decimal = max(DECIMALS, key=lambda mark: sum(int((~np.isnan(values)).sum()) for values, _ in read[mark]))
    for name in columns if decimal == "," else ():
        text = rows.frame[name].str.strip()
        either = text[text.str.contains(",")]
        # A whole number of three digits hardly stands beside decimals of three digits.
        if len(either) and either.str.fullmatch(THOUSANDS).all() and text.str.fullmatch(r"[+-]?\d{3}").any():
            what, do = f"'{rows.file}': are commas in column '{name}' decimal?", "write numbers without separators"
            raise DataError(what, got=listing(either[:3]), do=do)
    cells = dict(zip(columns, read[decimal], strict=True))
    found = asked or [name for name in columns if name not in texts]
    words = (_about_words(rows, name, most=5) for name in texts if not BESIDE.fullmatch(name))
    advice = "" if asked or not all(map(BESIDE.fullmatch, found)) else next(filter(None, words), "")
    if advice or not found:
        raise _which(rows, "phenotypes", "a column of numbers", advice)
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


def _about_words(rows: Rows, column: str, most: int | None = None) -> str:
    """Return what to do about a column of words; an empty text where it has one, or more than ``most``."""
    _, missing = read_numbers(rows.frame[column], ".", ())
    words = sorted({*rows.frame[column][~missing].str.strip()})
    if most is not None and not 1 < len(words) <= most:
        return ""
    return f"phenotypes are numbers: write 0 and 1 in place of {listing(map(repr, words))} in column '{column}'"


# What is wrong with a table, and what to know about it.


def _advice(
    rows: Rows, issues: Sequence[Issue], found: Measured, config: CsvConfig, wanted: Wanted, cell: CellGraph
) -> list[str]:
    """Return what to do about faults; text in backticks can be pasted into a shell."""
    unknown = found.changes.unknown(cell.genes)
    advice = _names_to_fetch(cell, wanted) if unknown else []
    strange = [name for name in unknown if not _is_like_genes(found.changes.meant[name], cell.genes)]
    times = {name: len(where) for name, where in found.changes.where(strange).items()}
    frequent = max(times, key=times.__getitem__, default="")
    if times.get(frequent, 0) > 1:
        advice += [f"if '{frequent}' stands for no deletion, as controls do, add `--ignore {shlex.quote(frequent)}`"]
    read = {name: read_numbers(rows.frame[name], config.decimal, config.na_values) for name in config.phenotypes}
    if words := [name for name, (x, gone) in read.items() if not gone.all() and np.isnan(x[~gone]).all()]:
        return [*advice, *(_about_words(rows, name) for name in words)]
    stem = wanted.table.name.removesuffix(".gz").rpartition(".")[0] or wanted.table.name
    copied = f"{wanted.command} --write-clean {shlex.quote(str(wanted.table.with_name(f'{stem}.clean.csv')))}"
    advice += ["mend these lines", f"or `{copied}` writes a copy without them, and goes on with it"]
    if words := list(dict.fromkeys(issue.word for issue in issues if issue.word is not None)):
        options = " ".join(shlex.quote(f"--na-values={word}") for word in words)
        advice.append(f'if words mean "not measured", add `{options}`')
    if len(config.phenotypes) > 1 and not wanted.phenotypes:
        advice.append("if a column is no phenotype, name those that are with `--phenotypes COLUMN …`")
    return advice


def _notes(found: Measured, config: CsvConfig, lacking: int) -> list[str]:
    """Return what to tell the user about how a table is read."""
    import pandas as pd

    notes, rows, numbers = list[str](), found.rows, found.changes.numbers
    if config.decimal != ".":
        notes.append('numbers have decimal commas: `decimal: ","`')
    if lacking:
        notes.append(f"left out    {count(lacking, 'row')} without a phenotype: `missing: drop`")
    fewer = np.flatnonzero((numbers > 0) & (numbers < len(config.genes)))
    if 0 < len(fewer) < 20 and not config.ignore_genes:  # more of them are meant so
        notes.append(f"blank       {rows.place(rows.lines[fewer].tolist())}: fewer than {len(config.genes)} genes")
    strain = strain_numbers(found.strains)
    values = pd.DataFrame(found.strains.phenotypes)
    if again := len(strain) - len(np.unique(strain)):
        same = values.assign(**{"": strain}).duplicated().sum()  # no phenotype has this name
        what = "strains" if config.has_covariates or found.strains.activities is not None else "genes"
        notes.append(f"repeated    {count(again, 'row')} of {what} listed before, {same:,} with equal values: averaged")
        for name in config.phenotypes:
            spread = values[name].groupby(strain).agg(["min", "max"])
            most = spread["max"].sub(spread["min"]).nlargest(5)
            for which in most[most > 0].index:
                lines = rows.lines[(strain == which) & values[name].notna().to_numpy()].tolist()
                low, high = spread.loc[which]
                notes.append(f"  {rows.place(lines)}: the same strain, {name} {low:g} to {high:g}")
    if MEDIUM in config.covariates:
        notes.append("media       are names only; `cell.media` says what cells take up in each")
    return notes

"""Read strains to predict as tables, lists and records have them: genes, their activities, and covariates."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from dglcell.checks import STRONGEST
from dglcell.data.columns import COVARIATE, Column
from dglcell.data.sources import Computed
from dglcell.data.sources.config import CsvConfig, GuideConfig, Work
from dglcell.data.sources.csv_table import SITE, guide_covariates
from dglcell.data.sources.text_table import read_rows
from dglcell.data.strains import Strains, list_genotypes
from dglcell.data.table import (
    GENE,
    GENES,
    NUMBERED,
    STRAINS,
    THOUSANDS,
    Issue,
    IssuesError,
    Rows,
    activity_columns,
    gene_columns,
    in_one_line,
    number_of,
    read_changes,
)
from dglcell.errors import DataError, GenotypeError, GraphError, closest, did_you_mean, listing
from dglcell.graph.model_files import SHIPPED, named_aliases
from dglcell.graph.vocabulary import Vocabulary
from dglcell.prediction import UNKNOWN
from dglcell.training.checkpoint import Trained

if TYPE_CHECKING:
    import pandas as pd


log = logging.getLogger("dglcell")

SYSTEMATIC = "systematic_names"
"""This column is added where the table of a file calls genes by other names."""

Genotypes = Iterable[Sequence[str] | Mapping[str, float]]
"""These are strains as lists of deleted genes, or as gene → activity."""

Seen = Mapping[str, Sequence[str]]
"""This maps each covariate that a model sees to its categories; they are none where values are numbers."""

Completion = Callable[[Strains], Strains]
"""This adds to strains the columns that simulators compute, with the covariates as a model sees them."""

NEW, NEW_NUMBER = None, -1
"""This is the value of a covariate with categories where none of them fits: a site that the training did not have."""

ANOTHER = "a run knows only what its strains had; to predict another value, train a run on strains that have it"
"""Messages say so of a covariate with categories."""


@dataclass(frozen=True)
class GenotypeTable:
    """Hold the strains of a table's rows, and the rows."""

    #: the rows as they came, those of a file as text, with the covariates that were given beside them
    frame: pd.DataFrame
    #: in order the strains of those rows whose genes the cell graph has, with the covariates that the model sees
    strains: Strains
    is_known: NDArray[np.bool_]  #: [rows] whether the cell graph has all genes of a row
    lacking: Sequence[str]  #: [rows] the names that the cell graph lacks, separated by ``;``

    def of_rows(self, values: Sequence[Any] | NDArray[Any], missing: Any) -> NDArray[Any]:
        """Return values of the strains as values of the rows, with ``missing`` for those without a strain."""
        column = np.full(len(self.is_known), missing, getattr(values, "dtype", object))
        column[self.is_known] = values
        return column

    def refuse_columns(self, names: Iterable[str]) -> None:
        """Refuse a table that has a column already which will be added."""
        for name in names:
            if name in self.frame:
                raise GenotypeError(f"the column '{name}' is there already", do="rename or remove it")


@dataclass(frozen=True)
class GenotypeColumns:
    """Describe how the strains of a table are read."""

    #: names of the gene columns; a single column may hold several genes, separated by ``;``. Where empty, the columns
    #: ``gene_1, gene_2, …`` or ``genes``, or else those of the table of the training.
    names: Sequence[str] = ()
    aliases: Vocabulary = field(default_factory=Vocabulary)  #: other names of genes
    unknown: str = UNKNOWN[0]  #: what is done about rows with genes that the cell graph lacks
    csv: CsvConfig = field(default_factory=CsvConfig)  #: the table that the model was trained on
    #: the covariates that the model sees and strains say. If there are any, a strain need not change a gene.
    seen: Seen = field(default_factory=dict)
    learnt: bool = False  #: whether the model learns what is left of a gene where strains do not say it
    complete: Completion | None = None  #: adds what simulators compute of strains, where the model sees that
    model: str | None = None  #: metabolic model of the cell, whose names are tried where a gene is unknown

    @classmethod
    def of(
        cls, trained: Trained, names: Sequence[str] = (), aliases: str | None = None, unknown: str = UNKNOWN[0]
    ) -> Self:
        """Return how tables for a trained model are read; ``aliases`` names other names of genes.

        Those of the training are taken where none are asked for, if their file is here.
        """
        config, aliased = trained.config, Vocabulary()
        csv = config.data.source.csv if config.data.source.name == "csv" else CsvConfig()
        try:
            if known := aliases or csv.aliases:
                aliased = named_aliases(known, config.paths.raw)[0]
        except (DataError, GraphError):
            if aliases:
                raise
        seen, complete, learnt = asked_of(trained), completion_of(trained), bool(config.model.activity_from)
        return cls(names, aliased, unknown, csv, seen, learnt, complete, config.cell.model)

    def find(self, header: Sequence[str], where: str) -> tuple[list[str], list[str]]:
        """Return the columns of genes, and those of activities in the same order.

        There are no columns of genes where neither this table nor that of the training has any. Those of activities are
        those of the training, or as `activity_columns` finds them; there may be none.
        """
        names, trained_on = [*self.names], self.csv.genes
        if not names and not {one for one in header if NUMBERED.fullmatch(one) or one == GENES} - {*trained_on}:
            names = [name for name in trained_on if name in header]
            if self.seen and not trained_on and GENE not in header:
                return [], activity_columns(header, [], where)  # which refuses activities that have no genes
        genes = names or gene_columns(header, where)
        of_gene = dict(zip(trained_on, self.csv.activities, strict=False))
        others = (f"activity{gene[4:]}" if NUMBERED.fullmatch(gene) else f"activity of {gene}" for gene in genes)
        is_as_trained = any(of_gene.get(gene) in header for gene in genes)
        left = [of_gene.get(gene, other) for gene, other in zip(genes, others, strict=True)] if is_as_trained else []
        for name in (*genes, *left):
            if name not in header:
                do = "add it, with an empty cell for a deletion" if name in left else "see `--columns`"
                what = f"{where}: no column '{name}'"
                raise GenotypeError(what, got=listing(header), do=did_you_mean(name, header, do))
        return genes, left or activity_columns(header, genes, where)

    def read(
        self,
        given: Path | pd.DataFrame | Strains | Genotypes,
        vocabulary: Vocabulary,
        covariates: Mapping[str, Any] | None = None,
    ) -> GenotypeTable:
        """Read strains with the genes of the model's cell graph. Every row is checked before anything is predicted.

        Args:
            given: a file, as `read_rows` takes it; a DataFrame, in whose index texts are names of strains for messages;
                lists; or a record.
            vocabulary: gene vocabulary of the model's cell graph.
            covariates: covariate → a value for all strains, or one for each; it becomes a column ``covariate_NAME``.

        Raises:
            DataError: the file is no table.
            GenotypeError: there is no gene column, or a covariate that the model sees is missing or wrong. Or rows have
                an unknown gene, none, one twice, or no activity. Every wrong row is named.
            MissingDependencyError: the table is Parquet and pyarrow is not installed.
        """
        file = read_rows(given, keep_blank=True) if isinstance(given, Path) else None
        frame = self._with_given(_as_frame(given, self.seen) if file is None else file.frame, covariates or {})
        header = [str(name).strip() for name in frame.columns]
        genes, activities = self.find(header, STRAINS if file is None else file.title)
        if file is not None:
            rows = replace(file, frame=frame)
        else:
            others = [column for name in self.seen for column in _columns_for(name, self.csv)]
            others += [] if self.csv.guides is None else [*self.csv.guides.columns, SITE]
            others = [name for name in others if name in header]
            rows = Rows.of_frame(frame, [*dict.fromkeys([*genes, *activities, *others])])
        table, has_other_names = self._read(rows, genes, activities, vocabulary)
        if file is not None and SYSTEMATIC not in frame and has_other_names:
            named = table.of_rows([";".join(genes) for genes in table.strains.genotypes], "")
            frame = frame.assign(**{SYSTEMATIC: named})
        return replace(table, frame=frame)

    def wild_type(self, vocabulary: Vocabulary, covariates: Mapping[str, Any]) -> Strains | None:
        """Return a strain that changes no gene, with a design's covariates but for computed ones; None without any."""
        if not self.seen and not covariates:
            return None
        return replace(self, complete=None).read([[]], vocabulary, covariates).strains

    def _with_given(self, frame: pd.DataFrame, covariates: Mapping[str, Any]) -> pd.DataFrame:
        """Return a table with columns of the covariates that are given beside it."""
        for name, values in covariates.items():
            if name not in self.seen:
                known = listing(f"{one} ({_values_of(self.seen, one)})" for one in self.seen)
                what, expected = f"the model does not see a covariate '{name}'", known or "none: the model sees none"
                raise GenotypeError(what, expected=expected, do=did_you_mean(name, self.seen))
            if added_column(name) in frame.columns:
                raise GenotypeError(f"covariate '{name}' is given twice", expected="with the strains, or beside them")
            if isinstance(values, str) or not np.iterable(values):
                covariate_number(self.seen, name, values, ANOTHER)  # the same for all rows, so that it is refused once
                values = [values] * len(frame)
            if len(values) != len(frame):
                what, got = f"covariate '{name}' does not fit the strains", f"{len(values):,} values"
                expected = "one value for each strain, or one for all"
                raise GenotypeError(what, got=f"{got} for {len(frame):,} strains", expected=expected)
            frame = frame.assign(**{added_column(name): list(values)})
        return frame

    def _read(
        self, rows: Rows, genes: Sequence[str], activities: Sequence[str], vocabulary: Vocabulary
    ) -> tuple[GenotypeTable, bool]:
        """Return the strains of rows, and whether these call a gene by another name than its systematic one."""
        numbers_SC, issues = _read_covariates(self.seen, rows, self.csv)
        changes = read_changes(rows, genes, activities, self.aliases, vocabulary, may_be_empty=bool(self.seen))
        unknown = changes.unknown_issues(vocabulary)
        if unknown and self.model in SHIPPED:  # reading it takes a second
            aliases = self.aliases.joined(named_aliases(self.model)[0])
            return replace(self, aliases=aliases, model=None)._read(rows, genes, activities, vocabulary)
        issues = [*changes.issues, *issues, *(unknown if self.unknown == UNKNOWN[0] else [])]
        if issues:
            text = " ".join(issue.what for issue in issues)
            kinds = {"unknown gene": "in Python, `dglcell.load_cell(RUN).genes.names` lists the genes of the model"}
            kinds |= {"expected: one of": ANOTHER}
            do = [advice for kind, advice in kinds.items() if kind in text]
            raise IssuesError(rows, issues, "mend or remove them", *do)
        strange, lacking, is_known = {*changes.unknown(vocabulary)}, [""] * len(rows), np.ones(len(rows), dtype=bool)
        for row, name in zip(changes.row_of.tolist(), changes.written, strict=True) if strange else ():
            if name in strange:
                lacking[row], is_known[row] = f"{lacking[row]};{name}" if lacking[row] else name, False
        kept = is_known[changes.row_of]
        names, numbers, _ = changes.targets
        found = vocabulary.indices(names)[numbers[kept]].astype(np.int32)
        offsets = np.concatenate([[0], np.cumsum(changes.numbers[is_known])])
        columns = (Column(COVARIATE, name, tuple(categories)) for name, categories in self.seen.items())
        covariates = dict(zip(columns, numbers_SC[is_known].T.copy(), strict=True))
        strains = Strains(vocabulary.names, found, offsets, covariates)
        left = changes.activities
        # Deletions alone cost less, and every model takes them.
        if left is not None and (left.any() or self.learnt):
            strains = replace(strains, activities=left[kept])
            if (most := left[kept].max(initial=0)) > STRONGEST:
                said = "%s: activities up to %g look like percent: 1 is the wild type, and 0.3 a knock-down to 30 %%"
                log.warning(said, rows.title, most)
        strains = strains.with_covariates(self.seen)
        strains = strains if self.complete is None else self.complete(strains)
        renames = any(of in vocabulary and name.replace(" ", "") != of for name, of in changes.meant.items())
        return GenotypeTable(rows.frame, strains, is_known, lacking), renames


def _as_frame(given: Any, seen: Seen) -> pd.DataFrame:
    import pandas as pd

    if isinstance(given, pd.DataFrame):
        return given
    changes = given.changes if isinstance(given, Strains) else list(given)
    genotypes = list_genotypes(changes)
    places = range(max([1, *map(len, genotypes)]))
    columns: dict[str, Any] = {
        f"gene_{k + 1}": [genes[k] if k < len(genes) else "" for genes in genotypes] for k in places
    }
    if any(isinstance(changed, Mapping) for changed in changes):
        # What is missing is no activity here, where a DataFrame has it for a deletion.
        left = [
            [of if of == of and of is not None else str(of) for of in one.values()]
            if isinstance(one, Mapping)
            else [0.0] * len(one)
            for one in changes
        ]
        columns |= {f"activity_{k + 1}": [of[k] if k < len(of) else None for of in left] for k in places}
    if isinstance(given, Strains):
        columns |= {added_column(name): given.shown(name) for name in seen if name in given.covariates}
    return pd.DataFrame(columns)


# Covariates, such as a growth medium, where a model sees any.


def seen_by(trained: Trained) -> dict[str, Sequence[str]]:
    """Return the covariates that a model sees, in its order."""
    return {name: tuple(categories) for name, categories in (trained.config.model.covariates or {}).items()}


def asked_of(trained: Trained) -> dict[str, Sequence[str]]:
    """Return the covariates that strains to predict must say: those that a model sees and no simulator computes."""
    data = trained.config.data
    computed = {*data.computed, *([] if data.fba is None else [data.fba.name])}
    return {name: categories for name, categories in seen_by(trained).items() if name not in computed}


def completion_of(trained: Trained) -> Completion | None:
    """Return what adds the columns that simulators compute; None where a model has none."""
    config = trained.config
    computed = Computed.of(config.data.fba, config.data.computed, config.cell)
    if not computed.simulators:
        return None
    work, seen = Work(config.paths.raw), seen_by(trained)

    def complete(strains: Strains) -> Strains:
        there = {column: values for column, values in strains.columns.items() if column.name not in computed.simulators}
        return computed.add(strains.with_(columns=there), work).with_covariates(seen)

    return complete


def added_column(covariate: str) -> str:
    """Return the name of the column with a covariate that is no column of the user's own table."""
    return f"covariate_{covariate}"


def _columns_for(covariate: str, csv: CsvConfig) -> list[str]:
    """Return the columns that may hold a covariate, named as in training, by its own name, or as it was given."""
    return [*dict.fromkeys([csv.covariates.get(covariate, covariate), covariate, added_column(covariate)])]


def _values_of(seen: Seen, covariate: str, first: Iterable[str] = ()) -> str:
    """Return in words which values a covariate may have, some of them ``first``."""
    categories = dict.fromkeys([*first, *seen[covariate]])
    return f"one of {listing(categories)}" if categories else "a finite number"


def _read_covariates(seen: Seen, rows: Rows, csv: CsvConfig) -> tuple[NDArray[np.float32], list[Issue]]:
    """Return what `covariate_number` returns of the C covariates of all rows, [S, C], and what is wrong with them."""
    import pandas as pd

    guides = _of_guides(seen, csv.guides, rows)
    header = [*rows.frame.columns, *guides]
    numbers, issues = np.zeros((len(rows), len(seen)), np.float32), list[Issue]()
    do = "add such a column, or give one value for all: `--covariate NAME=VALUE`, in Python `covariates={NAME: VALUE}`"
    for place, name in enumerate(seen):
        known = _columns_for(name, csv)
        there = [column for column in known if column in header]
        if len(there) != 1:
            are = "several columns are" if there else "no column is"
            raise GenotypeError(
                f"{rows.title}: {are} the covariate '{name}', which the model sees",
                got=listing(there or header),
                expected=f"a column {' or '.join(known)} with {_values_of(seen, name)} in each row",
                do="keep one of them" if there else did_you_mean(name, header, do),
            )
        codes, distinct = pd.factorize(np.array(guides.get(there[0], rows.frame.get(there[0])), dtype=object))
        values, wrong = [], dict[str, list[int]]()
        for code, value in enumerate(distinct):
            try:
                values.append(covariate_number(seen, name, value))
            except GenotypeError as error:
                values.append(np.nan)
                wrong[in_one_line(error)] = np.flatnonzero(codes == code).tolist()
        issues += rows.issues(wrong)
        numbers[:, place] = np.array([*values, NEW_NUMBER], np.float32)[codes]  # the last one is of missing values
    return numbers, issues


def _of_guides(seen: Seen, guides: GuideConfig | None, rows: Rows) -> dict[str, Sequence[object]]:
    """Return the covariates of a table's guides that the model sees, unless the table has them itself."""
    if guides is None or SITE in rows.frame or not {*guides.columns} <= {*rows.frame}:
        return {}
    known = {*seen.get(SITE, ())}
    try:
        found = guide_covariates(guides, rows, seen.get(SITE, ()))
    except DataError as error:
        raise GenotypeError(str(error)) from error
    columns: dict[str, Sequence[object]] = {name: values.tolist() for name, values in found.items() if name in seen}
    return columns | ({SITE: [one if one in known else NEW for one in columns[SITE]]} if SITE in columns else {})


def covariate_number(seen: Seen, covariate: str, value: object, otherwise: str | None = None) -> float:
    """Return a value of a covariate as a model sees it: the number that it says, or that of its category, −1 if new."""
    text, categories = str(value).strip(), seen[covariate]
    if value is NEW:
        return NEW_NUMBER
    if categories and text in categories:
        return categories.index(text)
    try:  # "1,000" may be a thousand or one
        number = np.nan if categories or re.fullmatch(THOUSANDS, text) else number_of(text.replace(",", "."))
    except ValueError:
        number = np.nan
    if abs(number) <= float(np.finfo(np.float32).max):
        return number
    close = closest(text, categories)
    what, do = f"covariate '{covariate}' has a value that the model cannot see", otherwise if categories else None
    expected = _values_of(seen, covariate, close)
    raise GenotypeError(what, got=f"'{text}'", expected=expected, do=did_you_mean(text, close, do))

"""Read strains to predict as tables, lists and records have them: genes, their activities, and covariates."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from dglcell.checks import STRONGEST
from dglcell.data.changes import (
    GENE,
    GENES,
    NUMBERED,
    Changes,
    activity_columns,
    gene_columns,
    list_genotypes,
    read_changes,
)
from dglcell.data.sources.config import CsvConfig
from dglcell.data.sources.guides import SITE, GuideConfig
from dglcell.data.strains import Strains
from dglcell.data.table import STRAINS, IssuesError, Rows
from dglcell.errors import DataError, GenotypeError, GraphError, did_you_mean, listing
from dglcell.graph.model_files import SHIPPED
from dglcell.graph.names import named_aliases
from dglcell.graph.vocabulary import AliasTable, Vocabulary
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.prediction import UNKNOWN
from dglcell.prediction.covariates import (
    ANOTHER,
    Completion,
    Seen,
    added_column,
    asked_of,
    check_covariates,
    completion_of,
    find_covariates,
    guide_columns,
    read_covariates,
    with_covariates,
)
from dglcell.training.checkpoint import Trained

if TYPE_CHECKING:
    import pandas as pd


log = logging.getLogger("dglcell")


@dataclass(frozen=True)
class GenotypeTable:
    """Hold the strains of a table."""

    #: strains of the rows, with genes of the cell graph and the covariates that the model sees; without a changed gene
    #: where the cell graph lacks one of them
    strains: Strains
    is_known: NDArray[np.bool_]  #: [S] whether the cell graph has all genes of the strain
    lacking: Sequence[str] = ()  #: the names in each row that the cell graph lacks, separated by ``;``
    changes: Changes | None = None  #: the genes that the rows change; None of strains that come from no table
    frame: pd.DataFrame | None = None  #: the rows as text; None of strains that come from no file

    @classmethod
    def of(cls, strains: Strains) -> Self:
        """Return strains whose genes are all in the cell graph."""
        return cls(strains, np.ones(len(strains), bool))

    def __len__(self) -> int:
        return len(self.strains)

    def record(self, names: tuple[str, ...]) -> Strains:
        """Return all strains, whose targets have these names; those with genes that the cell lacks change nothing."""
        assert names == self.strains.names
        return self.strains

    def batches(self, size: int, worth_sharing: int | None = None) -> Iterator[GenotypeBatch]:
        """Yield the known strains in order, ``size`` at a time. Shared deletions are not looked for."""
        known = self.strains.take(np.flatnonzero(self.is_known)).to("cpu")
        for first in range(0, len(known), size):
            batch = known.slice(first, min(first + size, len(known)))
            yield replace(batch.perturbations, most=known.max_deletions)

    def with_column(self, name: str, values: Any) -> GenotypeTable:
        """Return the table with another column, which it must not have already."""
        assert self.frame is not None
        if name in self.frame:
            raise GenotypeError(f"column '{name}' is there already", do="rename or remove it")
        return replace(self, frame=self.frame.assign(**{name: values}))


@dataclass(frozen=True)
class GenotypeColumns:
    """Describe how the strains of a table are read."""

    #: names of the gene columns; a single column may hold several genes, separated by ``;``. Where empty, the columns
    #: ``gene_1, gene_2, …`` or ``genes``, or else those of ``trained_on``.
    names: Sequence[str] = ()
    trained_on: Sequence[str] = ()  #: gene columns of the table that the model was trained on
    aliases: AliasTable = field(default_factory=AliasTable)  #: other names of genes
    unknown: str = UNKNOWN[0]  #: what is done about rows with genes that the cell graph lacks
    #: columns of activities of the table that the model was trained on, in the order of ``trained_on``, or none
    activities: Sequence[str] = ()
    #: covariate → its column in the table that the model was trained on
    covariates: Mapping[str, str] = field(default_factory=dict)
    #: the covariates that the model sees and strains say. If there are any, a strain need not change a gene.
    seen: Seen = field(default_factory=dict)
    learnt: bool = False  #: whether the model learns what is left of a gene where strains do not say it
    guides: GuideConfig | None = None  #: columns of guides of the table that the model was trained on
    complete: Completion | None = None  #: adds what simulators compute of strains, where the model sees that
    model: str | None = None  #: metabolic model of the cell, whose names are tried where a gene is unknown

    @classmethod
    def of(
        cls, trained: Trained, names: Sequence[str] = (), aliases: str | None = None, unknown: str = "refuse"
    ) -> Self:
        """Return how tables for a trained model are read; ``aliases`` names other names of genes.

        Those of the training are taken where none are asked for, if their file is here.

        Raises:
            DataError: the file that is asked for does not exist.
            GraphError: the names cannot be read.
        """
        config, aliased = trained.config, AliasTable()
        csv = config.data.source.csv if config.data.source.name == "csv" else CsvConfig()
        try:
            if known := aliases or csv.aliases:
                aliased = named_aliases(known, config.paths.raw)[0]
        except (DataError, GraphError):
            if aliases:
                raise
        return cls(
            names,
            csv.genes,
            aliased,
            unknown,
            csv.activities,
            csv.covariates,
            asked_of(trained),
            bool(config.model.activity_from),
            csv.guides,
            completion_of(trained),
            config.cell.model,
        )

    def find(self, header: Sequence[str], where: str) -> tuple[list[str], list[str]]:
        """Return the columns of genes, and those of activities in the same order.

        There are no columns of genes where neither this table nor that of the training has any. Those of activities are
        those of the training, or as `activity_columns` finds them; there may be none.

        Raises:
            GenotypeError: there is no gene column, a column that was named is not there, or some gene columns have a
                column of activities and others do not.
        """
        names = list(self.names)
        if not names and not any(NUMBERED.fullmatch(name) or name == GENES for name in header):
            names = [name for name in self.trained_on if name in header]
            if self.seen and not self.trained_on and GENE not in header:
                return [], activity_columns(header, [], where)  # which refuses activities that have no genes
        for name in names:
            if name not in header:
                do = did_you_mean(name, header, "see `--columns`")
                raise GenotypeError(f"{where}: no column '{name}'", got=", ".join(header), do=do)
        genes = names or gene_columns(header, where)
        of_gene = dict(zip(self.trained_on, self.activities, strict=False))
        trained = [of_gene.get(gene, f"activity of {gene}") for gene in genes]
        lacking = [name for name in trained if name not in header]
        if len(lacking) == len(trained):
            return genes, activity_columns(header, genes, where)
        if lacking:
            do = did_you_mean(lacking[0], header, "add it, with an empty cell for a deletion")
            raise GenotypeError(f"{where}: no column '{lacking[0]}'", got=listing(header), do=do)
        return genes, trained

    def rows_of(self, frame: pd.DataFrame) -> Rows:
        """Return those columns of a DataFrame that strains are read from, as text."""
        header = [str(name).strip() for name in frame.columns]
        genes, activities = self.find(header, STRAINS)
        seen = chain.from_iterable((self.covariates.get(name, name), name, added_column(name)) for name in self.seen)
        others = [*seen, *([] if self.guides is None else [*self.guides.columns, SITE])]
        return Rows.of_frame(frame, [*dict.fromkeys([*genes, *activities, *(set(others) & {*header})])])

    def read(self, rows: Rows, vocabulary: Vocabulary) -> GenotypeTable:
        """Read the strains of a table with the genes of the model's cell graph.

        Raises:
            GenotypeError: columns are missing, or rows are wrong, each of which is named.
        """
        header, where = list(rows.frame.columns), rows.title
        genes, activities = self.find(header, where)
        of_guides = guide_columns(self.seen, self.guides, rows, where)
        columns = find_covariates(self.seen, [*header, *of_guides], self.covariates, where)
        numbers, issues = read_covariates(self.seen, rows, columns, of_guides)
        changes = read_changes(rows, genes, activities, self.aliases, vocabulary, may_be_empty=bool(self.seen))
        unknown = changes.unknown_issues(vocabulary)
        if unknown and self.model in SHIPPED:  # reading it takes a second
            aliases = self.aliases.joined(named_aliases(self.model)[0])
            return replace(self, aliases=aliases, model=None).read(rows, vocabulary)
        issues = [*changes.issues, *issues, *(unknown if self.unknown == "refuse" else [])]
        if issues:
            text = " ".join(issue.what for issue in issues)
            kinds = {"unknown gene": "`dglcell graph describe RUN --names` lists the genes of the model"}
            kinds |= {"expected: one of": ANOTHER}
            do = [advice for kind, advice in kinds.items() if kind in text]
            raise IssuesError(rows, issues, "mend or remove them", *do)
        found, row_of = vocabulary.indices(changes.names)[changes.genes], changes.row_of
        is_known = np.bincount(row_of[found < 0], minlength=len(rows)) == 0
        kept = is_known[row_of]
        offsets = np.concatenate([[0], np.cumsum(changes.numbers * is_known)])
        strains = Strains(vocabulary.names, found[kept].astype(np.int32), offsets)
        lacking = [""] * len(is_known)
        for row in np.flatnonzero(~is_known).tolist():
            lacking[row] = ";".join(n for n in changes.of_row(row)[0] if changes.meant[n] not in vocabulary)
        left = changes.activities
        # Deletions alone cost less, and every model takes them.
        if left is not None and (left.any() or self.learnt):
            strains = replace(strains, activities=left[kept])
            if (most := left[kept].max(initial=0)) > STRONGEST:
                said = "%s: activities up to %g look like percent: 1 is the wild type, and 0.3 a knock-down to 30 %%"
                log.warning(said, where, most)
        strains = with_covariates(strains, self.seen, np.transpose(numbers) if len(numbers) else [])
        return GenotypeTable(strains if self.complete is None else self.complete(strains), is_known, lacking, changes)


Genotypes = Iterable[Sequence[str] | Mapping[str, float]]
"""These are strains as lists of deleted genes, or as gene → activity."""


def read_strains(
    strains: Genotypes | pd.DataFrame | Strains,
    covariates: Mapping[str, Any],
    how: GenotypeColumns,
    vocabulary: Vocabulary,
) -> tuple[pd.DataFrame, GenotypeTable]:
    """Read strains to predict.

    Args:
        strains: lists, a DataFrame, in whose index texts are names of strains for messages, or a record.
        covariates: covariate → a value for all strains, or one for each.
        vocabulary: gene vocabulary of the model's cell graph.

    Returns:
        The strains as a DataFrame, and what was read.

    Raises:
        GenotypeError: strains cannot be predicted.
    """
    frame = _as_frame(strains, how)
    check_covariates(how.seen, covariates)
    for name, values in covariates.items():
        if added_column(name) in frame.columns:
            raise GenotypeError(f"covariate '{name}' is given twice", expected="with the strains, or beside them")
        one = isinstance(values, str) or not np.iterable(values)
        given = [values] * len(frame) if one else list(values)
        if len(given) != len(frame):
            what, expected = f"covariate '{name}' does not fit the strains", "one value for each strain, or one for all"
            raise GenotypeError(what, got=f"{len(given):,} values for {len(frame):,} strains", expected=expected)
        frame = frame.assign(**{added_column(name): given})
    return frame, how.read(how.rows_of(frame), vocabulary)


def _as_frame(strains: Genotypes | pd.DataFrame | Strains, how: GenotypeColumns) -> pd.DataFrame:
    import pandas as pd

    given: Any = strains
    if isinstance(given, pd.DataFrame):
        return given
    changes = given.changes if isinstance(given, Strains) else list(given)
    genotypes = list_genotypes(changes)
    width = max([1, *map(len, genotypes)])
    columns: dict[str, Any] = {
        f"gene_{k + 1}": [genes[k] if k < len(genes) else "" for genes in genotypes] for k in range(width)
    }
    if any(isinstance(changed, Mapping) for changed in changes):
        # What is missing is no activity here, where a DataFrame has it for a deletion.
        left = [
            [of if of == of and of is not None else str(of) for of in one.values()]
            if isinstance(one, Mapping)
            else [0.0] * len(one)
            for one in changes
        ]
        columns |= {f"activity_{k + 1}": [of[k] if k < len(of) else None for of in left] for k in range(width)}
    if isinstance(given, Strains):
        columns |= {added_column(name): given.shown(name) for name in how.seen if name in given.covariates}
    return pd.DataFrame(columns)

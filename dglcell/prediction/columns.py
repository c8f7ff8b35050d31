"""Read strains as tables and lists have them: genes, their strengths, and the conditions that a model sees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple, Self

import numpy as np

from dglcell.data.sources.config import CsvConfig
from dglcell.data.sources.guides import GuideConfig
from dglcell.data.strains import Strains
from dglcell.data.table import GENES, NUMBERED, check_known, gene_columns, strength_columns, strength_of
from dglcell.errors import DataError, GenotypeError, GraphError, did_you_mean, listing
from dglcell.graph.names import named_aliases
from dglcell.graph.vocabulary import AliasTable, Vocabulary
from dglcell.prediction.conditions import Completion, Seen, asked_of, completion_of, condition_number, with_conditions
from dglcell.training.checkpoint import Trained

UNKNOWN = ("refuse", "empty")
"""These are the ways to treat rows with genes that the cell graph lacks."""


class Row(NamedTuple):
    """Hold the strain that a row of a table describes.

    Attributes:
        genes: numbers of its genes in the cell graph; none where that lacks some.
        strengths: what is left of each; none where the row does not say it.
        conditions: numbers of the conditions that the model sees.
        written: names of its genes as the row has them.
        lacking: those of them that the cell graph lacks.
    """

    genes: list[int]
    strengths: list[float]
    conditions: list[float]
    written: list[str]
    lacking: list[str]


@dataclass(frozen=True)
class GenotypeColumns:
    """Describe how the strains of a table are read.

    Attributes:
        names: names of the gene columns; a single column may hold several genes, separated by ``;``. Where empty, the
            columns ``gene_1, gene_2, …`` or ``genes``, or else those of ``trained_on``.
        trained_on: gene columns of the table that the model was trained on.
        aliases: other names of genes.
        unknown: ``refuse`` rows with genes that the cell graph lacks, or leave their predictions ``empty``.
        strengths: columns of strengths of the table that the model was trained on, in the order of ``trained_on``;
            there may be none.
        conditions: condition → its column in the table that the model was trained on.
        seen: the conditions that the model sees and strains say. If there are any, a strain need not change a gene.
        learnt: whether the model learns what is left of a gene where strains do not say it.
        guides: columns of guides of the table that the model was trained on; None where it had none.
        complete: adds what simulators compute of strains; None where the model sees nothing of that kind.
    """

    names: Sequence[str] = ()
    trained_on: Sequence[str] = ()
    aliases: AliasTable = field(default_factory=AliasTable)
    unknown: str = "refuse"
    strengths: Sequence[str] = ()
    conditions: Mapping[str, str] = field(default_factory=dict)
    seen: Seen = field(default_factory=dict)
    learnt: bool = False
    guides: GuideConfig | None = None
    complete: Completion | None = None

    @classmethod
    def of(
        cls, trained: Trained, names: Sequence[str] = (), aliases: str | None = None, unknown: str = "refuse"
    ) -> Self:
        """Return how tables for a trained model are read.

        Args:
            aliases: as for `aliases_of`.
            unknown: as above.
        """
        source = trained.config.data.source
        csv = source.csv if source.name == "csv" else CsvConfig()
        aliased, seen = aliases_of(trained, aliases), asked_of(trained)
        learnt = bool(trained.config.model.strength_from)
        strengths, guides, complete = csv.strengths, csv.guides, completion_of(trained)
        return cls(names, csv.genes, aliased, unknown, strengths, csv.conditions, seen, learnt, guides, complete)

    def find(self, header: Sequence[str], where: str) -> list[int]:
        """Return the positions of the gene columns; none where neither this table nor that of the training has any.

        Raises:
            GenotypeError: there is no gene column, or a column that was named is not there.
        """
        stripped = [name.strip() for name in header]
        names = list(self.names)
        if not names and not any(NUMBERED.fullmatch(name) or name == GENES for name in stripped):
            names = [name for name in self.trained_on if name in stripped]
            if self.seen and not self.trained_on:
                return []
        for name in names:
            if name not in stripped:
                do = did_you_mean(name, stripped, "see `--columns`")
                raise GenotypeError(f"{where}: no column '{name}'", got=", ".join(header), do=do)
        return [stripped.index(name) for name in names] or gene_columns(header, where)

    def find_strengths(self, header: Sequence[str], genes: Sequence[str], where: str) -> list[str]:
        """Return the columns of strengths for gene columns, in the same order; there may be none.

        They are those of the training, or as `strength_columns` finds them.

        Raises:
            GenotypeError: some gene columns have a column of strengths, and others do not.
        """
        of_gene = dict(zip(self.trained_on, self.strengths, strict=False))
        trained = [of_gene.get(gene, f"strength of {gene}") for gene in genes]
        lacking = [name for name in trained if name not in header]
        if len(lacking) == len(trained):
            return strength_columns(header, genes, where)
        if lacking:
            do = did_you_mean(lacking[0], header, "add it, with an empty cell for a deletion")
            raise GenotypeError(f"{where}: no column '{lacking[0]}'", got=listing(header), do=do)
        return trained

    def read(
        self, changed: Sequence[str] | Mapping[str, float], conditions: Sequence[object], vocabulary: Vocabulary
    ) -> Row:
        """Read a strain.

        Args:
            changed: names of its deleted genes, or name → strength.
            conditions: values of the conditions that the model sees.
            vocabulary: gene vocabulary of the model's cell graph.

        Raises:
            GenotypeError: a name stands for several genes, a strength or a condition has no value that is known, or as
                for `gene_indices`.
        """
        written = [str(name).strip() for name in changed]
        names, ambiguous = self.aliases.resolve(written, vocabulary, spelled=True)
        if ambiguous:
            raise GenotypeError(f"'{ambiguous[0]}' stands for several genes", do="give the systematic name")
        found = zip(written, names, strict=True)
        lacking = [name for name, meant in found if vocabulary.find(meant) not in vocabulary]
        strengths = [strength_of(left) for left in changed.values()] if isinstance(changed, Mapping) else []
        seen = [condition_number(self.seen, name, value) for name, value in zip(self.seen, conditions, strict=True)]
        if (lacking and self.unknown == "empty") or (not names and self.seen):
            return Row([], [], seen, written, lacking)
        return Row(gene_indices(names, vocabulary, strengths), strengths, seen, written, lacking)

    def strains(self, rows: Sequence[Row], vocabulary: Vocabulary) -> Strains:
        """Return the strains of rows, with the genes of a cell graph and the conditions that the model sees."""
        strains = Strains.from_indices(vocabulary.names, [row.genes for row in rows])
        left = (row.strengths or [0.0] * len(row.genes) for row in rows)
        strengths = np.fromiter(chain.from_iterable(left), np.float32)
        # Deletions alone cost less, and every model takes them.
        if strengths.any() or (self.learnt and any(row.strengths for row in rows)):
            strains = replace(strains, strengths=strengths)
        strains = with_conditions(strains, self.seen, [row.conditions for row in rows])
        return strains if self.complete is None else self.complete(strains)


def aliases_of(trained: Trained, asked: str | None = None) -> AliasTable:
    """Read other names of genes: those asked for, or else those of the training where their file is here.

    Raises:
        DataError: the file that is asked for does not exist.
        GraphError: the names cannot be read.
    """
    source = trained.config.data.source
    known: str | None = asked or (source.csv.aliases if source.name == "csv" else None)
    if known is None:
        return AliasTable()
    try:
        return named_aliases(known, trained.config.paths.raw)[0]
    except (DataError, GraphError):
        if asked:
            raise
        return AliasTable()


def gene_indices(names: Sequence[str], vocabulary: Vocabulary, strengths: Sequence[float] = ()) -> list[int]:
    """Return the numbers of a strain's changed genes in the cell graph, which may also know other names of genes.

    Args:
        vocabulary: genes of the cell graph.
        strengths: what is left of each changed gene; none where all are deleted.

    Raises:
        GenotypeError: no gene is changed, a gene is changed twice, or the cell lacks one.
    """
    if not names:
        raise GenotypeError("no gene is deleted")
    found = [vocabulary.find(name) for name in names]
    twice = sorted(name for name, times in Counter(found).items() if times > 1)
    if twice:
        same = [place for place, gene in enumerate(found) if gene == twice[0]]
        written = listing(sorted({names[place] for place in same}))
        also = f" (written {written})" if written != twice[0] else ""
        how = "deleted twice"
        if strengths:
            how = f"changed twice, with strengths {listing([f'{strengths[place]:g}' for place in same])}"
        raise GenotypeError(f"gene '{twice[0]}' is {how}{also}")
    check_known(found, vocabulary)
    return [vocabulary.index(name) for name in found]

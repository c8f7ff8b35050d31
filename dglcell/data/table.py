"""The strain table: what every source produces and every store is built from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dglcell.errors import DataError, GenotypeError, did_you_mean, import_optional, listing
from dglcell.graph.vocabulary import Vocabulary

if TYPE_CHECKING:
    import anndata
    import pandas as pd

    from dglcell.graph.cell_graph import CellGraph

# Which columns of a table name deleted genes.


GENES = "genes"
"""A column of all deleted genes, separated by ``;``."""

NUMBERED = re.compile(r"gene_[0-9]{1,9}")
"""A column of one deleted gene."""


def gene_columns(header: Sequence[str], where: str) -> list[int]:
    """Positions of the gene columns, in order.

    Args:
        header: column names.
        where: the table is, for the message.

    Raises:
        GenotypeError: there is none, or both forms are used.
    """
    names = [name.strip() for name in header]
    numbered = [i for i, name in enumerate(names) if NUMBERED.fullmatch(name)]
    single = [i for i, name in enumerate(names) if name == GENES]
    if bool(numbered) == bool(single):
        raise GenotypeError(
            f"{where}: {'two kinds of' if numbered else 'no'} gene columns",
            got=", ".join(header),
            expected="either `gene_1, gene_2, …` or one column `genes` separated by `;`",
            do="name them with `--columns` on the command line, or rename them",
        )
    if len(single) > 1:
        raise GenotypeError(f"{where}: {len(single)} columns are called `genes`", expected="one")
    return sorted(numbered, key=lambda i: int(names[i][5:])) or single


def frame_genotypes(frame: pd.DataFrame, genes: Sequence[str] | None = None) -> list[list[str]]:
    """The deleted genes of each row of a DataFrame; empty cells delete nothing.

    Args:
        frame: a row per strain.
        genes: its gene columns; one column may hold several genes, separated by ``;``. The columns ``gene_1, gene_2,
            …`` or ``genes`` where None.

    Raises:
        DataError: a column is not there.
        GenotypeError: there is no gene column.
    """
    header = [str(name) for name in frame.columns]
    check_columns(header, genes or ())
    chosen = [header.index(name) for name in genes] if genes else gene_columns(header, "the DataFrame")
    columns = [frame.iloc[:, i].astype(object).where(frame.iloc[:, i].notna(), "") for i in chosen]
    rows = zip(*columns, strict=True)
    if len(columns) == 1:
        return [[gene.strip() for gene in str(cell).split(";") if gene.strip()] for (cell,) in rows]
    return [[str(cell).strip() for cell in row if str(cell).strip()] for row in rows]


def list_genotypes(strains: Iterable[Sequence[str]]) -> list[list[str]]:
    """The deleted genes of each strain, as lists.

    Raises:
        GenotypeError: a strain is a text.
    """
    genotypes = list(strains)
    for strain in genotypes:
        if isinstance(strain, str):
            raise GenotypeError(
                "a strain is a list of genes",
                got=repr(strain),
                expected=f"e.g. [{strain!r}]",
                do="give a list of lists, or a DataFrame such as `pandas.read_csv(FILE)`",
            )
    return [[str(gene) for gene in strain] for strain in genotypes]


def check_columns(header: Sequence[str], names: Sequence[str]) -> None:
    """Refuse names of columns that a DataFrame does not have.

    Raises:
        DataError: naming those that it has.
    """
    lacking = [name for name in names if name not in header]
    if lacking:
        do = did_you_mean(lacking[0], header)
        raise DataError(f"the DataFrame has no column '{lacking[0]}'", expected=f"among {listing(header)}", do=do)


def check_known(genes: Sequence[str], vocabulary: Vocabulary, where: str = "") -> None:
    """Refuse genes that a cell graph lacks.

    Raises:
        GenotypeError: naming the first, and close names.
    """
    for name in genes:
        if name not in vocabulary:
            raise GenotypeError(f"{where}{': ' if where else ''}unknown gene '{name}'{vocabulary.suggestion(name)}")


# Kinds of labels.


REGRESSION, CLASSIFICATION = "regression", "classification"


@dataclass(frozen=True)
class Provenance:
    """Where data came from.

    Attributes:
        source: short name of the source, e.g. ``collins2007``.
        description: one sentence.
        citation: publication, where there is one.
        licence: as stated by the source.
        urls: where the raw files can be had.
        files: raw file name → sha256.
        counts: rows read, kept, dropped by reason.
        parameters: the options that shaped the table.
    """

    source: str
    description: str = ""
    citation: str = ""
    licence: str = ""
    urls: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TableHead:
    """All of a strain table but its strains.

    Attributes:
        names: distinct gene names.
        phenotypes: names of the phenotypes.
        provenance: where the strains come from.
        units: phenotype name → unit.
        p_values: phenotypes with p-values.
        sds: phenotypes with standard deviations over replicates.
        replicates: phenotypes with numbers of measurements.
    """

    names: tuple[str, ...]
    phenotypes: tuple[str, ...]
    provenance: Provenance
    units: dict[str, str] = field(default_factory=dict)
    p_values: tuple[str, ...] = ()
    sds: tuple[str, ...] = ()
    replicates: tuple[str, ...] = ()


LONGEST_NAME = 200
"""Letters of a gene's or phenotype's name at most. Longer ones come from a file that is read wrongly."""


def check_names(what: str, names: Iterable[str]) -> None:
    """Refuse names that a reader cannot see or tell apart.

    Args:
        what: they name.

    Raises:
        DataError: a name is empty or too long, begins or ends with a blank, or has an invisible character.
    """
    for name in names:
        if not name.isprintable() or name != name.strip() or not 0 < len(name) <= LONGEST_NAME:
            raise DataError(
                f"the name of a {what} cannot be used",
                got=ascii(name),
                expected=f"1 to {LONGEST_NAME} visible letters, without blanks around them",
                do="change the name in its source",
            )


@dataclass(frozen=True)
class StrainTable:
    """Strains with measured phenotypes, in columns.

    Genes of a strain keep the order of the source: query genes first, array gene last.

    >>> import dglcell
    >>> len(dglcell.Strains.from_names([["b0008", "b2464"], ["b0727"]]))
    2

    Attributes:
        names: distinct gene names, any order.
        genes: [P] int32, indices into ``names``, concatenated strain by strain.
        offsets: [S + 1] int64; strain s deletes ``genes[offsets[s]:offsets[s + 1]]``.
        phenotypes: name → [S] float32; NaN where not measured.
        units: phenotype name → unit (``""`` if dimensionless).
        p_values: phenotype name → [S] float32, where the source has them.
        sds: phenotype name → [S] float32, standard deviation over replicates, where the source has them.
        replicates: phenotype name → [S] float32, number of measurements that the phenotype is the mean of
            (0: not measured), where some strain has more than one.
        provenance: where the table came from.

    Raises:
        DataError: the columns do not fit together, or a name cannot be used.
    """

    names: tuple[str, ...]
    genes: NDArray[np.int32]
    offsets: NDArray[np.int64]
    phenotypes: dict[str, NDArray[np.float32]]
    provenance: Provenance
    units: dict[str, str] = field(default_factory=dict)
    p_values: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    sds: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    replicates: dict[str, NDArray[np.float32]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_names("gene", self.names)
        check_names("phenotype", self.phenotypes)
        for name in ("genes", "offsets"):
            kind = getattr(self, name).dtype
            if not np.issubdtype(kind, np.integer):
                raise DataError(
                    f"strain table: {name} are no whole numbers", got=kind, expected="indices into its names"
                )
        strains = len(self)
        if strains < 0 or self.offsets[0] != 0 or self.offsets[-1] != len(self.genes):
            raise DataError("strain table: offsets do not cover the gene column", got=self.offsets[[0, -1]].tolist())
        if (self.offsets[1:] < self.offsets[:-1]).any():
            raise DataError("strain table: offsets decrease")
        if len(self.genes) and not 0 <= self.genes.min() <= self.genes.max() < len(self.names):
            raise DataError("strain table: gene indices outside its names", expected=f"0 … {len(self.names) - 1}")
        for column in (self.phenotypes, self.p_values, self.sds, self.replicates):
            for name, values in column.items():
                if len(values) != strains:
                    raise DataError(
                        f"strain table: column '{name}' has the wrong length", got=len(values), expected=strains
                    )

    @classmethod
    def from_names(
        cls,
        strains: Iterable[Sequence[str]],
        cell: CellGraph | None = None,
        *,
        phenotypes: Mapping[str, ArrayLike] | None = None,
        units: Mapping[str, str] | None = None,
    ) -> Self:
        """Strains as lists of gene names.

        >>> from dglcell import Strains
        >>> strains = Strains.from_names([["b0008", "b2464"], ["b0727"]], phenotypes={"fitness": [0.1, 0.9]})
        >>> strains.num_deletions.tolist()
        [2, 1]

        Args:
            strains: the deleted genes of each.
            cell: whose genes they have to be, under any name that it knows; not checked where None.
            phenotypes: name → a number for each strain, NaN where not measured.
            units: phenotype → unit.

        Raises:
            GenotypeError: the cell lacks a gene.
            DataError: a phenotype has more or fewer numbers than there are strains, or an infinite one.
        """
        genotypes = list_genotypes(strains)
        if cell is not None:
            genotypes = [[cell.genes.find(gene) for gene in genes] for genes in genotypes]
            for number, genes in enumerate(genotypes):
                check_known(genes, cell.genes, f"strain {number}")
        names = Vocabulary.of(chain.from_iterable(genotypes))
        labels = {name: np.asarray(values, dtype=np.float32) for name, values in (phenotypes or {}).items()}
        for name, values in labels.items():
            if np.isinf(values).any():
                number = int(np.flatnonzero(np.isinf(values))[0])
                raise DataError(f"strain {number}: {name} is infinite", expected="a number, or NaN if not measured")
        return cls(
            names.names,
            names.indices(list(chain.from_iterable(genotypes))).astype(np.int32),
            np.cumsum([0, *map(len, genotypes)], dtype=np.int64),
            labels,
            Provenance(source="python"),
            dict(units or {}),
        )

    @classmethod
    def from_dataframe(
        cls,
        frame: pd.DataFrame,
        cell: CellGraph | None = None,
        *,
        genes: Sequence[str] | None = None,
        phenotypes: Sequence[str] = (),
        units: Mapping[str, str] | None = None,
    ) -> Self:
        """Strains as rows of a DataFrame.

        >>> import pandas as pd
        >>> from dglcell import Strains
        >>> frame = pd.DataFrame({"query": ["b0008"], "array": ["b2464"], "fitness": [0.1]})
        >>> Strains.from_dataframe(frame, genes=["query", "array"], phenotypes=["fitness"]).names
        ('b0008', 'b2464')

        Args:
            frame: a row per strain.
            cell: whose genes they have to be; not checked where None.
            genes: its gene columns, as `frame_genotypes` has them.
            phenotypes: its columns of numbers.
            units: phenotype → unit.

        Raises:
            DataError: a column is not there, or holds no numbers.
            GenotypeError: there is no gene column, or the cell lacks a gene.
        """
        check_columns([str(name) for name in frame.columns], phenotypes)
        try:
            columns = {name: frame[name].to_numpy(dtype=np.float32) for name in phenotypes}
        except (TypeError, ValueError) as error:
            raise DataError("a column of phenotypes holds no numbers", got=error, expected="numbers, or NaN") from error
        return cls.from_names(frame_genotypes(frame, genes), cell, phenotypes=columns, units=units)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def genotypes(self) -> list[list[str]]:
        """The names of the deleted genes of each strain."""
        genes = np.array(self.names, dtype=object)[self.genes]
        return [part.tolist() for part in np.split(genes, self.offsets[1:-1])] if len(self) else []

    @property
    def num_deletions(self) -> NDArray[np.int64]:
        """[S] number of deleted genes of each strain."""
        return np.diff(self.offsets)

    def to_anndata(self) -> anndata.AnnData:
        """The strains as annotated data, for Scanpy and other packages that read them.

        Returns:
            A row per strain and a column per gene of some strain, which is 1 where the strain lacks the gene. ``obs``
            has the deleted genes, their number and the phenotypes; ``uns`` has units and where the strains come from.

        Raises:
            MissingDependencyError: anndata is not installed.
        """
        import pandas as pd
        from scipy import sparse

        made = import_optional("anndata", "`to_anndata`", "pip install 'dglcell[anndata]'")
        columns: dict[str, Any] = {
            "genes": [";".join(genes) for genes in self.genotypes],
            "deletions": self.num_deletions,
            **self.phenotypes,
        }
        for prefix, more in (("p", self.p_values), ("sd", self.sds), ("replicates", self.replicates)):
            columns |= {f"{prefix}_{name}": values for name, values in more.items()}
        shape = (len(self), len(self.names))
        deleted = sparse.csr_matrix((np.ones(len(self.genes), np.float32), self.genes, self.offsets), shape)
        about = {name: getattr(self.provenance, name) for name in ("source", "description", "citation", "licence")}
        return made.AnnData(
            deleted,
            obs=pd.DataFrame(columns, index=[str(number) for number in range(len(self))]),
            var=pd.DataFrame(index=list(self.names)),
            uns={"units": dict(self.units), "provenance": about},
        )

    @property
    def head(self) -> TableHead:
        """The table without its strains."""
        kinds = (tuple(column) for column in (self.p_values, self.sds, self.replicates))
        return TableHead(self.names, tuple(self.phenotypes), self.provenance, self.units, *kinds)

    def slice(self, start: int, stop: int) -> StrainTable:
        """Strains ``start`` to ``stop``, without copying."""
        first, last = self.offsets[start], self.offsets[stop]

        def part(columns: dict[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
            return {name: values[start:stop] for name, values in columns.items()}

        return replace(
            self,
            genes=self.genes[first:last],
            offsets=self.offsets[start : stop + 1] - first,
            phenotypes=part(self.phenotypes),
            p_values=part(self.p_values),
            sds=part(self.sds),
            replicates=part(self.replicates),
        )

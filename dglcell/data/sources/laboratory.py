"""Turn the raw files of published laboratory screens into strains."""

from __future__ import annotations

import functools
import gzip
import io
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, islice, product
from pathlib import Path
from typing import Any

import numpy as np

from dglcell.checks import check_values
from dglcell.data.columns import P_VALUE, PHENOTYPE, SD, Column, Provenance
from dglcell.data.sources.config import DIGENIC, TRIGENIC, CsvConfig, LaboratoryConfig
from dglcell.data.sources.csv_table import joined, keep, measure_rows
from dglcell.data.sources.text_table import MOST_ABOVE, read_rows
from dglcell.data.strains import Strains
from dglcell.data.table import Rows
from dglcell.errors import ConfigError, DataError, listing
from dglcell.files.atomic import DAMAGE
from dglcell.published.file import FILES, PublishedFile, format_hash, open_member, read_declarations

# Tables of synthetic genetic array (SGA) crosses, query strain × array strain. Costanzo et al. (2016) and Kuzmin et al.
# (2018, 2020) publish the same table in slightly different words. Rows are measured in parts and keep about 160 bytes
# each, so that twenty million of them take about 4 GB.


CHUNK_ROWS = 100_000  # rows that are read together

QUERY, ALLELES, ARRAY, KIND, ARRAY_TYPE = "query", "alleles", "array", "kind", "array_type"
SCORE, P, FITNESS, FITNESS_SD = "score", "p", "fitness", "fitness_sd"
_COMBINED = ("combined mutant fitness", "double/triple mutant fitness", "double mutant fitness")
HEADERS = {
    QUERY: ("query strain id",),
    ALLELES: ("query allele name",),
    ARRAY: ("array strain id",),
    KIND: ("combined mutant type",),
    ARRAY_TYPE: ("arraytype/temp",),
    SCORE: ("adjusted genetic interaction score (epsilon or tau)", "genetic interaction score (ε)"),
    P: ("p-value",),
    FITNESS: _COMBINED,
    FITNESS_SD: tuple(f"{name} standard deviation" for name in _COMBINED),
}
"""This maps each column to its possible headers, in lower case."""
OPTIONAL = {KIND: DIGENIC, ARRAY_TYPE: ""}
"""Tables without these columns mean this."""

AS_PUBLISHED = "copy or download the file again; to read a table of your own, use `data.source.name: csv`"


@dataclass(frozen=True)
class RawTable:
    """Describe a table of a publication."""

    file: PublishedFile  #: the table itself, or an archive that holds it, with its copies
    member: str = ""  #: name of the table inside an archive, without folders
    rows: int | None = None  #: number of its rows, without the header; None where unknown
    path: Path = Path()  #: where the file was found
    states: tuple[str, ...] = ()  #: which of the columns `kind` and `array_type` a table of crosses has

    @property
    def name(self) -> str:
        """Return what the table is called, with the archive it is in."""
        return f"{self.path.name}/{self.member}" if self.path.suffix == ".zip" else self.path.name

    def crosses(self) -> Iterator[Rows]:
        """Yield parts of the rows of a table of crosses, with the columns of ``HEADERS``."""
        from python_calamine import CalamineError

        rows = 0
        try:
            for chunk in self._chunks():
                rows += len(chunk)
                yield chunk
        except (*DAMAGE, zipfile.BadZipFile, CalamineError) as error:
            what = f"'{self.name}' cannot be read to its end"
            raise DataError(what, got=str(error), do=AS_PUBLISHED) from error
        if not rows or self.rows not in (None, rows):
            what = f"'{self.name}' does not have the rows that were published: cut off, or another version"
            expected = f"{self.rows:,} rows" if self.rows else "one row per cross"
            raise DataError(what, got=f"{rows:,} rows", expected=expected, do=AS_PUBLISHED)

    def _chunks(self) -> Iterator[Rows]:
        import pandas as pd

        rows = self._cells()
        above = list(islice(rows, MOST_ABOVE))
        headers = [[" ".join(cell.split()).lower() for cell in row] for _, row in above] or [[]]
        place = next((i for i, row in enumerate(headers) if HEADERS[QUERY][0] in row), 0)
        header, do = headers[place], "use the table as it was published; a last row like this means that it is cut off"
        at = {column: header.index(name) for column, names in HEADERS.items() for name in names if name in header}
        missing = [column for column in HEADERS if column not in at and column not in {*OPTIONAL} - {*self.states}]
        if lacking := [HEADERS[column][0] for column in missing]:
            got, expected = listing(header, 20), f"besides: {listing(lacking)}"
            raise DataError(f"'{self.name}' lacks columns", got=got, expected=expected, do=do)
        body = chain(above[place + 1 :], rows)
        while block := list(islice(body, CHUNK_ROWS)):
            if bad := next(((number, len(row)) for number, row in block if len(row) != len(header)), None):
                what = f"'{self.name}', line {bad[0]}: not as many cells as in the header"
                raise DataError(what, got=bad[1], expected=len(header), do=do)
            cells = list(zip(*(row for _, row in block), strict=True))
            columns = {name: cells[at[name]] if name in at else OPTIONAL[name] for name in HEADERS}
            yield Rows(self.name, pd.DataFrame(columns, dtype=object), np.array([number for number, _ in block]))

    def _cells(self) -> Iterator[tuple[int, list[str]]]:
        """Yield line numbers and cells of the rows that are not blank, of a text or of the first sheet."""
        from python_calamine import CalamineWorkbook

        openers: dict[str, Any] = {".zip": functools.partial(open_member, name=self.member), ".gz": gzip.open}
        with openers.get(self.path.suffix, functools.partial(open, mode="rb"))(self.path) as file:
            if self.name.endswith(".xlsx"):
                sheet = CalamineWorkbook.from_filelike(file).get_sheet_by_index(0)
                rows = ([str(cell) for cell in row] for row in sheet.iter_rows())
            else:
                lines = io.TextIOWrapper(file, encoding="utf-8-sig")
                first = next(lines, "")
                separator = "\t" if "\t" in first else ","
                rows = (line.rstrip("\n").split(separator) for line in chain([first], lines))
            yield from ((number, row) for number, row in enumerate(rows, start=1) if any(row))


# A strain is called by the systematic name of its gene and what it is, e.g. ``YBR188C_sn1898``: ``sn`` and ``dma`` are
# deletions (query and array), ``tsq`` and ``tsa`` temperature-sensitive alleles, ``damp`` DAmP alleles, ``S``
# suppressor alleles. Queries of two genes are called by both, ``YAL015C+YOL043C_tm72``; which of them are deletions is
# told by their allele names, ``ntg1Δ+ygl081wΔ``. In controls the second one is ``hoΔ``.

DELETED = re.compile(r"(?:sn|dma)\d+")
DELTAS = re.compile("[Δ\N{INCREMENT}]")

HO_LOCUS = "YDL227C"
"""The HO locus carries the second marker of single-mutant control queries. Its deletion is neutral, so that such a
strain stands for the mutant of its other genes (Kuzmin et al. 2018)."""


def parse_strain(name: str, alleles: str = "") -> list[tuple[str, bool]]:
    """Return the genes of a strain that count, by systematic name, and whether each is deleted.

    ``HO_LOCUS`` does not count in strains of two genes, whose allele names have to be given.
    """
    orfs, _, what = name.strip().rpartition("_")
    genes, parts = (orfs or what).split("+"), alleles.strip().split("+")
    if not all(genes):
        expected = "a systematic name, an underscore and the kind of strain, e.g. YBR188C_sn1898"
        raise DataError(f"strain '{name}' names no gene", expected=expected, do="mend the name")
    if len(genes) == 1:
        return [(genes[0], DELETED.fullmatch(what) is not None)]
    if len(parts) != len(genes):
        what = f"strain '{name}' has not as many alleles as genes"
        raise DataError(what, got=f"'{alleles}'", expected="e.g. ntg1Δ+hoΔ")
    return [
        (gene, DELTAS.search(part) is not None) for gene, part in zip(genes, parts, strict=True) if gene != HO_LOCUS
    ]


GENE, NUMBERS = "gene_", (SCORE, P, FITNESS, FITNESS_SD)
INTERACTIONS = {f"{kind}_interaction": f"{kind}_p" for kind in (TRIGENIC, DIGENIC)}
MEASURED = [Column(kind, name) for kind in (PHENOTYPE, P_VALUE, SD) for name in (*INTERACTIONS, FITNESS)]


def read_crosses(tables: Sequence[RawTable], config: LaboratoryConfig, provenance: Provenance) -> Strains:
    """Return the rows of tables of crosses; crosses that are listed twice with equal numbers count once.

    Digenic rows give ``digenic_interaction`` (epsilon), trigenic rows ``trigenic_interaction`` (tau), both with their
    p-value; all give the ``fitness`` of the combined mutant with its standard deviation.
    """
    import pandas as pd

    counts, alleles, parts, crosses = Counter[str](), dict[str, str](), list[Strains](), []
    parsed = functools.cache(lambda name: parse_strain(name, alleles.get(name, "")))
    for rows in chain.from_iterable(table.crosses() for table in tables):
        alleles |= dict(zip(rows.frame[QUERY], rows.frame[ALLELES], strict=True)) | alleles
        if len(rows := _chosen(rows, parsed, config, counts)):
            there = {name: p for name, p in INTERACTIONS.items() if name in rows.frame}
            columns = CsvConfig(
                genes=[name for name in map(str, rows.frame) if name.startswith(GENE)],
                phenotypes={**{name: name for name in there}, FITNESS: FITNESS},
                p_values=there,
                sds={FITNESS: FITNESS_SD},
            )
            parts.append(measure_rows(rows, columns, provenance))
            # Crosses with different covariates are different experiments.
            crosses.append(pd.util.hash_pandas_object(rows.frame[[QUERY, ARRAY, ARRAY_TYPE, *NUMBERS]], index=False))
    provenance = replace(provenance, counts=dict(counts))
    if not parts:
        return Strains.from_indices((), [], provenance=provenance)
    strains = joined(parts)
    found = {of: strains.columns[of].astype(np.float32) for of in MEASURED if of in strains.columns}
    copies = pd.concat(crosses).duplicated().to_numpy()
    return keep(strains.with_(columns=found, provenance=provenance), ~copies, rows_identical=int(copies.sum()))


def _chosen(
    rows: Rows, parsed: Callable[[str], list[tuple[str, bool]]], config: LaboratoryConfig, counts: Counter[str]
) -> Rows:
    """Return the rows that are asked for, with columns of genes and of each kind of interaction."""
    import pandas as pd

    frame = rows.frame
    counts["rows"] += len(rows)
    for column in (KIND, ARRAY_TYPE):
        counts.update(f"rows_{label}" for label in frame[column] if label)
    if stray := {*frame[KIND]} - {DIGENIC, TRIGENIC}:
        what, got = "a row is neither digenic nor trigenic", listing(map(repr, sorted(stray)))
        raise DataError(what, got=got, do="use the table as it was published")
    strains = [parsed(query) + parsed(array) for query, array in zip(frame[QUERY], frame[ARRAY], strict=True)]
    without: dict[str, Any] = {
        f"rows_of_another_{column}": frame[column] != value for column, value in config.chosen.items()
    }
    if config.deletions_only:
        without["rows_with_other_alleles"] = [not all(gone for _, gone in strain) for strain in strains]
    without["rows_with_a_gene_twice"] = [len(dict(strain)) < len(strain) for strain in strains]
    if config.missing == "drop":
        without["rows_not_measured"] = frame[[SCORE, FITNESS]].isin(["", "NaN", "nan", "NA"]).all(axis=1)
    chosen = np.ones(len(rows), dtype=bool)
    for what, left_out in without.items():
        counts[what] += int((chosen & np.asarray(left_out)).sum())
        chosen &= ~np.asarray(left_out)
    genes = pd.DataFrame([[gene for gene, _ in strain] for strain in strains]).fillna("").add_prefix(GENE)
    frame = frame.join(genes)[chosen]
    for kind in (TRIGENIC, DIGENIC):
        if (here := frame[KIND] == kind).any():
            frame[f"{kind}_interaction"], frame[f"{kind}_p"] = (frame[of].where(here, "") for of in (SCORE, P))
    return replace(rows, frame=frame, lines=rows.lines[chosen])


@dataclass(frozen=True)
class CsvScreen:
    """Read a CSV table with a column for each gene."""

    columns: CsvConfig  #: genes, phenotypes and what belongs to them; its ``path`` is not used
    count: str | None = None  #: column whose values are counted in the provenance
    #: columns of two genes and of a value: rows that repeat a pair, in either order, with the same value list one
    #: measurement twice and count once; empty where no row does
    once: tuple[str, ...] = ()
    #: columns that mean one thing in digenic rows and another in trigenic ones, as the column ``kind`` says: ``score``
    #: becomes ``digenic_score`` and ``trigenic_score``
    by_kind: tuple[str, ...] = ()
    recode: dict[str, dict[str, str]] = field(default_factory=dict)  #: column → cell → what is read in its place

    def __call__(self, tables: Sequence[RawTable], config: LaboratoryConfig, provenance: Provenance) -> Strains:
        """Return the rows of the only table."""
        rows = read_rows(tables[0].path)
        counts = dict[str, int]()
        if self.count:
            values = rows.frame[self.count].value_counts().sort_index()
            counts = {f"rows_{self.count}_{value}": int(n) for value, n in values.items()}
        if self.once:
            pairs = np.sort(rows.frame[[*self.once[:2]]].to_numpy(dtype=str), axis=1)
            value = rows.frame[[*self.once[2:]]]
            copies = value.assign(first=pairs[:, 0], second=pairs[:, 1]).duplicated().to_numpy()
            counts["rows_listed_before"] = int(copies.sum())
            rows = rows.keep(~copies)
        frame = rows.frame.replace(self.recode)
        for kind, column in product((DIGENIC, TRIGENIC), self.by_kind):
            frame[f"{kind}_{column}"] = frame[column].where(frame[KIND] == kind, "")
        columns = replace(self.columns, where=config.chosen, missing=config.missing)
        return measure_rows(replace(rows, frame=frame), columns, replace(provenance, counts=counts))


@dataclass(frozen=True)
class Laboratory:
    """Describe a published screen."""

    description: str  #: one or two sentences, with what the numbers mean
    origin: Sequence[str]  #: where the files are, or were made from
    tables: dict[str, RawTable]  #: name → table, in order
    #: reads the tables into measurements
    reader: Callable[[Sequence[RawTable], LaboratoryConfig, Provenance], Strains] = read_crosses

    @property
    def files(self) -> list[PublishedFile]:
        """Return the files of all tables."""
        return [table.file for table in self.tables.values()]


def _laboratory(
    tables: dict[str, Any], csv: dict[str, Any] | None = None, states: Sequence[str] = (), **fields: Any
) -> Laboratory:
    for label, table in tables.items():
        copies = tuple(FILES.get(path, PublishedFile(path)) for path in table.pop("copies", ()))
        tables[label] = RawTable(replace(FILES[table.pop("file")], copies=copies), states=tuple(states), **table)
    if csv is not None:
        fields["reader"] = CsvScreen(CsvConfig(**csv.pop("columns")), **csv)
    return Laboratory(tables=tables, **fields)


LABORATORIES = {
    name: _laboratory(**fields)
    for name, fields in read_declarations("dglcell.data.sources", "laboratories.yaml").items()
}
"""Screens by name; they are declared in ``laboratories.yaml``."""


def measure_laboratory(name: str, config: LaboratoryConfig, raw: str | None = None) -> Strains:
    """Read the rows of the published screen of this name that count."""
    screen = LABORATORIES[name]
    tables = [(table.file.find(raw), table) for table in screen.tables.values()]
    files = {found.path.name: found for found, _ in tables}
    trust = {name: format_hash(found.sha256, found.trust, 12) for name, found in files.items()}
    provenance = Provenance(
        source=name,
        description=screen.description,
        citation=screen.files[0].citation,
        licence=screen.files[0].licence,
        urls=tuple(screen.origin),
        files={name: found.sha256 for name, found in files.items()},
        parameters={**asdict(config), "raw_files": trust},
    )
    rows = screen.reader([replace(table, path=found.path) for found, table in tables], config, provenance)
    if not len(rows):
        got = ", ".join(f"{what.replace('_', ' ')} {count:,}" for what, count in rows.provenance.counts.items())
        raise DataError(f"'{name}': no row is left", got=got, do="loosen `data.source.laboratory`")
    return rows


def check_choices(name: str, config: LaboratoryConfig, key: str = "data.source.laboratory") -> None:
    """Check the choices in the section ``key`` against the screen they are for."""
    check_values(config, key)
    screen = LABORATORIES[name]
    csv = screen.reader if isinstance(screen.reader, CsvScreen) else None
    states = {column for table in screen.tables.values() for column in table.states}
    says = {"deletions_only": csv is None, "kind": KIND in states if csv is None else csv.count == KIND}
    for option in (option for option, does in says.items() if getattr(config, option) and not does):
        what = f"`{key}.{option}` does not apply to '{name}': its file does not say"
        raise ConfigError(what, got=getattr(config, option), do="remove the key")
    if csv is None and (unknown := {*config.where} - states):
        what, there = f"`{key}.where` does not apply to '{name}' with these columns", f"among {listing(sorted(states))}"
        raise ConfigError(what, got=listing(sorted(unknown)), expected=there, do="remove the column")

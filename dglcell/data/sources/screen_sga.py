"""Read screens published as tables of synthetic genetic array (SGA) crosses: query strain × array strain.

Costanzo et al. (2016) and Kuzmin et al. (2018, 2020) publish the same table in slightly different words. Rows are
measured in parts and keep about 160 bytes each, so that twenty million of them take about 4 GB.
"""

from __future__ import annotations

import functools
import gzip
import io
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from dglcell.data.columns import P_VALUE, PHENOTYPE, SD, Column, Provenance
from dglcell.data.sources.config import DIGENIC, TRIGENIC, CsvConfig, LaboratoryConfig
from dglcell.data.sources.csv_table import measure_rows
from dglcell.data.sources.replicates import joined, keep
from dglcell.data.strains import Strains
from dglcell.data.table import Rows
from dglcell.errors import DataError, listing
from dglcell.files.atomic import DAMAGE
from dglcell.published.file import PublishedFile, open_member

CHUNK_ROWS, MOST_ABOVE = 100_000, 20
"""Rows that are read together, and most rows up to the header, above which a title may stand."""

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


@dataclass(frozen=True)
class RawTable:
    """Describe a table of a publication."""

    file: PublishedFile  #: the table itself, or an archive that holds it, with its copies
    member: str = ""  #: name of the table inside an archive, without folders
    rows: int | None = None  #: number of its rows, without the header; None where unknown
    path: Path = Path()  #: where the file was found

    @property
    def name(self) -> str:
        """Return what the table is called, with the archive it is in."""
        return f"{self.path.name}/{self.member}" if self.path.suffix == ".zip" else self.path.name

    def chunks(self) -> Iterator[Rows]:
        """Yield parts of the rows, with the columns of ``HEADERS``, of which empty ones may be missing in the table.

        Raises:
            DataError: the table is damaged, lacks a column, has a row of another width, or not as many rows as was
                published.
        """
        from python_calamine import CalamineError

        rows, do = 0, "copy or download the file again; to read a table of your own, use `data.source.name: csv`"
        try:
            for chunk in self._chunks():
                rows += len(chunk)
                yield chunk
        except (*DAMAGE, zipfile.BadZipFile, CalamineError) as error:
            raise DataError(f"'{self.name}' cannot be read to its end", got=str(error), do=do) from error
        if not rows or self.rows not in (None, rows):
            what = f"'{self.name}' does not have the rows that were published: cut off, or another version"
            expected = f"{self.rows:,} rows" if self.rows else "one row per cross"
            raise DataError(what, got=f"{rows:,} rows", expected=expected, do=do)

    def _chunks(self) -> Iterator[Rows]:
        import pandas as pd

        rows = self._cells()
        above = list(islice(rows, MOST_ABOVE))
        headers = [[" ".join(cell.split()).lower() for cell in row] for _, row in above] or [[]]
        place = next((i for i, row in enumerate(headers) if HEADERS[QUERY][0] in row), 0)
        header, do = headers[place], "use the table as it was published; a last row like this means that it is cut off"
        at = {column: header.index(name) for column, names in HEADERS.items() for name in names if name in header}
        if lacking := [HEADERS[column][0] for column in HEADERS if column not in (*at, KIND, ARRAY_TYPE)]:
            got, expected = listing(header, 20), f"besides: {listing(lacking)}"
            raise DataError(f"'{self.name}' lacks columns", got=got, expected=expected, do=do)
        body = chain(above[place + 1 :], rows)
        while block := list(islice(body, CHUNK_ROWS)):
            if bad := next(((number, len(row)) for number, row in block if len(row) != len(header)), None):
                what = f"'{self.name}', line {bad[0]}: not as many cells as in the header"
                raise DataError(what, got=bad[1], expected=len(header), do=do)
            columns = list(zip(*(row for _, row in block), strict=True))
            frame = pd.DataFrame({name: columns[at[name]] if name in at else "" for name in HEADERS}, dtype=object)
            yield Rows(self.name, frame, np.array([number for number, _ in block]))

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


# Strain names of synthetic genetic array (SGA) screens: which genes they mean, and which of these are deleted.
#
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

    Raises:
        DataError: the name has no gene, or not as many genes as alleles.
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


@dataclass(frozen=True)
class SgaScreen:
    """Read tables of SGA crosses.

    Digenic rows give ``digenic_interaction`` (epsilon), trigenic rows ``trigenic_interaction`` (tau), both with their
    p-value; all give the ``fitness`` of the combined mutant with its standard deviation.
    """

    states_kind: bool = False  #: a column tells digenic from trigenic rows; otherwise all are digenic
    states_array: bool = False  #: a column has the type and temperature of the array

    @property
    def options(self) -> tuple[str, ...]:
        """Return the keys of the laboratory section that apply."""
        stated = {"kind": self.states_kind, "temperature": self.states_array}
        return ("tables", "deletions_only", *(key for key, is_stated in stated.items() if is_stated))

    def read(self, tables: Sequence[RawTable], config: LaboratoryConfig, provenance: Provenance) -> Strains:
        """Return the rows that the configuration asks for; crosses that are listed twice with equal numbers once."""
        import pandas as pd

        counts, alleles, parts, crosses = Counter[str](), dict[str, str](), list[Strains](), []
        parsed = functools.cache(lambda name: parse_strain(name, alleles.get(name, "")))
        for rows in chain.from_iterable(table.chunks() for table in tables):
            alleles |= dict(zip(rows.frame[QUERY], rows.frame[ALLELES], strict=True)) | alleles
            if len(rows := self._chosen(rows, parsed, config, counts)):
                parts.append(measure_rows(rows, _columns(rows), provenance))
                # Crosses with different covariates are different experiments.
                crosses.append(
                    pd.util.hash_pandas_object(rows.frame[[QUERY, ARRAY, ARRAY_TYPE, *NUMBERS]], index=False)
                )
        provenance = replace(provenance, counts=dict(counts))
        if not parts:
            return Strains.from_indices((), [], provenance=provenance)
        strains = joined(parts)
        columns = {of: strains.columns[of].astype(np.float32) for of in MEASURED if of in strains.columns}
        copies = pd.concat(crosses).duplicated().to_numpy()
        strains = strains.with_(columns=columns, provenance=provenance)
        return keep(strains, ~copies, rows_identical=int(copies.sum()))

    def _chosen(self, rows: Rows, parsed: Parse, config: LaboratoryConfig, counts: Counter[str]) -> Rows:
        """Return the rows that are asked for, with columns of genes and of each kind of interaction."""
        import pandas as pd

        frame = rows.frame
        counts["rows"] += len(rows)
        for column, is_stated in ((KIND, self.states_kind), (ARRAY_TYPE, self.states_array)):
            if is_stated:
                counts.update(f"rows_{label or 'of_no_kind'}" for label in frame[column])
        if self.states_kind and (stray := {*frame[KIND]} - {DIGENIC, TRIGENIC}):
            what, got = "a row is neither digenic nor trigenic", listing(map(repr, sorted(stray)))
            raise DataError(what, got=got, do="use the table as it was published")
        strains = [parsed(query) + parsed(array) for query, array in zip(frame[QUERY], frame[ARRAY], strict=True)]
        deletes = np.array([all(gone for _, gone in strain) for strain in strains])
        chosen = np.ones(len(rows), dtype=bool)
        for is_asked, what, without in (
            (config.kind, "rows_of_another_kind", frame[KIND] != config.kind),
            (config.temperature, "rows_of_another_array", ~frame[ARRAY_TYPE].str.endswith(str(config.temperature))),
            (config.deletions_only, "rows_with_other_alleles", ~deletes),
            (True, "rows_with_a_gene_twice", [len(dict(strain)) < len(strain) for strain in strains]),
            (
                config.missing == "drop",
                "rows_not_measured",
                frame[[SCORE, FITNESS]].isin(["", "NaN", "nan", "NA"]).all(axis=1),
            ),
        ):
            if is_asked:
                counts[what] += int((chosen & np.asarray(without)).sum())
                chosen &= ~np.asarray(without)
        genes = pd.DataFrame([[gene for gene, _ in strain] for strain in strains]).fillna("").add_prefix(GENE)
        frame = frame.join(genes)[chosen]
        for kind in (TRIGENIC, DIGENIC):
            here = (frame[KIND] == TRIGENIC) == (kind == TRIGENIC)
            if here.any():
                frame[f"{kind}_interaction"], frame[f"{kind}_p"] = (frame[of].where(here, "") for of in (SCORE, P))
        return replace(rows, frame=frame, lines=rows.lines[chosen])


GENE, NUMBERS = "gene_", (SCORE, P, FITNESS, FITNESS_SD)
INTERACTIONS = {f"{kind}_interaction": f"{kind}_p" for kind in (TRIGENIC, DIGENIC)}
MEASURED = [Column(kind, name) for kind in (PHENOTYPE, P_VALUE, SD) for name in (*INTERACTIONS, FITNESS)]
Parse = Callable[[str], list[tuple[str, bool]]]


def _columns(rows: Rows) -> CsvConfig:
    """Return what the columns of chosen rows mean."""
    there = {name: p for name, p in INTERACTIONS.items() if name in rows.frame}
    return CsvConfig(
        genes=[name for name in map(str, rows.frame) if name.startswith(GENE)],
        phenotypes={**{name: name for name in there}, FITNESS: FITNESS},
        p_values=there,
        sds={FITNESS: FITNESS_SD},
    )

"""Turn the raw files of published laboratory screens into strains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from dglcell.checks import check_values
from dglcell.data.columns import Provenance
from dglcell.data.sources.config import CsvConfig, LaboratoryConfig
from dglcell.data.sources.csv_table import measure_rows
from dglcell.data.sources.replicates import merge_replicates
from dglcell.data.sources.screen_sga import FoundTable, RawTable, SgaScreen
from dglcell.data.sources.text_table import read_rows
from dglcell.data.strains import Strains
from dglcell.data.table import Rows
from dglcell.errors import ConfigError, DataError
from dglcell.published.file import FILES, PublishedFile, download_size, format_hash, read_declarations

# Screens that were brought into a CSV table with a column for each gene.


KIND = "kind"


@dataclass(frozen=True)
class CsvScreen:
    """Read a CSV table with a column for each gene."""

    columns: CsvConfig  #: genes, phenotypes and what belongs to them; its ``path`` is not used
    #: adds columns that ``columns`` names, computed from those of the file, or removes copies of rows
    prepare: Callable[[Rows], Rows] | None = None
    count: str | None = None  #: column whose values are counted in the provenance

    @property
    def options(self) -> tuple[str, ...]:
        """Return the keys of the laboratory section that apply."""
        return ("where", "kind") if self.count == KIND else ("where",)

    def read(self, tables: Sequence[FoundTable], config: LaboratoryConfig, provenance: Provenance) -> Strains:
        """Return the rows of the only table."""
        rows = read_rows(tables[0].path)
        counts = {}
        if self.count:
            values = rows.frame[self.count].value_counts().sort_index()
            counts = {f"rows_{self.count}_{value}": int(n) for value, n in values.items()}
        if self.prepare:
            prepared = self.prepare(rows)
            counts["rows_listed_before"] = len(rows) - len(prepared)
            rows = prepared
        columns = replace(
            self.columns,
            where={**config.where, **({KIND: config.kind} if config.kind else {})},
            missing=config.missing,
            replicates=config.replicates,
        )
        return measure_rows(rows, columns, replace(provenance, counts=counts))


def score_by_kind(rows: Rows) -> Rows:
    """Divide ``score`` and ``p`` into columns by kind.

    They are those of epsilon in digenic rows and of tau in trigenic rows.
    """
    frame = rows.frame.copy()
    for kind in ("digenic", "trigenic"):
        chosen = frame[KIND] == kind
        frame[f"{kind}_score"] = frame["score"].where(chosen, "")
        frame[f"{kind}_p"] = frame["p"].where(chosen, "")
    return replace(rows, frame=frame)


def share_negative(rows: Rows) -> Rows:
    """Add the share of a genotype's significant interactions that are negative: 1, 0, or between for mixed ones."""
    negative, other = (rows.frame[column].astype(int) for column in ("n_negative", "n_not_negative"))
    return replace(rows, frame=rows.frame.assign(share_negative=(negative / (negative + other)).astype(str)))


def either_direction(rows: Rows) -> Rows:
    """Add ``any_direction``: 1 where the pair interacted in some direction, query × array, else 0.

    ``interact`` counts these directions: 0, 1 or 2.
    """
    rows = without_copies(rows, "query", "array", "interact")
    return replace(rows, frame=rows.frame.assign(any_direction=rows.frame["interact"].replace("2", "1")))


def each_pair_once(rows: Rows) -> Rows:
    """Keep each pair once, because pairs within both GO terms are listed twice."""
    return without_copies(rows, "gene_a", "gene_b", "epsilon")


def without_copies(rows: Rows, gene_a: str, gene_b: str, value: str) -> Rows:
    """Leave out rows that repeat a pair, in either order, with the same value: they list one measurement twice."""
    ordered = np.sort(rows.frame[[gene_a, gene_b]].to_numpy(dtype=str), axis=1)
    copies = rows.frame.assign(first=ordered[:, 0], second=ordered[:, 1]).duplicated(["first", "second", value])
    return rows.keep(~copies.to_numpy())


PREPARATIONS = {
    function.__name__: function for function in (score_by_kind, share_negative, either_direction, each_pair_once)
}
"""A declaration can name these functions as `CsvScreen.prepare`."""


Reader = SgaScreen | CsvScreen
"""Readers turn the files of a screen into measurements; their ``options`` are the keys that apply to it."""


@dataclass(frozen=True)
class Laboratory:
    """Describe a published screen."""

    description: str  #: one or two sentences, with what the numbers mean
    origin: Sequence[str]  #: where the files are, or were made from
    tables: dict[str, RawTable]  #: name → table, in order; ``data.source.laboratory.tables`` chooses among them
    reader: Reader  #: the reader of the tables
    organism: str = "yeast"  #: whose strains were measured

    @property
    def citation(self) -> str:
        """Return the publication."""
        return self.files[0].citation

    @property
    def licence(self) -> str:
        """Return the licence, as the publisher or the public repository states it."""
        return self.files[0].licence

    @property
    def files(self) -> list[PublishedFile]:
        """Return the files of all tables."""
        return [table.file for table in self.tables.values()]

    @property
    def rows(self) -> int | None:
        """Return the number of rows of all tables; None where that is not known of one."""
        rows = [table.rows for table in self.tables.values()]
        return None if None in rows else sum(number or 0 for number in rows)

    @property
    def download(self) -> int | None:
        """Return the bytes of the files that can be fetched: 0 where a size is not known, None where nothing can be
        fetched.
        """
        if not all(file.downloads for file in self.files):
            return None
        return download_size(download for file in self.files for download in file.downloads)


def _laboratory(name: str, fields: dict[str, Any]) -> Laboratory:
    """Read a declaration of ``laboratories.yaml``."""
    try:
        tables = {label: _table(**table) for label, table in fields.pop("tables").items()}
        (kind,) = fields.keys() & READERS.keys()
        return Laboratory(tables=tables, reader=READERS[kind](**fields.pop(kind)), **fields)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"`{name}` of laboratories.yaml is no laboratory screen",
            got=error,
            expected=f"description, origin, tables whose files are in files.yaml, and one of {', '.join(READERS)}",
            do="correct the declaration",
        ) from error


def _table(file: str, copies: Sequence[str] = (), member: str = "", rows: int | None = None) -> RawTable:
    others = tuple(FILES.get(path, PublishedFile(path)) for path in copies)
    return RawTable(replace(FILES[file], copies=others), member, rows)


def _csv_screen(columns: dict[str, Any], prepare: str | None = None, count: str | None = None) -> CsvScreen:
    return CsvScreen(CsvConfig(**columns), PREPARATIONS[prepare] if prepare else None, count)


READERS: dict[str, Callable[..., Reader]] = {"sga": SgaScreen, "csv": _csv_screen}
"""This maps each key of a declaration to the function that makes a reader from its options."""

LABORATORIES = {
    name: _laboratory(name, fields)
    for name, fields in read_declarations("dglcell.data.sources", "laboratories.yaml").items()
}
"""Screens by name; they are declared in ``laboratories.yaml``."""


def load_laboratory(name: str, config: LaboratoryConfig, raw: str | None = None) -> Strains:
    """Read a published screen.

    Args:
        name: a key of :data:`LABORATORIES`.
        config: which rows count, and how they become strains.
        raw: folder that holds ``interactions/``.

    Raises:
        ConfigError: a choice is unknown, or means nothing for this screen.
        DataError: a file is missing, is not the published one, or has no such rows.
    """
    return merge_replicates(measure_laboratory(name, config, raw), config.replicates)


def measure_laboratory(name: str, config: LaboratoryConfig, raw: str | None = None) -> Strains:
    """Read the rows of a published screen; arguments and errors are those of ``load_laboratory``."""
    check_choices(name, config)
    screen = LABORATORIES[name]
    tables = [FoundTable(table, table.file.find(raw)) for table in chosen_tables(name, config.tables)]
    files = [table.found for table in tables]
    provenance = Provenance(
        source=name,
        description=screen.description,
        citation=screen.citation,
        licence=screen.licence,
        urls=tuple(screen.origin),
        files={found.path.name: found.sha256 for found in files},
        parameters={
            **asdict(config),
            "raw_files": {found.path.name: format_hash(found.sha256, found.trust, 12) for found in files},
        },
    )
    rows = screen.reader.read(tables, config, provenance)
    if not len(rows):
        raise DataError(
            f"'{name}': no row is left",
            got=", ".join(f"{what.replace('_', ' ')} {count:,}" for what, count in rows.provenance.counts.items()),
            do="loosen `data.source.laboratory`",
        )
    return rows


def check_choices(name: str, config: LaboratoryConfig, key: str = "data.source.laboratory") -> None:
    """Check the choices against the screen they are for.

    Raises:
        ConfigError: a choice is unknown, or means nothing for this screen.
    """
    check_values(config, key)
    config.check_applies(name, LABORATORIES[name].reader.options, key)
    chosen_tables(name, config.tables, key)


def chosen_tables(name: str, chosen: Sequence[str], key: str = "data.source.laboratory") -> list[RawTable]:
    """Return the tables of a screen by name; all where none is named.

    Raises:
        ConfigError: the screen has no such table.
    """
    tables = LABORATORIES[name].tables
    unknown = [table for table in chosen if table not in tables]
    if unknown:
        raise ConfigError(
            f"`{key}.tables`: '{name}' has no such table", got=", ".join(unknown), expected="among " + ", ".join(tables)
        )
    return [table for label, table in tables.items() if label in (chosen or tables)]

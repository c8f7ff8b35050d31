"""Turn the raw files of published laboratory screens into strains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from dglcell.checks import check_values
from dglcell.data.columns import Provenance
from dglcell.data.sources.config import DIGENIC, TRIGENIC, CsvConfig, LaboratoryConfig
from dglcell.data.sources.csv_table import measure_rows
from dglcell.data.sources.screen_sga import RawTable, SgaScreen
from dglcell.data.sources.text_table import read_rows
from dglcell.data.strains import Strains
from dglcell.errors import ConfigError, DataError
from dglcell.published.file import FILES, PublishedFile, format_hash, read_declarations

KIND = "kind"


@dataclass(frozen=True)
class CsvScreen:
    """Read a CSV table with a column for each gene."""

    columns: CsvConfig  #: genes, phenotypes and what belongs to them; its ``path`` is not used
    count: str | None = None  #: column whose values are counted in the provenance
    #: columns of two genes and of a value: rows that repeat a pair, in either order, with the same value list one
    #: measurement twice and count once; empty where no row does
    once: tuple[str, ...] = ()
    #: columns that mean one thing in digenic rows and another in trigenic ones, as `kind` says: ``score`` becomes
    #: ``digenic_score`` and ``trigenic_score``
    by_kind: tuple[str, ...] = ()
    recode: dict[str, dict[str, str]] = field(default_factory=dict)  #: column → cell → what is read in its place

    @property
    def options(self) -> tuple[str, ...]:
        """Return the keys of the laboratory section that apply."""
        return ("where", "kind") if self.count == KIND else ("where",)

    def read(self, tables: Sequence[RawTable], config: LaboratoryConfig, provenance: Provenance) -> Strains:
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
        for kind in (DIGENIC, TRIGENIC):
            for column in self.by_kind:
                frame[f"{kind}_{column}"] = frame[column].where(frame[KIND] == kind, "")
        where = {**config.where, **({KIND: config.kind} if config.kind else {})}
        columns = replace(self.columns, where=where, missing=config.missing, replicates=config.replicates)
        return measure_rows(replace(rows, frame=frame), columns, replace(provenance, counts=counts))


@dataclass(frozen=True)
class Laboratory:
    """Describe a published screen."""

    description: str  #: one or two sentences, with what the numbers mean
    origin: Sequence[str]  #: where the files are, or were made from
    tables: dict[str, RawTable]  #: name → table, in order; ``data.source.laboratory.tables`` chooses among them
    #: reads the tables into measurements; its ``options`` are the keys that apply to it
    reader: SgaScreen | CsvScreen

    @property
    def files(self) -> list[PublishedFile]:
        """Return the files of all tables."""
        return [table.file for table in self.tables.values()]


def _laboratory(fields: dict[str, Any]) -> Laboratory:
    tables = {label: _table(**table) for label, table in fields.pop("tables").items()}
    (kind,) = fields.keys() & READERS.keys()
    return Laboratory(tables=tables, reader=READERS[kind](**fields.pop(kind)), **fields)


def _table(file: str, copies: Sequence[str] = (), member: str = "", rows: int | None = None) -> RawTable:
    others = tuple(FILES.get(path, PublishedFile(path)) for path in copies)
    return RawTable(replace(FILES[file], copies=others), member, rows)


READERS: dict[str, Callable[..., SgaScreen | CsvScreen]] = {
    "sga": SgaScreen,
    "csv": lambda columns, **more: CsvScreen(CsvConfig(**columns), **more),
}
"""This maps each key of a declaration to what makes a reader from its options."""

LABORATORIES = {
    name: _laboratory(fields) for name, fields in read_declarations("dglcell.data.sources", "laboratories.yaml").items()
}
"""Screens by name; they are declared in ``laboratories.yaml``."""


def measure_laboratory(name: str, config: LaboratoryConfig, raw: str | None = None) -> Strains:
    """Read the rows of a published screen.

    Args:
        name: a key of :data:`LABORATORIES`.
        config: which rows count, and how they become strains.
        raw: folder that holds ``interactions/``.

    Raises:
        DataError: a file is missing, is not the published one, or has no such rows.
    """
    screen = LABORATORIES[name]
    tables = [(table.file.find(raw), table) for table in chosen_tables(name, config.tables)]
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
    rows = screen.reader.read([replace(table, path=found.path) for found, table in tables], config, provenance)
    if not len(rows):
        got = ", ".join(f"{what.replace('_', ' ')} {count:,}" for what, count in rows.provenance.counts.items())
        raise DataError(f"'{name}': no row is left", got=got, do="loosen `data.source.laboratory`")
    return rows


def check_choices(name: str, config: LaboratoryConfig, key: str = "data.source.laboratory") -> None:
    """Check the choices in the section ``key`` against the screen they are for.

    Raises:
        ConfigError: a choice is unknown, or was set and means nothing for this screen.
    """
    check_values(config, key)
    applicable, default = ("missing", "replicates", *LABORATORIES[name].reader.options), LaboratoryConfig()
    for option, value in vars(config).items():
        if option not in applicable and value != getattr(default, option):
            what = f"`{key}.{option}` does not apply to '{name}': its file does not say"
            raise ConfigError(what, got=value, do=f"remove the key; those that apply are {', '.join(applicable)}")
    chosen_tables(name, config.tables, key)


def chosen_tables(name: str, chosen: Sequence[str], key: str = "data.source.laboratory") -> list[RawTable]:
    """Return the tables of a screen by name; all where none is named.

    Raises:
        ConfigError: the screen has no such table.
    """
    tables = LABORATORIES[name].tables
    if unknown := [table for table in chosen if table not in tables]:
        what = f"`{key}.tables`: '{name}' has no such table"
        raise ConfigError(what, got=", ".join(unknown), expected="among " + ", ".join(tables))
    return [table for label, table in tables.items() if label in (chosen or tables)]

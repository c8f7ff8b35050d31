"""Data sources: where strains come from. Each is imported when it is used, so that none needs what another needs."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dglcell.data.sources.config import CsvConfig, InSilicoConfig, LaboratoryConfig
from dglcell.data.sources.laboratory import LABORATORIES, check_choices, load_laboratory
from dglcell.data.sources.screen_tables import fetch_tables, is_here
from dglcell.data.sources.union import UnionConfig
from dglcell.data.table import StrainTable
from dglcell.download import RemoteFile
from dglcell.errors import ConfigError, DataError, MissingDependencyError
from dglcell.files import find_raw
from dglcell.graph.model_files import SHIPPED

__all__ = [
    "CsvConfig",
    "InSilicoConfig",
    "LaboratoryConfig",
    "SourceConfig",
    "SourceInfo",
    "UnionConfig",
    "fetch_source",
    "list_sources",
    "load_source",
    "source_addresses",
    "source_files",
]

COMPUTED = ("insilico", "csv", "union")
"""Sources that are no laboratory screens."""


@dataclass
class SourceConfig:
    """Which source, and the options of each kind; those of the other kinds are not used.

    Attributes:
        name: ``insilico``, ``csv``, ``union``, or the name of a laboratory screen.
        insilico: options of the in-silico screen.
        csv: options of a table of one's own.
        laboratory: options of the laboratory screens.
        union: the sources of a union.
    """

    name: str = "insilico"
    insilico: InSilicoConfig = field(default_factory=InSilicoConfig)
    csv: CsvConfig = field(default_factory=CsvConfig)
    laboratory: LaboratoryConfig = field(default_factory=LaboratoryConfig)
    union: UnionConfig = field(default_factory=UnionConfig)

    def validate(self) -> None:
        """Check the options of the chosen source.

        Raises:
            ConfigError: the source is unknown or one of its options is wrong.
        """
        if self.name not in (*COMPUTED, *LABORATORIES):
            raise _unknown(self.name, (*COMPUTED, *LABORATORIES))
        if self.name == "insilico":
            self.insilico.validate()
        elif self.name == "csv":
            self.csv.validate()
        elif self.name == "union":
            self.union.validate()
        else:
            check_choices(self.name, self.laboratory)


def _unknown(name: str, known: Sequence[str], such: str = "") -> ConfigError:
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
    return ConfigError(
        f"no data source is called '{name}'{such}",
        expected="one of " + ", ".join(known),
        do=f"did you mean {' or '.join(close)}?" if close else "see `dglcell data list`",
    )


def load_source(config: SourceConfig, raw: str | None = None) -> StrainTable:
    """Read or compute the strains of a source.

    Args:
        config: which source, with its options.
        raw: folder of raw files; the environment variable ``DGLCELL_RAW`` where None.

    Raises:
        ConfigError: the configuration is wrong.
        DataError: the data are missing or unusable.
        GraphError: the metabolic model of an in-silico screen cannot be read.
        MissingDependencyError: the source needs a package that is not installed.
    """
    config.validate()
    if config.name == "insilico":
        try:
            from dglcell.data.sources.insilico import load_insilico
        except ModuleNotFoundError as error:
            raise MissingDependencyError(
                f"the in-silico screen needs {error.name}", do="pip install 'dglcell[data]'"
            ) from error
        return load_insilico(config.insilico, raw)
    if config.name == "csv":
        from dglcell.data.sources.csv_table import load_csv

        return load_csv(config.csv, raw)
    if config.name == "union":
        from dglcell.data.sources.union import load_union

        return load_union(config.union, raw)
    return load_laboratory(config.name, config.laboratory, raw)


def fetch_source(name: str, raw: str | None = None, *, insecure: bool = False) -> list[Path]:
    """Download the raw files of a laboratory screen that are not there yet, and check those that are.

    Args:
        name: of the screen.
        raw: the raw folder; the environment variable ``DGLCELL_RAW`` where None.
        insecure: also over plain http where no hash is declared.

    Returns:
        Its files.

    Raises:
        ConfigError: no laboratory screen is called so.
        DataError: a file cannot be downloaded, or is not the right one.
        MissingDependencyError: pooch is not installed.
    """
    if name not in LABORATORIES:
        raise _unknown(name, tuple(LABORATORIES), " that has raw files")
    return fetch_tables(LABORATORIES[name].tables.values(), raw, insecure=insecure)


def source_addresses(name: str) -> list[RemoteFile]:
    """Where the raw files of a laboratory screen can be had, and what they are called in the raw folder.

    Raises:
        ConfigError: no laboratory screen is called so.
    """
    if name not in LABORATORIES:
        raise _unknown(name, tuple(LABORATORIES), " that has raw files")
    copies = [copy for table in LABORATORIES[name].tables.values() for copy in table.copies]
    return list(dict.fromkeys(copy for copy in copies if copy.url)) or copies


def source_files(config: SourceConfig, raw: str | None = None) -> list[Path]:
    """Files of a source that its user may edit, as far as they are here.

    Published screens are checked against their sha256 when they are read, and shipped models come with cobra.
    """
    paths: list[str | None] = []
    if config.name == "insilico":
        paths = [None if config.insilico.model in SHIPPED else config.insilico.model]
    elif config.name == "union":
        for part in config.union.parts:
            paths += _own_files(part.name, part.csv, part.laboratory)
    else:
        paths = _own_files(config.name, config.csv, config.laboratory)
    return [find_raw(path, raw) for path in paths if path and _exists(path, raw)]


def _own_files(name: str, csv: CsvConfig, laboratory: LaboratoryConfig) -> list[str | None]:
    return [csv.path, csv.aliases] if name == "csv" else [laboratory.genes, laboratory.aliases]


@dataclass(frozen=True)
class SourceInfo:
    """A line of ``dglcell data list``.

    Attributes:
        name: for ``SourceConfig.name``.
        description: what it holds.
        citation: the publication.
        licence: as stated by the source.
        size: how many rows or strains.
        available: whether it can be loaded here and now.
        download: bytes to download, 0 where the size is not known; None where there is nothing to download.
    """

    name: str
    description: str
    citation: str
    licence: str
    size: str
    available: bool
    download: int | None = None


def list_sources(raw: str | None = None) -> list[SourceInfo]:
    """All sources, and whether their files are there.

    Args:
        raw: folder of raw files; the environment variable ``DGLCELL_RAW`` where None.
    """
    own = [
        SourceInfo(
            "insilico",
            "single, double and triple deletions of a metabolic model by flux balance analysis",
            "Orth, Thiele & Palsson 2010, Nat Biotechnol 28:245",
            "computed",
            "428,673 strains for `textbook`",
            available=True,
        ),
        SourceInfo(
            "csv", "a table of your own: gene columns and phenotype columns", "", "yours", "any", available=True
        ),
        SourceInfo(
            "union", "the strains of several sources, genes matched by name", "", "theirs", "any", available=True
        ),
    ]
    return own + [
        SourceInfo(
            name,
            screen.description,
            screen.citation,
            screen.licence,
            "rows not counted" if screen.rows is None else f"{screen.rows:,} rows",
            available=is_here(screen.tables.values(), raw),
            download=screen.download,
        )
        for name, screen in LABORATORIES.items()
    ]


def _exists(path: str, raw: str | None) -> bool:
    try:
        find_raw(path, raw)
    except DataError:
        return False
    return True

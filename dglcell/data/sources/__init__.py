"""Data sources: where strains come from. Each is imported when it is used, so that none needs what another needs."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from pathlib import Path

from dglcell.data.sources.csv_config import CsvConfig
from dglcell.data.sources.insilico_config import InSilicoConfig
from dglcell.data.sources.laboratory import LABORATORIES, LaboratoryConfig, load_laboratory
from dglcell.data.table import StrainTable
from dglcell.errors import ConfigError, DataError, MissingDependencyError
from dglcell.files import find_raw
from dglcell.graph.model_files import SHIPPED

__all__ = [
    "CsvConfig",
    "InSilicoConfig",
    "LaboratoryConfig",
    "SourceConfig",
    "SourceInfo",
    "list_sources",
    "load_source",
    "source_files",
]


@dataclass
class SourceConfig:
    """Which source, and the options of each kind; those of the other kinds are not used.

    Attributes:
        name: ``insilico``, ``csv``, or the name of a laboratory screen.
        insilico: options of the in-silico screen.
        csv: options of a table of one's own.
        laboratory: options of the laboratory screens.
    """

    name: str = "insilico"
    insilico: InSilicoConfig = field(default_factory=InSilicoConfig)
    csv: CsvConfig = field(default_factory=CsvConfig)
    laboratory: LaboratoryConfig = field(default_factory=LaboratoryConfig)

    def validate(self) -> None:
        """Check the options of the chosen source.

        Raises:
            ConfigError: the source is unknown or one of its options is wrong.
        """
        known = ["insilico", "csv", *LABORATORIES]
        if self.name not in known:
            close = difflib.get_close_matches(self.name, known, n=3, cutoff=0.4)
            raise ConfigError(
                f"no data source is called '{self.name}'",
                expected="one of " + ", ".join(known),
                do=f"did you mean {' or '.join(close)}?" if close else "see `dglcell data list`",
            )
        if self.name == "insilico":
            self.insilico.validate()
        elif self.name == "csv":
            self.csv.validate()
        else:
            self.laboratory.validate()


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
    return load_laboratory(config.name, config.laboratory, raw)


def source_files(config: SourceConfig, raw: str | None = None) -> list[Path]:
    """Files of a source that its user may edit, as far as they are here.

    Published screens are checked against their sha256 when they are read, and shipped models come with cobra.
    """
    files: dict[str, list[str | None]] = {
        "csv": [config.csv.path, config.csv.aliases],
        "insilico": [None if config.insilico.model in SHIPPED else config.insilico.model],
    }
    return [find_raw(path, raw) for path in files.get(config.name, []) if path and _exists(path, raw)]


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
    """

    name: str
    description: str
    citation: str
    licence: str
    size: str
    available: bool


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
    ]
    return own + [
        SourceInfo(
            name,
            screen.description,
            screen.citation,
            screen.licence,
            f"{screen.rows:,} rows",
            available=_exists(screen.csv.path, raw),
        )
        for name, screen in LABORATORIES.items()
    ]


def _exists(path: str, raw: str | None) -> bool:
    try:
        find_raw(path, raw)
    except DataError:
        return False
    return True

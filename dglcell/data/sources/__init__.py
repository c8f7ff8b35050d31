"""Load strains from data sources. Each source is imported when it is used, so that none needs what another needs."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from dglcell.data.sources.config import CsvConfig, InSilicoConfig, LaboratoryConfig
from dglcell.data.sources.laboratory import LABORATORIES, check_choices, load_laboratory
from dglcell.data.sources.source import Simulator, Source, SourceOptions, Work
from dglcell.data.sources.union import UnionConfig
from dglcell.data.strains import Strains
from dglcell.errors import ConfigError, DataError, did_you_mean
from dglcell.files.atomic import find_raw, sha256_file
from dglcell.graph.catalogue import MODELS
from dglcell.graph.model_files import SHIPPED
from dglcell.plugins import FORM, find_class, installed_names, read_options

__all__ = [
    "CsvConfig",
    "InSilicoConfig",
    "LaboratoryConfig",
    "Simulator",
    "Source",
    "SourceConfig",
    "SourceInfo",
    "SourceOptions",
    "UnionConfig",
    "Work",
    "list_sources",
    "load_source",
    "source_files",
]

COMPUTED = ("insilico", "csv", "union")
"""These sources are not laboratory screens."""


@dataclass
class SourceConfig:
    """Choose a source and set the options of each kind; the options of the other kinds are not used.

    Attributes:
        name: ``insilico``, ``csv``, ``union``, the name of a laboratory screen, or ``MODULE:CLASS`` of your own.
        insilico: options of the in-silico screen.
        csv: options of a table of one's own.
        laboratory: options of the laboratory screens.
        union: the sources of a union.
        options: options of a class of your own.
    """

    name: str = "insilico"
    insilico: InSilicoConfig = field(default_factory=InSilicoConfig)
    csv: CsvConfig = field(default_factory=CsvConfig)
    laboratory: LaboratoryConfig = field(default_factory=LaboratoryConfig)
    union: UnionConfig = field(default_factory=UnionConfig)
    options: dict[str, Any] | None = None

    def validate(self) -> None:
        """Check the options of the chosen source.

        Raises:
            ConfigError: the source is unknown or one of its options is wrong.
        """
        if self.name == "insilico":
            self.insilico.validate()
        elif self.name == "csv":
            self.csv.validate()
        elif self.name == "union":
            self.union.validate()
        elif self.name in LABORATORIES:
            check_choices(self.name, self.laboratory)
        elif (own := self.own()) is not None:
            own.config.validate()
            return
        else:
            raise _unknown(self.name, (*COMPUTED, *LABORATORIES, *installed_names("source")))
        if self.options is not None:
            raise ConfigError(
                f"`data.source.options` is for a {FORM}",
                got=f"`data.source.name: {self.name}`",
                do=f"remove the key; the keys of '{self.name}' are in a section of their own",
            )

    @property
    def shaping(self) -> dict[str, Any]:
        """Return the options in use, as plain containers, without those that change no strain."""
        own = self.own()
        options = asdict(own.config if own else getattr(self, self.name, self.laboratory))
        return {name: value for name, value in options.items() if name != "processes"}

    def own(self) -> Source | None:
        """Make the source, where it is a class of the user's own.

        Raises:
            ConfigError: the class or an option is wrong.
        """
        known = self.name in COMPUTED or self.name in LABORATORIES
        kind: type[Source] | None = None if known else find_class("source", self.name)
        return None if kind is None else kind(read_options(kind.Config, self.options or {}, "data.source.options"))


def _unknown(name: str, known: Sequence[str]) -> ConfigError:
    return ConfigError(
        f"no data source is called '{name}'",
        expected=f"one of {', '.join(known)}, or {FORM}",
        do=did_you_mean(name, known, "see `dglcell data list`"),
    )


def load_source(config: SourceConfig, raw: str | None = None) -> Strains:
    """Read or compute the strains of a source.

    Args:
        config: which source, with its options.
        raw: folder of raw files; the environment variable ``DGLCELL_RAW`` where None.

    Raises:
        ConfigError: the configuration is wrong.
        DataError: the data are missing or unusable.
        GraphError: the metabolic model of an in-silico screen cannot be read.
    """
    config.validate()
    if config.name == "insilico":
        from dglcell.data.sources.insilico import load_insilico

        return load_insilico(config.insilico, raw)
    if config.name == "csv":
        from dglcell.data.sources.csv_table import load_csv

        return load_csv(config.csv, raw)
    if config.name == "union":
        from dglcell.data.sources.union import load_union

        return load_union(config.union, raw)
    own = config.own()
    if own is not None:
        return _load_own(own, config, raw)
    return load_laboratory(config.name, config.laboratory, raw)


def _load_own(source: Source, config: SourceConfig, raw: str | None) -> Strains:
    """Load the strains of a user's own class; their provenance gets the source's name and options and hashes of its
    files.
    """
    table = source.load(raw)
    files = {path.name: sha256_file(path) for path in _files_of(source, raw)}
    provenance = replace(table.provenance, source=config.name, parameters=config.shaping)
    return replace(table, provenance=replace(provenance, files={**provenance.files, **files}))


def _files_of(source: Source, raw: str | None) -> list[Path]:
    """Return the file of the source's class, and the files that it reads."""
    return [Path(inspect.getfile(type(source))), *source.files(raw)]


def source_files(config: SourceConfig, raw: str | None = None) -> list[Path]:
    """Return the files of a source that its user may edit, as far as they are here.

    Published screens and models of the catalogue are checked against their sha256 when they are read, and shipped
    models come with cobra.
    """
    own = config.own()
    if own is not None:
        return _files_of(own, raw)
    paths: list[str | None] = []
    if config.name == "insilico":
        paths = [config.insilico.model] if config.insilico.model not in {*SHIPPED, *MODELS} else []
    else:
        for part in config.union.parts if config.name == "union" else [config]:
            paths += [part.csv.path, part.csv.aliases] if part.name == "csv" else []
    found = []
    for path in filter(None, paths):
        with suppress(DataError):
            found.append(find_raw(path, raw))
    return found


@dataclass(frozen=True)
class SourceInfo:
    """Hold a line of ``dglcell data list``.

    Attributes:
        name: the value of ``SourceConfig.name``.
        organism: whose strains it holds.
        description: what it holds.
        citation: the publication.
        licence: as stated by the source.
        size: number of rows or strains.
        available: whether it can be loaded here and now.
        download: bytes to download, 0 where the size is not known; None where there is nothing to download.
    """

    name: str
    organism: str
    description: str
    citation: str
    licence: str
    size: str
    available: bool
    download: int | None = None


def list_sources(raw: str | None = None) -> list[SourceInfo]:
    """List all sources, and say whether their files are there.

    Args:
        raw: folder of raw files; the environment variable ``DGLCELL_RAW`` where None.
    """
    own = [
        SourceInfo(
            "insilico",
            "any",
            "single, double and triple deletions of a metabolic model by flux balance analysis",
            "Orth, Thiele & Palsson 2010, Nat Biotechnol 28:245",
            "computed",
            "428,673 strains for `textbook`",
            available=True,
        ),
        SourceInfo(
            "csv", "any", "a table of your own: gene columns and phenotype columns", "", "yours", "any", available=True
        ),
        SourceInfo(
            "union", "any", "the strains of several sources, genes matched by name", "", "theirs", "any", available=True
        ),
    ]
    return own + [
        SourceInfo(
            name,
            screen.organism,
            screen.description,
            screen.citation,
            screen.licence,
            "rows not counted" if screen.rows is None else f"{screen.rows:,} rows",
            available=all(file.is_here(raw) for file in screen.files),
            download=screen.download,
        )
        for name, screen in LABORATORIES.items()
    ]

"""Load strains from data sources, and add columns that simulators compute.

Each source is imported when it is used, so that none needs what another needs.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dglcell.checks import read_section
from dglcell.data.columns import COMPUTED, covariate_columns
from dglcell.data.sources.config import CsvConfig, FbaConfig, InSilicoConfig, LaboratoryConfig
from dglcell.data.sources.laboratory import LABORATORIES, check_choices
from dglcell.data.sources.replicates import merge_replicates
from dglcell.data.sources.source import Simulator, Source, SourceOptions, Work
from dglcell.data.sources.union import UnionConfig, load_union, measure
from dglcell.data.strains import Strains
from dglcell.errors import ConfigError, DataError, GraphError, did_you_mean
from dglcell.files.atomic import find_raw, sha256_file, user_cache
from dglcell.graph.catalogue import MODELS
from dglcell.graph.cell import CellConfig
from dglcell.graph.model_files import SHIPPED
from dglcell.plugins import FORM, find_class, installed_names
from dglcell.published.file import download_size

__all__ = [
    "Computed",
    "ComputedConfig",
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
    "cache_folder",
    "list_sources",
    "load_source",
    "source_files",
]

SECTIONS = ("insilico", "csv", "union")
"""Sources that are no laboratory screens; each is a section of `SourceConfig`."""


@dataclass
class SourceConfig:
    """Choose a source and set the options of each kind; the options of the other kinds are not used."""

    #: ``insilico``, ``csv``, ``union``, the name of a laboratory screen, or ``MODULE:CLASS`` of your own
    name: str = "insilico"
    insilico: InSilicoConfig = field(default_factory=InSilicoConfig)  # options of the in-silico screen
    csv: CsvConfig = field(default_factory=CsvConfig)  # options of a table of one's own
    laboratory: LaboratoryConfig = field(default_factory=LaboratoryConfig)  # options of the laboratory screens
    union: UnionConfig = field(default_factory=UnionConfig)  # the sources of a union
    options: dict[str, Any] | None = None  # options of a class of your own

    def validate(self) -> None:
        """Check the options of the chosen source.

        Raises:
            ConfigError: the source is unknown or one of its options is wrong.
        """
        if (own := self.own()) is not None:
            own.config.validate()
        elif self.options is not None:
            got, do = f"`data.source.name: {self.name}`", "remove the key; a section of its own has the options"
            raise ConfigError(f"`data.source.options` is for a {FORM}", got=got, do=do)
        elif self.name in SECTIONS:
            getattr(self, self.name).validate()
        else:
            check_choices(self.name, self.laboratory)

    @property
    def shaping(self) -> dict[str, Any]:
        """Return the options in use, as plain containers, without those that change no strain."""
        own = self.own()
        return _shaping(own.config if own else getattr(self, self.name, self.laboratory))

    def own(self) -> Source | None:
        """Make the source, where it is a class of the user's own.

        Raises:
            ConfigError: the source is unknown, or the class or an option is wrong.
        """
        known = (*SECTIONS, *LABORATORIES)
        if self.name in known:
            return None
        kind: type[Source] | None = find_class("source", self.name)
        if kind is None:
            known = (*known, *installed_names("source"))
            expected, do = (
                f"one of {', '.join(known)}, or {FORM}",
                did_you_mean(self.name, known, "see `dglcell data list`"),
            )
            raise ConfigError(f"no data source is called '{self.name}'", expected=expected, do=do)
        return kind(read_section(kind.Config, self.options or {}, "data.source.options"))


def _shaping(options: Any) -> dict[str, Any]:
    return {name: value for name, value in asdict(options).items() if name != "processes"}


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
    if (own := config.own()) is not None:
        table = own.load(raw)
        files = {**table.provenance.files, **{path.name: sha256_file(path) for path in _files_of(own, raw)}}
        about = replace(table.provenance, source=config.name, parameters=config.shaping, files=files)
        return replace(table, provenance=about)
    if config.name == "insilico":
        from dglcell.data.sources.insilico import load_insilico  # needs the solver

        return load_insilico(config.insilico, raw)
    if config.name == "union":
        return load_union(config.union, raw)
    rows = measure(config.name, config.csv, config.laboratory, raw)
    return merge_replicates(rows, (config.csv if config.name == "csv" else config.laboratory).replicates)


def _files_of(source: Source, raw: str | None) -> list[Path]:
    return [Path(inspect.getfile(type(source))), *source.files(raw)]


def source_files(config: SourceConfig, raw: str | None = None) -> list[Path]:
    """Return the files of a source that its user may edit, as far as they are here.

    Published screens and models of the catalogue are checked against their sha256 when they are read, and shipped
    models come with cobra.
    """
    own = config.own()
    if own is not None:
        return _files_of(own, raw)
    tables = [part.csv for part in config.union.parts if part.name == "csv"] if config.name == "union" else []
    tables += [config.csv] if config.name == "csv" else []
    paths = [path for table in tables for path in (table.path, table.aliases)]
    if config.name == "insilico" and config.insilico.model not in {*SHIPPED, *MODELS}:
        paths = [config.insilico.model]
    found = []
    for path in filter(None, paths):
        with suppress(DataError):
            found.append(find_raw(path, raw))
    return found


@dataclass(frozen=True)
class SourceInfo:
    """Hold a line of ``dglcell data list``."""

    name: str  #: the value of ``SourceConfig.name``
    description: str  #: what it holds
    citation: str  #: the publication
    licence: str  #: as stated by the source
    size: str  #: number of rows or strains
    available: bool  #: whether it can be loaded here and now
    #: bytes to download, 0 where the size is not known; None where there is nothing to download
    download: int | None = None


def list_sources(raw: str | None = None) -> list[SourceInfo]:
    """List all sources, and say whether their files are there.

    Args:
        raw: folder of raw files; the environment variable ``DGLCELL_RAW`` where None.
    """
    growth = "single, double and triple deletions of a metabolic model by flux balance analysis"
    flux_balance, sizes = "Orth, Thiele & Palsson 2010, Nat Biotechnol 28:245", "428,673 strains for `textbook`"
    own, unknown = "a table of your own: gene columns and phenotype columns", "any number of rows"
    found = [
        SourceInfo("insilico", growth, flux_balance, "that of the metabolic model", sizes, available=True),
        SourceInfo("csv", own, "", "your own", unknown, available=True),
        SourceInfo("union", "the strains of several sources, genes matched by name", "", "theirs", unknown, True),
    ]
    for name, screen in LABORATORIES.items():
        files, rows = screen.files, [table.rows for table in screen.tables.values()]
        size = "rows not counted" if None in rows else f"{sum(map(int, filter(None, rows))):,} rows"
        about = screen.description, files[0].citation, files[0].licence, size
        to_fetch = [one for file in files for one in file.downloads] if all(file.downloads for file in files) else None
        here, bytes_ = all(file.is_here(raw) for file in files), None if to_fetch is None else download_size(to_fetch)
        found.append(SourceInfo(name, *about, here, bytes_))
    return found


# Columns that simulators compute for strains: flux balance analysis, and classes of one's own.


@dataclass
class ComputedConfig:
    """Choose a class of your own that computes a column."""

    kind: str = ""  # `MODULE:CLASS`, derived from `dglcell.Simulator`
    options: dict[str, Any] = field(default_factory=dict)  # options of the class

    def simulator(self, key: str) -> Simulator:
        """Make the simulator.

        Args:
            key: dotted key of this section, for messages.

        Raises:
            ConfigError: the class or an option is wrong.
        """
        kind: type[Simulator] | None = find_class("simulator", self.kind)
        if kind is None:
            raise ConfigError(f"`{key}.kind` names no simulator", got=f"'{self.kind}'", expected=FORM)
        return kind(read_section(kind.Config, self.options, f"{key}.options"))


@dataclass(frozen=True)
class Computed:
    """Hold the simulators of an experiment, by the names of their columns, and add these columns to strains."""

    simulators: Mapping[str, Simulator] = field(default_factory=dict)

    @classmethod
    def of(cls, fba: FbaConfig | None, own: Mapping[str, ComputedConfig], cell: CellConfig) -> Computed:
        """Make the simulators of `data.fba` and `data.computed`.

        Raises:
            ConfigError: there is no metabolic model, or a class is wrong.
        """
        made: dict[str, Simulator] = {}
        if fba is not None:
            from dglcell.data.sources.growth import FbaGrowth  # needs the solver

            model, media = fba.model or cell.model, cell.media if fba.media is None else fba.media
            if model is None:
                got, do = "`data.fba.model: null` and `cell.model: null`", "name one, e.g. `data.fba.model: iJO1366`"
                raise ConfigError("`data.fba` needs a metabolic model", got=got, do=do)
            made[fba.name] = FbaGrowth(replace(fba, model=model, media=media))
        return cls(made | {name: one.simulator(f"data.computed.{name}") for name, one in own.items()})

    @property
    def shaping(self) -> dict[str, Any]:
        """Return what the columns depend on, as plain containers."""
        return {
            name: {"simulator": type(one).__name__, **_shaping(one.config)} for name, one in self.simulators.items()
        }

    def files(self, raw: str | None) -> list[Path]:
        """Return the files that the columns are made from, as far as they are here, with those of users' classes."""
        found = []
        for one in self.simulators.values():
            with suppress(DataError, GraphError):
                found += one.files(raw)
            if not type(one).__module__.startswith("dglcell."):
                found.append(Path(inspect.getfile(type(one))))
        return found

    def add(self, strains: Strains, work: Work) -> Strains:
        """Return strains with the columns, and say in their provenance how these were made.

        Raises:
            DataError: the strains have such a column already, or it is no finite number of each strain.
        """
        if not self.simulators:
            return strains
        columns = {}
        for name, simulator in self.simulators.items():
            if any(column.name == name for column in strains.columns):
                what = f"the strains have a column '{name}', so that none of this name can be computed"
                raise DataError(what, do="give the computed column another name, e.g. `data.fba.name: fba`")
            columns[name] = np.asarray(simulator.compute(strains, work), dtype=np.float32)
            if columns[name].shape != (len(strains),):
                what = f"`data.computed.{name}`: the class computes something other than a number for each strain"
                raise DataError(what, got=f"shape {columns[name].shape}", expected=f"({len(strains)},)")
        files = {path.name: sha256_file(path) for path in self.files(work.raw)}
        before = strains.provenance
        parameters = {**before.parameters, COMPUTED: self.shaping}
        provenance = replace(before, files={**before.files, **files}, parameters=parameters)
        return strains.with_(columns={**strains.columns, **covariate_columns(columns)}, provenance=provenance)


def cache_folder(data: str | Path) -> Path:
    """Return the folder for what simulators compute: inside that of stores, or the user's where there is none."""
    return Path(data) / "computed" if Path(data).is_dir() else user_cache("computed")

"""Load strains from data sources, and add columns that simulators compute.

Each source is imported when it is used, so that none needs what another needs.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dglcell.checks import check_values, read_section
from dglcell.data.columns import COMPUTED, P_VALUE, Provenance, covariate_columns
from dglcell.data.sources.config import (
    CsvConfig,
    FbaConfig,
    InSilicoConfig,
    LaboratoryConfig,
    Simulator,
    Source,
    SourceOptions,
    Work,
    shaping,
)
from dglcell.data.sources.csv_table import counted, joined, keep, measure_csv, merge_replicates, strain_numbers
from dglcell.data.sources.laboratory import LABORATORIES, check_choices, measure_laboratory
from dglcell.data.strains import Strains
from dglcell.errors import ConfigError, DataError, GraphError, listing
from dglcell.files.atomic import find_raw, sha256_file
from dglcell.graph.catalogue import MODELS
from dglcell.graph.cell import CellConfig
from dglcell.graph.model_files import SHIPPED
from dglcell.plugins import FORM, find_class
from dglcell.published.file import download_size

__all__ = ["Computed", "ComputedConfig", "PartConfig", "SourceConfig", "SourceInfo", "UnionConfig"]
__all__ += ["CsvConfig", "InSilicoConfig", "LaboratoryConfig", "Simulator", "Source", "SourceOptions", "Work"]
__all__ += ["list_sources", "load_source", "source_files"]

CSV, SECTIONS = "csv", ("insilico", "csv", "union")
"""Sources that are no laboratory screens; each is a section of `SourceConfig`."""


@dataclass
class PartConfig:
    """Configure one source of a union."""

    name: str = ""  # `csv`, or the name of a laboratory screen
    csv: CsvConfig = field(default_factory=CsvConfig)  # options of your own table
    laboratory: LaboratoryConfig = field(default_factory=LaboratoryConfig)  # options of a laboratory screen
    #: phenotype of the source → its name in the union. Parts with the same name measure one phenotype; a part with
    #: another name gets its own output in the model.
    phenotypes: dict[str, str] = field(default_factory=dict)

    def validate(self, where: str) -> None:
        """Check the options of the source, in the section ``where``."""
        if self.name == CSV:
            self.csv.validate(f"{where}.csv")
        elif self.name in LABORATORIES:
            check_choices(self.name, self.laboratory, f"{where}.laboratory")
        else:
            what, expected = f"`{where}.name` is no source that can be part of a union", ", ".join((CSV, *LABORATORIES))
            raise ConfigError(what, got=f"'{self.name}'", expected=f"one of {expected}")

    def measure(self, raw: str | None) -> Strains:
        """Read the rows of the source, with the phenotypes' names in the union."""
        read = measure_csv(self.csv, raw) if self.name == CSV else measure_laboratory(self.name, self.laboratory, raw)
        return _renamed(read, self.phenotypes)


@dataclass
class UnionConfig:
    """Configure a union: strains of several sources together, with genes matched by systematic name."""

    parts: list[PartConfig] = field(default_factory=list)  # the sources, in order

    def validate(self) -> None:
        """Check the parts, each as if it were alone."""
        key = "data.source.union"
        check_values(self, key)
        if len(self.parts) < 2:
            expected = "2 or more, e.g. [{name: kuzmin2018}, {name: kuzmin2020}]"
            raise ConfigError(f"`{key}.parts` names too few sources", got=len(self.parts), expected=expected)
        for number, part in enumerate(self.parts):
            part.validate(f"{key}.parts[{number}]")


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
        """Check the options of the chosen source."""
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
        return shaping(own.config if own else getattr(self, self.name, self.laboratory))

    @property
    def parts(self) -> list[PartConfig]:
        """Return the tables and laboratory screens that are read; none of other sources."""
        if self.name == "union":
            return self.union.parts
        is_one = self.name == CSV or self.name in LABORATORIES
        return [PartConfig(self.name, self.csv, self.laboratory)] if is_one else []

    def own(self) -> Source | None:
        """Make the source, where it is a class of the user's own."""
        known = (*SECTIONS, *LABORATORIES)
        if self.name in known:
            return None
        kind: type[Source] = find_class("source", self.name, known, do="see `dglcell data list`")
        return kind(read_section(kind.Config, self.options or {}, "data.source.options"))


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
        files = {**table.provenance.files, **{path.name: sha256_file(path) for path in source_files(config, raw)}}
        about = replace(table.provenance, source=config.name, parameters=config.shaping, files=files)
        return replace(table, provenance=about)
    if config.name == "insilico":
        from dglcell.data.sources.insilico import load_insilico  # needs the solver

        return load_insilico(config.insilico, raw)
    parts = [part.measure(raw) for part in config.parts]
    return merge_replicates(_union(parts) if config.name == "union" else parts[0])


def source_files(config: SourceConfig, raw: str | None = None) -> list[Path]:
    """Return the files of a source that its user may edit, as far as they are here.

    Published screens and models of the catalogue are checked against their sha256 when they are read, and shipped
    models come with cobra.
    """
    if (own := config.own()) is not None:
        return [Path(inspect.getfile(type(own))), *own.files(raw)]
    tables = [part.csv for part in config.parts if part.name == CSV]
    paths = [path for table in tables for path in (table.path, table.aliases) if path]
    if config.name == "insilico" and config.insilico.model not in {*SHIPPED, *MODELS}:
        paths = [config.insilico.model]
    found = []
    for path in paths:
        with suppress(DataError):
            found.append(find_raw(path, raw))
    return found


# A union of the rows of several sources.


def _union(parts: Sequence[Strains]) -> Strains:
    """Return the rows of several sources as those of one.

    A row that another part lists with the same genes and the same numbers, p-value included, is one measurement and
    counts once. What else several parts say of a strain is treated like replicates.
    """
    import pandas as pd

    rows = joined(parts).with_(provenance=_provenance(parts))
    part_of = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    keys = strain_numbers(rows)
    first_part = part_of[np.unique(keys, return_index=True)[1]]  # rows are in the order of their parts
    shared = np.bincount(keys[part_of != first_part[keys]], minlength=len(first_part)) > 0
    rows, copies = counted(rows, strains_in_several_parts=int(shared.sum())), np.zeros(len(rows), dtype=bool)
    if rows.of_kind(P_VALUE):
        places = np.flatnonzero(shared[keys])
        frame = pd.DataFrame({i: column[places] for i, column in enumerate([keys, *rows.columns.values()])})
        copies[places] = frame.duplicated() & ~frame.assign(part=part_of[places]).duplicated()
    return keep(rows, ~copies, rows_identical_in_another_part=int(copies.sum()))


def _renamed(rows: Strains, names: Mapping[str, str]) -> Strains:
    if not names:
        return rows
    where = f"`data.source.union.parts`: {rows.provenance.source}"
    if unknown := [name for name in names if name not in rows.phenotypes]:
        raise DataError(f"{where} has no phenotype to rename", got=listing(unknown), expected=listing(rows.phenotypes))
    renamed = [names.get(name, name) for name in rows.phenotypes]
    if len(set(renamed)) < len(renamed):
        do = "choose other names under `phenotypes` of this part"
        raise DataError(f"{where} would have two phenotypes of one name", got=listing(renamed), do=do)
    parameters = {**rows.provenance.parameters, "phenotypes": dict(names)}
    return rows.with_(
        columns={of._replace(name=names.get(of.name, of.name)): values for of, values in rows.columns.items()},
        units={names.get(name, name): unit for name, unit in rows.units.items()},
        provenance=replace(rows.provenance, parameters=parameters),
    )


def _provenance(parts: Sequence[Strains]) -> Provenance:
    """Say where all parts come from; counts of a part bear its number, from 1, and name."""
    sources = [part.provenance for part in parts]
    files, counts = dict[str, str](), dict[str, int]()
    for number, source in enumerate(sources, start=1):
        counts |= {f"part_{number}_{source.source}_{what}": count for what, count in source.counts.items()}
        for name, sha256 in source.files.items():
            files[name if files.get(name, sha256) == sha256 else f"{name} of part {number}"] = sha256
    return Provenance(
        source="union",
        description="Union of " + ", ".join(source.source for source in sources),
        citation="; ".join(dict.fromkeys(source.citation for source in sources if source.citation)),
        licence="; ".join(dict.fromkeys(f"{source.source}: {source.licence or 'yours'}" for source in sources)),
        urls=tuple(dict.fromkeys(url for source in sources for url in source.urls)),
        files=files,
        counts={"rows": sum(map(len, parts)), **counts},
        parameters={"parts": [{"name": source.source, **source.parameters} for source in sources]},
    )


# Columns that simulators compute for strains: flux balance analysis, and classes of one's own.


@dataclass
class ComputedConfig:
    """Choose a class of your own that computes a column."""

    kind: str = ""  # `MODULE:CLASS`, derived from `dglcell.Simulator`
    options: dict[str, Any] = field(default_factory=dict)  # options of the class

    def simulator(self, key: str) -> Simulator:
        """Make the simulator of the section ``key``."""
        kind: type[Simulator] = find_class("simulator", self.kind, where=f"`{key}.kind`")
        return kind(read_section(kind.Config, self.options, f"{key}.options"))


@dataclass(frozen=True)
class Computed:
    """Hold the simulators of an experiment, by the names of their columns, and add these columns to strains."""

    simulators: Mapping[str, Simulator] = field(default_factory=dict)

    @classmethod
    def of(cls, fba: FbaConfig | None, own: Mapping[str, ComputedConfig], cell: CellConfig) -> Computed:
        """Make the simulators of `data.fba` and `data.computed`."""
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
        return {name: {"simulator": type(one).__name__, **shaping(one.config)} for name, one in self.simulators.items()}

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
        """Return strains with the columns, and say in their provenance how these were made."""
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


# What there is.


class SourceInfo(NamedTuple):
    """Hold a line of ``dglcell data list``."""

    name: str  #: the value of ``SourceConfig.name``
    description: str  #: what it holds
    citation: str  #: the publication
    licence: str  #: as stated by the source
    size: str  #: number of rows or strains
    available: bool  #: whether it can be loaded here and now
    download: str = ""  #: how it can be had where it is not here


def list_sources(raw: str | None = None) -> list[SourceInfo]:
    """List all sources, and say whether their files are there.

    Args:
        raw: folder of raw files; the environment variable ``DGLCELL_RAW`` where None.
    """
    growth = "single, double and triple deletions of a metabolic model by flux balance analysis"
    flux_balance, sizes = "Orth, Thiele & Palsson 2010, Nat Biotechnol 28:245", "428,673 strains for `textbook`"
    own, unknown = "a table of your own: gene columns and phenotype columns", "any number of rows"
    found = [
        SourceInfo("insilico", growth, flux_balance, "that of the metabolic model", sizes, True),
        SourceInfo("csv", own, "", "your own", unknown, True),
        SourceInfo("union", "the strains of several sources, genes matched by name", "", "theirs", unknown, True),
    ]
    for name, screen in LABORATORIES.items():
        files, rows = screen.files, [table.rows for table in screen.tables.values()]
        size = "rows not counted" if None in rows else f"{sum(map(int, filter(None, rows))):,} rows"
        how = "put the raw file into the raw folder by hand"
        if all(file.downloads for file in files):
            bytes_ = download_size([one for file in files for one in file.downloads])
            how = f"`dglcell data fetch {name}`" + (f", {bytes_ / 1e6:,.1f} MB" if bytes_ else "")
        about = screen.description, files[0].citation, files[0].licence, size
        found.append(SourceInfo(name, *about, all(file.is_here(raw) for file in files), how))
    return found

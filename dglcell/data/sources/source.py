"""Define the base classes of a user's own source of strains and of a simulator, and add computed columns to strains."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dglcell.checks import check_values, read_section
from dglcell.data.columns import COMPUTED, covariate_columns
from dglcell.data.sources.config import FbaConfig
from dglcell.data.strains import Strains
from dglcell.errors import ConfigError, DataError, GraphError
from dglcell.files.atomic import sha256_file
from dglcell.graph.cell import CellConfig
from dglcell.plugins import FORM, find_class


@dataclass
class SourceOptions:
    """A source with options derives its own ``Config`` from this class, which says what `data.source.options` may
    contain.
    """

    def validate(self) -> None:
        """Check values and their combinations."""
        check_values(self, "data.source.options")


class _Own:
    """A class of the user's own, which is made with its options.

    Args:
        config: an instance of the class's ``Config``.

    Attributes:
        Config: what the options may say.
    """

    Config: ClassVar[type[SourceOptions]] = SourceOptions

    def __init__(self, config: Any) -> None:
        self.config = config

    def files(self, raw: str | None) -> list[Path]:
        """Return the files that it reads."""
        return []


class Source(_Own, ABC):
    """A user derives a source of strains from this class, and names it by `data.source.name: MODULE:CLASS`.

    The store of a source is refused once the file of this class, or one of its ``files``, has changed.
    `data.source.options` are its options.
    """

    @abstractmethod
    def load(self, raw: str | None) -> Strains:
        """Read or compute all strains.

        Args:
            raw: folder of raw files, where one is set; see ``dglcell.files.atomic.find_raw``.
        """


@dataclass(frozen=True)
class Work:
    """Say where a simulator works."""

    raw: str | None = None  #: folder of raw files, where one is set; see ``dglcell.files.atomic.find_raw``


class Simulator(_Own, ABC):
    """A user derives from this class a covariate that is computed for strains, named in `data.computed`.

    It is computed once when a store is built, and for new strains when they are predicted. Models and baselines see it
    as they see any covariate.
    """

    @abstractmethod
    def compute(self, strains: Strains, work: Work) -> NDArray[np.float32]:
        """Compute a finite number for each strain, [S], which depends on nothing but the strain and ``config``."""


def shaping(options: Any) -> dict[str, Any]:
    """Return options as plain containers, without those that change no strain."""
    return {name: value for name, value in asdict(options).items() if name != "processes"}


@dataclass
class ComputedConfig:
    """Choose a class of your own that computes a column."""

    kind: str = ""  # `MODULE:CLASS`, derived from `dglcell.Simulator`
    options: dict[str, Any] = field(default_factory=dict)  # options of the class

    def simulator(self, key: str) -> Simulator:
        """Make the simulator of the section ``key``."""
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

"""Add columns that simulators compute to strains: flux balance analysis, and classes of one's own."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dglcell.data.columns import COMPUTED, condition_columns
from dglcell.data.sources.config import FbaConfig
from dglcell.data.sources.source import Simulator, Work
from dglcell.data.strains import Strains
from dglcell.errors import ConfigError, DataError, GraphError
from dglcell.files.atomic import sha256_file, user_cache
from dglcell.graph.config import CellConfig
from dglcell.plugins import FORM, find_class, read_options


@dataclass
class ComputedConfig:
    """Choose a class of your own that computes a column.

    Attributes:
        kind: ``MODULE:CLASS``, derived from ``dglcell.Simulator``.
        options: options of the class.
    """

    kind: str = ""
    options: dict[str, Any] = field(default_factory=dict)

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
        return kind(read_options(kind.Config, self.options, f"{key}.options"))


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
            from dglcell.data.sources.fba_growth import FbaGrowth  # needs the solver

            made[fba.name] = FbaGrowth(settled(fba, cell))
        return cls(made | {name: one.simulator(f"data.computed.{name}") for name, one in own.items()})

    @property
    def shaping(self) -> dict[str, Any]:
        """Return what the columns depend on, as plain containers."""
        return {
            name: {
                "simulator": type(one).__name__,
                **{key: value for key, value in asdict(one.config).items() if key != "processes"},
            }
            for name, one in self.simulators.items()
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
        there = {column.name for column in strains.columns}
        columns = {}
        for name, simulator in self.simulators.items():
            if name in there:
                raise DataError(
                    f"the strains have a column '{name}', so that none of this name can be computed",
                    do="give the computed column another name, e.g. `data.fba.name: fba`",
                )
            columns[name] = np.asarray(simulator.compute(strains, work), dtype=np.float32)
            if columns[name].shape != (len(strains),):
                raise DataError(
                    f"`data.computed.{name}`: the class computes something other than a number for each strain",
                    got=f"shape {columns[name].shape}",
                    expected=f"({len(strains)},)",
                )
        files = {path.name: sha256_file(path) for path in self.files(work.raw)}
        before = strains.provenance
        provenance = replace(
            before, files={**before.files, **files}, parameters={**before.parameters, COMPUTED: self.shaping}
        )
        return strains.with_(columns={**strains.columns, **condition_columns(columns)}, provenance=provenance)


def settled(fba: FbaConfig, cell: CellConfig) -> FbaConfig:
    """Return the configuration with the model and the media of the cell where it names none.

    Raises:
        ConfigError: neither names a model.
    """
    model = fba.model or cell.model
    if model is None:
        raise ConfigError(
            "`data.fba` needs a metabolic model",
            got="`data.fba.model: null` and `cell.model: null`",
            do="name one, e.g. `data.fba.model: iJO1366`",
        )
    return replace(fba, model=model, media=cell.media if fba.media is None else fba.media)


def cache_folder(data: str | Path) -> Path:
    """Return the folder for what simulators compute: inside that of stores, or the user's where there is none."""
    return Path(data) / "computed" if Path(data).is_dir() else user_cache("computed")

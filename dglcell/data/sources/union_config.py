"""Configuration of unions of sources."""

from __future__ import annotations

from dataclasses import dataclass, field

from dglcell.data.sources.csv_config import CsvConfig
from dglcell.data.sources.laboratory import check_choices
from dglcell.data.sources.laboratory_config import LaboratoryConfig
from dglcell.data.sources.replicates_config import ConflictConfig
from dglcell.data.sources.screens import LABORATORIES
from dglcell.errors import ConfigError

UNION_POLICIES = ("mean", "first", "refuse")
CSV = "csv"


@dataclass
class PartConfig:
    """One source of a union.

    Attributes:
        name: ``csv``, or the name of a laboratory screen.
        csv: options of a table of one's own, without ``replicates`` and ``conflicts``, which the union has.
        laboratory: options of a laboratory screen, likewise.
    """

    name: str = ""
    csv: CsvConfig = field(default_factory=CsvConfig)
    laboratory: LaboratoryConfig = field(default_factory=LaboratoryConfig)

    def validate(self, where: str) -> None:
        """Check the options of the source.

        Args:
            where: this section is, for the message.

        Raises:
            ConfigError: the source is unknown, or an option is wrong or belongs to the union.
        """
        if self.name == CSV:
            self.csv.validate(f"{where}.csv")
        elif self.name in LABORATORIES:
            check_choices(self.name, self.laboratory, f"{where}.laboratory")
        else:
            raise ConfigError(
                f"`{where}.name` is no source that can be part of a union",
                got=f"'{self.name}'",
                expected="one of " + ", ".join((CSV, *LABORATORIES)),
            )
        section, options = ("csv", self.csv) if self.name == CSV else ("laboratory", self.laboratory)
        default = LaboratoryConfig()
        for key in ("replicates", "conflicts"):
            if getattr(options, key) != getattr(default, key):
                raise ConfigError(
                    f"`{where}.{section}.{key}` is set, but the rows of all parts are merged together",
                    do=f"set `data.source.union.{key}` instead",
                )


@dataclass
class UnionConfig:
    """Strains of several sources together, genes matched by systematic name.

    Attributes:
        parts: the sources, in order.
        replicates: strains that several rows or parts measure: ``mean`` over all their rows, ``first`` takes the rows
            of the first part that has the strain, ``refuse`` has every strain in one row only.
        conflicts: rows of the same genes that contradict each other, within and between parts.
    """

    parts: list[PartConfig] = field(default_factory=list)
    replicates: str = "mean"
    conflicts: ConflictConfig = field(default_factory=ConflictConfig)

    def validate(self) -> None:
        """Check the parts, each as if it were alone.

        Raises:
            ConfigError: there are fewer than two parts, or an option of one is wrong.
        """
        key = "data.source.union"
        if len(self.parts) < 2:
            raise ConfigError(
                f"`{key}.parts` names too few sources",
                got=len(self.parts),
                expected="2 or more, e.g. [{name: kuzmin2018}, {name: kuzmin2020}]",
            )
        if self.replicates not in UNION_POLICIES:
            raise ConfigError(
                f"`{key}.replicates` has an unknown value", got=self.replicates, expected=" or ".join(UNION_POLICIES)
            )
        self.conflicts.validate(f"{key}.conflicts")
        for number, part in enumerate(self.parts):
            part.validate(f"{key}.parts[{number}]")

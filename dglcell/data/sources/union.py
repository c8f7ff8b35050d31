"""Join the rows of several sources into the strains of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from dglcell.checks import check_values
from dglcell.data.columns import P_VALUE, Provenance
from dglcell.data.sources.config import CsvConfig, LaboratoryConfig, Replicates
from dglcell.data.sources.csv_table import measure_csv
from dglcell.data.sources.laboratory import LABORATORIES, check_choices, measure_laboratory
from dglcell.data.sources.replicates import counted, joined, keep, merge_replicates, strain_numbers
from dglcell.data.strains import Strains
from dglcell.errors import ConfigError, DataError, listing

CSV = "csv"


@dataclass
class PartConfig:
    """Configure one source of a union."""

    name: str = ""  # `csv`, or the name of a laboratory screen
    #: options of your own table; ``replicates`` is a key of the union instead
    csv: CsvConfig = field(default_factory=CsvConfig)
    #: options of a laboratory screen, with the same exception
    laboratory: LaboratoryConfig = field(default_factory=LaboratoryConfig)
    #: phenotype of the source → its name in the union. Parts with the same name measure one phenotype; a part with
    #: another name gets its own output in the model.
    phenotypes: dict[str, str] = field(default_factory=dict)

    def validate(self, where: str) -> None:
        """Check the options of the source.

        Raises:
            ConfigError: in the section ``where`` the source is unknown, or an option is wrong or belongs to the union.
        """
        if self.name == CSV:
            self.csv.validate(f"{where}.csv")
        elif self.name in LABORATORIES:
            check_choices(self.name, self.laboratory, f"{where}.laboratory")
        else:
            what, expected = f"`{where}.name` is no source that can be part of a union", ", ".join((CSV, *LABORATORIES))
            raise ConfigError(what, got=f"'{self.name}'", expected=f"one of {expected}")
        section, options = ("csv", self.csv) if self.name == CSV else ("laboratory", self.laboratory)
        if options.replicates != LaboratoryConfig().replicates:
            what = f"`{where}.{section}.replicates` is set, but the rows of all parts are merged together"
            raise ConfigError(what, do="set `data.source.union.replicates` instead")


@dataclass
class UnionConfig:
    """Configure a union: strains of several sources together, with genes matched by systematic name."""

    parts: list[PartConfig] = field(default_factory=list)  # the sources, in order
    replicates: Replicates = "mean"  #: strains that several rows or parts measure: ``mean`` over all, or ``refuse``

    def validate(self) -> None:
        """Check the parts, each as if it were alone.

        Raises:
            ConfigError: there are fewer than two parts, or an option of one is wrong.
        """
        key = "data.source.union"
        check_values(self, key)
        if len(self.parts) < 2:
            expected = "2 or more, e.g. [{name: kuzmin2018}, {name: kuzmin2020}]"
            raise ConfigError(f"`{key}.parts` names too few sources", got=len(self.parts), expected=expected)
        for number, part in enumerate(self.parts):
            part.validate(f"{key}.parts[{number}]")


def load_union(config: UnionConfig, raw: str | None = None) -> Strains:
    """Read several sources as one.

    A row that another part lists with the same genes and the same numbers, p-value included, is one measurement and
    counts once. What else several parts say of a strain is treated like replicates.

    Args:
        config: the parts, and what happens to strains that several have.
        raw: folder of raw files.

    Raises:
        ConfigError: a key is wrong.
        DataError: a file is missing or unusable, or strains are to be refused.
    """
    parts = [_renamed(measure(part.name, part.csv, part.laboratory, raw), part.phenotypes) for part in config.parts]
    rows = joined(parts).with_(provenance=_provenance(config, parts))
    part_of = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    keys = strain_numbers(rows)
    first_part = part_of[np.unique(keys, return_index=True)[1]]  # rows are in the order of their parts
    shared = np.bincount(keys[part_of != first_part[keys]], minlength=len(first_part)) > 0
    copies = _listed_before(rows, keys, part_of, shared)
    rows = counted(rows, strains_in_several_parts=int(shared.sum()))
    return merge_replicates(keep(rows, ~copies, rows_identical_in_another_part=int(copies.sum())), config.replicates)


def measure(name: str, csv: CsvConfig, laboratory: LaboratoryConfig, raw: str | None) -> Strains:
    """Read the rows of a table of one's own, or of the laboratory screen of this name."""
    return measure_csv(csv, raw) if name == CSV else measure_laboratory(name, laboratory, raw)


def _renamed(rows: Strains, names: Mapping[str, str]) -> Strains:
    """Give the rows the phenotypes' names in the union."""
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


def _provenance(config: UnionConfig, parts: Sequence[Strains]) -> Provenance:
    """Say where all parts come from; counts of a part bear its number, from 1, and name."""
    sources = [part.provenance for part in parts]
    counts = {
        f"part_{number}_{source.source}_{what}": count
        for number, source in enumerate(sources, start=1)
        for what, count in source.counts.items()
    }
    return Provenance(
        source="union",
        description="Union of " + ", ".join(source.source for source in sources),
        citation="; ".join(dict.fromkeys(source.citation for source in sources if source.citation)),
        licence="; ".join(dict.fromkeys(f"{source.source}: {source.licence or 'yours'}" for source in sources)),
        urls=tuple(dict.fromkeys(url for source in sources for url in source.urls)),
        files={name: sha256 for source in sources for name, sha256 in source.files.items()},
        counts={"rows": sum(map(len, parts)), **counts},
        parameters={
            "parts": [{"name": source.source, **source.parameters} for source in sources],
            "replicates": config.replicates,
        },
    )


def _listed_before(
    rows: Strains, keys: NDArray[np.int64], part_of: NDArray[np.int64], shared: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return which rows an earlier part lists too, [R]."""
    import pandas as pd

    copies = np.zeros(len(rows), dtype=bool)
    if not rows.of_kind(P_VALUE):
        return copies
    candidates = np.flatnonzero(shared[keys])
    frame = pd.DataFrame({i: column[candidates] for i, column in enumerate([keys, *rows.columns.values()])})
    within = frame.assign(part=part_of[candidates]).duplicated()
    copies[candidates] = (frame.duplicated() & ~within).to_numpy()
    return copies

"""Published laboratory screens: from their raw files to strains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np
from numpy.typing import NDArray

from dglcell.data.sources.laboratory_config import ANY, LaboratoryConfig
from dglcell.data.sources.measurements import Measurements
from dglcell.data.sources.raw_tables import RawTable, find_tables
from dglcell.data.sources.replicates import merge_replicates
from dglcell.data.sources.screens import LABORATORIES
from dglcell.data.table import Provenance, StrainTable
from dglcell.errors import ConfigError, DataError
from dglcell.files import find_raw, sha256_file
from dglcell.graph.names import read_gene_list


def load_laboratory(name: str, config: LaboratoryConfig, raw: str | None = None) -> StrainTable:
    """Read a published screen.

    Args:
        name: a key of :data:`LABORATORIES`.
        config: which rows count, and how they become strains.
        raw: folder that holds ``interactions/``.

    Raises:
        ConfigError: a choice is unknown, or means nothing for this screen.
        DataError: a file is missing, is not the published one, or has no such rows.
        GraphError: the list of genes or the alias table is unusable.
        MissingDependencyError: a package that reads the file is not installed.
    """
    return merge_replicates(measure_laboratory(name, config, raw), config.conflicts, config.replicates)


def measure_laboratory(name: str, config: LaboratoryConfig, raw: str | None = None) -> Measurements:
    """Read the rows of a published screen; arguments and errors of ``load_laboratory``."""
    check_choices(name, config)
    screen = LABORATORIES[name]
    found = find_tables(chosen_tables(name, config.tables), raw)
    provenance = Provenance(
        source=name,
        description=screen.description,
        citation=screen.citation,
        licence=screen.licence,
        urls=screen.origin,
        files={table.path.name: table.sha256 for table in found},
        parameters={**asdict(config), "raw_files": {table.path.name: table.trust for table in found}},
    )
    rows = screen.reader.read(found, config, provenance, raw)
    if config.p_below is not None:
        rows = _below(rows, config.p_below)
    if config.genes is not None:
        rows = _of_genes(rows, config.genes, config.genes_required, raw)
    if not len(rows):
        raise DataError(
            f"'{name}': no row is left",
            got=", ".join(f"{what.replace('_', ' ')} {count:,}" for what, count in rows.provenance.counts.items()),
            do="loosen `data.source.laboratory`",
        )
    return rows


def check_choices(name: str, config: LaboratoryConfig, key: str = "data.source.laboratory") -> None:
    """Check the choices against the screen they are for.

    Raises:
        ConfigError: a choice is unknown, or means nothing for this screen.
    """
    config.validate(key)
    config.check_applies(name, LABORATORIES[name].reader.options, key)
    chosen_tables(name, config.tables, key)


def chosen_tables(name: str, chosen: Sequence[str], key: str = "data.source.laboratory") -> list[RawTable]:
    """Tables of a screen by name; all where none is named.

    Raises:
        ConfigError: the screen has no such table.
    """
    tables = LABORATORIES[name].tables
    unknown = [table for table in chosen if table not in tables]
    if unknown:
        raise ConfigError(
            f"`{key}.tables`: '{name}' has no such table", got=", ".join(unknown), expected="among " + ", ".join(tables)
        )
    return [table for label, table in tables.items() if label in (chosen or tables)]


def _below(rows: Measurements, p: float) -> Measurements:
    """Rows with a p-value below ``p``."""
    if not rows.p_values:
        raise ConfigError(
            "`data.source.laboratory.p_below` does not apply",
            got=f"'{rows.provenance.source}', which has no p-values",
            do="remove the key",
        )
    significant: NDArray[np.bool_] = np.any([values < p for values in rows.p_values.values()], axis=0)
    return rows.keep(significant, rows_not_significant=int((~significant).sum()))


def _of_genes(rows: Measurements, genes: str, required: str, raw: str | None) -> Measurements:
    """Rows of which all or any genes are listed."""
    path = find_raw(genes, raw)
    listed = read_gene_list(path)
    known = np.array([name in listed for name in rows.genotypes.names] + [required != ANY])
    # The last entry answers for places that hold no gene.
    inside = known[rows.genotypes.genes]
    chosen: NDArray[np.bool_] = np.any(inside, axis=1) if required == ANY else np.all(inside, axis=1)
    provenance = replace(rows.provenance, files={**rows.provenance.files, path.name: sha256_file(path)})
    return replace(rows, provenance=provenance).keep(chosen, rows_of_genes_not_listed=int((~chosen).sum()))

"""Hold what a user asks `dglcell init` for, find the cell graph, and download the files that it needs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dglcell.config.experiment import Config
from dglcell.config.published import fetch_all, format_offer, named, needs
from dglcell.config.read import PACKAGED, load_config
from dglcell.errors import ConfigError, DataError, GraphError, count, did_you_mean, listing
from dglcell.files.atomic import raw_folder
from dglcell.graph.catalogue import GENE_SETS, MODELS, add_names, names_of_genes
from dglcell.graph.cell import build_cell
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.metabolism import Metabolism, derived_edges
from dglcell.graph.model_files import FORMATS, SHIPPED, named_aliases
from dglcell.graph.vocabulary import AliasTable
from dglcell.published.file import PublishedFile

log = logging.getLogger("dglcell")

DERIVED = ["shares_complex", "isoenzyme", "metabolic_neighbour"]

CELLS = {"yeast": "yeast", "ecoli-core": "textbook", "ecoli": "iJO1366"}
"""`--cell` takes these names beside those of models and paths: name → cell graph or model."""

EXPECTED = (
    f"{', '.join(CELLS)}, a metabolic model ({', '.join([*MODELS, *SHIPPED])}), or its file ({', '.join(FORMATS)})"
)


@dataclass(frozen=True)
class Wanted:
    """Hold the options of `dglcell init`, by their names."""

    file: Path  #: to be written
    table: Path | None = None  #: of strains; None for a screen
    screen: str | None = None  #: a source that `dglcell data list` names; None for a table
    cell: str = "yeast"  #: a metabolic model, or a key of `CELLS`
    split: str = "random"
    model: str | None = None  #: a key of `BASES`; chosen where None
    genes: Sequence[str] = ()  #: columns of the table; found by their names where empty
    phenotypes: Sequence[str] = ()  #: columns; all other columns of numbers where empty
    activities: Sequence[str] | None = None  #: columns in the order of ``genes``; found by their names where None
    covariates: Sequence[str] | None = None  #: columns; found by their names where None
    aliases: str | None = None  #: other names of genes; found where None
    na_values: Sequence[str] = ()  #: cells that mean "not measured", beside empty ones, NA, N/A and NaN
    keep_blank: bool = False  #: rows with a blank gene are strains with fewer deletions, however few they are
    average: bool = False  #: rows of the same strain are averaged, however much their values differ
    ignore: Sequence[str] = ()  #: names that stand for no deletion; ``*`` stands for any text in them
    write_clean: Path | None = None  #: where a copy without faults is written, which is then read in place of the table
    raw: str | None = None  #: folder of raw files, as for `raw_folder`
    confirm: Callable[[str], bool] | None = None  #: asks whether files are downloaded; None where nobody is there
    command: str = "dglcell init …"  #: which messages tell the user to repeat


def cell_keys(name: str) -> dict[str, Any]:
    """Return the keys of an experiment's file that give its cell graph."""
    meant = CELLS.get(name, name)
    packaged = [path.stem for path in (PACKAGED / "cells").glob("*.yaml")]
    if meant in packaged:
        return {"extends": ["base.yaml", f"cells/{meant}.yaml"]}
    if meant not in {*SHIPPED, *MODELS} and "/" not in meant and not Path(meant).suffix:
        close = did_you_mean(name, [*CELLS, *SHIPPED, *MODELS, *packaged])
        raise ConfigError(f"no cell graph is called '{name}'", expected=EXPECTED, do=close)
    return {"extends": ["base.yaml"], "cell": {"model": meant, "derived": DERIVED}}


def _download(missing: Sequence[PublishedFile], why: str, wanted: Wanted) -> None:
    """Download files if the user agrees."""
    offer, folder = format_offer(missing), raw_folder(wanted.raw)
    if wanted.confirm is None or not wanted.confirm(f"{why}: {offer}, into {folder}. Download? [Y/n] "):
        expected = f"them in '{folder}', or in the folder of `--raw`"
        do = f"`{wanted.command} --fetch` downloads them and goes on"
        raise ConfigError(why, got=offer, expected=expected, do=do)
    for text in fetch_all(missing, folder):
        log.info("%s", text)


def find_cell(wanted: Wanted) -> CellGraph:
    """Build the cell graph; files that it and a screen need are downloaded, if the user agrees.

    Files that only have names of genes are not downloaded here, but by `with_catalogue`.
    """
    keys, config = cell_keys(wanted.cell), Config()
    if "cell" in keys:
        config.cell.model, config.cell.derived = keys["cell"]["model"], DERIVED
    else:
        config = load_config(PACKAGED / keys["extends"][-1])
    config.paths.raw = wanted.raw or config.paths.raw
    config.data.source.name = wanted.screen or "csv"
    missing = [file for file in needs(config) if file.downloads and not file.is_here(raw_folder(wanted.raw))]
    only_names = {source.file.path for source in GENE_SETS.values() if source.names}
    if any(file.path not in only_names for file in missing):
        _download(missing, f"`{wanted.screen or wanted.cell}` needs files that are not here", wanted)
    try:
        if "cell" in keys:
            metabolism = Metabolism.read(str(config.cell.model), config.paths.raw)
            config.cell.derived = [one for one in DERIVED if derived_edges(one, metabolism).size]
            if empty := [one for one in DERIVED if one not in config.cell.derived]:
                said = "the model has no pairs of genes for these relations, which are left out: %s"
                log.warning(said, listing(empty))
        return build_cell(config.cell, config.paths.raw)
    except (DataError, GraphError) as error:
        if Path(wanted.cell).suffix and not Path(wanted.cell).exists():
            what = f"the file of the metabolic model '{wanted.cell}' is not there"
            raise ConfigError(what, expected=EXPECTED) from error
        raise


# Other names of genes.


def _names_not_here(cell: CellGraph, wanted: Wanted) -> tuple[str, PublishedFile] | None:
    """Return the gene set of the catalogue that names genes like these, and its file; None where it is here."""
    listed = names_of_genes(cell.genes)
    files = [] if listed is None else named(GENE_SETS[listed].file.path)
    return next(((str(listed), file) for file in files if not file.is_here(raw_folder(wanted.raw))), None)


def names_to_fetch(cell: CellGraph, wanted: Wanted) -> list[str]:
    """Return advice on how to download the catalogue's names, where they are not here and nobody was asked."""
    lacking = _names_not_here(cell, wanted)
    if lacking is None or wanted.confirm is not None:
        return []
    return [f"`{wanted.command} --fetch` downloads other names of genes ({format_offer([lacking[1]])})"]


def with_catalogue(cell: CellGraph, unknown: Sequence[str], wanted: Wanted) -> tuple[CellGraph, AliasTable]:
    """Return the cell graph with the names of the catalogue, which are downloaded if the user agrees, and these names.

    Genes that the catalogue knows and the cell graph lacks are no mistakes.
    """
    lacking, listed = _names_not_here(cell, wanted), names_of_genes(cell.genes)
    if lacking is not None and wanted.confirm is not None:
        with suppress(ConfigError):
            why = f"{count(len(unknown), 'name')} ({listing(unknown, 3)}) may be known to `{lacking[0]}`"
            _download([lacking[1]], why, wanted)
        cell = cell.with_genes(add_names(cell.genes, [cell.genes.others], wanted.raw)[0])
    with suppress(DataError):
        return cell, named_aliases(listed, wanted.raw)[0]
    return cell, AliasTable()


def choose_aliases(other: dict[str, str], wanted: Wanted) -> str | None:
    """Choose the gene set of the catalogue, or the metabolic model, with most of the names that are not systematic."""
    best, most = None, 0
    for name in filter(None, (names_of_genes(other.values()), cell_keys(wanted.cell).get("cell", {}).get("model"))):
        with suppress(DataError, GraphError):
            table = named_aliases(name, wanted.raw)[0]
            found, _ = table.resolve(list(other), table.targets, spelled=True)
            known = sum(gene == meant for gene, meant in zip(found, other.values(), strict=True))
            best, most = (name, known) if known > most else (best, most)
    return best

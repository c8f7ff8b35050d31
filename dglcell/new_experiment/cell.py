"""Find the cell graph of a user's first experiment, and download the files that it needs."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dglcell.config.published import fetch_all, format_offer, needs
from dglcell.config.read import PACKAGED, load_config
from dglcell.errors import ConfigError, DataError, GraphError, did_you_mean, listing
from dglcell.files.atomic import raw_folder
from dglcell.graph.catalogue import GENE_SETS, MODELS
from dglcell.graph.cell import build_cell
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.derived import has_edges
from dglcell.graph.metabolism import Metabolism
from dglcell.graph.model_files import FORMATS, SHIPPED
from dglcell.published.file import PublishedFile

log = logging.getLogger("dglcell")

DERIVED = ["shares_complex", "isoenzyme", "metabolic_neighbour"]

CELLS = {
    "yeast": ("yeast", "S. cerevisiae: gene networks and yeast-GEM 9.0.2; files are downloaded"),
    "ecoli-core": ("textbook", "E. coli: core metabolism, 137 genes"),
    "ecoli": ("iJO1366", "E. coli: whole metabolism, 1,366 genes"),
}
"""`--cell` takes these names beside those of models and paths: name → cell graph or model, and its description."""


def describe_cells() -> list[str]:
    """Return a line for each thing that `--cell` takes."""
    lines = {name: about for name, (_, about) in CELLS.items()}
    lines |= {"NAME": "metabolic model: " + ", ".join([*MODELS, *SHIPPED])}
    lines |= {"PATH": f"file of a metabolic model ({', '.join(FORMATS)})"}
    return [f"{name:10}  {about}" for name, about in lines.items()]


def cell_keys(name: str) -> dict[str, Any]:
    """Return the keys of an experiment's file that give its cell graph.

    Raises:
        ConfigError: no cell has this name.
    """
    meant = CELLS[name][0] if name in CELLS else name
    packaged = [path.stem for path in (PACKAGED / "cells").glob("*.yaml")]
    if meant in packaged:
        return {"extends": ["base.yaml", f"cells/{meant}.yaml"]}
    if meant not in {*SHIPPED, *MODELS} and "/" not in meant and not Path(meant).suffix:
        raise ConfigError(
            f"no cell graph is called '{name}'",
            expected="one of\n" + "\n".join(f"            {line}" for line in describe_cells()),
            do=did_you_mean(name, [*CELLS, *SHIPPED, *MODELS, *packaged]),
        )
    return {"extends": ["base.yaml"], "cell": {"model": meant, "derived": DERIVED}}


@dataclass(frozen=True)
class Downloads:
    """These settings say how missing files are downloaded.

    Attributes:
        raw: folder of raw files, as for `raw_folder`.
        confirm: function that asks whether files are downloaded; None where there is nobody to ask.
        command: command that the user gave, which messages tell them to repeat.
    """

    raw: str | None = None
    confirm: Callable[[str], bool] | None = None
    command: str = "dglcell init …"

    @property
    def folder(self) -> Path:
        """Return the folder that files are downloaded to."""
        return raw_folder(self.raw)

    def have(self, missing: Sequence[PublishedFile], why: str) -> None:
        """Download files if the user agrees.

        Raises:
            ConfigError: there is nobody to ask, or the user does not agree.
            DataError: a file cannot be downloaded.
        """
        offer = format_offer(missing)
        if self.confirm is None or not self.confirm(f"{why}: {offer}, into {self.folder}. Download? [Y/n] "):
            raise ConfigError(
                why,
                got=offer,
                expected=f"them in '{self.folder}', or in the folder of `--raw`",
                do=f"`{self.command} --fetch` downloads them and goes on",
            )
        for text in fetch_all(missing, self.folder):
            log.info("%s", text)


def find_cell(name: str, screen: str | None, downloads: Downloads) -> CellGraph:
    """Build the cell graph; files that it and a screen need are downloaded, if the user agrees.

    Files that only have names of genes are not downloaded here, but by `dglcell.new_experiment.table`.

    Args:
        name: name of the cell, as `--cell` takes it.
        screen: a published screen, if strains come from one.
        downloads: how files are downloaded.

    Raises:
        ConfigError: no cell has this name, or files have to be downloaded first.
        DataError: a file cannot be downloaded or is not the right one.
        GraphError: the cell graph cannot be built.
    """
    keys = cell_keys(name) | ({"data": {"source": {"name": screen}}} if screen else {})
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cell.yaml"
        file.write_text(yaml.safe_dump(keys), encoding="utf-8")
        config = load_config(file, [f"paths.raw={downloads.raw}"] if downloads.raw else [])
    missing = [file for file in needs(config) if file.downloads and not file.is_here(downloads.folder)]
    only_names = {source.file.path for source in GENE_SETS.values() if source.names}
    if any(file.path not in only_names for file in missing):
        downloads.have(missing, f"`{screen or name}` needs files that are not here")
    try:
        if "cell" in keys:
            metabolism = Metabolism.read(str(config.cell.model), config.paths.raw)
            config.cell.derived = [one for one in config.cell.derived if has_edges(one, metabolism)]
            if empty := [one for one in DERIVED if one not in config.cell.derived]:
                log.warning(
                    "the model has no pairs of genes for these relations, which are left out: %s", listing(empty)
                )
        return build_cell(config.cell, config.paths.raw)
    except (DataError, GraphError) as error:
        if Path(name).suffix and not Path(name).exists():
            raise ConfigError(
                f"the file of the metabolic model '{name}' is not there",
                expected="a path, or one of\n" + "\n".join(f"            {line}" for line in describe_cells()),
            ) from error
        raise

"""What an experiment reads: sources with publications, licences and hashes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dglcell.config import Config
from dglcell.data.sources.laboratory import LABORATORIES
from dglcell.download import RemoteFile
from dglcell.graph.catalogue import MODELS, NETWORKS
from dglcell.graph.raw_file import RawFile
from site_extension.markdown import code


def source_names(config: Config) -> list[str]:
    """Laboratory screens that the experiment reads."""
    source = config.data.source
    names = [part.name for part in source.union.parts] if source.name == "union" else [source.name]
    return [name for name in dict.fromkeys(names) if name in LABORATORIES]


def data(config: Config) -> str:
    """Sources of strains and of the cell graph, with publications, licences and hashes."""
    items = []
    for name in source_names(config):
        screen = LABORATORIES[name]
        tables = config.data.source.laboratory.tables or list(screen.tables)
        files = [copy for key in tables if key in screen.tables for copy in screen.tables[key].copies]
        items.append(_item(f"Strains {code(name)}", screen.description, screen.citation, screen.licence, files))
    if config.data.source.name == "insilico":
        what = f"computed from the model {code(config.data.source.insilico.model)} by flux balance analysis"
        items.append(_item("Strains", what, "Orth, Thiele & Palsson 2010, Nat Biotechnol 28:245", "", []))
    for name, network in config.cell.networks.items():
        if network.source in NETWORKS:
            entry = NETWORKS[network.source]
            origin = entry.origin
            title = f"Network {code(name)} ({code(network.source)})"
            items.append(_item(title, origin.description, origin.citation, origin.licence, [entry.file]))
    if config.cell.model in MODELS:
        entry = MODELS[config.cell.model]
        origin = entry.origin
        title = f"Metabolic model {code(config.cell.model)}"
        items.append(_item(title, origin.description, origin.citation, origin.licence, [entry.file]))
    elif config.cell.model:
        items.append(f"- **Metabolic model {code(config.cell.model)}**")
    note = "A run checks every raw file against its hash, where one is published, and records it.\n"
    return "\n".join(items) + "\n\n" + note


def _item(title: str, what: str, citation: str, licence: str, files: Sequence[RemoteFile | RawFile]) -> str:
    hashes = [f"{code(Path(file.name).name)} sha256 {code(file.sha256)}" for file in files if file.sha256]
    about = [what.rstrip("."), citation, f"Licence: {licence}" if licence else "", *hashes]
    return f"- **{title}**: " + ". ".join(part for part in about if part) + "."

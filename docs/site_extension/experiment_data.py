"""What an experiment reads: sources with publications, licences and hashes."""

from __future__ import annotations

from collections.abc import Sequence

from dglcell.config.experiment import Config
from dglcell.config.published import needs
from dglcell.data.sources.laboratory import LABORATORIES
from dglcell.graph.catalogue import GENE_SETS, MODELS, NETWORKS
from dglcell.published.file import PublishedFile, download_size
from site_extension.markdown import code, table

FETCH = (
    "The first command downloads these files into the raw folder (`DGLCELL_RAW`, or `~/.cache/dglcell/raw`) "
    "and checks them. If a table has to be converted, the conversion takes less than a minute. The "
    "licences are [below](#data).\n"
)
PART = (
    "**The results on this site are of a part of what these commands download.** They were computed from {part}: "
    "{rows:,} rows, sha256 {sha256}. This part cannot be downloaded. The commands give the whole table, {whole} "
    "({about}), and runs on it have other numbers.\n"
)


def source_names(config: Config) -> list[str]:
    """Laboratory screens that the experiment reads."""
    names = [part.name for part in config.data.source.parts]
    return [name for name in dict.fromkeys(names) if name in LABORATORIES]


def downloads(config: Config) -> str:
    """What the command that fetches downloads, and where it goes; nothing where all is computed."""
    wanted = needs(config)
    if not wanted:
        return ""
    rows = []
    for file in wanted:
        size = download_size(file.downloads)
        hosts = dict.fromkeys("/".join(download.urls[0].split("/")[2:5]) for download in file.downloads)
        known = f"{size / 1e6:,.1f} MB" if size else "not stated" if hosts else "none"
        rows.append((code(file.path), known, ", ".join(map(code, hosts)) or "**is put there by hand**"))
    return f"{FETCH}\n{table(('file in the raw folder', 'download', 'from'), rows, 'lrl')}\n" + "".join(
        _part(name) for name in source_names(config)
    )


def _part(name: str) -> str:
    """Where committed results are of a part of what is downloaded."""
    return "".join(
        PART.format(
            rows=table.rows,
            part=code(table.file.part.name),
            sha256=code(table.file.part.sha256 or ""),
            whole=code(table.file.name),
            about=table.file.description,
        )
        for table in LABORATORIES[name].tables.values()
        if table.file.part
    )


def data(config: Config) -> str:
    """Sources of strains and of the cell graph, with publications, licences and hashes."""
    items = []
    for name in source_names(config):
        screen = LABORATORIES[name]
        files = [file for table in screen.files for file in (table.part, table, *table.copies) if file is not None]
        first = screen.files[0]
        items.append(_item(f"Strains {code(name)}", screen.description, first.citation, first.licence, files))
    if config.data.source.name == "insilico":
        what = f"computed from the model {code(config.data.source.insilico.model)} by flux balance analysis"
        items.append(_item("Strains", what, "Orth, Thiele & Palsson 2010, Nat Biotechnol 28:245", "", []))
    for name, network in config.cell.networks.items():
        if network.source in NETWORKS:
            items.append(_of_file(f"Network {code(name)} ({code(network.source)})", NETWORKS[network.source].file))
    for name in dict.fromkeys([config.cell.genes, config.cell.aliases]):
        if name in GENE_SETS:
            items.append(_of_file(f"Genes {code(name)}", GENE_SETS[name].file))
    if config.cell.model in MODELS:
        items.append(_of_file(f"Metabolic model {code(config.cell.model)}", MODELS[config.cell.model]))
    elif config.cell.model:
        items.append(f"- **Metabolic model {code(config.cell.model)}**")
    note = "A run checks every raw file against its published hash, if there is one, and records the hash.\n"
    return "\n".join(items) + "\n\n" + note


def _of_file(title: str, file: PublishedFile) -> str:
    return _item(title, file.description, file.citation, file.licence, [file])


def _item(title: str, what: str, citation: str, licence: str, files: Sequence[PublishedFile]) -> str:
    hashes = [f"{code(file.name)} sha256 {code(file.sha256)}" for file in files if file.sha256]
    hashes += [
        f"{code(file.name)}, unpacked, sha256 {code(file.content)}"
        for file in files
        if file.content and not file.sha256
    ]
    about = [what.rstrip("."), citation, f"Licence: {licence}" if licence else "", *hashes]
    return f"- **{title}**: " + ". ".join(part for part in about if part) + "."

"""A page for every experiment: from its file, and from the results that are committed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dglcell.cluster.job import render
from dglcell.config import Config
from dglcell.config_io import load_config, read_yaml, to_yaml
from dglcell.data.sources.screens import LABORATORIES
from dglcell.data.split_config import KINDS
from dglcell.download import RemoteFile
from dglcell.graph.catalogue import MODELS, NETWORKS
from dglcell.graph.raw_file import RawFile
from site_extension.markdown import block, code, folded, table
from site_extension.results import committed, expected, readme_rows, stated_table

NOT_MEASURED = "**Not measured yet:** no results of this experiment are committed; what follows says how to get them."
MEASURED = "**Measured** with {seeds}; the expected table is below."
IN_PART = (
    "**Measured in part:** the README states test correlations of seeds {seeds}; no full results of this experiment "
    "are committed."
)

INDEX = """\
# Reproduce an experiment

One page per experiment file in `conf/`, made from that file and from committed results. A page without measured
results says so in its first line. All commands are given from the root of a clone.

{listing}

```{{toctree}}
:hidden:

{names}
```
"""


def pages(root: Path) -> dict[str, str]:
    """All pages, and the list of them."""
    files = experiment_files(root)
    made, rows = {}, []
    for file in files:
        name = slug(root, file)
        config = load_config(file)
        found = committed(root, config)
        made[f"experiments/{name}.md"] = page(root, file, config, found)
        seeds = ", ".join(map(str, found or readme_rows(root, file))) or "-"
        rows.append(
            (f"[`{file.relative_to(root)}`]({name}.md)", config.experiment.description, config.split.kind, seeds)
        )
    listing = table(("file", "what", "split", "measured seeds"), rows)
    index = INDEX.format(listing=listing, names="\n".join(slug(root, file) for file in files))
    return {**made, "experiments/index.md": index}


def experiment_files(root: Path) -> list[Path]:
    """YAML files that name a source of strains, themselves or by what they extend; parts of others are left out."""
    folder = root / "conf"
    return [
        path
        for path in sorted(folder.rglob("*.yaml"))
        if path.parent.name != "cells" and path.name != "base.yaml" and "experiment" in read_yaml(path)
    ]


def slug(root: Path, file: Path) -> str:
    """Name of the page."""
    return "-".join(file.relative_to(root / "conf").with_suffix("").parts)


def page(root: Path, file: Path, config: Config, found: dict[int, dict[str, Any]]) -> str:
    """The whole page."""
    relative = file.relative_to(root)
    stated = {} if found else readme_rows(root, file)
    parts = [
        f"# {relative.with_suffix('').relative_to('conf')}",
        first_line(list(found), list(stated)),
        purpose(file),
        "## The file\n",
        block("yaml", file.read_text()),
        "## Run it\n",
        block("sh", commands(config, relative)),
        folded("As a job of SLURM", block("bash", render(config, relative))),
        "## Expected\n",
        expected(found) if found else stated_table(root, list(stated.values())),
        "## Data\n",
        data(config),
        "## Split\n",
        f"`split.kind: {config.split.kind}`, `split.seed: {config.split.seed}`: {KINDS[config.split.kind]}.\n",
        "## Parameters\n",
        parameters(found),
        "## Everything filled in\n",
        folded("Resolved configuration", block("yaml", to_yaml(config))),
    ]
    return "\n".join(part if part.endswith("\n") else f"{part}\n" for part in parts)


def first_line(measured: Sequence[int], stated: Sequence[str]) -> str:
    """Whether there is anything to compare with."""
    if measured:
        return MEASURED.format(seeds=f"seed{'s' if len(measured) > 1 else ''} {', '.join(map(str, measured))}")
    return IN_PART.format(seeds=", ".join(stated)) if stated else NOT_MEASURED


def purpose(file: Path) -> str:
    """The comment at the top of the file."""
    lines = []
    for line in file.read_text().splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    return " ".join(lines)


def commands(config: Config, file: Path) -> str:
    """What to type."""
    lines = []
    if config.cell.networks or (config.cell.model or "").startswith("yeast-GEM"):
        lines.append(f"dglcell graph fetch {file} --raw raw")
    names = [name for name in source_names(config) if LABORATORIES[name].download is not None]
    if names:
        lines.append(f"dglcell data fetch {' '.join(names)} --raw raw")
    raw = " --raw raw" if lines or source_names(config) else ""
    return "\n".join([*lines, f"dglcell train {file}{raw}", f"dglcell evaluate {config.run_directory}"])


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


def parameters(found: dict[int, dict[str, Any]]) -> str:
    """How large the model is."""
    counts = {record["environment"].get("parameters") for record in found.values()} - {None}
    if counts:
        return f"{', '.join(f'{count:,}' for count in sorted(counts))} trainable parameters.\n"
    return (
        "Every node has an embedding of its own, so that the number of trainable parameters depends on the cell graph; "
        "a run writes it into `environment.json`.\n"
    )

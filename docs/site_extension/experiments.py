"""A page for every experiment: from its file, and from the results that are committed."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

from dglcell.cluster.job import render
from dglcell.config import Config
from dglcell.config_io import load_config, read_yaml, to_yaml
from dglcell.data.sources.screens import LABORATORIES
from dglcell.data.split_config import KINDS
from dglcell.graph.catalogue import NETWORKS
from dglcell.training.results_table import COLUMNS
from site_extension.markdown import block, code, folded, table

NOT_MEASURED = "**Not measured yet:** no results of this experiment are committed; what follows says how to get them."
MEASURED = "**Measured** with {seeds}; the expected table is below."
RESULTS = "docs/results"
TITLES = {metric: title for columns in COLUMNS.values() for metric, title in columns.items() if metric != "n"}

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
        found = results(root, config)
        made[f"experiments/{name}.md"] = page(root, file, config, found)
        seeds = ", ".join(str(seed) for seed in found) or "–"
        rows.append((f"[`{file.relative_to(root)}`]({name}.md)", config.experiment.description, config.split.kind, seeds))
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


def results(root: Path, config: Config) -> dict[int, dict[str, Any]]:
    """Seed → ``results.json`` of a run, as far as they are committed."""
    found = {}
    for path in sorted((root / RESULTS / config.experiment.name).glob("seed-*/results.json")):
        about = path.with_name("environment.json")
        record = json.loads(path.read_text())
        record["environment"] = json.loads(about.read_text()) if about.is_file() else {}
        found[int(path.parent.name.removeprefix("seed-"))] = record
    return dict(sorted(found.items()))


def page(root: Path, file: Path, config: Config, found: dict[int, dict[str, Any]]) -> str:
    """The whole page."""
    relative = file.relative_to(root)
    seeds = f"seed{'s' if len(found) > 1 else ''} {', '.join(map(str, found))}"
    parts = [
        f"# {relative.with_suffix('').relative_to('conf')}",
        MEASURED.format(seeds=seeds) if found else NOT_MEASURED,
        purpose(file),
        "## The file\n",
        block("yaml", file.read_text()),
        "## Run it\n",
        block("sh", commands(config, relative)),
        folded("As a job of SLURM", block("bash", render(config, relative))),
        "## Expected\n",
        expected(found) if found else "Nothing to compare with yet. A run ends with its own table and null models.\n",
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
    rows: list[tuple[object, ...]] = []
    for name in source_names(config):
        screen = LABORATORIES[name]
        tables = config.data.source.laboratory.tables or list(screen.tables)
        hashes = [copy for key in tables if key in screen.tables for copy in screen.tables[key].copies if copy.sha256]
        rows.append(
            (f"strains: {code(name)}", screen.description, screen.citation, screen.licence, _hashes(hashes))
        )
    if config.data.source.name == "insilico":
        screen_of = f"computed from the model {code(config.data.source.insilico.model)} by flux balance analysis"
        rows.append(("strains: `insilico`", screen_of, "Orth, Thiele & Palsson 2010, Nat Biotechnol 28:245", "", ""))
    for name, network in config.cell.networks.items():
        entry = NETWORKS.get(network.source)
        if entry:
            origin = entry.origin
            hashes = [entry.file] if entry.file.sha256 else []
            rows.append((f"network: {code(name)}", origin.description, origin.citation, origin.licence, _hashes(hashes)))
    if config.cell.model:
        rows.append(("metabolic model", code(config.cell.model), "", "", ""))
    note = "A run checks every raw file against its hash, where one is published, and records it.\n"
    return table(("part", "what it holds", "publication", "licence", "sha256"), rows) + "\n" + note


def _hashes(files: list[Any]) -> str:
    return "; ".join(f"{code(Path(getattr(f, 'name', '')).name)} {code(f.sha256[:16])}…" for f in files)


def parameters(found: dict[int, dict[str, Any]]) -> str:
    """How large the model is."""
    counts = {record["environment"].get("parameters") for record in found.values()} - {None}
    if counts:
        return f"{', '.join(f'{count:,}' for count in sorted(counts))} trainable parameters.\n"
    return (
        "Every node has an embedding of its own, so that the number of trainable parameters depends on the cell graph; "
        "a run writes it into `environment.json`.\n"
    )


def expected(found: dict[int, dict[str, Any]]) -> str:
    """Mean over seeds, with the spread where there are several; the conditions of the first."""
    rows: dict[tuple[str, str, str], list[dict[str, float]]] = {}
    for record in found.values():
        for row in record["rows"]:
            rows.setdefault((row["phenotype"], row["part"], row["model"]), []).append(row["metrics"])
    metrics = [m for m in TITLES if any(m in one for many in rows.values() for one in many)]
    body = [(*key, *(_spread([one.get(metric) for one in many]) for metric in metrics)) for key, many in rows.items()]
    text = table(("phenotype", "part", "model", *(TITLES[m] for m in metrics)), body, "lll" + "r" * len(metrics))
    about = next(iter(found.values()))["environment"]
    if about:
        packages = about["packages"]
        text += (
            f"\nPython {about['python']}, torch {packages['torch']}, DGL {packages['dgl']}, {about['devices'][0]}, "
            f"{about['threads']} thread{'s' if about['threads'] > 1 else ''}, commit {code(about['git']['commit'][:12])}"
            f"; strains: {', '.join(f'{n:,} {part}' for part, n in about['strains'].items())}; hashes: "
            f"{', '.join(f'{what} {code(digest[:12])}…' for what, digest in about['hashes'].items())}.\n"
        )
    return text


def _spread(values: list[Any]) -> str:
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return "–"
    mean = f"{statistics.fmean(known):.3g}" if abs(known[0]) < 1e-3 else f"{statistics.fmean(known):.3f}"
    return mean if len(known) < 2 else f"{mean} ± {statistics.stdev(known):.3f}"

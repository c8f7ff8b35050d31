"""A page for every experiment: from its file, and from the results that are committed."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dglcell.cluster.scripts import Sweep, render
from dglcell.config.experiment import Config
from dglcell.config.published import cell_files, needs
from dglcell.config.read import load_config, read_yaml, to_yaml
from dglcell.data.config import KINDS
from site_extension import plots
from site_extension.cost import cost_table, costs
from site_extension.differences import differences
from site_extension.experiment_data import data, downloads
from site_extension.experiment_list import Entry, index
from site_extension.markdown import block, folded
from site_extension.results import committed, expected, overrides, stated_rows, stated_table

NOT_MEASURED = "**Not measured yet:** no results of this experiment are committed. This page shows how to get them."
MEASURED = "**Measured** with {seeds}; the expected table is below."
IN_PART = (
    "**Measured in part:** [Accuracy](../../accuracy.md) states test correlations of seeds {seeds}; no full results of "
    "this experiment are committed."
)

NULLS = (
    "Every run fits them on the same split and prints them beside the model: the mean of the training part, additive "
    "effects of genes (ridge), the mean of a query pair, and low-rank profiles of genes where strains are pairs. "
    "[What they mean](../../guides/report.md#the-table).\n"
)
BOTH_SEEDS = (
    "Give `seed=S split.seed=S` together. In the table below both seeds differ between runs. The spread therefore "
    "includes the weights and the choice of the test part.\n"
)
SHOWN = {
    "pearson": "Test part, Pearson correlation: the model in blue, null models in grey; a dot for each seed.",
    "average_precision": "Test part, average precision: the model in blue, null models in grey; a dot for each seed.",
    "loss": "Loss over epochs, a colour for each seed: training thin, validation thick.",
}


def pages(root: Path) -> dict[str, str]:
    """All pages, and the list of them."""
    made, entries = {}, []
    for file in experiment_files(root):
        name = slug(root, file)
        config = loaded(file)
        found = committed(root, config)
        made[f"experiments/{name}.md"] = page(root, file, config, found)
        made |= {f"parts/{name}-{kind}.svg": svg for kind, svg in drawings(found).items()}
        known = costs(root, config.experiment.name, found)
        entries.append(Entry(file.relative_to(root / "conf"), name, config, known))
    return {**made, "experiments/index.md": index(root, entries)}


def experiment_files(root: Path) -> list[Path]:
    """YAML files that name a source of strains, themselves or by what they extend; parts of others are left out."""
    folder = root / "conf"
    return [
        path
        for path in sorted(folder.rglob("*.yaml"))
        if path.parent.name != "cells" and path.name != "base.yaml" and "experiment" in read_yaml(path)
    ]


@functools.cache
def loaded(file: Path) -> Config:
    """Load an experiment once for all pages, which takes a tenth of a second."""
    return load_config(file)


def slug(root: Path, file: Path) -> str:
    """Name of the page."""
    return "-".join(file.relative_to(root / "conf").with_suffix("").parts)


def page(root: Path, file: Path, config: Config, found: dict[int, dict[str, Any]]) -> str:
    """The whole page."""
    relative = file.relative_to(root)
    stated = {} if found else stated_rows(root, file)
    parts = [
        "# " + " / ".join(relative.with_suffix("").relative_to("conf").parts),
        first_line(list(found), list(stated)),
        purpose(file),
        "## The file\n",
        block("yaml", file.read_text()),
        "## Run it\n",
        run_it(config, relative, found),
        as_job(config, relative, found),
        "## Expected\n",
        expected(found) if found else stated_table(root, list(stated.values())),
        *(picture(slug(root, file), name) for name in drawings(found)),
        "## Time and memory\n",
        cost_table(costs(root, config.experiment.name, found)),
        "## Null models\n",
        NULLS,
        "## What differs from the original experiment\n",
        differences(config),
        "## Data\n",
        data(config),
        "## Split\n",
        f"`split.kind: {config.split.kind}`, `split.seed: {config.split.seed}`: {KINDS[config.split.kind]}.\n",
        "## Parameters\n",
        parameters(found),
        "## Everything filled in\n",
        folded("Resolved configuration", block("{unsearched} yaml", to_yaml(config))),
    ]
    return "\n".join(part if part.endswith("\n") else f"{part}\n" for part in parts)


def drawings(found: dict[int, dict[str, Any]]) -> dict[str, str]:
    """Pictures of committed results: what they show → SVG."""
    if not found:
        return {}
    known = {metric for record in found.values() for row in record["rows"] for metric in row["metrics"]}
    metric = "pearson" if "pearson" in known else "average_precision"
    made = {metric: plots.scores(found, metric), "loss": plots.curves({s: r["metrics"] for s, r in found.items()})}
    return {kind: svg for kind, svg in made.items() if svg}


def picture(name: str, kind: str) -> str:
    """One of them, with its caption."""
    return f"```{{drawing}} ../parts/{name}-{kind}.svg\n:alt: {SHOWN[kind]}\n\n{SHOWN[kind]}\n```\n"


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


def run_it(config: Config, file: Path, found: dict[int, dict[str, Any]]) -> str:
    """Commands that fetch, train and evaluate; those of the committed runs where there are any."""
    insecure = any(file.sha256 is None and "".join(file.urls).startswith("http:") for file in cell_files(config.cell))
    fetch = [f"dglcell data fetch --all {file}{' --insecure' if insecure else ''}"] if needs(config) else []
    changes = {seed: " ".join(overrides(record)) for seed, record in found.items()} or {config.seed: ""}
    train = [f"dglcell train {file} {change}".rstrip() for change in changes.values()]
    runs = [str(config.run_directory.with_name(f"seed-{seed}")) for seed in changes]
    lines = [*fetch, *train, f"dglcell evaluate {runs[0]}"]
    if len(runs) > 1:
        lines.append(f"dglcell report {' '.join(runs)} --output comparison.html")
    text = block("sh", "\n".join(lines))
    if any("split.seed=" in change for change in changes.values()):
        text += f"\n{BOTH_SEEDS}"
    return f"{text}\n{downloads(config)}"


def as_job(config: Config, file: Path, found: dict[int, dict[str, Any]]) -> str:
    """The command that submits it, and its script: the job array of the committed runs where there are several."""
    seeds = tuple(sorted(found)) if len(found) > 1 else ()
    splits = bool(seeds) and any(word.startswith("split.seed=") for one in found.values() for word in overrides(one))
    listed = ",".join(map(str, seeds))
    options = [*(["--seeds", listed] if seeds else []), *(["--split-seeds"] if splits else [])]
    command = block("sh", " ".join(["dglcell job submit", str(file), *options]))
    script = block("{unsearched} bash", render(config, file, (), Sweep(seeds, (), splits)))
    return f"As a job of SLURM:\n\n{command}\n{folded('The script that this submits', script)}"


def parameters(found: dict[int, dict[str, Any]]) -> str:
    """How large the model is."""
    counts = {record["environment"].get("parameters") for record in found.values()} - {None}
    if counts:
        return f"{', '.join(f'{count:,}' for count in sorted(counts))} trainable parameters.\n"
    return (
        "Every node has its own embedding. The number of trainable parameters therefore depends on the cell graph. A "
        "run writes it into `environment.json`.\n"
    )

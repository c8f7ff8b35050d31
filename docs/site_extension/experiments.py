"""A page for every experiment: from its file, and from the results that are committed."""

from __future__ import annotations

import functools
import shlex
from pathlib import Path

from dglcell.cluster import members_of, render
from dglcell.config.experiment import Config
from dglcell.config.published import needs
from dglcell.config.read import load_config, read_yaml, to_yaml
from dglcell.data.config import KINDS
from dglcell.training.checkpoint import FREE_KEYS
from site_extension import accuracy
from site_extension.differences import differences
from site_extension.experiment_data import data, downloads
from site_extension.experiment_list import Entry, index
from site_extension.markdown import block, folded
from site_extension.results import Record, committed, cost_table, expected, notes

NOT_MEASURED = "**Not measured yet:** no results of this experiment are committed. This page shows how to get them."
MEASURED = "**Measured** with {seeds}; the expected table is below."

BASELINES = (
    "Every run fits simple models on the same split and prints them beside its own. "
    "[What they mean](../../guides/report.md#the-table).\n"
)
BOTH_SEEDS = (
    "Give `seed=S split.seed=S` together. In the table below both seeds differ between runs. The spread therefore "
    "includes the weights and the choice of the test part.\n"
)


def pages(root: Path) -> dict[str, str]:
    """All pages, the list of them, and the table of all results."""
    made, entries = {}, []
    for file in experiment_files(root):
        name = slug(root, file)
        config = loaded(file)
        record = committed(root).get(config.experiment.name, Record())
        made[f"experiments/{name}.md"] = page(root, file, config, record)
        entries.append(Entry(file.relative_to(root / "conf"), name, config, record))
    tables = accuracy.pages(root, [(entry.page, entry.config) for entry in entries])
    return {**made, **tables, "experiments/index.md": index(entries)}


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


def page(root: Path, file: Path, config: Config, record: Record) -> str:
    """The whole page."""
    relative, name = file.relative_to(root), config.experiment.name
    sentences = [*notes(root).get(name, []), *notes(root).get(name.partition("/")[0], [])]
    parts = [
        "# " + " / ".join(relative.with_suffix("").relative_to("conf").parts),
        first_line(record),
        purpose(file),
        "## The file\n",
        block("yaml", file.read_text()),
        "## Run it\n",
        run_it(config, relative, record),
        as_job(config, relative, record),
        "## Expected\n",
        expected(record) if record.scores else "Nothing to compare with yet. A run ends with its own table.\n",
        BASELINES,
        "\n".join(f"- {sentence}" for sentence in sentences) + "\n",
        "## Time and memory\n",
        cost_table(record.runs),
        "## What differs from the original experiment\n",
        differences(config),
        "## Data\n",
        data(config),
        "## Split\n",
        f"`split.kind: {config.split.kind}`, `split.seed: {config.split.seed}`: {KINDS[config.split.kind]}.\n",
        "## Parameters\n",
        parameters(record),
        "## Everything filled in\n",
        folded("Resolved configuration", block("{unsearched} yaml", to_yaml(config))),
    ]
    return "\n".join(part if part.endswith("\n") else f"{part}\n" for part in parts)


def first_line(record: Record) -> str:
    """Whether there is anything to compare with."""
    seeds = sorted({score.seed for score in record.scores})
    if not seeds:
        return NOT_MEASURED
    return MEASURED.format(seeds=f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}")


def purpose(file: Path) -> str:
    """The comment at the top of the file."""
    lines = []
    for line in file.read_text().splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    return " ".join(lines)


def run_it(config: Config, file: Path, record: Record) -> str:
    """Commands that fetch, train and evaluate; those of the committed runs where there are any."""
    fetch = [f"dglcell data fetch --all {file}"] if needs(config) else []
    changes = {run["seed"]: " ".join(overrides(run)) for run in record.runs} or {str(config.seed): ""}
    train = [f"dglcell train {file} {change}".rstrip() for change in changes.values()]
    runs = [str(config.run_directory.with_name(f"seed-{seed}")) for seed in changes]
    lines = [*fetch, *train, f"dglcell evaluate {runs[0]}"]
    if len(runs) > 1:
        lines.append(f"dglcell report {' '.join(runs)} --output comparison.html")
    text = block("sh", "\n".join(lines))
    if any("split.seed=" in change for change in changes.values()):
        text += f"\n{BOTH_SEEDS}"
    return f"{text}\n{downloads(config)}"


def overrides(run: dict[str, str]) -> list[str]:
    """The keys that the run's command changed and that change its result."""
    pairs = [word for word in shlex.split(run["command"]) if "=" in word and not word.startswith("-")]
    free = tuple(key for key in FREE_KEYS if key not in ("trainer.epochs", "trainer.checkpoint"))
    return [pair for pair in pairs if not pair.startswith((*free, "plot_points"))]


def as_job(config: Config, file: Path, record: Record) -> str:
    """The command that submits it, and its script: the job array of the committed runs that differ only by seeds."""
    others = {word for run in record.runs for word in overrides(run) if not word.startswith(("seed=", "split.seed="))}
    alike = len(record.runs) > 1 and all(others <= {*overrides(run)} for run in record.runs)
    seeds = tuple(int(run["seed"]) for run in record.runs) if alike else ()
    splits = bool(seeds) and any(word.startswith("split.seed=") for run in record.runs for word in overrides(run))
    listed = ",".join(map(str, seeds))
    options = [*(["--seeds", listed] if seeds else []), *(["--split-seeds"] if splits else [])]
    command = block("sh", " ".join(["dglcell job submit", str(file), *options]))
    script = block("{unsearched} bash", render(config, file, (), members_of(seeds, splits)))
    return f"As a job of SLURM:\n\n{command}\n{folded('The script that this submits', script)}"


def parameters(record: Record) -> str:
    """How large the model is."""
    counts = {int(run["parameters"]) for run in record.runs}
    if counts:
        return f"{', '.join(f'{count:,}' for count in sorted(counts))} trainable parameters.\n"
    return (
        "Every node has its own embedding. The number of trainable parameters therefore depends on the cell graph. A "
        "run writes it into `environment.json`.\n"
    )

"""What parts of a model and of its graph are worth: tables from committed results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from site_extension.markdown import code, table

FOLDER = "benchmarks/results"
FILES = ("collins2007-ablation", "collins2007-heads", "yeast-gem", "yeast-gem-splits")
PARTS = {
    "whole": "whole",
    "no-graph": "without any network",
    "no-string": "without STRING",
    "no-physical": "without physical interactions",
    "no-regulatory": "without regulation",
    "with-reactions": "with reactions beside the genes",
    "no-local-head": "without the head on deleted genes",
    "no-global-head": "without the head on pooled states",
    "with-global-head": "with cross attention beside the head on deleted genes",
    "no-metabolism": "without live metabolism",
    "without_metabolism": "relations between genes alone",
    "random": "with live metabolism",
    "deletions": "with live metabolism",
    "gene_disjoint": "with live metabolism",
    "random_genes": "relations between genes alone",
    "deletions_genes": "relations between genes alone",
    "gene_disjoint_genes": "relations between genes alone",
}
"""Last part of an experiment's name → what it is called."""

CHANNEL = "no-string-"
METRIC = "pearson"


def pages(root: Path) -> dict[str, str]:
    """A table for every file of results."""
    return {f"parts/ablation-{name}.md": tables(read(root, name)) for name in FILES}


def read(root: Path, name: str) -> dict[str, Any]:
    """A file of results."""
    content: dict[str, Any] = json.loads((root / FOLDER / f"{name}.json").read_text())
    return content


def label(experiment: str) -> str:
    """What an experiment of an ablation is called."""
    name = experiment.rpartition("/")[2]
    if name.startswith(CHANNEL):
        return f"without STRING's channel {code(name.removeprefix(CHANNEL))}"
    return PARTS[name]


def tables(results: dict[str, Any]) -> str:
    """What was run, then every experiment with its seeds and its distance from the whole."""
    header = ("split", "what", "seeds", "test Pearson", "difference, seed by seed")
    return f"{results['what']}\n\n{table(header, rows(results), 'lllrr')}"


def rows(results: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """A row for every experiment, in the order of the file."""
    splits = {run["experiment"]: run["split"]["kind"] for run in results["runs"]}
    for row in results["summary"]:
        experiment, seeds = row["experiment"], ", ".join(map(str, row["seeds"]))
        model, scores = next(iter(row["test"].items()))
        less = row.get("test_minus_whole", {}).get(model, {}).get(METRIC)
        distance = spread(less, sign="+") if less else ""
        yield splits[experiment], label(experiment), seeds, spread(scores[METRIC]), distance


def spread(value: dict[str, float | None], sign: str = "") -> str:
    """Mean ± standard deviation, where there are several seeds."""
    mean = f"{value['mean']:{sign}z.3f}".replace("-", "\N{MINUS SIGN}")
    return mean if value["sd"] is None else f"{mean}\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}{value['sd']:.3f}"

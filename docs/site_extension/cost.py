"""What runs of an experiment took, as far as it was recorded."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from site_extension.markdown import table

FOLDER = Path("benchmarks/results")
RUNS = ("tong2004", "yeast-gem-splits")
"""These files have the seconds of runs that are not committed."""

EPOCHS = "whole-epoch-cpu"
"""The file of single epochs."""

NOT_MEASURED = "Not measured.\n"
SHARED = "\nOn machines shared with other work: upper bounds. Evaluation and null models come on top.\n"


@dataclass(frozen=True)
class Cost:
    """What a run took.

    Attributes:
        epochs: how many it trained.
        seconds: of training.
        memory: bytes at the peak; None where it was not recorded.
    """

    epochs: int
    seconds: float
    memory: int | None = None


def costs(root: Path, experiment: str, found: dict[int, dict[str, Any]]) -> dict[int, Cost]:
    """Seed → what the run took: of committed runs, else as tables of results state it."""
    known = {run["seed"]: Cost(run["epochs"], run["training_seconds"]) for run in _stated(root, experiment)}
    for row in json.loads((root / FOLDER / f"{EPOCHS}.json").read_text())["rows"]:
        if row["experiment"] == experiment:
            known[0] = Cost(1, row["seconds"], row["peak_memory_bytes"])
    for seed, record in found.items():
        seconds = [row["seconds"] for row in record["metrics"] if row.get("seconds") is not None]
        if seconds:
            known[seed] = Cost(len(seconds), sum(seconds))
        if seed in known:
            known[seed] = replace(known[seed], memory=record["usage"].get("peak_memory_bytes"))
    return dict(sorted(known.items()))


def _stated(root: Path, experiment: str) -> Iterable[dict[str, Any]]:
    for name in RUNS:
        runs = json.loads((root / FOLDER / f"{name}.json").read_text())["runs"]
        yield from (run for run in runs if run["experiment"] == experiment)


def cost_table(known: dict[int, Cost]) -> str:
    """A row for each run."""
    if not known:
        return NOT_MEASURED
    header = ("seed", "epochs", "seconds per epoch", "minutes of training", "peak memory, MB")
    rows = [
        (seed, cost.epochs, f"{cost.seconds / cost.epochs:.1f}", f"{cost.seconds / 60:.1f}", _megabytes(cost.memory))
        for seed, cost in known.items()
    ]
    return table(header, rows, "rrrrr") + SHARED


def _megabytes(memory: int | None) -> str:
    return f"{memory / 1e6:,.0f}" if memory else "not recorded"


def minutes(known: dict[int, Cost]) -> str:
    """The median over runs; nothing where none was measured."""
    if not known:
        return ""
    median = f"{statistics.median(cost.seconds for cost in known.values()) / 60:.1f}"
    return median + (", one epoch" if all(cost.epochs == 1 for cost in known.values()) else "")


def memory(known: dict[int, Cost]) -> str:
    """The most megabytes of any run; nothing where none was recorded."""
    recorded = [cost.memory for cost in known.values() if cost.memory]
    return f"{max(recorded) / 1e6:,.0f}" if recorded else ""

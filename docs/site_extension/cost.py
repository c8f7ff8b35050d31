"""What runs of an experiment took, as far as it was recorded."""

from __future__ import annotations

import statistics

from site_extension.markdown import table

NOT_MEASURED = "Not measured.\n"
SHARED = "\nOn machines shared with other work: upper bounds. Evaluation and baselines come on top.\n"

Runs = list[dict[str, str]]


def cost_table(runs: Runs) -> str:
    """A row for each run."""
    if not runs:
        return NOT_MEASURED
    header = ("seed", "epochs", "seconds per epoch", "minutes of training", "peak memory, MB")
    rows = [
        (
            run["seed"],
            run["epochs"],
            f"{float(run['training_seconds']) / int(run['epochs']):.1f}",
            f"{float(run['training_seconds']) / 60:.1f}",
            memory([run]) or "not recorded",
        )
        for run in runs
    ]
    return table(header, rows, "rrrrr") + SHARED


def minutes(runs: Runs) -> str:
    """The median over runs; nothing where none was measured."""
    return f"{statistics.median(float(run['training_seconds']) for run in runs) / 60:.1f}" if runs else ""


def memory(runs: Runs) -> str:
    """The most megabytes of any run; nothing where none was recorded."""
    recorded = [int(run["peak_resident_bytes"]) for run in runs if run["peak_resident_bytes"]]
    return f"{max(recorded) / 1e6:,.0f}" if recorded else ""

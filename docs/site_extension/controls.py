"""The controls of all shipped experiments, from committed records and the runs that were made for them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from dglcell.config.experiment import Config
from dglcell.suites.controls import NOTE, Controls, as_table, controls_of
from site_extension.experiments import experiment_files, loaded
from site_extension.markdown import code
from site_extension.results import all_rows, committed

FILE = Path("benchmarks/results/controls.json")
SAME = 3e-3
"""A run and a record whose scores differ by less are of one form of the model: flux rounds differ between machines."""


def pages(root: Path) -> dict[str, str]:
    """A table with a row for each experiment that was measured, and a sentence on the others."""
    runs: dict[str, Any] = json.loads((root / FILE).read_text(encoding="utf-8"))["experiments"]
    measured, others = [], []
    for file in experiment_files(root):
        config = loaded(file)
        found = _of_experiment(root, config, runs.get(config.experiment.name))
        measured += found
        others += [] if found else [config.experiment.name]
    text = "\n".join(
        [
            *NOTE,
            "",
            as_table(measured),
            "",
            *_counted(measured),
            f"Experiments without any results here: {', '.join(map(code, others))}.",
            "",
        ]
    )
    return {"parts/controls.md": text}


def _counted(measured: list[Controls]) -> list[str]:
    """Sentences on how many rows have intervals and scores on permuted labels, and how many models are ahead."""
    compared = [one for one in measured if one.is_compared]
    permuted = sum(one.permutations > 0 for one in measured)
    above = [one.over_genes[0] > 0 for one in compared if one.over_strains[0] > 0]
    below = [one.over_genes[1] < 0 for one in compared if one.over_strains[1] < 0]
    return [
        f"Intervals are known for {len(compared)} of {len(measured)} rows, scores on permuted labels for {permuted}.",
        f"The interval over strains is above zero in {len(above)} rows, and that over genes in {sum(above)} of them.",
        f"The one over strains is below zero in {len(below)} rows, and that over genes in {sum(below)} of them.",
    ]


def _of_experiment(root: Path, config: Config, run: dict[str, Any] | None) -> list[Controls]:
    """Controls of the run that was made for them, else of the first record with intervals, else of the first record."""
    name, records = config.experiment.name, committed(root, config)
    passes_messages = config.model.without_messages() is not None
    of_records = {
        seed: controls_of(name, seed, all_rows(record), passes_messages=passes_messages)
        for seed, record in records.items()
    }
    if run is not None:
        found = controls_of(name, run["seed"], all_rows(run), passes_messages=passes_messages)
        before = of_records.get(run["seed"], [])
        return [replace(one, **_lacking(one, before)) for one in found]
    with_interval = [found for found in of_records.values() if any(one.is_compared for one in found)]
    return next(iter([*with_interval, *of_records.values()]), [])


def _lacking(one: Controls, before: list[Controls]) -> dict[str, float]:
    """The score without messages of a record with the same score, where the run itself has none."""
    same = [record for record in before if abs(record.score - one.score) < SAME and record.phenotype == one.phenotype]
    return {"without_messages": same[0].without_messages} if same and math.isnan(one.without_messages) else {}

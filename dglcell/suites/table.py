"""Make the table of a suite from the results of its runs, with intervals of differences from the best null model."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dglcell.errors import count
from dglcell.metrics import COLUMNS, HEADLINE, ResultRow
from dglcell.suites.controls import EN_DASH, Controls, as_lines, as_table, controls_of, signed
from dglcell.suites.controls import NOTE as CONTROLS_NOTE
from dglcell.suites.suite import SHIPPED, Entry, Suite
from dglcell.training.control_rows import CONTROLS
from dglcell.uncertainty.paired import student

BETTER, WORSE, UNKNOWN, MISSING = "better", "worse", "not told apart", "not measured"
HEADER = ("experiment", "split", "model", "seeds", "measure", "test part", "best null model", "difference", "model is")

NOTE = (
    "The best null model is the one with the highest mean on the same test parts. Being chosen there is an advantage.",
    "The difference is that of model and null model on the same strains, with its interval at 95 %: Student's over",
    "seeds, or for one seed the widest of bootstraps over strains and over genes. A model is called better only where",
    "the interval excludes zero.",
)

Results = Mapping[tuple[str, int], Sequence[ResultRow]]
"""Name of the experiment and seed → rows of the run's results."""


@dataclass(frozen=True)
class TableRow:
    """A row says how one model predicts one phenotype of the test part, beside the best null model.

    Attributes:
        null: name of the null model with the highest mean score; empty where there is none.
        low, high: ends of the interval of the mean difference between model and null model, at 95 %.
        why: what is missing, where there are no scores.
    """

    experiment: str
    split: str
    model: str
    phenotype: str
    measure: str
    seeds: tuple[int, ...]
    scores: tuple[float, ...]
    null: str
    null_scores: tuple[float, ...]
    low: float
    high: float
    why: str = ""

    @property
    def difference(self) -> float:
        """Return the mean difference between model and null model; NaN where there is none."""
        return statistics.fmean(self.scores) - statistics.fmean(self.null_scores) if self.null else math.nan

    @property
    def verdict(self) -> str:
        """Return whether the model is better, which it is only where the interval excludes zero."""
        if math.isnan(self.low):
            return MISSING
        return BETTER if self.low > 0 else WORSE if self.high < 0 else UNKNOWN


def table_rows(entries: Sequence[Entry], seeds: Sequence[int], results: Results) -> list[TableRow]:
    """Return a row for each experiment, model and phenotype."""
    return [row for entry in entries for row in _rows_of(entry, seeds, results)]


def _rows_of(entry: Entry, seeds: Sequence[int], results: Results) -> list[TableRow]:
    config = entry.config
    name, kind = config.experiment.name, config.model.name
    about = kind if entry.model == SHIPPED else entry.model if kind == entry.model else f"{entry.model} ({kind})"
    there = [seed for seed in seeds if (name, seed) in results]
    of_seeds = [[row for row in results[name, seed] if row.part == "test"] for seed in there]
    own = [[row for row in rows if not row.is_null] for rows in of_seeds]
    phenotypes = dict.fromkeys(row.phenotype for rows in own for row in rows)
    if not phenotypes:
        why = "no test part" if there else "no results"
        return [TableRow(entry.experiment, config.split.kind, about, "", "", (), (), "", (), math.nan, math.nan, why)]
    return [
        _row(entry, about, phenotype, there, [[r for r in rows if r.phenotype == phenotype] for rows in of_seeds])
        for phenotype in phenotypes
    ]


def _row(
    entry: Entry, about: str, phenotype: str, seeds: Sequence[int], of_seeds: Sequence[Sequence[ResultRow]]
) -> TableRow:
    """Return the row of one phenotype from its results with each seed."""
    first = of_seeds[0][0]
    metric = HEADLINE[first.kind]
    scores = {
        (row.model, row.is_null): [_score(rows, row.model, metric) for rows in of_seeds]
        for rows in of_seeds
        for row in rows
        if row.model not in CONTROLS
    }
    own = next(values for (_, is_null), values in scores.items() if not is_null)
    nulls = {name: values for (name, is_null), values in scores.items() if is_null and np.isfinite(values).all()}
    best = max(nulls, key=lambda name: statistics.fmean(nulls[name]), default="")
    low, high = math.nan, math.nan
    if best and np.isfinite(own).all():
        differences = [a - b for a, b in zip(own, nulls[best], strict=True)]
        rows_of_best = [row for row in of_seeds[0] if row.model == best]
        low, high = student(differences) if len(differences) > 1 else _drawn_again(rows_of_best[0])
    return TableRow(
        entry.experiment,
        entry.config.split.kind,
        about,
        phenotype,
        COLUMNS[first.kind][metric],
        tuple(seeds),
        tuple(own),
        best,
        tuple(nulls.get(best, ())),
        low,
        high,
    )


def _score(rows: Sequence[ResultRow], model: str, metric: str) -> float:
    return next((row.metrics.get(metric, math.nan) for row in rows if row.model == model), math.nan)


def _drawn_again(null: ResultRow) -> tuple[float, float]:
    """Return the interval of a single run: the widest over draws of strains and of genes (`ahead`)."""
    ends = [(null.metrics.get(f"{key}_low"), null.metrics.get(f"{key}_high")) for key in ("ahead", "ahead_genes")]
    known = [(low, high) for low, high in ends if low is not None and high is not None]
    return (min(low for low, _ in known), max(high for _, high in known)) if known else (math.nan, math.nan)


def first_controls(entries: Sequence[Entry], seeds: Sequence[int], results: Results) -> list[Controls]:
    """Return the controls of the first run of each experiment and model that has results."""
    found = []
    for config in (entry.config for entry in entries):
        name, passes_messages = config.experiment.name, config.model.without_messages() is not None
        seed = next((seed for seed in seeds if (name, seed) in results), None)
        if seed is not None:
            found += controls_of(name, seed, results[name, seed], passes_messages=passes_messages)
    return found


def as_markdown(suite: Suite, rows: Sequence[TableRow], controls: Sequence[Controls] = ()) -> str:
    """Return the table with the controls below it, and what their columns say, as Markdown."""
    right = ("seeds", "test part", "difference")
    marks = ["---:" if title in right else "---" for title in HEADER]
    table = as_lines((HEADER, marks, *map(_cells, rows)))
    told = [row.verdict for row in rows]
    verdicts = ", ".join(
        f"{told.count(verdict)} {verdict}" for verdict in (BETTER, UNKNOWN, WORSE, MISSING) if verdict in told
    )
    about = f"{suite.description.rstrip('.')}. " if suite.description else ""
    own = ", each with a split of its own" if suite.split_seeds else ""
    seeds = f"Scores are of the test part: mean ± standard deviation over seeds{own}."
    summary = f"Of {count(len(rows), 'row')}: {verdicts}."
    below = ["## Controls", "", *CONTROLS_NOTE, "", as_table(controls), ""] if controls else []
    return "\n".join([f"# Suite {suite.name}", "", f"{about}{seeds}", *NOTE, summary, "", table, "", *below])


def _cells(row: TableRow) -> list[str]:
    if row.why:
        return [f"`{row.experiment}`", row.split, row.model, "0", *[EN_DASH] * 4, row.why]
    difference = EN_DASH
    if not math.isnan(row.difference):
        interval = "" if math.isnan(row.low) else f" ({signed(row.low)} to {signed(row.high)})"
        difference = f"{signed(row.difference)}{interval}"
    null = f"{_spread(row.null_scores)}, {row.null}" if row.null else EN_DASH
    score, measure = _spread(row.scores), f"{row.measure} of {row.phenotype}"
    is_better = row.verdict == BETTER
    return [
        f"`{row.experiment}`",
        row.split,
        row.model,
        str(len(row.seeds)),
        measure,
        f"**{score}**" if is_better else score,
        null,
        difference,
        row.verdict,
    ]


def _spread(values: Sequence[float]) -> str:
    if not np.isfinite(values).all():
        return EN_DASH
    mean = f"{statistics.fmean(values):.3f}"
    return f"{mean} ± {statistics.stdev(values):.3f}" if len(values) > 1 else mean


def as_json(suite: Suite, rows: Sequence[TableRow], controls: Sequence[Controls] = ()) -> str:
    """Return the rows with every score, and the controls, as JSON; numbers that are undefined are null."""
    found = [asdict(row) | {"difference": row.difference, "verdict": row.verdict} for row in rows]
    tables = {"rows": found, "controls": [asdict(one) for one in controls]}
    known = {name: [{key: _known(value) for key, value in row.items()} for row in of] for name, of in tables.items()}
    return json.dumps({"suite": suite.name, "description": suite.description, **known}, indent=2) + "\n"


def _known(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_known(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

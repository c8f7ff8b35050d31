"""Results of experiments: the tables of `docs/results`, which `python -m benchmarks.collect` writes."""

from __future__ import annotations

import csv
import functools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from scipy.stats import t as student

from dglcell.metrics import ENSEMBLE_OF
from site_extension.markdown import code, table

RESULTS = "docs/results"
RUNS, NOTES = "runs.csv", "notes.yaml"
WITHOUT = "without messages"
"""The model's own ablation is no baseline."""

TITLES = {
    "pearson": "Pearson",
    "spearman": "Spearman",
    "r2": "R²",
    "mae": "MAE",
    "pearson_within": "Pearson within a medium",
    "lowest_auroc": "AUROC of the lowest 2 % of a medium",
    "average_precision": "average precision",
    "auroc": "AUROC",
    "covered": "inside 90 % intervals",
}
"""Measures that pages show, in their order."""


@dataclass(frozen=True)
class Score:
    """What a model or a baseline had on the test part of one run, or on a part of it such as a medium."""

    seed: int
    where: str
    model: str
    is_baseline: bool
    metrics: dict[str, float]


@dataclass(frozen=True)
class Record:
    """All that is committed of an experiment: a row for each run, and scores."""

    runs: list[dict[str, str]] = field(default_factory=list)
    scores: list[Score] = field(default_factory=list)

    @property
    def metric(self) -> str:
        """The measure that pages show: of classes the average precision, and of strains in media r within a medium.

        Over all media r says mostly in which medium all strains grow well.
        """
        measured = {metric for score in self.scores for metric in score.metrics}
        in_media = "pearson_within" in measured and any(score.where for score in self.scores)
        return "average_precision" if "average_precision" in measured else "pearson_within" if in_media else "pearson"

    def by_model(self) -> dict[str, dict[int, float]]:
        """Model → seed → its score of all test strains; the experiment's own model is the first.

        A draw whose test strains are in one medium has no other r within a medium than its r.
        """
        found: dict[str, dict[int, float]] = {}
        for score in sorted(self.scores, key=lambda score: score.is_baseline):
            instead = score.metrics.get("pearson") if self.metric == "pearson_within" else None
            value = score.metrics.get(self.metric, instead)
            if not score.where and value is not None:
                found.setdefault(score.model, {})[score.seed] = value
        return found


@dataclass(frozen=True)
class Comparison:
    """A model beside its strongest baseline: the one with the highest mean over the same draws."""

    model: str
    baseline: str
    own: dict[int, float]
    theirs: dict[int, float]
    without: dict[int, float]
    together: dict[int, float]  # of the network and a baseline; not in draws with too few validation strains

    @classmethod
    def of(cls, record: Record) -> Comparison | None:
        """None where there is no score of a model and a baseline."""
        (model, own), *others = record.by_model().items() or [("", {})]
        rest = {name: values for name, values in others if not name.startswith(ENSEMBLE_OF)}
        together = next((values for name, values in others if name.startswith(ENSEMBLE_OF)), {})
        without = rest.pop(WITHOUT, {})
        known = {name: values for name, values in rest.items() if own.keys() <= values.keys()}
        if not known:
            return None
        best = max(known, key=lambda name: statistics.fmean(known[name][seed] for seed in own))
        return cls(model, best, own, {seed: known[best][seed] for seed in own}, without, together)


@functools.cache
def committed(root: Path) -> dict[str, Record]:
    """Experiment → what is committed of it."""
    found: dict[str, Record] = {}
    for path in sorted((root / RESULTS).glob("*.csv")):
        for row in _rows(path):
            record = found.setdefault(row["experiment"], Record())
            if path.name == RUNS:
                record.runs.append(row)
            else:
                record.scores.append(_score(row))
    return found


@functools.cache
def notes(root: Path) -> dict[str, list[str]]:
    """Experiment, or number of experiments → sentences on it."""
    content: dict[str, list[str]] = yaml.safe_load((root / RESULTS / NOTES).read_text(encoding="utf-8"))
    return content


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _score(row: dict[str, str]) -> Score:
    metrics = {key: float(row[key]) for key in row if key in TITLES and row[key]}
    return Score(int(row["seed"]), row.get("where", ""), row["model"], row["baseline"] == "1", metrics)


def expected(record: Record) -> str:
    """Means over seeds of all measures, with their spread; and in what circumstances they were measured."""
    rows: dict[tuple[str, str], list[dict[str, float]]] = {}
    for score in record.scores:
        rows.setdefault((score.where, score.model), []).append(score.metrics)
    metrics = [m for m in TITLES if any(m in one for many in rows.values() for one in many)]
    decimals = {m: _decimals(one.get(m) for many in rows.values() for one in many) for m in metrics}
    body = [
        (where or "all", model, *(_spread([one.get(m) for one in many], decimals[m]) for m in metrics))
        for (where, model), many in rows.items()
    ]
    text = table(("test strains", "model", *(TITLES[m] for m in metrics)), body, "ll" + "r" * len(metrics))
    return text + "".join(_circumstances(run) for run in record.runs[:1])


def _circumstances(run: dict[str, str]) -> str:
    sizes = ", ".join(f"{int(run[part]):,} {part}" for part in ("train", "validation", "test"))
    hashes = ", ".join(f"{what} {code(run[what] + '…')}" for what in ("split", "store", "cell") if run[what])
    commit = f", commit {code(run['commit'])}" if run["commit"] else ""
    return (
        f"\nThe first run: Python {run['python']}, torch {run['torch']}, {run['device']}{commit}; strains: {sizes}; "
        f"hashes: {hashes}.\n"
    )


def _decimals(values: Iterable[float | None]) -> int:
    """The same for a whole column: errors of small scores would all be 0.000."""
    return 3 if max((abs(value) for value in values if value is not None), default=1.0) >= 0.1 else 6


def _spread(values: Sequence[float | None], decimals: int = 3) -> str:
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return "–"
    mean = f"{statistics.fmean(known):.{decimals}f}".replace("-", "−")
    if len(known) < 2:
        return mean
    return f"{mean} ± {statistics.stdev(known):.{decimals}f}".replace(" ", "\N{NO-BREAK SPACE}")


def mean(values: dict[int, float]) -> str:
    """Mean and standard deviation over draws."""
    return _spread(list(values.values()))


def interval(own: dict[int, float], theirs: dict[int, float]) -> tuple[float, float, float] | None:
    """The mean difference, draw by draw, and Student's interval at 95 %; None for fewer than three common draws."""
    differences = [own[seed] - theirs[seed] for seed in own if seed in theirs]
    if len(differences) < 3:
        return None
    middle = statistics.fmean(differences)
    reach = student.ppf(0.975, len(differences) - 1) * statistics.stdev(differences) / math.sqrt(len(differences))
    return middle, middle - reach, middle + reach


def as_text(found: tuple[float, float, float] | None) -> str:
    """The difference with its interval."""
    if found is None:
        return "–"
    middle, low, high = found
    return f"{middle:+z.3f} ({low:z.3f} to {high:z.3f})".replace("-", "−")


def cost_table(runs: list[dict[str, str]]) -> str:
    """What each run took, as far as it was recorded."""
    if not runs:
        return "Not measured.\n"
    header = ("seed", "epochs", "seconds per epoch", "minutes of training", "peak memory, MB")
    rows = []
    for run in runs:
        seconds, epochs = float(run["training_seconds"]), int(run["epochs"])
        cells = f"{seconds / epochs:.1f}", f"{seconds / 60:.1f}", memory([run]) or "not recorded"
        rows.append((run["seed"], run["epochs"], *cells))
    shared = "On machines shared with other work: upper bounds. Evaluation and baselines come on top."
    return f"{table(header, rows, 'rrrrr')}\n{shared}\n"


def minutes(runs: list[dict[str, str]]) -> str:
    """The median over runs; nothing where none was measured."""
    return f"{statistics.median(float(run['training_seconds']) for run in runs) / 60:.1f}" if runs else ""


def memory(runs: list[dict[str, str]]) -> str:
    """The most megabytes of any run; nothing where none was recorded."""
    recorded = [int(run["peak_resident_bytes"]) for run in runs if run["peak_resident_bytes"]]
    return f"{max(recorded) / 1e6:,.0f}" if recorded else ""

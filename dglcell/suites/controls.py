"""Put beside the model of one run what it is compared with: null model, controls, and what its labels allow."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from dglcell.metrics import COLUMNS, HEADLINE, PERMUTED, ResultRow, best_row
from dglcell.report.sentences import tested
from dglcell.training.control_rows import CONTROLS, WITHOUT_MESSAGES

EN_DASH, MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"

HEADER = (
    "experiment",
    "model",
    "seed",
    "measure",
    "test part",
    "best null model",
    "difference",
    "over strains",
    "over genes",
    "permuted labels",
    "without messages",
    "ceiling",
)
WORDS = ("experiment", "model", "measure", "best null model")
"""Columns of these titles hold words, and are aligned on the left."""

NOTE = (
    "Each row is of one run. Its best null model is the one with the highest score on the test part. The difference is",
    "that of model and null model on the same strains, with its intervals at 95 % if strains or genes are drawn again.",
    "The number in brackets is that of trainings on permuted labels: 95 % of them score no more than this, and of",
    "fewer than 20 none scores more. `passes none` stands where the model itself passes no messages in rounds. The",
    "ceiling is the score of a model without error. A dash says that something was not measured.",
)

Interval = tuple[float, float]
UNKNOWN = (math.nan, math.nan)


@dataclass(frozen=True)
class Controls:
    """These are the scores that stand beside one phenotype of the test part of one run; NaN where there is none.

    Attributes:
        null: name of the null model with the highest score; empty where there is none.
        over_strains: interval of the difference at 95 %, if strains are drawn again.
        over_genes: the same, if genes are drawn again.
        permuted: score that 95 % of the trainings on permuted labels do not exceed.
        permutations: number of these trainings.
        without_messages: score of the same model without messages.
        ceiling: score of a model without error.
        passes_messages: whether the model passes messages in rounds, so that a control without them can be trained.
    """

    experiment: str
    model: str
    seed: int
    phenotype: str
    measure: str
    score: float
    null: str = ""
    null_score: float = math.nan
    over_strains: Interval = UNKNOWN
    over_genes: Interval = UNKNOWN
    permuted: float = math.nan
    permutations: int = 0
    without_messages: float = math.nan
    ceiling: float = math.nan
    passes_messages: bool = True

    @property
    def is_compared(self) -> bool:
        """Return whether the interval of the difference is known."""
        return not math.isnan(self.over_strains[0])


def controls_of(
    experiment: str, seed: int, rows: Sequence[ResultRow], *, passes_messages: bool = True
) -> list[Controls]:
    """Return what stands beside each phenotype of a run, in the order of its rows."""
    found = [_of_phenotype(experiment, seed, own, nulls) for own, nulls in tested(rows)]
    return [replace(one, passes_messages=passes_messages) for one in found]


def _of_phenotype(experiment: str, seed: int, own: ResultRow, others: Sequence[ResultRow]) -> Controls:
    metric = HEADLINE[own.kind]
    scores = {row.model: row.metrics.get(metric, math.nan) for row in others}
    best = best_row((row for row in others if row.model not in CONTROLS), metric)
    permuted = next((row for row in others if row.model == PERMUTED), None)
    of_best = {} if best is None else best.metrics
    return Controls(
        experiment,
        own.model,
        seed,
        own.phenotype,
        COLUMNS[own.kind][metric],
        own.metrics.get(metric, math.nan),
        "" if best is None else best.model,
        math.nan if best is None else scores[best.model],
        _interval(of_best.get("ahead_low"), of_best.get("ahead_high")),
        _interval(of_best.get("ahead_genes_low"), of_best.get("ahead_genes_high")),
        scores.get(PERMUTED, math.nan),
        0 if permuted is None else round(permuted.metrics.get("permutations", 1)),
        scores.get(WITHOUT_MESSAGES, math.nan),
        own.metrics.get("ceiling", math.nan),
    )


def _interval(low: float | None, high: float | None) -> Interval:
    return UNKNOWN if low is None or high is None else (low, high)


def as_table(controls: Sequence[Controls]) -> str:
    """Return a table in Markdown, a row for each phenotype of each run."""
    marks = ["---" if title in WORDS else "---:" for title in HEADER]
    return as_lines((HEADER, marks, *map(_cells, controls)))


def as_lines(rows: Iterable[Sequence[str]]) -> str:
    """Return the rows of a table in Markdown."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def _cells(one: Controls) -> tuple[str, ...]:
    permuted = EN_DASH
    if not math.isnan(one.permuted):
        permuted = f"{number(one.permuted)} ({one.permutations})"
    return (
        f"`{one.experiment}`",
        one.model,
        str(one.seed),
        f"{one.measure} of {one.phenotype}",
        number(one.score),
        f"{number(one.null_score)}, {one.null}" if one.null else EN_DASH,
        signed(one.score - one.null_score),
        *(EN_DASH if math.isnan(low) else f"{signed(low)} to {signed(high)}" for low, high in _intervals(one)),
        permuted,
        number(one.without_messages) if one.passes_messages else "passes none",
        number(one.ceiling),
    )


def _intervals(one: Controls) -> tuple[Interval, Interval]:
    return one.over_strains, one.over_genes


def number(value: float) -> str:
    """Return a number with three decimals and a true minus sign; a dash where it is unknown."""
    return EN_DASH if math.isnan(value) else f"{value:.3f}".replace("-", MINUS)


def signed(value: float) -> str:
    """Return a difference with three decimals, or more where these say nothing; a dash where it is unknown."""
    if math.isnan(value):
        return EN_DASH
    text = f"{value:.3f}" if abs(value) >= 5e-4 or value == 0 else f"{value:.1g}"
    return text.replace("-", MINUS)

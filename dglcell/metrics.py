"""Compute metrics of predictions for numbers and classes, and format the table that compares models."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from rich.console import Console
from rich.table import Table

from dglcell.data.config import CALIBRATES, INTERVAL_COVERAGE
from dglcell.data.table import CLASSIFICATION, REGRESSION
from dglcell.errors import DataError, count, printable

# Regression metrics of one phenotype.


METRICS = ("mse", "rmse", "mae", "pearson", "spearman", "r2", "n")
# Below this spread relative to its size an array is a constant with rounding errors.
CONSTANT = 1e-13


def regression_metrics(prediction: ArrayLike, target: ArrayLike) -> dict[str, float]:
    """Compare predictions with measurements, in float64.

    Args:
        prediction: [S] predicted values. One that is not finite is not masked: it makes the metrics NaN.
        target: [S] measured values; NaN where missing, those strains are left out.

    Returns:
        ``mse``, ``rmse``, ``mae``, ``pearson``, ``spearman`` (average ranks for ties), ``r2`` (1 − SSE/SST,
        negative for a model worse than the mean of the target) and ``n``, the number of measured strains.
        What is undefined is NaN: everything but ``n`` for no strain, the correlations for fewer than two
        strains or where either side is constant, ``r2`` where the target is constant. JSON has no NaN: write
        the result through :func:`json_safe`.

    Raises:
        DataError: the shapes differ or are not one-dimensional.
    """
    p, t = measured_pairs(prediction, target)
    if len(t) == 0:
        return {name: math.nan for name in METRICS[:-1]} | {"n": 0}
    if not np.isfinite(p).all():
        return {name: math.nan for name in METRICS[:-1]} | {"n": len(t)}
    error = p - t
    mse = float(np.mean(error**2))
    return {
        "mse": mse,
        "rmse": math.sqrt(mse),
        "mae": float(np.mean(np.abs(error))),
        "pearson": pearson(p, t),
        "spearman": math.nan if is_constant(p) or is_constant(t) else pearson(mean_ranks(p), mean_ranks(t)),
        "r2": _r2(error, t),
        "n": len(t),
    }


def _r2(error: NDArray[np.float64], target: NDArray[np.float64]) -> float:
    if is_constant(target):
        return math.nan
    # Scaling first keeps the sums of squares of very small or very large values in range.
    scale = np.ptp(target)
    return 1.0 - float(np.sum((error / scale) ** 2) / np.sum(((target - target.mean()) / scale) ** 2))


def measured_pairs(prediction: ArrayLike, target: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return predictions and targets of the strains that have a target, in float64.

    Raises:
        DataError: the shapes differ or are not one-dimensional.
    """
    p = np.asarray(prediction, dtype=np.float64)
    t = np.asarray(target, dtype=np.float64)
    if p.ndim != 1 or p.shape != t.shape:
        raise DataError(
            "metrics: predictions and targets differ in shape",
            got=f"{p.shape} and {t.shape}",
            expected="two arrays of shape [S]",
        )
    measured = ~np.isnan(t)
    return p[measured], t[measured]


def is_constant(x: NDArray[np.float64]) -> bool:
    """Return whether all values are equal up to rounding; true for fewer than two values."""
    return len(x) < 2 or bool(np.ptp(x) <= CONSTANT * np.abs(x).max())


def pearson(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Return the Pearson correlation of two arrays without missing values; NaN where either is constant."""
    if is_constant(x) or is_constant(y):
        return math.nan
    # Scaling first keeps the sums of squares of very small or very large values in range.
    x, y = (x - x.mean()) / np.ptp(x), (y - y.mean()) / np.ptp(y)
    r = float(x @ y) / math.sqrt(float(x @ x) * float(y @ y))
    return min(1.0, max(-1.0, r))


def json_safe(metrics: Mapping[str, float]) -> dict[str, float | None]:
    """Return the same metrics with None in place of NaN and infinities, which JSON does not have."""
    return {name: value if math.isfinite(value) else None for name, value in metrics.items()}


@dataclass(frozen=True)
class ResultRow:
    """Hold the metrics of one model on one part of a split, for one phenotype.

    Attributes:
        model: name shown, e.g. ``additive ridge``.
        part: ``train``, ``validation`` or ``test``.
        phenotype: label column.
        metrics: from :func:`regression_metrics`, in the original units of the phenotype; for a phenotype of 0 and 1
            also those of :func:`~dglcell.metrics.classification_metrics`.
        is_null: whether it is a null model.
        kind: kind of the phenotype's labels, ``regression`` or ``classification``; see ``Strains.kinds``.
    """

    model: str
    part: str
    phenotype: str
    metrics: Mapping[str, float]
    is_null: bool = False
    kind: str = REGRESSION


# Metrics of phenotypes that are there or not: how well predictions rank, and how well they are calibrated.


RANKING_METRICS = ("average_precision", "auroc", "brier", "prevalence", "n")


def classification_metrics(prediction: ArrayLike, target: ArrayLike) -> dict[str, float]:
    """Compare predictions with labels 0 and 1, in float64.

    Args:
        prediction: [S] scores, higher for 1; probabilities for ``brier``. One that is not finite makes the metrics NaN.
        target: [S] 0 or 1; NaN where missing, those strains are left out.

    Returns:
        ``average_precision`` (see :func:`average_precision`), ``auroc``, ``brier`` (mean squared error), ``prevalence``
        (share of 1, what a random ranking has as average precision) and ``n``. What is undefined is NaN: everything
        but ``n`` for no strain, ``average_precision`` without a label 1, ``auroc`` without both labels.

    Raises:
        DataError: the shapes differ or are not one-dimensional, or a label is neither 0 nor 1.
    """
    p, t = measured_pairs(prediction, target)
    positive = t == 1
    if not (positive | (t == 0)).all():
        raise DataError("classification metrics: a label is neither 0 nor 1", got=float(t[~positive & (t != 0)][0]))
    if len(t) == 0 or not np.isfinite(p).all():
        return {name: math.nan for name in RANKING_METRICS[:-1]} | {"n": len(t)}
    return {
        "average_precision": average_precision(p, positive),
        "auroc": auroc(p, positive),
        "brier": float(np.mean((p - t) ** 2)),
        "prevalence": float(positive.mean()),
        "n": len(t),
    }


def average_precision(score: NDArray[np.float64], positive: NDArray[np.bool_]) -> float:
    """Average over the positives the precision among all strains that score at least as high; NaN without positives.

    Strains of equal score are found together, so that their order does not matter. It is the area under the
    precision–recall curve as a step function, Σ (recall_k − recall_{k−1}) precision_k.
    """
    if not positive.any():
        return math.nan
    _, found, taken = ranked(score, positive)
    return float(np.sum(np.diff(found, prepend=0) * (found / taken)) / positive.sum())


def mean_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ranks from 1 on; equal values have their mean rank.

    This does without scipy.stats, which takes a second to import.
    """
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: NDArray[np.float64] = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return ranks


def auroc(score: NDArray[np.float64], positive: NDArray[np.bool_]) -> float:
    """Return the chance that a positive scores higher than a negative, ties counted half; NaN without both.

    Mann and Whitney 1947: from the sum of the positives' ranks, equal scores having their mean rank.
    """
    positives = int(positive.sum())
    pairs = positives * (len(positive) - positives)
    if not pairs:
        return math.nan
    ranks = float(mean_ranks(score)[positive].sum())
    return (ranks - positives * (positives + 1) / 2) / pairs


def f1(prediction: ArrayLike, target: ArrayLike, threshold: float) -> float:
    """Return the harmonic mean of precision and recall where predictions from ``threshold`` on count as 1.

    NaN without a label 1 or a threshold, or if a prediction is not finite. Arguments as of `best_threshold`.
    """
    p, t = measured_pairs(prediction, target)
    if math.isnan(threshold) or not (t == 1).any() or not np.isfinite(p).all():
        return math.nan
    called, positive = p >= threshold, t == 1
    return float(2 * (called & positive).sum() / (called.sum() + positive.sum()))


def best_threshold(prediction: ArrayLike, target: ArrayLike) -> float:
    """Return the prediction from which on F1 is highest, the highest of several; NaN without a label 1.

    Args:
        prediction: [S] scores.
        target: [S] 0 or 1; NaN where missing.
    """
    p, t = measured_pairs(prediction, target)
    positive = t == 1
    if not positive.any() or not np.isfinite(p).all():
        return math.nan
    scores, found, taken = ranked(p, positive)
    return float(scores[np.argmax(found / (taken + positive.sum()))])


def ranked(
    score: NDArray[np.float64], positive: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct scores from the highest down, and how many positives and strains score at least as high."""
    order = np.argsort(-score, kind="stable")
    last = np.flatnonzero(np.append(np.diff(score[order]) != 0, True))
    return score[order][last], np.cumsum(positive[order], dtype=np.int64)[last], last + 1


def rows_of(
    model: str,
    phenotype: str,
    kind: str,
    predicted: Mapping[str, NDArray[np.floating]],
    measured: Mapping[str, NDArray[np.floating]],
    *,
    is_null: bool = False,
) -> list[ResultRow]:
    """Compute the metrics of a model for one phenotype, a row per part.

    Args:
        model: name shown.
        phenotype: label column.
        kind: kind of its labels. Classes are told apart at the threshold that is best on the validation part.
        predicted: part → [S] predictions; the validation part among them, unless there are none.
        measured: part → [S] labels.
        is_null: whether it is a null model.
    """
    is_class = kind == CLASSIFICATION
    threshold = best_threshold(predicted["validation"], measured["validation"]) if is_class and predicted else math.nan
    rows = []
    for part, values in predicted.items():
        metrics = regression_metrics(values, measured[part])
        if is_class:
            metrics |= classification_metrics(values, measured[part])
            metrics |= {"f1": f1(values, measured[part], threshold), "threshold": threshold}
        rows.append(ResultRow(model, part, phenotype, metrics, is_null, kind))
    return rows


def row_of(
    model: str,
    phenotype: str,
    part: str,
    predicted: NDArray[np.floating],
    measured: NDArray[np.floating],
    *,
    is_null: bool = False,
) -> ResultRow:
    """Compute the metrics of a model on strains outside its split.

    Labels 0 and 1 are classes, which no threshold tells apart here.

    Args:
        model: name shown.
        phenotype: the phenotype that the model predicts.
        part: name shown.
        predicted: [S] predictions.
        measured: [S] labels.
        is_null: whether it is a null model.
    """
    metrics, kind = regression_metrics(predicted, measured), REGRESSION
    if np.isin(measured[~np.isnan(measured)], (0, 1)).all():
        metrics, kind = metrics | classification_metrics(predicted, measured), CLASSIFICATION
    return ResultRow(model, part, phenotype, metrics, is_null, kind)


# The table that compares models.


NODES = "nodes"
"""Values of nodes are of this kind, whose metrics are over all nodes of a type (``dglcell.training.node_results``)."""

COLUMNS = {
    REGRESSION: {"n": "n", "pearson": "Pearson", "spearman": "Spearman", "r2": "R²", "mse": "MSE", "mae": "MAE"},
    CLASSIFICATION: {
        "n": "n",
        "prevalence": "positive",
        "average_precision": "AP",
        "auroc": "AUROC",
        "f1": "F1",
        "brier": "Brier",
    },
    NODES: {
        "n": "n",
        "nodes": "nodes",
        "pearson": "Pearson",
        "r2": "R²",
        "mae": "MAE",
        "unbalanced": "unbalanced",
    },
}
"""This maps the kind of labels and a metric to the title of its column."""

HEADLINE = {REGRESSION: "pearson", CLASSIFICATION: "average_precision", NODES: "pearson"}
"""This maps the kind of labels to the metric that comes first where models are compared."""

COMPARED = {
    REGRESSION: ("pearson", "spearman", "mae"),
    CLASSIFICATION: ("average_precision", "auroc"),
    NODES: ("pearson", "r2", "mae"),
}
"""This maps the kind of labels to the metrics by which a null model may be better than a model; a sentence names the
metric."""

PERMUTED = "permuted labels"
"""Tables give this name to the same model, trained on permuted labels (``dglcell.training.control``)."""

UNRANKED = frozenset({"n", "nodes", "prevalence", "unbalanced"})
COUNTED = frozenset({"n", "nodes"})
LOWER_IS_BETTER = frozenset({"mse", "rmse", "mae", "brier"})
UNDEFINED = "-"
BEST = "* marks the best value of its column, for each phenotype and part."
NO_TEST_PART = (
    "There is no test part, because every strain trained (`split.kind: none`). Nothing here says how good the "
    "predictions are. The same settings with another split say it."
)


def best_in_block(rows: Sequence[ResultRow], metric: str) -> set[int]:
    """Return the positions of the best rows of each block (phenotype and part) by ``metric``.

    An undefined value never wins, and a block with a single row has no best.
    """
    blocks: dict[tuple[str, str], list[int]] = {}
    for position, row in enumerate(rows):
        blocks.setdefault((row.phenotype, row.part), []).append(position)
    sign = -1.0 if metric in LOWER_IS_BETTER else 1.0
    best: set[int] = set()
    for positions in blocks.values():
        scores = {i: sign * rows[i].metrics.get(metric, math.nan) for i in positions}
        finite = {i: score for i, score in scores.items() if math.isfinite(score)}
        if len(positions) > 1 and finite:
            top = max(finite.values())
            best |= {i for i, score in finite.items() if score == top}
    return best


def beaten(rows: Sequence[ResultRow]) -> list[str]:
    """Return a sentence for each model and phenotype whose test part a null model predicts better by some measure."""
    test = [row for row in rows if row.part == "test"]
    sentences = []
    for own in (row for row in test if not row.is_null):
        nulls = [row for row in test if row.is_null and row.phenotype == own.phenotype]
        better: dict[str, list[str]] = {}
        for metric in COMPARED[own.kind]:
            name, values = _better_null(own, nulls, metric)
            if name:
                better.setdefault(name, []).append(f"{COLUMNS[own.kind][metric]} ({values})")
        if better:
            said = "; ".join(f"'{name}' by {', '.join(measures)}" for name, measures in better.items())
            sentences.append(
                f"On the test part null models predict {own.phenotype} better than {own.model} does: {said}."
            )
    return sentences


def _better_null(own: ResultRow, nulls: Sequence[ResultRow], metric: str) -> tuple[str, str]:
    """Return the best null model by one measure, and both values; empty texts where the model is as good."""
    sign = -1.0 if metric in LOWER_IS_BETTER else 1.0
    scores = {row.model: sign * row.metrics.get(metric, math.nan) for row in nulls}
    best = max((name for name in scores if math.isfinite(scores[name])), key=scores.__getitem__, default="")
    reached = own.metrics.get(metric, math.nan)
    if not best or sign * reached >= scores[best]:
        return "", ""
    values = sign * scores[best], reached
    theirs, own_text = (format_metric(metric, value) for value in values)
    if theirs == own_text:  # as shown; more digits say which is better
        theirs, own_text = (f"{value:.7g}" for value in values)
    return best, f"{theirs} against {own_text}"


def ahead_lines(rows: Sequence[ResultRow]) -> list[str]:
    """Return a sentence for each phenotype on how far the model is ahead of the best null model of the test part.

    Args:
        rows: rows of the table.
    """
    sentences = []
    for own in (row for row in rows if row.part == "test" and not row.is_null):
        nulls = [row for row in rows if row.part == "test" and row.is_null and row.phenotype == own.phenotype]
        compared = [row for row in nulls if math.isfinite(row.metrics.get("ahead_low", math.nan))]
        if not compared:
            continue
        best = min(compared, key=lambda row: row.metrics["ahead"])
        ends = {
            what: (best.metrics[f"{key}_low"], best.metrics[f"{key}_high"])
            for what, key in {"strains": "ahead", "genes": "ahead_genes"}.items()
            if f"{key}_low" in best.metrics
        }
        verdict = "This does not tell which of them is better."
        if all(low > 0 for low, _ in ends.values()):
            verdict = "The model is better."
        elif all(high < 0 for _, high in ends.values()):
            verdict = "The null model is better."
        drawn = ", ".join(f"{low:+.3f} to {high:+.3f} if {what} are drawn again" for what, (low, high) in ends.items())
        drawn = drawn.replace("-", "\N{MINUS SIGN}")
        measure = COLUMNS[own.kind]["average_precision" if own.kind == CLASSIFICATION else "pearson"]
        lead = best.metrics["ahead"]
        sentences.append(
            f"On the test part {measure} of {own.phenotype} is {abs(lead):.3f} {'higher' if lead > 0 else 'lower'} for "
            f"{own.model} than for '{best.model}' (95 % intervals: {drawn}). {verdict}"
        )
    return sentences


def lines_below(rows: Sequence[ResultRow], split: str) -> list[str]:
    """Return the sentences below a table: leads, what is reached by chance, what can be reached, and intervals.

    Args:
        rows: rows of the table.
        split: kind of the split, as for `coverage_lines`.
    """
    return [*ahead_lines(rows), *permuted_lines(rows), *ceiling_lines(rows), *coverage_lines(rows, split)]


def permuted_lines(rows: Sequence[ResultRow]) -> list[str]:
    """Return a sentence for each phenotype on what the model reaches on the test part by chance.

    Args:
        rows: rows of the table; those on permuted labels have the score that 95 % of the permutations do not exceed.
    """
    test = [row for row in rows if row.part == "test"]
    sentences = []
    for row in (row for row in test if row.model == PERMUTED):
        own = next((one for one in test if one.phenotype == row.phenotype and not one.is_null), None)
        metric = HEADLINE[row.kind]
        reached, chance = (math.nan if one is None else one.metrics.get(metric, math.nan) for one in (own, row))
        if own is None or math.isnan(reached) or math.isnan(chance):
            continue
        times = round(row.metrics.get("permutations", 1))
        sentences.append(
            f"Trained on permuted labels, {own.model} has {COLUMNS[row.kind][metric]} of {row.phenotype} of at most "
            f"{chance:.3f} in 95 % of {count(times, 'training')}; trained on the measured ones it has {reached:.3f}."
            + ("" if reached > chance else " So it has not learned anything that is true of the test part.")
        )
    return sentences


def ceiling_lines(rows: Sequence[ResultRow]) -> list[str]:
    """Return a sentence for each phenotype on what a model without error would reach, where replicates say it.

    Args:
        rows: rows of the table; the model's own of the test part have the metric ``ceiling``.
    """
    own = [row for row in rows if row.part == "test" and not row.is_null]
    return [
        f"Because of errors of measurement, a model without error would have Pearson of {row.phenotype} of about "
        f"{row.metrics['ceiling']:.3f} on the test part; {row.model} has {row.metrics.get('pearson', math.nan):.3f}."
        for row in own
        if math.isfinite(row.metrics.get("ceiling", math.nan))
    ]


def coverage_lines(rows: Sequence[ResultRow], split: str) -> list[str]:
    """Return sentences on intervals and calibrated probabilities of the model on the test part, for each phenotype.

    Args:
        rows: rows of the table.
        split: kind of the split, which says what was to be expected.
    """
    sentences = []
    share = f"{INTERVAL_COVERAGE:.0%}".replace("%", " %")
    for row in (row for row in rows if row.part == "test" and not row.is_null):
        found = {name: row.metrics[name] for name in ("covered", "width", "constant_width") if name in row.metrics}
        if len(found) == 3 and all(map(math.isfinite, found.values())):
            width, same = (format_metric("mae", found[name]) for name in ("width", "constant_width"))
            sentences.append(
                f"Intervals that are to hold {share} of {row.phenotype} hold {100 * found['covered']:.1f} % of "
                f"{int(row.metrics['n']):,} test strains. Their mean width is {width}; where all have the same width, "
                f"it is {same}."
            )
        brier = row.metrics.get("calibrated_brier", math.nan)
        if math.isfinite(brier):
            own = format_metric("brier", row.metrics.get("brier", math.nan))
            sentences.append(
                f"Calibrated probabilities of {row.phenotype} have a Brier score of {format_metric('brier', brier)} on "
                f"the test part, and the predictions themselves have {own}."
            )
    if any("covered" in row.metrics for row in rows) and split in CALIBRATES:
        sentences.append(CALIBRATES[split].format(share=share))
    return sentences


def left_out_lines(left_out: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return sentences on the null models that do not apply, one for each reason.

    Args:
        left_out: phenotype → null model → reason.
    """
    phenotypes: dict[tuple[str, str], list[str]] = {}
    for phenotype, reasons in left_out.items():
        for reason in dict.fromkeys(reasons.values()):
            names = ", ".join(f"'{name}'" for name in reasons if reasons[name] == reason)
            phenotypes.setdefault((names, reason), []).append(phenotype)
    return [
        f"The null model {names} is left out for {', '.join(found)}, because it {reason}."
        if "," not in names
        else f"The null models {names} are left out for {', '.join(found)}, because each {reason}."
        for (names, reason), found in phenotypes.items()
    ]


def format_results_table(rows: Iterable[ResultRow], *, color: bool = False, width: int | None = None) -> str:
    """Format the comparison: blocks of phenotype and part, a line for each model, ``*`` at the best of each column.

    Phenotypes of numbers and of classes have a table each, with the columns of their kind. A sentence below says where
    a null model is better than the model. Without rows, a sentence says that there is no test part.

    Args:
        rows: any order; blocks keep the order in which they first appear, lines the order within.
        color: bold best values and dim null models, for a terminal.
        width: characters; as wide as needed if None.
    """
    rows = list(rows)
    if not rows:
        return NO_TEST_PART
    kinds = dict.fromkeys(row.kind for row in rows)
    tables = [_format_kind([row for row in rows if row.kind == kind], COLUMNS[kind], color, width) for kind in kinds]
    return "\n\n".join([*tables, BEST, *map(printable, beaten(rows))])


def format_expected(rows: Sequence[ResultRow], metric: str, value: float, tolerance: float) -> str:
    """Say whether the model's result on the test part, for its first phenotype, is the expected one.

    Args:
        rows: rows of the table.
        metric: as in ``results.json``.
        value, tolerance: the result has to be within ``tolerance`` of ``value``.
    """
    row = next(row for row in rows if row.part == "test" and not row.is_null)
    found = row.metrics.get(metric, math.nan)
    wanted = f"{value:g} ± {tolerance:g}"
    about = f"{metric} of {row.phenotype} on the test part: {wanted} was expected, {found:.4f} was found."
    if abs(found - value) <= tolerance:
        return f"{about} The expected result was met."
    return f"{about} The expected result was NOT met. `dglcell doctor` checks what works on this machine."


def _format_kind(rows: list[ResultRow], columns: Mapping[str, str], color: bool, width: int | None) -> str:
    order = list(dict.fromkeys((row.phenotype, row.part) for row in rows))
    rows.sort(key=lambda row: order.index((row.phenotype, row.part)))
    best = {metric: best_in_block(rows, metric) for metric in columns if metric not in UNRANKED}
    table = Table(box=None, pad_edge=False, header_style="bold" if color else "")
    for title in ("phenotype", "part", "model"):
        table.add_column(title, no_wrap=True)
    for title in columns.values():
        table.add_column(title, justify="right", no_wrap=True)
    previous: tuple[str, str] | None = None
    for i, row in enumerate(rows):
        block = (row.phenotype, row.part)
        if previous is not None and block != previous:
            table.add_section()
        labels = block if block != previous else ("", "")
        cells = [_cell(row, metric, i in best.get(metric, ())) for metric in columns]
        # Names may be a stranger's, whose escape codes would steer the terminal.
        texts = [printable(text) for text in (*labels, row.model)]
        table.add_row(*texts, *cells, style="dim" if color and row.is_null else None)
        previous = block
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        force_jupyter=False,  # a notebook would show the table instead of writing it
        width=width or 400,
        force_terminal=color,
        color_system="standard" if color else None,
        markup=False,
    )
    console.print(table)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines())


def format_metric(metric: str, value: float) -> str:
    """Format one value as the tables show it; errors have four digits, correlations three decimals."""
    if not math.isfinite(value):
        return UNDEFINED
    if metric in COUNTED:
        return f"{int(value):,}"
    # Adding zero turns a rounded −0.000 into 0.000.
    return f"{value:#.4g}".removesuffix(".") if metric in LOWER_IS_BETTER else f"{round(value, 3) + 0.0:.3f}"


def _cell(row: ResultRow, metric: str, is_best: bool) -> str:
    value = row.metrics.get(metric, math.nan)
    # A column that may be marked keeps room for the mark.
    mark = "" if metric in COUNTED and math.isfinite(value) else "*" if is_best else " "
    return format_metric(metric, value) + mark

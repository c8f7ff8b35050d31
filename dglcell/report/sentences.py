"""Write the sentences below the table that compares a model with null models."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from dglcell.data.config import CALIBRATES, INTERVAL_COVERAGE
from dglcell.data.table import CLASSIFICATION, REGRESSION
from dglcell.metrics import (
    COLUMNS,
    FEWEST_OF_CORRELATION,
    HEADLINE,
    NODES,
    ResultRow,
    best_row,
    format_both,
    format_metric,
)

COMPARED = {
    REGRESSION: ("pearson", "spearman", "mae"),
    CLASSIFICATION: ("average_precision", "auroc"),
    NODES: ("pearson", "r2", "mae"),
}
"""This maps the kind of labels to the metrics by which a null model may be better than a model; a sentence names the
metric."""


def lines_below(rows: Sequence[ResultRow], split: str) -> list[str]:
    """Return the sentences below a table: leads, scores within conditions, by chance and at best, and intervals."""
    about_scores = [*ahead_lines(rows), *within_lines(rows), *ceiling_lines(rows)]
    return [*about_scores, *coverage_lines(rows, split)]


def tested(rows: Sequence[ResultRow]) -> Iterator[tuple[ResultRow, list[ResultRow]]]:
    """Yield each row of the model on the test part, with those of null models for the same phenotype."""
    test = [row for row in rows if row.part == "test"]
    for own in test:
        if not own.is_null:
            yield own, [row for row in test if row.is_null and row.phenotype == own.phenotype]


def beaten(rows: Sequence[ResultRow]) -> list[str]:
    """Return a sentence for each model and phenotype whose test part a null model predicts better by some measure."""
    sentences = []
    for own, nulls in tested(rows):
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
    best = best_row([own, *nulls], metric)
    if best is None or best is own:
        return "", ""
    theirs, own_text = format_both(metric, best.metrics[metric], own.metrics.get(metric, math.nan))
    return best.model, f"{theirs} against {own_text}"


def ahead_lines(rows: Sequence[ResultRow]) -> list[str]:
    """Return a sentence for each phenotype on how far the model is ahead of the best null model of the test part."""
    sentences = []
    for own, nulls in tested(rows):
        if own.metrics.get("n", math.inf) <= FEWEST_OF_CORRELATION:
            continue
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
        measure = COLUMNS[own.kind][HEADLINE[own.kind]]
        lead = best.metrics["ahead"]
        sentences.append(
            f"On the test part {measure} of {own.phenotype} is {abs(lead):.3f} {'higher' if lead > 0 else 'lower'} for "
            f"{own.model} than for '{best.model}' (95 % intervals: {drawn}). {verdict}"
        )
    return sentences


def within_lines(rows: Sequence[ResultRow]) -> list[str]:
    """Return a sentence for each phenotype on the mean of Pearson's r within each medium or other condition.

    Args:
        rows: rows of the table; those of strains in several conditions have the metric ``pearson_within``.
    """
    known = [row for row in rows if math.isfinite(row.metrics.get("pearson_within", math.nan))]
    sentences = []
    for own, nulls in tested(known):
        best = best_row(nulls, "pearson_within")
        other = f", and '{best.model}' has {best.metrics['pearson_within']:.3f}" if best else ""
        sentences.append(
            f"Within one condition at a time, such as a medium, Pearson of {own.phenotype} is "
            f"{own.metrics['pearson_within']:.3f} on average for {own.model}{other}. "
            "That of all test strains also counts that conditions differ in their means."
        )
    return sentences


def ceiling_lines(rows: Sequence[ResultRow]) -> list[str]:
    """Return what a model without error would reach for each phenotype, where replicates say it.

    Where the model or a null model is above that, it says so.

    Args:
        rows: rows of the table; the model's own of the test part have the metric ``ceiling``.
    """
    sentences = []
    for own, nulls in tested(rows):
        ceiling, best = own.metrics.get("ceiling", math.nan), best_row([own, *nulls], "pearson")
        if not math.isfinite(ceiling):
            continue
        text = (
            f"Because of errors of measurement, a model without error would have Pearson of {own.phenotype} of about "
            f"{ceiling:.3f} on the test part; {own.model} has {own.metrics.get('pearson', math.nan):.3f}."
        )
        if best is not None and best.metrics["pearson"] > ceiling:
            text += f" As {best.model} reaches {best.metrics['pearson']:.3f}, replicates must vary more than that."
        sentences.append(text)
    return sentences


def coverage_lines(rows: Sequence[ResultRow], split: str) -> list[str]:
    """Return sentences on intervals and calibrated probabilities of the model on the test part, for each phenotype.

    The kind of the ``split`` says what was to be expected.
    """
    sentences = []
    share = f"{INTERVAL_COVERAGE:.0%}".replace("%", " %")
    for row, _ in tested(rows):
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


def format_expected(rows: Sequence[ResultRow], metric: str, value: float, tolerance: float) -> str:
    """Say whether the model's result on the test part, for its first phenotype, is the expected one.

    Args:
        metric: as in ``results.json``.
        value, tolerance: the result has to be within ``tolerance`` of ``value``.
    """
    row, _ = next(tested(rows))
    found = row.metrics.get(metric, math.nan)
    wanted = f"{value:g} ± {tolerance:g}"
    about = f"{metric} of {row.phenotype} on the test part: {wanted} was expected, {found:.4f} was found."
    if abs(found - value) <= tolerance:
        return f"{about} The expected result was met."
    return f"{about} The expected result was NOT met. `dglcell doctor` checks what works on this machine."

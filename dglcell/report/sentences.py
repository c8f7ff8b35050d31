"""Write what is known beside a table of results, a line for each fact: leads, ceilings, intervals, what is left out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from dglcell.data.config import CALIBRATES, INTERVAL_COVERAGE
from dglcell.metrics import COLUMNS, FEWEST_OF_CORRELATION, HEADLINE, ResultRow, best_row, format_metric


def lines_below(rows: Sequence[ResultRow], split: str) -> list[str]:
    """Return the lines below a table: leads, scores within conditions, what is the most possible, and intervals."""
    return [*ahead_lines(rows), *within_lines(rows), *ceiling_lines(rows), *coverage_lines(rows, split)]


def tested(rows: Sequence[ResultRow]) -> Iterator[tuple[ResultRow, list[ResultRow]]]:
    """Yield each row of the network on the test part, with those of baselines for the same phenotype."""
    test = [row for row in rows if row.part == "test"]
    for own in test:
        if own.is_network:
            yield own, [row for row in test if row.is_null and row.phenotype == own.phenotype]


def ahead_lines(rows: Sequence[ResultRow]) -> list[str]:
    """Say for each phenotype how far the model is ahead of the best null model of the test part, with intervals."""
    lines = []
    for own, nulls in tested(rows):
        compared = [row for row in nulls if math.isfinite(row.metrics.get("ahead_low", math.nan))]
        if not compared or own.metrics.get("n", math.inf) <= FEWEST_OF_CORRELATION:
            continue
        best = min(compared, key=lambda row: row.metrics["ahead"])
        drawn = {"strains": "ahead", "genes": "ahead_genes"}
        drawn = {what: key for what, key in drawn.items() if f"{key}_low" in best.metrics}
        ends = {what: [best.metrics[f"{key}_{end}"] for end in ("low", "high")] for what, key in drawn.items()}
        ahead, metric = best.metrics["ahead"], COLUMNS[own.kind][HEADLINE[own.kind]]
        within = " and ".join(f"{low:+.3f} to {high:+.3f} over {what}" for what, (low, high) in ends.items())
        if any(low <= 0 <= high for low, high in ends.values()):
            verdict = f"no difference is shown between {own.model} and '{best.model}'"
        else:
            verdict = f"{own.model} is {'better' if ahead > 0 else 'worse'} than '{best.model}'"
        lines.append(f"{own.phenotype}: {verdict} ({metric} {ahead:+.3f}, 95 % interval {within})")
    return lines


def predicts_lines(choices: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Say for each phenotype what predicts it, and why.

    Args:
        choices: phenotype → ``name`` and ``why``, as ``predicts`` in ``results.json``.
    """
    return [f"{phenotype} is predicted by {one['name']} ({one['why']})" for phenotype, one in choices.items()]


def within_lines(rows: Sequence[ResultRow]) -> list[str]:
    """Say for each phenotype the mean of Pearson's r within each medium or other condition.

    Args:
        rows: rows of the table; those of strains in several conditions have the metric ``pearson_within``.
    """
    known = [row for row in rows if math.isfinite(row.metrics.get("pearson_within", math.nan))]
    lines = []
    for own, nulls in tested(known):
        best = best_row(nulls, "pearson_within")
        other = f", '{best.model}' {best.metrics['pearson_within']:.3f}" if best else ""
        found = f"{own.model} {own.metrics['pearson_within']:.3f}{other}"
        lines.append(f"{own.phenotype}: Pearson within one condition at a time, on average: {found}")
    return lines


def ceiling_lines(rows: Sequence[ResultRow]) -> list[str]:
    """Say what a model without error would reach for each phenotype, where replicates say it.

    Args:
        rows: rows of the table; the model's own of the test part have the metric ``ceiling``.
    """
    return [
        f"{own.phenotype}: Pearson of a model without error, by replicates: about {own.metrics['ceiling']:.3f}"
        for own, _ in tested(rows)
        if math.isfinite(own.metrics.get("ceiling", math.nan))
    ]


def coverage_lines(rows: Sequence[ResultRow], split: str) -> list[str]:
    """Say what intervals and calibrated probabilities hold on the test part, for each phenotype.

    The kind of the ``split`` says what was to be expected.
    """
    lines, share = [], f"{INTERVAL_COVERAGE:.0%}".replace("%", " %")
    for row in (row for row in rows if row.part == "test"):
        found = {name: row.metrics[name] for name in ("covered", "width", "constant_width") if name in row.metrics}
        if len(found) == 3 and all(map(math.isfinite, found.values())):
            width, same = (format_metric("mae", found[name]) for name in ("width", "constant_width"))
            number = int(row.metrics["n"])
            error = math.sqrt(INTERVAL_COVERAGE * (1 - INTERVAL_COVERAGE) / number)
            chance = abs(found["covered"] - INTERVAL_COVERAGE) < 1.96 * error
            lines.append(
                f"{row.phenotype}: intervals for {share} hold {100 * found['covered']:.1f} % of {number:,} test strains"
                f"{f', which agrees with {share}' if chance else ''}; their width is {width}"
                + ("" if width == same else f" on average, and would be {same} if it were the same for all")
            )
        brier = row.metrics.get("calibrated_brier", math.nan)
        if math.isfinite(brier):
            own = format_metric("brier", row.metrics.get("brier", math.nan))
            lines.append(
                f"{row.phenotype}: Brier score of calibrated probabilities: {format_metric('brier', brier)}, of "
                f"predictions {own}"
            )
    if any("covered" in row.metrics for row in rows) and split in CALIBRATES:
        lines.append(CALIBRATES[split].format(share=share))
    return lines


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

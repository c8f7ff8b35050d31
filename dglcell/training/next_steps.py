"""Print after a training how to predict, how sure the model is, and what may help."""

from __future__ import annotations

import csv
import io
import itertools
import math
import shlex
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dglcell.data.table import CLASSIFICATION, LEARNED_STRENGTHS
from dglcell.errors import count
from dglcell.metrics import COLUMNS, FEWEST_OF_CORRELATION, HEADLINE, ResultRow, format_metric
from dglcell.plots.data import History
from dglcell.report.run_files import RunFiles
from dglcell.report.run_tables import MEASURED, PREDICTED
from dglcell.runs.directory import RunDirectory
from dglcell.training.advice import ENOUGH, more_epochs, still_falling
from dglcell.training.with_null import Comparison, compare

WIDTH, INDENT = 80, 10
MOST_PHENOTYPES = 3

STEPS_PER_EPOCH = 20
"""Small tables, like that of `dglcell init`, have so many steps; half as many are few."""

NEARLY = 0.9
"""From this correlation on, a null model of single effects explains the labels."""

TOLD = {
    "multiplicative": "products of single effects",
    "additive ridge": "sums of single effects",
}
"""Each null model maps to a description of the labels if it is right."""


def what_next(run: RunFiles) -> str:
    """Return the lines, at most as wide as a terminal except for commands that are to be pasted."""
    lines = ["What next"]
    # The table is overwritten, so it has a name that no file of this folder has.
    names = (f"new_strains{'' if number == 1 else f'_{number}'}.csv" for number in itertools.count(1))
    genes, file = example(run.directory), next(name for name in names if not Path(name).exists())
    said = f"dglcell predict {shlex.quote(str(run.directory.path))} {file}"
    lines += _entry("predict", [f"printf '{genes}' > {file}", said] if genes else [said])
    for text in how_sure(run.rows, run.results["units"]):
        lines += _entry("how sure", _wrap(text))
    for text in to_try(run):
        lines += _entry("to try", _wrap(text))
    return "\n".join(lines)


def _entry(label: str, texts: list[str]) -> list[str]:
    return [f"  {label if i == 0 else '':<{INDENT}}{text}" for i, text in enumerate(texts)]


def _wrap(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH - INDENT - 2, break_long_words=False, break_on_hyphens=False)


def example(directory: RunDirectory) -> str:
    """Return a small table of strains for ``printf``, with two test strains; it is empty if there are none."""
    path = directory.predictions("test")
    if not path.is_file():
        return ""
    with open(path, newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        shown = [name for name in reader.fieldnames or () if not name.startswith((MEASURED, PREDICTED))]
        shown = [name for name in shown if name not in ("names", LEARNED_STRENGTHS)]
        strains = [
            [line.get("names") or line["genes"], *(line[name] for name in shown[1:])]
            for line in itertools.islice(reader, 2)
        ]
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows([shown, *strains])
    quoted = table.getvalue().replace("\\", "\\\\").replace("%", "%%").replace("'", "'\\''").replace("\n", "\\n")
    return quoted if strains else ""


def how_sure(rows: list[ResultRow], units: Mapping[str, str]) -> Iterator[str]:
    """Return a sentence about the certainty of each of the first phenotypes; a single one if nothing was tested."""
    own = [row for row in rows if row.part == "test" and not row.is_null]
    if not own:
        yield "nothing says it: there is no test part"
    for row in own[:MOST_PHENOTYPES]:
        metric, n = HEADLINE[row.kind], int(row.metrics.get("n", 0))
        value = row.metrics.get(metric, math.nan)
        low, high = interval(row)
        between = f"95 % interval {format_metric(metric, low)} to {format_metric(metric, high)}, "
        between = between if math.isfinite(low) else ""
        score = f"{row.phenotype}: test {COLUMNS[row.kind][metric]} {format_metric(metric, value)} ({between}n = {n:,})"
        if row.kind != CLASSIFICATION and n <= FEWEST_OF_CORRELATION:
            score = f"{row.phenotype}: {count(n, 'test strain')}, too few for a correlation"
        error, unit = row.metrics.get("mae", math.nan), units.get(row.phenotype, "")
        off = f"; wrong by {format_metric('mae', error)}{f' {unit}' if unit else ''} on average (MAE)"
        yield score + (off if row.kind != CLASSIFICATION and math.isfinite(error) else "")
    if len(own) > MOST_PHENOTYPES:
        yield f"and {len(own) - MOST_PHENOTYPES} more phenotypes in the table"


def interval(row: ResultRow) -> tuple[float, float]:
    """Return the 95 % interval of the score by which models are compared, as if test strains were independent.

    A correlation gets its interval by Fisher's transformation; an average precision gets the logit interval of Boyd,
    Eng and Page 2013 (ECML PKDD). The interval is NaN where it is undefined.
    """
    value, n = row.metrics.get(HEADLINE[row.kind], math.nan), row.metrics.get("n", 0)
    if not math.isfinite(value):
        return math.nan, math.nan
    if row.kind == CLASSIFICATION:
        positives = row.metrics.get("prevalence", math.nan) * n
        if not 0 < value < 1 or not positives > 0:
            return math.nan, math.nan
        middle, reach = math.log(value / (1 - value)), 1.96 / math.sqrt(positives * value * (1 - value))
        return _logistic(middle - reach), _logistic(middle + reach)
    if n <= FEWEST_OF_CORRELATION or abs(value) >= 1:
        return math.nan, math.nan
    reach = 1.96 / math.sqrt(n - 3)
    return math.tanh(math.atanh(value) - reach), math.tanh(math.atanh(value) + reach)


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def to_try(run: RunFiles) -> Iterator[str]:
    """Return advice on what may help if a null model is better on the validation part.

    One that is no better than chance is not advised.
    """
    beaten = [found for found in compare(run.rows).values() if found.is_beaten]
    for found in [found for found in beaten if found.value > 0][:MOST_PHENOTYPES]:
        yield f"'{found.null_model}' predicts {found.phenotype} better ({found}): add --with best to the line above"
        yield from _single_effects(run.rows, found)
    if beaten:
        yield from _longer(run.config, run.environment, run.history)


def _single_effects(rows: list[ResultRow], found: Comparison) -> Iterator[str]:
    """Describe the labels if a null model of single effects is better than the model, and nearly right."""
    scores = {
        row.model: row.metrics.get(found.metric, math.nan)
        for row in rows
        if (row.part, row.phenotype) == ("validation", found.phenotype) and row.model in TOLD
    }
    least = max(NEARLY, found.own) if math.isfinite(found.own) else NEARLY
    right = {name: score for name, score in scores.items() if score >= least}
    if right:
        best = max(right, key=right.__getitem__)
        yield (
            f"labels of {found.phenotype} are nearly {TOLD[best]}: '{best}' alone reaches "
            f"{format_metric(found.metric, right[best])}, so that a network has little to add"
        )


def _longer(config: Mapping[str, Any], about: Mapping[str, Any], history: History) -> Iterator[str]:
    """Advise more steps if they were few or the loss was still falling."""
    epochs, steps = len(history), int(np.nan_to_num(history.curve("step")).max(initial=0))
    losses = history.curve("validation/loss")
    falling = still_falling(losses[np.isfinite(losses)].tolist())
    if not steps or not (falling or steps < ENOUGH):
        return
    more = more_epochs(epochs, steps)
    said = f"the training had {steps:,} steps" + (", and the loss was still falling" if falling else "")
    minutes = history.minutes * more / epochs
    longer = f"train longer with trainer.epochs={more} (about {minutes:.0f} min)" if minutes >= 1 else ""
    longer = longer or f"train longer with trainer.epochs={more} (less than a minute)"
    smaller = max(8, int(about["strains"]["train"]) // STEPS_PER_EPOCH)
    batch = config["data"]["batch_size"]
    is_large = isinstance(batch, int) and smaller < batch and 2 * steps < STEPS_PER_EPOCH * epochs
    yield f"{said}: {longer}" + (f", or in smaller batches with data.batch_size={smaller}" if is_large else "")

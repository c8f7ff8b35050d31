"""Predict with a null model in place of a run's own model: the best on the validation part, or one by name."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dglcell.baselines.fit import ALL_NULL_MODELS, NullModel, Problem, best_of, in_words
from dglcell.errors import CheckpointError, ConfigError, count, did_you_mean, listing
from dglcell.metrics import COLUMNS, HEADLINE, ResultRow, best_row, format_both
from dglcell.report.run_files import read_run
from dglcell.runs.directory import RunDirectory
from dglcell.training.checkpoint import Chosen, Trained
from dglcell.training.null_problems import null_problems
from dglcell.training.prepare import Prepared, prepare_run

log = logging.getLogger("dglcell")

MODEL, BEST = "model", "best"
"""These words choose the run's own model, or the best on the validation part among it and the null models."""

NAMES = tuple(ALL_NULL_MODELS)
"""These null models can be fitted again."""


@dataclass(frozen=True)
class Comparison:
    """A comparison is of a run's own model and its best null model on the validation part.

    Attributes:
        phenotype: the phenotype that is predicted.
        metric: the metric by which they are compared; more is better.
        model: name of the run's own model.
        own: value of the metric for the run's own model.
        null_model: name of the best null model.
        value: value of the metric for the best null model.
        n: number of measured strains of the validation part.
    """

    phenotype: str
    metric: str
    model: str
    own: float
    null_model: str
    value: float
    n: int

    @property
    def is_beaten(self) -> bool:
        """Return whether the null model is better.

        A model whose score is undefined is beaten by any that has a score.
        """
        return self.value > self.own or not math.isfinite(self.own)

    def __str__(self) -> str:
        own, value = format_both(self.metric, self.own, self.value)
        names = {**COLUMNS["regression"], **COLUMNS["classification"]}
        return f"{names[self.metric]} {value} against {own} on the validation part, {count(self.n, 'strain')}"


def compare(rows: Iterable[ResultRow]) -> dict[str, Comparison]:
    """Return phenotype → comparison, where the validation part was evaluated and a null model has a score there.

    The test part is not used, because a choice that is made by it cannot be judged by it.
    """
    validation = [row for row in rows if row.part == "validation"]
    found = {}
    for own in (row for row in validation if not row.is_null):
        metric = HEADLINE[own.kind]
        nulls = (row for row in validation if row.phenotype == own.phenotype and row.model in NAMES)
        best = best_row((row for row in nulls if row.is_null), metric)
        if best is not None:
            values = own.metrics.get(metric, math.nan), best.model, best.metrics[metric]
            n = int(own.metrics.get("n", 0))
            found[own.phenotype] = Comparison(own.phenotype, metric, own.model, *values, n)
    return found


def null_model_name(given: str) -> str:
    """Return the name of a null model however it is written: ``kernel-ridge`` is ``kernel ridge``.

    Raises:
        ConfigError: no null model has this name.
    """
    name = " ".join(given.replace("-", " ").replace("_", " ").lower().split())
    known = {name.replace("-", " "): name for name in NAMES}
    if name not in known:
        options = [MODEL, BEST, *(one.replace(" ", "-") for one in NAMES)]
        do = did_you_mean(given, options)
        raise ConfigError("what shall predict?", got=given, expected=", ".join(options), do=do)
    return known[name]


def predicting_with(wanted: str, trained: Trained, run: Path) -> Trained:
    """Return the trained model with its choice for each phenotype.

    The choice is the run's own model, the best on the validation part, or a null model.

    A null model is fitted again to the training part of the run. It does not depend on the strains to predict.

    Args:
        wanted: ``MODEL``, ``BEST`` or the name of a null model.

    Raises:
        CheckpointError: the run is not finished, or a null model is to be fitted to a store that is gone.
        ConfigError: no null model has the name, or it does not apply to these strains.
    """
    if wanted == MODEL:
        return trained
    own = trained.config.model.name
    names = {phenotype: null_model_name(wanted) for phenotype in trained.phenotypes} if wanted != BEST else {}
    if wanted == BEST:
        found = compare(read_run(run, parts=()).rows)
        for phenotype in trained.phenotypes:
            names[phenotype] = _best(phenotype, found.get(phenotype), own, run)
    to_fit = [phenotype for phenotype in trained.phenotypes if names[phenotype] != own]
    fitted = _fit(to_fit, names, trained, run) if to_fit else {}
    return replace(trained, chosen={name: Chosen(names[name], fitted.get(name)) for name in trained.phenotypes})


def _best(phenotype: str, found: Comparison | None, own: str, run: Path) -> str:
    """Return the name of the model that predicts a phenotype best, and log the reason."""
    if found is None:
        log.info("%s: '%s' predicts %s: no null model was evaluated on a validation part", run, own, phenotype)
        return own
    if not found.is_beaten:
        log.info("%s: '%s' predicts %s: no null model is better (%s)", run, own, phenotype, found)
        return own
    log.info("%s: the null model '%s' predicts %s instead of '%s' (%s)", run, found.null_model, phenotype, own, found)
    return found.null_model


def _fit(phenotypes: Sequence[str], names: dict[str, str], trained: Trained, run: Path) -> dict[str, NullModel]:
    """Return phenotype → its null model, fitted to the training part of a run."""
    prepared = _prepare(trained, run, listing(sorted({f"'{names[phenotype]}'" for phenotype in phenotypes})))
    fitted = {}
    for phenotype in phenotypes:
        problem = null_problems(prepared)[list(prepared.dataset.phenotypes).index(phenotype)].labelled()
        began = time.perf_counter()
        fitted[phenotype] = _fit_one(names[phenotype], problem, phenotype)
        seconds = time.perf_counter() - began
        said = in_words(names[phenotype], fitted[phenotype])
        strains = count(len(problem.y_train), "training strain")
        log.info("null model of %s: %s, fitted again to %s in %.1f s", phenotype, said, strains, seconds)
    return fitted


def _prepare(trained: Trained, run: Path, which: str) -> Prepared:
    """Prepare the data that a run was trained on."""
    remedy = "leave out `--with`, so that the model of the run predicts; or "
    if RunDirectory(run).card.is_file():
        raise CheckpointError(
            f"{which} cannot be fitted again: the trained model '{run.name}' comes without its strains",
            do=f"{remedy}train `{trained.config.experiment.name}`, and predict with its run",
        )
    try:
        return prepare_run(replace(trained.config, plot=False), RunDirectory(run), "dglcell predict", continued=True)
    except CheckpointError as error:
        what, _, do = str(error).partition("\n  do:")
        raise CheckpointError(f"{which} cannot be fitted again: {what}", do=f"{remedy}{do.strip()}") from error


def _fit_one(name: str, problem: Problem, phenotype: str) -> NullModel:
    reason = ALL_NULL_MODELS[name].why_not(problem)
    if reason:
        applies = [one for one, family in ALL_NULL_MODELS.items() if family.why_not(problem) is None]
        raise ConfigError(
            f"the null model '{name}' does not apply to {phenotype}", got=reason, expected=", ".join(applies)
        )
    return best_of(ALL_NULL_MODELS[name], problem)

"""Fit the baselines that apply to a split to the training part, and choose them on the validation part."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from dglcell.baselines.composition import MULTIPLICATIVE, SUBSET
from dglcell.baselines.curves import MINIMUM_OF_CURVES, PRODUCT_OF_CURVES
from dglcell.baselines.fba import FBA, FBA_CURVE
from dglcell.baselines.kernel_ridge import KERNEL_RIDGE
from dglcell.baselines.problem import MORE, SIMULATED, Family, NullModel, Problem, in_words
from dglcell.baselines.reaction_kernel import BOUND, REACTION_KERNEL
from dglcell.baselines.simple import ADDITIVE, QUERY_PAIR, SAME_STRAIN, TRAINING_MEAN
from dglcell.baselines.strain_kernel import STRAIN_KERNEL
from dglcell.baselines.trees import TREES
from dglcell.errors import count

__all__ = ["ALL_NULL_MODELS", "NullModel", "Problem", "fit_null_models", "in_words", "left_out_null_models"]

log = logging.getLogger("dglcell")

SILENCE = 10.0
"""Seconds after which a fit says that it goes on."""

ALL_NULL_MODELS: dict[str, Family] = {
    "training mean": TRAINING_MEAN,
    "additive ridge": ADDITIVE,
    "query-pair mean": QUERY_PAIR,
    "multiplicative": MULTIPLICATIVE,
    "smallest subset": SUBSET,
    "untrained bound": BOUND,
    "reaction kernel ridge": REACTION_KERNEL,
    "kernel ridge": KERNEL_RIDGE,
    "product of curves": PRODUCT_OF_CURVES,
    "minimum of curves": MINIMUM_OF_CURVES,
    "same strain in other media": SAME_STRAIN,
    "kernel ridge over strains": STRAIN_KERNEL,
    "boosted trees": TREES,
    "FBA": FBA,
    "FBA, rising curve": FBA_CURVE,
}
"""Families by name; the validation part chooses one baseline of each. A new one is a file with a `Family`, and a line
here."""


def families_of(problem: Problem) -> dict[str, Family]:
    """Return the families that are about strains such as a problem's."""
    train = problem.train
    there = {MORE: bool(train.conditions or problem.beyond_deletions), SIMULATED: bool(train.computed)}
    return {name: family for name, family in ALL_NULL_MODELS.items() if there.get(family.about, True)}


def left_out_null_models(problem: Problem) -> dict[str, str]:
    """Return the baselines that do not apply to a split: name → reason."""
    problem = problem.labelled()
    reasons = {name: family.why_not(problem) for name, family in families_of(problem).items()}
    return {name: reason for name, reason in reasons.items() if reason}


def fit_null_models(problem: Problem) -> dict[str, NullModel]:
    """Fit every baseline that applies to the training part; choose hyperparameters on the validation part.

    Where no validation strain has a label, a fifth of the training part takes its place while hyperparameters are
    chosen. Then the baselines are fitted to all of it.

    Returns:
        name → the baseline with the least mean squared error on the validation part.

    Raises:
        DataError: no training strain has a label.
    """
    problem = problem.labelled()
    skip = left_out_null_models(problem)
    strains, models = count(len(problem.y_train), "strain"), {}
    for name, family in families_of(problem).items():
        if name not in skip:
            with _saying(f"'{name}' to {strains}"):
                models[name] = best_of(family, problem)
    return models


def best_of(family: Family, problem: Problem) -> NullModel:
    """Return the baseline of a family that errs least on the validation part, or on the fold that stands for it.

    Args:
        family: applies to the problem.
        problem: whose training strains all have a label.
    """
    judged = problem.with_validation()
    number, least, chosen = 0, np.inf, None
    for here, model in enumerate(family.fitted(judged)):
        error = judged.error(model)
        if chosen is None or error < least:
            number, least, chosen = here, error, model
    if judged is not problem:
        chosen = next(itertools.islice(family.fitted(problem), number, None))
    assert chosen is not None
    return chosen


@contextmanager
def _saying(what: str) -> Iterator[None]:
    """Log how long a fit took, and every ten seconds that it goes on."""
    began, done = time.perf_counter(), threading.Event()

    def wait() -> None:
        while not done.wait(SILENCE):
            log.info("fitting %s: %.0f s so far", what, time.perf_counter() - began)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    seconds = time.perf_counter() - began
    log.log(logging.INFO if seconds >= 1 else logging.DEBUG, "fitted %s in %.1f s", what, seconds)

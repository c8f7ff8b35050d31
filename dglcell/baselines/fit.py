"""Fit the baselines that apply to a split, choose them on its validation part, and keep them in a file without code."""

from __future__ import annotations

import itertools
import json
import logging
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dglcell.baselines import gaussian, kernel_ridge, simple, trees
from dglcell.baselines.problem import MORE, SIMULATED, Baseline, Family, Problem, Reactions
from dglcell.errors import count
from dglcell.files.atomic import atomic_file
from dglcell.files.untrusted import UnreadableError, read_npz
from dglcell.graph.cell_graph import CellGraph

log = logging.getLogger("dglcell")

SILENCE = 10.0
"""Seconds after which a fit says that it takes a while."""

ALL_BASELINES: dict[str, Family] = {
    "training mean": simple.TRAINING_MEAN,
    "additive ridge": simple.ADDITIVE,
    "multiplicative": simple.MULTIPLICATIVE,
    "untrained bound": simple.BOUND,
    "reaction kernel ridge": kernel_ridge.REACTION_KERNEL,
    "kernel ridge": kernel_ridge.PAIR_KERNEL,
    "same strain in other media": simple.SAME_STRAIN,
    "kernel ridge over strains": kernel_ridge.STRAIN_KERNEL,
    "Gaussian process": gaussian.GAUSSIAN_PROCESS,
    "boosted trees": trees.TREES,
    "FBA": simple.FBA,
}
"""Families by name; the validation part chooses one baseline of each. A new one is a file with a `Family`, and a line
here."""


def families_of(problem: Problem) -> dict[str, Family]:
    """Return the families that are about strains such as a problem's."""
    train = problem.train
    there = {MORE: bool(train.covariates or problem.beyond_deletions), SIMULATED: bool(train.computed)}
    return {name: family for name, family in ALL_BASELINES.items() if there.get(family.about, True)}


def left_out_baselines(problem: Problem) -> dict[str, str]:
    """Return the baselines that do not apply to a split: name → reason."""
    problem = problem.labelled()
    reasons = {name: family.why_not(problem) for name, family in families_of(problem).items()}
    return {name: reason for name, reason in reasons.items() if reason}


def fit_families(problem: Problem) -> dict[str, Baseline]:
    """Fit every baseline that applies to the training part; choose hyperparameters on the validation part.

    Where no validation strain has a label, a fifth of the training part takes its place while hyperparameters are
    chosen. Then the baselines are fitted to all of it.

    Returns:
        name → the baseline with the least mean squared error on the validation part.

    Raises:
        DataError: no training strain has a label.
    """
    problem = problem.labelled()
    strains, models = count(len(problem.y_train), "strain"), {}
    for name, family in families_of(problem).items():
        if family.why_not(problem) is None:
            with _saying(f"'{name}' to {strains}"):
                models[name] = best_of(family, problem)
    return models


def best_of(family: Family, problem: Problem) -> Baseline:
    """Return the baseline of a family that errs least on the validation part, or on the fold that stands for it."""
    judged = problem.with_validation()
    number, least, chosen = 0, np.inf, None
    for here, model in enumerate(family.fitted(judged)):
        error = judged.error(model)
        if chosen is None or error < least:
            number, least, chosen = here, error, model
    if judged is not problem:  # of all strains a family may yield fewer baselines than of a part of them
        *_, chosen = itertools.islice(family.fitted(problem), number + 1)
    assert chosen is not None
    return chosen


@contextmanager
def _saying(what: str) -> Iterator[None]:
    """Log how long a fit took, and while it lasts that it takes long."""
    began, timer = time.perf_counter(), threading.Timer(SILENCE, log.info, ("fitting %s takes a while", what))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
    seconds = time.perf_counter() - began
    log.log(logging.INFO if seconds >= 1 else logging.DEBUG, "fitted %s in %.1f s", what, seconds)


def save_models(path: Path, models: Mapping[str, Mapping[str, Baseline]], about: Mapping[str, Any]) -> None:
    """Write fitted baselines (phenotype → name → baseline) and what they were fitted to into one file without code."""
    arrays: list[NDArray[Any]] = []
    packed = {
        phenotype: {name: [type(model).__name__, _plain(model, arrays)] for name, model in named.items()}
        for phenotype, named in models.items()
    }
    with atomic_file(path) as partial, open(partial, "wb") as file:
        np.savez(file, np.array(json.dumps({"about": dict(about), "models": packed})), *arrays)


def load_models(path: Path, cell: CellGraph) -> tuple[dict[str, dict[str, Baseline]], dict[str, Any]]:
    """Read what `save_models` wrote: baselines, and what they were fitted to.

    Runs of earlier versions may have baselines that have left the package. They are passed over.

    Raises:
        UnreadableError: the file is missing, or holds something else.
    """
    found = read_npz(path)
    classes = {
        kind.__name__: kind for base in (Baseline, kernel_ridge.KernelBaseline) for kind in base.__subclasses__()
    }
    try:
        text, *arrays = (found[f"arr_{i}"] for i in range(len(found)))
        content, restored = json.loads(str(text)), _restorer(arrays, cell)
        models = {
            phenotype: {
                name: restored(classes[kind], of) for name, (kind, of) in named.items() if name in ALL_BASELINES
            }
            for phenotype, named in content["models"].items()
        }
        return models, dict(content["about"])
    except Exception as error:  # of other content there are a dozen kinds
        raise UnreadableError("no fitted baselines") from error


def _plain(value: Any, arrays: list[NDArray[Any]]) -> Any:
    """Convert a value to what JSON can hold; arrays are appended to ``arrays``, and their index stands for them."""
    if isinstance(value, np.ndarray):
        place = next((i for i, array in enumerate(arrays) if array is value), len(arrays))  # models share large ones
        if place == len(arrays):
            arrays.append(value)
        return place
    if isinstance(value, sparse.csr_array):
        return [_plain(value.data, arrays), _plain(value.indices, arrays), _plain(value.indptr, arrays), *value.shape]
    if isinstance(value, Reactions):
        return True
    if isinstance(value, tuple):
        return [_plain(item, arrays) for item in value]
    if is_dataclass(value):
        return {part.name: _plain(getattr(value, part.name), arrays) for part in fields(value)}
    return value.item() if isinstance(value, np.generic) else value


def _restorer(arrays: list[NDArray[Any]], cell: CellGraph) -> Callable[[Any, Any], Any]:
    """Return what restores values from ``_plain``, each as the type that the annotation of its field names."""
    reactions = cache(lambda: Reactions(cell))

    def restored(kind: Any, value: Any) -> Any:
        origin, of = get_origin(kind), get_args(kind)
        if origin is types.UnionType:  # such as `Covariates | None`
            return None if value is None else restored(of[0], value)
        if origin is np.ndarray:
            return arrays[value]
        if kind is sparse.csr_array:
            return sparse.csr_array(tuple(arrays[place] for place in value[:3]), shape=tuple(value[3:]))
        if kind is Reactions:
            return reactions()
        if origin is tuple:
            return tuple(restored(of[0], item) for item in value)
        if is_dataclass(kind):
            hints, made = get_type_hints(kind), object.__new__(kind)  # type: ignore[arg-type]
            for part in fields(kind):
                object.__setattr__(made, part.name, restored(hints[part.name], value[part.name]))
            return made
        if type(value) is not kind:
            raise TypeError(f"{value!r} is no {kind.__name__}")
        return value

    return restored

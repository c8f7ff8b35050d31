"""Fit the baselines of a run once, keep them in its directory, and read them from there."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dglcell.baselines.fit import fit_null_models, left_out_null_models, load_models, save_models
from dglcell.baselines.problem import NullModel, Problem, in_words
from dglcell.baselines.similarity import Reactions, gene_similarity
from dglcell.data.strains import Strains
from dglcell.errors import CheckpointError, count
from dglcell.files.untrusted import UnreadableError
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.schema import CATALYSES
from dglcell.runs.directory import RunDirectory
from dglcell.training.prepare import Prepared

log = logging.getLogger("dglcell")


@dataclass(frozen=True)
class Baselines:
    """Hold the fitted baselines of a run.

    Attributes:
        models: phenotype → name → the fitted baseline.
        left_out: phenotype → name → why the baseline does not apply.
    """

    models: Mapping[str, Mapping[str, NullModel]] = field(default_factory=dict)
    left_out: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def strains_by_part(prepared: Prepared) -> dict[str, Strains]:
    """Return part → its strains."""
    everything = prepared.dataset.numpy()
    return {name: everything.take(numbers.numpy()) for name, numbers in prepared.parts.items()}


def problems(prepared: Prepared) -> dict[str, Problem]:
    """Return phenotype → what its baselines are fitted to; all strains are in memory."""
    dataset, strains = prepared.dataset, strains_by_part(prepared)
    reactions = Reactions(prepared.cell) if CATALYSES in prepared.cell.relations else None
    similarity = functools.cache(lambda: gene_similarity(prepared.cell, strains["train"].targets))
    return {
        name: Problem(
            strains["train"],
            strains["validation"],
            strains["train"].phenotypes[name],
            strains["validation"].phenotypes[name],
            similarity=similarity,
            most_deletions=dataset.max_deletions,
            reactions=reactions,
        )
        for name in dataset.phenotypes
    }


def fit_baselines(prepared: Prepared) -> Baselines:
    """Fit all baselines that apply to the training part, for every phenotype; none where every strain trains."""
    models, left_out = {}, {}
    for phenotype, problem in problems(prepared).items() if prepared.evaluated else ():
        strains = count(int(np.isfinite(problem.y_train).sum()), "strain")
        log.info("fitting baselines of %s to %s", phenotype, strains)
        left_out[phenotype] = left_out_null_models(problem)
        models[phenotype] = fit_null_models(problem)
        log.debug("fitted: %s", "; ".join(in_words(name, model) for name, model in models[phenotype].items()))
    return Baselines(models, left_out)


def baselines_of_run(prepared: Prepared, directory: RunDirectory) -> Baselines:
    """Read the baselines that are kept in a run's directory; fit and keep them where it has none of these strains."""
    made_of = _made_of(prepared)
    try:
        models, about = load_models(directory.baselines, prepared.cell)
        if about["made_of"] == made_of:
            return Baselines(models, about["left_out"])
    except UnreadableError:
        pass  # of a run that was stopped before, or of another version
    found = fit_baselines(prepared)
    save_models(directory.baselines, found.models, {"made_of": made_of, "left_out": found.left_out})
    return found


def kept_baselines(directory: RunDirectory, cell: CellGraph) -> Baselines:
    """Read the baselines of a finished run.

    Raises:
        CheckpointError: the directory has none, or the file is damaged.
    """
    try:
        models, about = load_models(directory.baselines, cell)
    except UnreadableError as error:
        raise CheckpointError(
            f"the run '{directory.path}' has no baselines",
            got=f"{directory.baselines.name}: {error}",
            expected="a run that was trained to its end with `null_models: true`",
            do="run its `dglcell train` command again, or predict with `--with network`",
        ) from error
    return Baselines(models, about["left_out"])


def _made_of(prepared: Prepared) -> dict[str, Any]:
    """Return what baselines were fitted to, as plain containers."""
    return {
        "cell": prepared.cell.sha256,
        "store": prepared.store.sha256,
        "split": prepared.split.sha256,
        "phenotypes": list(prepared.dataset.phenotypes),
    }

"""Make the null models' problems of a data set, and fit the kernel ridge that is part of a model's prediction."""

from __future__ import annotations

import functools
import logging

import numpy as np
import torch

from dglcell.baselines.fit import NULL_MODELS, Problem, best_of, in_words
from dglcell.baselines.kernel_ridge import KernelRidge
from dglcell.baselines.packed import PackedNulls
from dglcell.baselines.reactions import Reactions
from dglcell.baselines.similarity import gene_similarity
from dglcell.data.strains import Strains
from dglcell.data.transform import Normaliser
from dglcell.errors import ConfigError
from dglcell.graph.schema import CATALYSES
from dglcell.nn.null_share import NullShare
from dglcell.nn.pair_effects import PairEffects
from dglcell.training.prepare import Prepared
from dglcell.uncertainty.probabilities import log_odds

log = logging.getLogger("dglcell")

KERNEL_RIDGE = "kernel ridge"


def strains_by_part(prepared: Prepared) -> dict[str, Strains]:
    """Return part → its strains."""
    everything = prepared.dataset.numpy()
    return {name: everything.take(numbers.numpy()) for name, numbers in prepared.parts.items()}


def null_problems(prepared: Prepared, other: Strains | None = None) -> list[Problem]:
    """Return a problem for every phenotype; all strains are in memory.

    Args:
        other: strains outside the data set that they are to predict.
    """
    dataset, strains = prepared.dataset, strains_by_part(prepared)
    most = dataset.max_deletions
    if other is not None:
        most = max(most, int(other.num_deletions.max(initial=0)))
    reactions = Reactions(prepared.cell) if CATALYSES in prepared.cell.relations else None
    similarity = functools.cache(lambda: gene_similarity(prepared.cell, strains["train"].targets))
    return [
        Problem(
            strains["train"],
            strains["validation"],
            strains["train"].phenotypes[name],
            strains["validation"].phenotypes[name],
            similarity=similarity,
            most_deletions=most,
            reactions=reactions,
            others=other,
        )
        for name in dataset.phenotypes
    ]


def fit_null_share(share: NullShare, prepared: Prepared, normaliser: Normaliser) -> None:
    """Fit the best null models of every phenotype to the training part (``fit_best``).

    If the model predicts log-odds, a logistic regression on the validation part makes log-odds of their predictions.

    Args:
        normaliser: gives the units in which the model predicts.

    Raises:
        ConfigError: one of the names that the share was given is unknown, or does not apply to these strains.
    """
    problems = null_problems(prepared)
    nulls = PackedNulls.fit(problems, tuple(prepared.dataset.phenotypes), share.names)
    shift, scale = normaliser.shift.clone(), normaliser.scale.clone()
    if normaliser.kind == "logistic":
        for t, (problem, model) in enumerate(zip(problems, nulls.models, strict=True)):
            intercept, slope = log_odds(model.predict(problem.validation), problem.y_validation, problem.y_train)
            shift[t], scale[t] = -intercept / slope, 1 / slope
    share.take(nulls.pack(), shift, scale)


def fit_pair_effects(effects: PairEffects, prepared: Prepared, normaliser: Normaliser) -> None:
    """Fit a kernel ridge to the training part of every phenotype, and store it as effects of genes and pairs.

    Hyperparameters are chosen on the validation part, as those of the null models are. Predictions are in the units
    that the model predicts in. If these are log-odds, a standard deviation of the labels counts as one, from the
    log-odds of the training mean.

    Raises:
        ConfigError: it does not apply to these strains.
    """
    for t, (name, problem) in enumerate(zip(prepared.dataset.phenotypes, null_problems(prepared), strict=True)):
        ridge = _fitted_ridge(problem, name)
        scale, shift, mean = float(normaliser.scale[t]), float(normaliser.shift[t]), ridge.mean
        if normaliser.kind == "logistic":
            scale, mean = float(np.nanstd(problem.y_train)), float(np.log(mean / (1 - mean)))
        else:
            mean = (mean - shift) / scale
        of_genes, vectors, weights = ridge.factors(effects.rank)
        effects.mean[t] = mean
        effects.effects[t] = torch.as_tensor(of_genes / scale).float()
        effects.vectors[t, :, : len(weights)] = torch.as_tensor(vectors).float()
        effects.weights[t, : len(weights)] = torch.as_tensor(weights / scale).float()


def _fitted_ridge(problem: Problem, phenotype: str) -> KernelRidge:
    problem = problem.labelled()
    reason = NULL_MODELS[KERNEL_RIDGE].why_not(problem)
    if reason:
        raise ConfigError(
            f"`model.kernel_ridge` does not apply to {phenotype}",
            got=f"{KERNEL_RIDGE} {reason}",
            do="set `model.kernel_ridge: 0`",
        )
    model = best_of(NULL_MODELS[KERNEL_RIDGE], problem)[1]
    assert isinstance(model, KernelRidge)
    log.info("part of the prediction of %s: %s", phenotype, in_words(KERNEL_RIDGE, model))
    return model

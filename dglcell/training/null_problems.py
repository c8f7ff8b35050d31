"""The null models' problems of a data set, and the kernel ridge that a model takes part of its prediction from."""

from __future__ import annotations

import functools
import logging

import numpy as np
import torch

from dglcell.baselines.fit import NULL_MODELS, Problem, best_of, in_words
from dglcell.baselines.kernel_ridge import KernelRidge
from dglcell.baselines.reactions import Reactions
from dglcell.baselines.similarity import gene_similarity
from dglcell.baselines.strains import Strains
from dglcell.data.transform import Normaliser
from dglcell.errors import ConfigError
from dglcell.graph.schema import CATALYSES
from dglcell.nn.pair_effects import PairEffects
from dglcell.training.prepare import Prepared

log = logging.getLogger("dglcell")

KERNEL_RIDGE = "kernel ridge"


def strains_by_part(prepared: Prepared) -> dict[str, Strains]:
    """Part → its strains."""
    dataset = prepared.dataset
    everything = Strains(dataset.genes.numpy(), dataset.offsets.numpy(), len(prepared.cell.genes))
    return {name: everything.take(numbers.numpy()) for name, numbers in prepared.parts.items()}


def null_problems(prepared: Prepared, other: Strains | None = None) -> list[Problem]:
    """A problem for every phenotype; all strains are in memory.

    Args:
        prepared: what null models are fitted on.
        other: strains outside the data set that they are to predict.
    """
    dataset, strains = prepared.dataset, strains_by_part(prepared)
    genes, most = dataset.genes.numpy(), int(dataset.offsets.diff().max())
    if other is not None:
        most = max(most, int(other.num_deletions.max(initial=0)))
    genes = np.unique(genes) if other is None else np.union1d(genes, other.genes)
    reactions = Reactions(prepared.cell) if CATALYSES in prepared.cell.relations else None
    similarity = functools.cache(lambda: gene_similarity(prepared.cell, genes))
    return [
        Problem(
            strains["train"],
            strains["validation"],
            dataset.labels[prepared.parts["train"], t].numpy(),
            dataset.labels[prepared.parts["validation"], t].numpy(),
            num_genes=len(genes),
            similarity=similarity,
            most_deletions=most,
            reactions=reactions,
        )
        for t in range(len(dataset.phenotypes))
    ]


def fit_pair_effects(effects: PairEffects, prepared: Prepared, normaliser: Normaliser) -> None:
    """Fit a kernel ridge to the training part of every phenotype and write it down as effects of genes and pairs.

    Hyperparameters are chosen on the validation part, as those of the null model are. Predictions are in the units that
    the model predicts in. Where these are log-odds, a standard deviation of the labels counts as one, from the log-odds
    of the training mean.

    Raises:
        ConfigError: it does not apply to these strains.
    """
    if prepared.streamed is not None:
        raise ConfigError("`model.kernel_ridge` needs all training strains in memory", do="set `data.streaming: null`")
    for t, problem in enumerate(null_problems(prepared)):
        family = NULL_MODELS[KERNEL_RIDGE]
        reason = family.why_not(problem.labelled())
        if reason:
            raise ConfigError(
                f"`model.kernel_ridge` does not apply to {prepared.dataset.phenotypes[t]}",
                got=f"kernel ridge {reason}",
                do="set `model.kernel_ridge: 0`",
            )
        ridge = best_of(family, problem)[1]
        assert isinstance(ridge, KernelRidge)
        log.info("part of the prediction of %s: %s", prepared.dataset.phenotypes[t], in_words(KERNEL_RIDGE, ridge))
        scale, shift = float(normaliser.scale[t]), float(normaliser.shift[t])
        mean = (ridge.mean - shift) / scale
        if normaliser.kind == "logistic":
            scale, mean = float(np.nanstd(problem.y_train)), float(np.log(ridge.mean / (1 - ridge.mean)))
        of_genes, vectors, weights = ridge.factors(effects.weights.shape[1])
        rank, genes = len(weights), torch.as_tensor(ridge.kernel.genes)
        effects.mean[t] = mean
        effects.effects[t, genes] = torch.as_tensor(of_genes / scale).float()
        effects.vectors[t, genes, :rank] = torch.as_tensor(vectors).float()
        effects.weights[t, :rank] = torch.as_tensor(weights / scale).float()

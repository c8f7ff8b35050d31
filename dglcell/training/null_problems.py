"""Make the null models' problems of a data set."""

from __future__ import annotations

import functools

from dglcell.baselines.fit import Problem
from dglcell.baselines.reactions import Reactions
from dglcell.baselines.similarity import gene_similarity
from dglcell.data.strains import Strains
from dglcell.graph.schema import CATALYSES
from dglcell.training.prepare import Prepared


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

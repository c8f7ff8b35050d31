"""Tell which strains a run knows already: those of its store that trained, and those that were measured at all."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from dglcell.data.config import UNUSED, VALIDATION
from dglcell.data.split import Split
from dglcell.data.strains import Strains
from dglcell.graph.vocabulary import Vocabulary
from dglcell.prediction.conditions import seen_by
from dglcell.runs.directory import RunDirectory
from dglcell.training.checkpoint import Trained
from dglcell.training.prepare import store_of_run


def identities(strains: Strains, trained: Trained) -> list[Hashable]:
    """Return what makes each strain another one for a model: its genes, their strengths and the conditions it sees."""
    left = [of if isinstance(of, dict) else dict.fromkeys(of, 0.0) for of in strains.changes]
    changes = [frozenset(item for item in of.items() if item[1] != 1) for of in left]
    known = [strains.shown(name).tolist() for name in seen_by(trained) if name in strains.conditions]
    return list(zip(changes, *known, strict=True))


def renamed(table: Strains, genes: Vocabulary) -> Strains:
    """Rename the genes of strains as a cell graph does, as far as it knows them."""
    return replace(table, names=tuple(map(genes.find, table.names)))


def strains_of_runs(
    members: Sequence[Trained], directories: Sequence[Path], *, measured: bool = False
) -> set[Hashable]:
    """Return the strains that a member was trained on, or chosen by, as `identities`.

    Args:
        members: trained models.
        measured: whether all strains of the stores are returned, also those of the test part.

    Raises:
        CheckpointError: the store of a run is gone, or another one has its place.
    """
    of_stores: dict[str, list[Hashable]] = {}  # several seeds may share a store
    found: set[Hashable] = set()
    for member, path in zip(members, directories, strict=True):
        split = Split.load(RunDirectory(path).split)
        store = store_of_run(member.config, split)
        if store.sha256 not in of_stores:
            of_stores[store.sha256] = identities(renamed(store.read(), members[0].cell.genes), member)
        strains = of_stores[store.sha256]
        found.update(strains[number] for number in np.flatnonzero(split.part <= (UNUSED if measured else VALIDATION)))
    return found

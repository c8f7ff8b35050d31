"""Tell which strains a run knows already: those of its store that trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dglcell.data.columns import CONDITION, Column
from dglcell.data.config import VALIDATION
from dglcell.data.partition import Keys, gene_keys, number_keys, shuffled, strain_keys
from dglcell.data.split import Split
from dglcell.data.strains import Strains
from dglcell.graph.vocabulary import Vocabulary
from dglcell.prediction.conditions import asked_of
from dglcell.runs.directory import RunDirectory
from dglcell.training.checkpoint import Trained
from dglcell.training.prepare import store_of_run


def identities(strains: Strains, trained: Trained) -> Keys:
    """Return a key of each strain, [S], by what makes it another one for a model.

    That is its genes, their strengths and the conditions that the model sees and no simulator computes. Keys of
    different strains collide as rarely as those of `strain_keys`.
    """
    changed = strains.with_targets(strains.left() != 1)
    keys = strain_keys(changed.with_(columns={}, strengths=changed.left()))
    for name in asked_of(trained):
        if name in strains.conditions:
            categories = strains.conditions[name]
            values = strains.columns[Column(CONDITION, name, categories)]
            of = gene_keys(categories)[values.astype(np.int64)] if categories else number_keys(values)
            keys = shuffled(keys ^ gene_keys([name])[0], 0) + of
    return keys


def renamed(table: Strains, genes: Vocabulary) -> Strains:
    """Rename the genes of strains as a cell graph does, as far as it knows them."""
    return replace(table, names=tuple(map(genes.find, table.names)))


def strains_of_runs(members: Sequence[Trained], directories: Sequence[Path]) -> Keys:
    """Return the strains that a member was trained on, or chosen by, as `identities`, ascending.

    Raises:
        CheckpointError: the store of a run is gone, or another one has its place.
    """
    of_stores: dict[str, Keys] = {}  # several seeds may share a store
    found = []
    for member, path in zip(members, directories, strict=True):
        split = Split.load(RunDirectory(path).split)
        store = store_of_run(member.config, split)
        if store.sha256 not in of_stores:
            of_stores[store.sha256] = identities(renamed(store.read(), members[0].cell.genes), member)
        found.append(of_stores[store.sha256][split.part <= VALIDATION])
    return np.sort(np.concatenate(found))


def are_known(strains: Strains, trained: Trained, known: Keys) -> NDArray[np.bool_]:
    """Return which strains are among those of `strains_of_runs`, [S]."""
    keys = identities(strains, trained)
    # `numpy.isin` would sort the known strains anew each time.
    found: NDArray[np.bool_] = np.searchsorted(known, keys, "right") > np.searchsorted(known, keys)
    return found

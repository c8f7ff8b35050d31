"""Maps of embeddings that took long, kept in the run directory."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import numpy as np

from dglcell.files import atomic_file
from dglcell.plots.data import Embedding, EmbeddingMap
from dglcell.plots.embedding import embedding_map
from dglcell.training.directory import RunDirectory


def find_map(
    directory: RunDirectory, embedding: Embedding | None, points: int, seed: int, *, keep: bool
) -> EmbeddingMap | None:
    """The map of a run's embeddings: the one that is kept there if it is of these embeddings, else a new one.

    Args:
        directory: of the run.
        embedding: None for a model without.
        points: strains on the map at most.
        seed: of their choice and of the map.
        keep: whether a new one by UMAP is kept; principal components are found at once.
    """
    if embedding is None:
        return None
    key = hashlib.sha256(f"{points} {seed}".encode() + embedding.vectors.tobytes()).hexdigest()
    kept = _read(directory.embedding_map, key)
    if kept is not None:
        return kept
    found = embedding_map(embedding, points, seed)
    if keep and found is not None and found.method == "UMAP":
        with atomic_file(directory.embedding_map) as partial, open(partial, "wb") as file:
            np.savez(file, key=np.array(key), strains=found.strains, positions=found.positions)
    return found


def _read(path: Path, key: str) -> EmbeddingMap | None:
    """The kept map; None where there is none, or it is of other embeddings or damaged."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            if str(archive["key"]) == key:
                return EmbeddingMap("UMAP", archive["strains"], archive["positions"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        pass
    return None

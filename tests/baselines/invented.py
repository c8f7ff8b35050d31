"""Invented strains for baselines."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from dglcell.baselines.problem import GeneSimilarity, Problem
from dglcell.data.strains import Strains


def names(num_genes: int) -> tuple[str, ...]:
    return tuple(f"g{i}" for i in range(num_genes))


def strains_of(genotypes: list[list[int]], num_genes: int) -> Strains:
    return Strains.from_indices(names(num_genes), genotypes)


def pairs_of(pairs: NDArray[np.int64], num_genes: int) -> Strains:
    return Strains(names(num_genes), pairs.ravel().astype(np.int32), np.arange(len(pairs) + 1, dtype=np.int64) * 2)


def low_rank_pairs(seed: int, genes: int = 60, rank: int = 3) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return all pairs in random order, either gene first, and labels from a low-rank symmetric matrix with noise."""
    rng = np.random.default_rng(seed)
    factors = rng.normal(size=(genes, rank))
    signs = np.array([1, -1, 1])[:rank]
    pairs = rng.permutation(np.stack(np.triu_indices(genes, 1), axis=1))
    swap = rng.random(len(pairs)) < 0.5
    pairs[swap] = pairs[swap][:, ::-1]
    y = (factors[pairs[:, 0]] * signs * factors[pairs[:, 1]]).sum(1) + 0.1 * rng.normal(size=len(pairs))
    return pairs, y


def unlike(num_genes: int) -> GeneSimilarity:
    """Return genes that no network knows."""
    return GeneSimilarity(np.arange(num_genes), np.zeros((num_genes, num_genes), np.float32))


def alike(seed: int, num_genes: int = 5) -> GeneSimilarity:
    """Return a positive semidefinite similarity of genes."""
    vectors = np.random.default_rng(seed).normal(size=(num_genes, 3))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return GeneSimilarity(np.arange(num_genes), np.square(vectors @ vectors.T).astype(np.float32))


def problem_of(
    train: Strains, y_train: NDArray[np.float64], validation: Strains | None = None,
    y_validation: NDArray[np.float64] | None = None, similarity: GeneSimilarity | None = None,
) -> Problem:  # fmt: skip
    """Return a problem; without a validation part the training part is one, too."""
    validation = train if validation is None else validation
    y_validation = y_train if y_validation is None else y_validation
    known = unlike(len(train.names)) if similarity is None else similarity
    return Problem(train, validation, y_train, y_validation, lambda: known)


# Strains with activities and covariates.


ACTIVITIES = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5)


@st.composite
def weakened(draw: st.DrawFn, most: int = 3, fewest: int = 4) -> tuple[Strains, NDArray[np.float64]]:
    """Return strains of up to ``most`` weakened genes, in media and at temperatures, and positive labels."""
    genes = st.dictionaries(st.sampled_from(names(5)), st.sampled_from(ACTIVITIES), max_size=most)
    one = st.tuples(genes, st.sampled_from(["glucose", "glycerol", "xylose"]), st.sampled_from([30, 37, 42]))
    rows = [({"g0": 0.5}, "glucose", 30), *draw(st.lists(one, min_size=fewest, max_size=12))]
    labels = draw(st.lists(st.floats(0.25, 1, width=32), min_size=len(rows), max_size=len(rows)))
    changed, media, temperatures = zip(*rows, strict=True)
    strains = Strains.from_names(changed, covariates={"medium": media, "temperature": temperatures})
    return strains, np.array(labels)


def among(strains: Strains, num_genes: int = 5) -> Strains:
    """Return the strains, with all genes as their names."""
    everything = names(num_genes)
    targets = np.array([everything.index(name) for name in strains.names], np.int64)[strains.targets]
    return replace(strains, names=everything, targets=targets)

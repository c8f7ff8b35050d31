"""The strains and labels that null models are fitted on, in plain numpy."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dglcell.errors import DataError


@dataclass(frozen=True)
class Strains:
    """S strains as lists of deleted genes.

    Attributes:
        genes: [P] integers below ``num_genes``, strain by strain; query genes first, array gene last.
        offsets: [S + 1]; strain s deletes ``genes[offsets[s]:offsets[s + 1]]``.
        num_genes: size of the gene vocabulary.

    Raises:
        DataError: offsets do not cover the genes, or a gene lies outside the vocabulary.
    """

    genes: NDArray[np.integer]
    offsets: NDArray[np.int64]
    num_genes: int

    def __post_init__(self) -> None:
        if len(self.offsets) == 0 or self.offsets[0] != 0 or self.offsets[-1] != len(self.genes):
            raise DataError("strains: offsets do not cover the genes", got=f"{len(self.genes)} genes")
        if (np.diff(self.offsets) < 0).any():
            raise DataError("strains: offsets decrease")
        if len(self.genes) and not 0 <= self.genes.min() <= self.genes.max() < self.num_genes:
            raise DataError(
                "strains: gene indices outside the vocabulary",
                got=f"{self.genes.min()} … {self.genes.max()}",
                expected=f"0 … {self.num_genes - 1}",
            )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def num_deletions(self) -> NDArray[np.int64]:
        """[S] number of deleted genes of each strain."""
        return np.diff(self.offsets).astype(np.int64)

    @cached_property
    def design(self) -> sparse.csr_matrix:
        """[S, num_genes] sparse matrix, 1 where the strain deletes the gene."""
        values = np.ones(len(self.genes))
        shape = (len(self), self.num_genes)
        return sparse.csr_matrix((values, self.genes.astype(np.int64), self.offsets), shape=shape)

    def first_two(self, rows: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The first two genes of the strains ``rows`` (each must delete two or more), smaller index first."""
        start = self.offsets[rows]
        a, b = self.genes[start].astype(np.int64), self.genes[start + 1].astype(np.int64)
        return np.minimum(a, b), np.maximum(a, b)

    def by_number(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """For each number of deletions k the strains with it, and their genes, [n, k]."""
        for number in np.unique(self.num_deletions):
            rows = np.flatnonzero(self.num_deletions == number)
            yield rows, self.genes[self.offsets[rows][:, None] + np.arange(number)].astype(np.int64)

    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Every pair of genes of every strain: the strains, and the two genes."""
        found = [
            (rows, genes[:, i], genes[:, j])
            for rows, genes in self.by_number()
            for i, j in itertools.combinations(range(genes.shape[1]), 2)
        ]
        empty = np.zeros(0, np.int64)
        strains, first, second = zip(*found, strict=True) if found else ((empty,),) * 3
        return np.concatenate(strains), np.concatenate(first), np.concatenate(second)

    def take(self, rows: NDArray[np.integer]) -> Strains:
        """The strains at ``rows``, in that order."""
        counts = self.num_deletions[rows]
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        positions = np.repeat(self.offsets[rows] - offsets[:-1], counts) + np.arange(offsets[-1])
        return Strains(self.genes[positions], offsets, self.num_genes)


def labelled(strains: Strains, y: NDArray[np.floating]) -> tuple[Strains, NDArray[np.float64]]:
    """The strains whose label is not NaN, with their labels in float64.

    Raises:
        DataError: the lengths differ, or no strain has a label.
    """
    if len(y) != len(strains):
        raise DataError("null models: labels do not match the strains", got=len(y), expected=len(strains))
    rows = np.flatnonzero(~np.isnan(y))
    if len(rows) == 0:
        raise DataError(
            "null models: no training strain has a label",
            got=f"{len(y):,} missing labels",
            expected="at least one measured value",
            do="choose another phenotype or another split",
        )
    labels = np.asarray(y, dtype=np.float64)
    return (strains, labels) if len(rows) == len(labels) else (strains.take(rows), labels[rows])

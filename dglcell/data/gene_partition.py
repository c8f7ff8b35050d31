"""How strains are divided by genes, so that genes of the test part are new to the model.

Genes are shuffled as in `partition`: by a hash of the seed and of their names.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dglcell.data.partition import (
    TEST,
    TRAIN,
    UNUSED,
    VALIDATION,
    Bins,
    Parts,
    fill_levels,
    gene_keys,
    gene_set_keys,
    shuffled,
)
from dglcell.data.table import StrainTable
from dglcell.errors import DataError


def gene_disjoint_parts(table: StrainTable, fractions: Sequence[float], seed: int, rule: str) -> Parts:
    """Divide the genes, and the strains by their genes.

    Rule ``any``: a strain with a test gene is test, else one with a validation gene is validation. No test gene
    occurs outside the test part, no validation gene in training. The fractions are of strains; genes that alone
    would overfill a part are training genes.

    Rule ``all``: a strain is in the part of its genes if they all belong to one part, else in none (``UNUSED``).
    The fractions are of genes.

    Strains without deletions are training.
    """
    frequency = np.bincount(table.genes, minlength=len(table.names))
    too_frequent = (frequency > min(fractions) * len(table)) & (rule == "any")
    rank = _ranks(table, seed, too_frequent)
    perturbed, starts = _perturbed(table)
    if not len(starts):
        return np.full(len(table), TRAIN, np.uint8)
    lowest = np.minimum.reduceat(rank[table.genes], starts)
    highest = np.maximum.reduceat(rank[table.genes], starts)
    if rule == "any":
        reached = np.cumsum(np.bincount(lowest, minlength=len(rank)))
        test_end = _nearest(reached, fractions[TEST] * len(table))
        validation_end = _nearest(reached, (fractions[TEST] + fractions[VALIDATION]) * len(table))
        highest = lowest
    else:
        genes = int((frequency > 0).sum())
        test_end = round(fractions[TEST] * genes)
        validation_end = round((fractions[TEST] + fractions[VALIDATION]) * genes)
    parts = np.full(len(table), TRAIN, np.uint8)
    parts[perturbed] = np.select(
        [highest < test_end, (lowest >= test_end) & (highest < validation_end), lowest >= validation_end],
        [np.uint8(TEST), np.uint8(VALIDATION), np.uint8(TRAIN)],
        np.uint8(UNUSED),
    )
    return parts


def gene_fold_parts(table: StrainTable, folds: int, fold: int, seed: int, rule: str) -> Parts:
    """Divide the genes into folds of equal size, and the strains by their genes; what `gene_disjoint_parts` promises.

    The genes of ``fold`` are test genes, those of the next fold validation genes, the others training genes.

    Rule ``any``: every strain is tested in the fold of one of its genes, chosen by a hash, so that each is in
    exactly one test part. It is ``UNUSED`` where another of its genes is a test gene, or, outside the validation
    part, a validation gene: of pairs in five folds about 36 % train.

    Rule ``all``: a strain is in the part of its genes if they all belong to one part, else ``UNUSED``. It is tested
    in one fold if its genes share one, else never.

    Strains without deletions are training.
    """
    genes = max(1, int((np.bincount(table.genes, minlength=len(table.names)) > 0).sum()))
    rank = _ranks(table, seed, np.zeros(len(table.names), bool))
    fold_of_gene = np.minimum(rank * folds // genes, folds - 1)
    part_of_gene = Bins.of_folds(folds, fold).parts_of(fold_of_gene)
    perturbed, starts = _perturbed(table)
    parts = np.full(len(table), TRAIN, np.uint8)
    if not len(starts):
        return parts
    part = part_of_gene[table.genes]
    # In the order of the parts' numbers a strain may be used in none below that of its highest gene.
    highest = np.maximum.reduceat(part, starts)
    own = part_of_gene[_home_genes(table, seed)] if rule == "any" else np.minimum.reduceat(part, starts)
    parts[perturbed] = np.where(own == highest, own, np.uint8(UNUSED))
    return parts


def held_out_gene_parts(
    table: StrainTable, bins: Bins, seed: int, test_genes: int, rule: str, by_deletions: bool
) -> Parts:
    """The gene splits of DANGO (Zhang et al. 2020, bioRxiv 2020.11.26.400739; ``main.py`` of its repository).

    ``test_genes`` of the genes that some strain deletes are drawn, each as likely as any other.

    Rule ``any``, gene split 1: a strain with at least one of them is test.

    Rule ``all``, gene split 2: a strain of these genes alone is test; one with both kinds of genes is ``UNUSED``.

    All other strains are divided at random into training and validation, so that a validation gene is not new to the
    model, unlike in `gene_disjoint_parts`. DANGO draws 40 genes for split 1 and 400 for split 2, and gives four
    fifths of the other strains to training. Its draw depends on a generator's state and on the numbers of its genes;
    it is not repeated here.

    Args:
        table: the strains.
        bins: training and validation alone, for the strains without a test gene.
        seed: of the draw and of the shuffle.
        test_genes: how many.
        rule: ``any`` or ``all``.
        by_deletions: meet the shares of ``bins`` among the strains of each number of deletions.

    Raises:
        DataError: no gene would be left for training.
    """
    genes = int((np.bincount(table.genes, minlength=len(table.names)) > 0).sum())
    if test_genes >= genes:
        raise DataError(
            "the gene split leaves no gene for training",
            got=f"{test_genes:,} test genes of {genes:,} that are deleted in some strain",
            do="lower `split.test_genes`",
        )
    is_test = _ranks(table, seed, np.zeros(len(table.names), bool)) < test_genes
    hits = np.diff(np.concatenate([[0], np.cumsum(is_test[table.genes])])[table.offsets])
    parts = np.full(len(table), UNUSED, np.uint8)
    parts[(hits > 0) & ((hits == table.num_deletions) | (rule == "any"))] = TEST
    rest = hits == 0
    level = table.num_deletions[rest] if by_deletions else np.zeros(int(rest.sum()), np.int64)
    parts[rest] = bins.parts_of(fill_levels(shuffled(gene_set_keys(table)[rest], seed), level, bins.shares))
    return parts


def _ranks(table: StrainTable, seed: int, late: NDArray[np.bool_]) -> NDArray[np.int64]:
    """[N] place of each gene in the shuffle; those of ``late`` after the others.

    Genes that occur nowhere come last, where they cannot use up a part.
    """
    absent = np.bincount(table.genes, minlength=len(table.names)) == 0
    turn = np.lexsort((shuffled(gene_keys(table.names), seed), late, absent))
    rank = np.empty(len(turn), np.int64)
    rank[turn] = np.arange(len(turn))
    return rank


def _perturbed(table: StrainTable) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """[S] the strains with deletions, and where the genes of each of these begin."""
    perturbed = table.num_deletions > 0
    return perturbed, table.offsets[:-1][perturbed]


def _home_genes(table: StrainTable, seed: int) -> NDArray[np.int32]:
    """One gene of each strain that has any, chosen by a hash of the gene and of the whole gene set."""
    strain = np.repeat(np.arange(len(table)), table.num_deletions)
    order = shuffled(gene_keys(table.names)[table.genes] ^ gene_set_keys(table)[strain], seed)
    # Sorted by strain, the genes of each begin where they did.
    return table.genes[np.lexsort((order, strain))[_perturbed(table)[1]]]


def _nearest(reached: NDArray[np.int64], target: float) -> int:
    """How many genes to take so that the strains they reach come nearest to ``target``."""
    return int(np.argmin(np.abs(np.concatenate([[0], reached]) - target)))

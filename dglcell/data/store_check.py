"""The checks of strains that enter a store, made once so that nothing downstream has to make them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dglcell.data.columns import MAX_DELETIONS, P_VALUE, PHENOTYPE, REPLICATES, SD, Block, Layout
from dglcell.data.table import StrainTable
from dglcell.errors import DataError, GenotypeError
from dglcell.graph.vocabulary import Vocabulary


def chunk_to_block(
    chunk: StrainTable, vocabulary: Vocabulary, layout: Layout, rows_before: int, allow_empty: bool
) -> Block:
    """The strains of ``chunk`` as columns of a store, checked.

    Args:
        chunk: the strains.
        vocabulary: of the store; the chunk's names are mapped onto it.
        layout: of the store.
        rows_before: strains that came before, so that messages count from the first of all.
        allow_empty: accept strains without a deletion.

    Raises:
        DataError: columns differ from the layout, a label is infinite or out of range, or a strain has none.
        GenotypeError: a strain has no deletion, too many, an unknown gene, or one gene twice.
    """
    counts = chunk.num_deletions
    genes = _map_genes(chunk, vocabulary)
    _check_genotypes(counts, genes, vocabulary, rows_before, allow_empty)
    labels = _label_matrix(chunk, layout)
    _check_labels(labels, layout, rows_before)
    return Block(counts.astype(np.uint8), genes.astype(layout.gene_dtype), labels)


def _map_genes(chunk: StrainTable, vocabulary: Vocabulary) -> NDArray[np.int64]:
    mapping = vocabulary.indices(chunk.names)
    genes = mapping[chunk.genes]
    if (genes < 0).any():
        missing = chunk.names[chunk.genes[int(np.argmax(genes < 0))]]
        raise GenotypeError(
            f"gene '{missing}' is not among the names of the store",
            do="give the writer the names of all chunks",
        )
    return genes


def _check_genotypes(
    counts: NDArray[np.int64],
    genes: NDArray[np.int64],
    vocabulary: Vocabulary,
    rows_before: int,
    allow_empty: bool,
) -> None:
    if not allow_empty and (counts == 0).any():
        raise GenotypeError(
            f"strain {rows_before + int(np.argmax(counts == 0)) + 1:,} deletes no gene",
            expected="at least one gene in every strain",
            do="drop the row, or allow the wild type as a strain with `allow_empty`",
        )
    if (counts > MAX_DELETIONS).any():
        strain = int(np.argmax(counts > MAX_DELETIONS))
        raise GenotypeError(
            f"strain {rows_before + strain + 1:,} deletes too many genes",
            got=int(counts[strain]),
            expected=f"at most {MAX_DELETIONS}",
            do="drop the row",
        )
    strain_of = np.repeat(np.arange(len(counts)), counts)
    keys = np.sort(strain_of * len(vocabulary) + genes)
    twice = keys[1:] == keys[:-1]
    if twice.any():
        strain, gene = divmod(int(keys[int(np.argmax(twice))]), len(vocabulary))
        raise GenotypeError(
            f"strain {rows_before + strain + 1:,} deletes gene '{vocabulary.names[gene]}' twice",
            expected="distinct genes in every strain",
            do="drop the row, or leave out the repeated gene",
        )


def _label_matrix(chunk: StrainTable, layout: Layout) -> NDArray[np.float32]:
    given: dict[str, Mapping[str, NDArray[np.float32]]] = {
        PHENOTYPE: chunk.phenotypes,
        P_VALUE: chunk.p_values,
        SD: chunk.sds,
        REPLICATES: chunk.replicates,
    }
    found = {(kind, name) for kind, columns in given.items() for name in columns}
    if found != set(layout.labels):
        raise DataError(
            "the label columns differ from those of the store",
            got=", ".join(f"{kind} of {name}" for kind, name in sorted(found)) or "none",
            expected=", ".join(f"{kind} of {name}" for kind, name in layout.labels),
        )
    labels = np.empty((len(layout.labels), len(chunk)), np.float32)
    with np.errstate(over="ignore"):  # a value beyond float32 becomes infinite and is refused as such
        for row, (kind, name) in enumerate(layout.labels):
            labels[row] = given[kind][name]
    # One bit pattern for missing values, so that equal content has an equal hash.
    labels[np.isnan(labels)] = np.nan
    return labels


def _check_labels(labels: NDArray[np.float32], layout: Layout, rows_before: int) -> None:
    for (kind, name), values in zip(layout.labels, labels, strict=True):
        wrong, expected = np.isinf(values), "a finite number, or nothing where it was not measured"
        if kind == P_VALUE:
            wrong, expected = (values < 0) | (values > 1), "a number from 0 to 1, or nothing"
        elif kind == SD:
            wrong, expected = wrong | (values < 0), "a finite number, 0 or more, or nothing"
        elif kind == REPLICATES:
            wrong, expected = ~((values >= 0) & (values % 1 == 0)), "a whole number, 0 or more"
        if wrong.any():
            strain = int(np.argmax(wrong))
            raise DataError(
                f"strain {rows_before + strain + 1:,} has an unusable {kind} of '{name}'",
                got=float(values[strain]),
                expected=expected,
                do="mend or drop the row",
            )
    missing = np.isnan(labels[: len(layout.phenotypes)]).all(axis=0)
    if missing.any():
        raise DataError(
            f"strain {rows_before + int(np.argmax(missing)) + 1:,} has no label at all",
            got=f"{int(missing.sum()):,} such strains so far",
            expected=f"a value of at least one of {', '.join(layout.phenotypes)}",
            do="drop the rows without a measurement",
        )

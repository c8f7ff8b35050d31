"""Strain tables for the tests: small, seeded, with repeats, missing labels and any number of deletions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from dglcell.data.columns import MEASURED, Provenance, columns_of
from dglcell.data.config import UNUSED
from dglcell.data.split import Parts
from dglcell.data.strains import Strains

PROVENANCE = Provenance(
    source="made_up",
    description="Random strains",
    citation="Nobody 2026, J Irrep Res 1:1",
    licence="CC0",
    urls=("https://example.org/strains.tsv",),
    files={"strains.tsv": "ab" * 32},
    counts={"rows_read": 12, "rows_dropped": 2},
    parameters={"unknown": "drop", "threshold": 0.5},
)


def names(count: int) -> tuple[str, ...]:
    """``count`` gene names whose order is not the sorted one."""
    return tuple(f"Y{(7919 * i) % count:05d}" for i in range(count))


def table_of(
    strains: list[list[str]], *, fitness: list[float] | None = None, provenance: Provenance = PROVENANCE
) -> Strains:
    """Return a table with these genes in each strain and one phenotype."""
    known = tuple(sorted({gene for strain in strains for gene in strain}))
    genes = [known.index(gene) for strain in strains for gene in strain]
    offsets = np.concatenate([[0], np.cumsum([len(strain) for strain in strains])])
    values = np.arange(len(strains)) if fitness is None else fitness
    return Strains(
        known,
        np.array(genes, np.int32),
        offsets.astype(np.int64),
        columns_of(phenotype={"fitness": np.asarray(values, np.float32)}),
        {"fitness": "1"},
        provenance,
    )


def random_table(
    strains: int, genes: int, deletions: tuple[int, int] = (1, 4), seed: int = 0, columns: bool = False
) -> Strains:
    """Return random strains.

    Args:
        strains: how many.
        genes: size of the vocabulary.
        deletions: least and most deletions of a strain.
        seed: of the numbers.
        columns: a second phenotype with missing labels and p-values; standard deviations and numbers of
            measurements of fitness.
    """
    rng = np.random.default_rng(seed)
    counts = rng.integers(deletions[0], deletions[1] + 1, strains)
    order = rng.random((strains, genes)).argsort(axis=1)
    chosen = np.concatenate([row[:count] for row, count in zip(order, counts, strict=True)])
    phenotypes = {"fitness": rng.normal(1, 0.2, strains).astype(np.float32)}
    p_values, sds, replicates = {}, {}, {}
    if columns:
        score = rng.normal(0, 1, strains).astype(np.float32)
        score[rng.random(strains) < 0.3] = np.nan
        phenotypes["s_score"] = score
        p_values["s_score"] = rng.random(strains).astype(np.float32)
        sds["fitness"] = rng.random(strains).astype(np.float32)
        replicates["fitness"] = rng.integers(1, 4, strains).astype(np.float32)
    return Strains(
        names(genes),
        chosen.astype(np.int32),
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        columns_of(phenotype=phenotypes, p_value=p_values, sd=sds, replicates=replicates),
        {"fitness": "1/h"},
        PROVENANCE,
    )


def triples(strains: int, genes: int = 6607, seed: int = 0) -> Strains:
    """Return random triple mutants with one phenotype; fast for many strains."""
    rng = np.random.default_rng(seed)
    first = rng.integers(0, genes, strains)
    step = rng.integers(1, genes // 3, (2, strains))
    chosen = np.stack([first, first + step[0], first + step[0] + step[1]], axis=1) % genes
    return Strains(
        names(genes),
        chosen.ravel().astype(np.int32),
        np.arange(strains + 1, dtype=np.int64) * 3,
        columns_of(phenotype={"trigenic_interaction": rng.normal(0, 0.06, strains).astype(np.float32)}),
        provenance=PROVENANCE,
    )


FRACTIONS = (0.8, 0.1, 0.1)

tables = st.builds(
    random_table,
    strains=st.integers(1, 120),
    genes=st.integers(5, 12),
    deletions=st.sampled_from([(0, 5), (1, 3), (2, 2), (3, 3)]),
    seed=st.integers(0, 10_000),
)
fractions = st.sampled_from([FRACTIONS, (0.5, 0.25, 0.25), (0.2, 0.4, 0.4)])
seeds = st.integers(0, 1000)


def shares(parts: Parts) -> np.ndarray:
    """Return strains of each part among those used."""
    used = parts[parts != UNUSED]
    return np.bincount(used, minlength=3) / len(used)


def with_columns(table: Strains, **kinds: Mapping[str, np.ndarray]) -> Strains:
    """Return the strains with other columns of these kinds."""
    kept = {column: values for column, values in table.columns.items() if column.kind not in kinds}
    return replace(table, columns={**columns_of(**kinds), **kept})


def changed(table: Strains, **columns: np.ndarray) -> Strains:
    """Return the strains with other values of their phenotypes."""
    return with_columns(table, phenotype={name: values.astype(np.float32) for name, values in columns.items()})


def shuffled_rows(table: Strains, seed: int = 0) -> tuple[Strains, np.ndarray]:
    """Return the same strains in another order, with genes of a strain in another order beyond the query pair's two."""
    order = np.random.default_rng(seed).permutation(len(table))
    strains = table.genotypes
    return table_of([[*strains[i][:2][::-1], *strains[i][2:][::-1]] for i in order]), order


def assert_same_strains(found: Strains, expected: Strains) -> None:
    """The same strains, genes by name and in order, with bitwise equal columns."""
    assert found.genotypes == expected.genotypes
    for kind in MEASURED:
        got, want = found.of_kind(kind), expected.of_kind(kind)
        assert got.keys() == want.keys()
        for name in want:
            assert got[name].dtype == np.float32
            np.testing.assert_array_equal(got[name], want[name])

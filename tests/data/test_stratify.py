"""The stratified split: its shares in every number of deletions and for every phenotype."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dglcell.data.partition import Bins, stratified_parts
from dglcell.data.table import StrainTable
from tests.data.strain_tables import gene_lists, random_table, shuffled_rows, table_of

FRACTIONS = (0.8, 0.1, 0.1)
BINS = Bins.of_fractions(FRACTIONS)


def with_phenotypes(table: StrainTable, seed: int, present: tuple[float, ...]) -> StrainTable:
    """The table with phenotypes of which these shares are measured."""
    rng = np.random.default_rng(seed)
    columns = {
        f"p{i}": np.where(rng.random(len(table)) < share, 1.0, np.nan).astype(np.float32)
        for i, share in enumerate(present)
    }
    return replace(table, phenotypes=columns, units={}, p_values={}, sds={})


tables = st.builds(
    with_phenotypes,
    st.builds(
        random_table, strains=st.integers(1, 200), genes=st.just(60), deletions=st.sampled_from([(0, 3), (3, 3)])
    ),
    st.integers(0, 100),
    st.sampled_from([(1.0,), (0.5, 0.5), (0.9, 0.3, 0.05), (0.0, 0.7)]),
)
bins = st.sampled_from([BINS, Bins.of_fractions((0.5, 0.3, 0.2)), Bins.of_folds(5, 2)])


def shares_of_parts(bins: Bins) -> np.ndarray:
    """[3] of training, validation and test."""
    return np.array([sum(s for s, p in zip(bins.shares, bins.parts, strict=True) if p == part) for part in range(3)])


@settings(max_examples=150)
@given(table=tables, bins=bins, seed=st.integers(0, 100))
def test_every_stratum_is_divided_as_its_shares_say(table: StrainTable, bins: Bins, seed: int) -> None:
    parts = stratified_parts(table, bins, seed)
    groups: dict[frozenset[str], int] = {}
    measured: dict[frozenset[str], np.ndarray] = defaultdict(lambda: np.zeros(len(table.phenotypes), bool))
    present = ~np.isnan(np.stack(list(table.phenotypes.values()), axis=1))
    for strain, part, row in zip(gene_lists(table), parts, present, strict=True):
        assert groups.setdefault(frozenset(strain), int(part)) == part
        measured[frozenset(strain)] = measured[frozenset(strain)] | row
    strata: dict[tuple[int, bytes], Counter[int]] = defaultdict(Counter)
    for genes, part in groups.items():
        strata[len(genes), measured[genes].tobytes()][part] += 1
    merged = max(Counter(bins.parts).values())
    for counts in strata.values():
        found = np.array([counts[part] for part in range(3)])
        assert abs(found - shares_of_parts(bins) * counts.total()).max() < merged


def test_rare_strata_together_have_the_shares_too() -> None:
    # A hundred strata of one strain each: numbers of deletions by patterns of six phenotypes.
    strains = [[f"G{j:02d}" for j in range(1 + i % 4)] + [f"X{i}"] for i in range(100)]
    table = table_of(strains)
    bits = {f"p{b}": np.where((np.arange(100) // 4 + 1) >> b & 1, 1.0, np.nan).astype(np.float32) for b in range(5)}
    parts = stratified_parts(replace(table, phenotypes=bits, units={}), BINS, 0)
    for key in [*(table.num_deletions == n for n in range(2, 6)), *(~np.isnan(b) for b in bits.values())]:
        found = np.bincount(parts[key], minlength=3)
        assert abs(found - np.array(FRACTIONS) * key.sum()).max() <= 3, found
    np.testing.assert_allclose(np.bincount(parts), (80, 10, 10), atol=3)


def test_a_phenotype_of_few_strains_reaches_every_part() -> None:
    table = random_table(3000, 300, (2, 4))
    rare = np.full(3000, np.nan, np.float32)
    rare[np.random.default_rng(0).choice(3000, 40, replace=False)] = 1.0
    both = replace(table, phenotypes={**table.phenotypes, "rare": rare})
    parts = stratified_parts(both, BINS, 1)
    found = np.bincount(parts[~np.isnan(rare)], minlength=3)
    np.testing.assert_allclose(found, (32, 4, 4), atol=1)
    for number in (2, 3, 4):
        level = parts[table.num_deletions == number]
        np.testing.assert_allclose(np.bincount(level) / len(level), FRACTIONS, atol=0.01)


@pytest.mark.parametrize("bins", [BINS, Bins.of_folds(5, 0)])
def test_a_part_depends_on_the_strain_and_the_seed_not_on_the_order_of_rows(bins: Bins) -> None:
    table = random_table(1500, 300, (1, 3))
    parts = stratified_parts(table, bins, 5)
    np.testing.assert_array_equal(stratified_parts(table, bins, 5), parts)
    assert (stratified_parts(table, bins, 6) != parts).mean() > 0.1
    moved, order = shuffled_rows(table)
    np.testing.assert_array_equal(stratified_parts(moved, bins, 5), parts[order])

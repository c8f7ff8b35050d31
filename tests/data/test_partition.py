from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dglcell.data.config import TEST, TRAIN, VALIDATION
from dglcell.data.partition import (
    Bins,
    Parts,
    fill,
    gene_set_keys,
    pair_disjoint_parts,
    query_pair_keys,
    random_parts,
    shuffled,
)
from dglcell.data.table import StrainTable
from tests.data.strain_tables import (
    FRACTIONS,
    fractions,
    gene_lists,
    random_table,
    seeds,
    shares,
    shuffled_rows,
    table_of,
    tables,
    triples,
)

BINS = Bins.of_fractions(FRACTIONS)


def query_pair(strain: list[str]) -> frozenset[str]:
    return frozenset(strain[:2])


@given(table=tables)
def test_gene_sets_have_one_key_each(table: StrainTable) -> None:
    keys = gene_set_keys(table).tolist()
    sets = [frozenset(strain) for strain in gene_lists(table)]
    assert len(set(keys)) == len(set(sets)) == len(set(zip(keys, sets, strict=True)))


def test_shuffling_keeps_keys_apart_and_spreads_them() -> None:
    keys = np.arange(100_000, dtype=np.uint64)
    mixed = shuffled(keys, seed=1)
    assert len(np.unique(mixed)) == len(keys)
    assert abs(np.corrcoef(keys.astype(float), mixed.astype(float))[0, 1]) < 0.02
    assert abs((mixed < np.uint64(2**63)).mean() - 0.5) < 0.01
    assert abs(np.corrcoef(mixed.astype(float), shuffled(keys, seed=2).astype(float))[0, 1]) < 0.02


@given(table=tables, fractions=fractions, seed=seeds, by_deletions=st.booleans())
def test_random_gives_each_strain_one_part_and_each_gene_set_too(
    table: StrainTable, fractions: tuple[float, ...], seed: int, by_deletions: bool
) -> None:
    parts = random_parts(table, Bins.of_fractions(fractions), seed, by_deletions)
    assert parts.shape == (len(table),)
    assert parts.dtype == np.uint8
    assert set(parts.tolist()) <= {TRAIN, VALIDATION, TEST}
    found = defaultdict(set)
    for strain, part in zip(gene_lists(table), parts, strict=True):
        found[frozenset(strain)].add(int(part))
    assert all(len(where) == 1 for where in found.values())


@pytest.mark.parametrize("fractions", [FRACTIONS, (0.5, 0.3, 0.2)])
def test_random_meets_its_fractions(fractions: tuple[float, ...]) -> None:
    np.testing.assert_allclose(
        shares(random_parts(triples(10_000), Bins.of_fractions(fractions), 0, False)), fractions, atol=2e-4
    )


def test_random_meets_its_fractions_for_each_number_of_deletions() -> None:
    table = random_table(4000, 500, (1, 4))
    strata = [table.num_deletions == number for number in range(1, 5)]
    stratified = random_parts(table, BINS, 0, by_deletions=True)
    for stratum in strata[1:]:
        np.testing.assert_allclose(shares(stratified[stratum]), FRACTIONS, atol=2e-3)
    plain = random_parts(table, BINS, 0, by_deletions=False)
    assert max(abs(shares(plain[stratum]) - FRACTIONS).max() for stratum in strata[1:]) > 2e-3


@settings(max_examples=200)
@given(table=tables, fractions=fractions, seed=seeds, by_deletions=st.booleans())
def test_no_query_pair_and_no_gene_set_is_in_two_parts(
    table: StrainTable, fractions: tuple[float, ...], seed: int, by_deletions: bool
) -> None:
    parts = pair_disjoint_parts(table, Bins.of_fractions(fractions), seed, by_deletions)
    pairs, sets = defaultdict(set), defaultdict(set)
    for strain, part in zip(gene_lists(table), parts, strict=True):
        sets[frozenset(strain)].add(int(part))
        if len(strain) >= 2:
            pairs[query_pair(strain)].add(int(part))
        else:
            assert part == TRAIN
    assert all(len(where) == 1 for where in [*pairs.values(), *sets.values()])
    assert set(parts.tolist()) <= {TRAIN, VALIDATION, TEST}


def test_a_double_mutant_is_its_own_query_pair() -> None:
    strains = [[f"A{i:02d}", f"B{i:02d}", f"C{j}"] for i in range(40) for j in range(5)]
    doubles = [[f"B{i:02d}", f"A{i:02d}"] for i in range(40)]
    parts = pair_disjoint_parts(table_of(strains + doubles), BINS, 3, True)
    np.testing.assert_array_equal(parts[:200].reshape(40, 5), np.repeat(parts[200:, None], 5, axis=1))
    np.testing.assert_allclose(shares(parts), FRACTIONS)


def test_pairs_that_share_a_triple_stay_together() -> None:
    ring = [[f"G{i:02d}", f"G{i + 1:02d}", f"G{i + 2:02d}"] for i in range(20)]
    turned = [[b, c, a] for a, b, c in ring]
    assert len(set(pair_disjoint_parts(table_of(ring + turned), BINS, 0, True).tolist())) == 1
    assert len(set(pair_disjoint_parts(table_of(ring), BINS, 0, True).tolist())) == 3


def test_singles_are_training_and_the_fractions_are_of_the_others() -> None:
    singles = [[f"S{i:03d}"] for i in range(400)]
    pairs = [[f"A{i:03d}", f"B{i:03d}"] for i in range(600)]
    parts = pair_disjoint_parts(table_of(singles + pairs), BINS, 0, True)
    assert (parts[:400] == TRAIN).all()
    np.testing.assert_allclose(shares(parts[400:]), FRACTIONS, atol=1e-3)


def test_a_few_large_query_pairs_of_triples_reach_every_part() -> None:
    triple_strains = [["A", f"B{i}", f"X{j:03d}"] for i in range(4) for j in range(250)]
    doubles = [[f"C{i:04d}", "D"] for i in range(1500)]
    table = table_of(triple_strains + doubles)
    for seed in range(10):
        parts = pair_disjoint_parts(table, BINS, seed, by_deletions=True)
        np.testing.assert_allclose(shares(parts[:1000]), (0.5, 0.25, 0.25))
        np.testing.assert_allclose(shares(parts[1000:]), FRACTIONS)
    # Without levels their share of each part is left to chance.
    together = [pair_disjoint_parts(table, BINS, seed, by_deletions=False)[:1000] for seed in range(10)]
    assert any(len(set(parts.tolist())) == 1 for parts in together)


@given(strains=st.integers(3, 40), seed=seeds, fractions=fractions)
def test_three_groups_are_enough_for_three_parts(strains: int, seed: int, fractions: tuple[float, ...]) -> None:
    table = table_of([[f"G{i * i % strains}"] for i in range(strains)] + [["X"], ["Y"]])
    assert set(random_parts(table, Bins.of_fractions(fractions), seed, True).tolist()) == {TRAIN, VALIDATION, TEST}


def test_a_query_pair_too_large_for_a_part_goes_to_training() -> None:
    strains = [["A", "B", f"X{i:03d}"] for i in range(300)] + [[f"C{i:03d}", "D", "E"] for i in range(700)]
    for seed in range(20):
        parts = pair_disjoint_parts(table_of(strains), BINS, seed, True)
        assert (parts[:300] == TRAIN).all()
        np.testing.assert_allclose(shares(parts), FRACTIONS, atol=2e-3)


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=40), bins=st.integers(2, 12))
def test_bins_are_filled_with_whole_groups_and_none_is_empty(sizes: list[int], bins: int) -> None:
    order = np.repeat(np.arange(len(sizes), dtype=np.uint64), sizes)
    found = fill(order, (1 / bins,) * bins)
    assert all(len(set(found[order == group].tolist())) == 1 for group in range(len(sizes)))
    if len(sizes) >= bins:
        assert set(found.tolist()) == set(range(bins))
    if max(sizes) * bins <= len(order):
        # Groups are whole, and one more may keep another bin from emptiness.
        counts = np.bincount(found, minlength=bins)
        assert abs(counts - len(order) / bins).max() <= 2 * max(sizes)


def test_the_query_pair_of_a_triple_is_that_of_its_query_strain() -> None:
    table = table_of([["Q2", "Q1", "A1"], ["Q1", "Q2", "A2"], ["Q1", "A1", "Q2"], ["Q1"], ["Q1", "Q2"]])
    rows, keys = query_pair_keys(table)
    assert rows.tolist() == [0, 1, 2, 4]
    assert keys[0] == keys[1] == keys[3] != keys[2]


def test_other_pairs_of_a_trigenic_screen_recur() -> None:
    # Ten query pairs by thirty array genes: array genes meet every query gene in training and test.
    screen = [[f"Q{i}", f"P{i % 3}", f"A{j:02d}"] for i in range(10) for j in range(30)]
    parts = pair_disjoint_parts(table_of(screen), BINS, 0, True)
    crossed = [{frozenset([s[1], s[2]]) for s, p in zip(screen, parts, strict=True) if p == part} for part in (0, 2)]
    assert crossed[0] & crossed[1]


def make(kind: str, table: StrainTable, seed: int) -> Parts:
    bins = Bins.of_folds(5, 1) if kind.endswith("fold") else BINS
    return (random_parts if kind.startswith("random") else pair_disjoint_parts)(table, bins, seed, True)


@pytest.mark.parametrize("kind", ["random", "pair", "random fold", "pair fold"])
def test_a_part_depends_on_the_strain_and_the_seed_not_on_the_order_of_rows(kind: str) -> None:
    table = triples(2000, genes=100)
    parts = make(kind, table, 5)
    np.testing.assert_array_equal(make(kind, table, 5), parts)
    assert (make(kind, table, 6) != parts).mean() > 0.02
    moved, order = shuffled_rows(table)
    np.testing.assert_array_equal(make(kind, moved, 5), parts[order])


@pytest.mark.parametrize("kind", ["random", "pair"])
def test_wild_type_rows_are_training(kind: str) -> None:
    table = table_of([[], []])
    assert make(kind, table, 0).tolist() == [TRAIN, TRAIN]

"""How strains are divided into parts."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dglcell.data.columns import columns_of, shuffled
from dglcell.data.config import PARTS, TEST, TRAIN, UNUSED, VALIDATION, SplitConfig
from dglcell.data.split import Parts, divide, fill, query_pairs
from dglcell.data.strains import Strains
from tests.data.strain_tables import (
    FRACTIONS,
    fractions,
    random_table,
    seeds,
    shares,
    shuffled_rows,
    table_of,
    tables,
    triples,
)
from tests.examples import examples


def parts_of(kind: str, table: Strains, seed: int = 0, fractions: tuple[float, ...] = FRACTIONS, **more: Any) -> Parts:
    return divide(SplitConfig(kind, list(fractions), seed, **more), table)[0]


def query_pair(strain: list[str]) -> frozenset[str]:
    return frozenset(strain[:2])


@given(table=tables)
def test_gene_sets_have_one_key_each(table: Strains) -> None:
    keys = table.gene_set_keys.tolist()
    sets = [frozenset(strain) for strain in table.genotypes]
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
    table: Strains, fractions: tuple[float, ...], seed: int, by_deletions: bool
) -> None:
    parts = parts_of("random", table, seed, fractions, by_deletions=by_deletions)
    assert parts.shape == (len(table),)
    assert parts.dtype == np.uint8
    assert set(parts.tolist()) <= {TRAIN, VALIDATION, TEST}
    found = defaultdict(set)
    for strain, part in zip(table.genotypes, parts, strict=True):
        found[frozenset(strain)].add(int(part))
    assert all(len(where) == 1 for where in found.values())


def test_random_meets_its_fractions_for_each_number_of_deletions() -> None:
    table = random_table(4000, 500, (1, 4))
    strata = [table.num_deletions == number for number in range(1, 5)]
    stratified = parts_of("random", table)
    for stratum in strata[1:]:
        np.testing.assert_allclose(shares(stratified[stratum]), FRACTIONS, atol=2e-3)
    plain = parts_of("random", table, by_deletions=False)
    assert max(abs(shares(plain[stratum]) - FRACTIONS).max() for stratum in strata[1:]) > 2e-3


@examples(40)
@given(table=tables, fractions=fractions, seed=seeds, by_deletions=st.booleans())
def test_no_query_pair_and_no_gene_set_is_in_two_parts(
    table: Strains, fractions: tuple[float, ...], seed: int, by_deletions: bool
) -> None:
    parts = parts_of("pair_disjoint", table, seed, fractions, by_deletions=by_deletions)
    pairs, sets = defaultdict(set), defaultdict(set)
    for strain, part in zip(table.genotypes, parts, strict=True):
        sets[frozenset(strain)].add(int(part))
        if len(strain) >= 2:
            pairs[query_pair(strain)].add(int(part))
        else:
            assert part == TRAIN
    assert all(len(where) == 1 for where in [*pairs.values(), *sets.values()])
    assert set(parts.tolist()) <= {TRAIN, VALIDATION, TEST}


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
    rows, pairs = query_pairs(table)
    assert rows.tolist() == [0, 1, 2, 4]
    found = [frozenset(table.names[gene] for gene in pair) for pair in pairs]
    assert found == [{"Q1", "Q2"}, {"Q1", "Q2"}, {"Q1", "A1"}, {"Q1", "Q2"}]


# The stratified split: its shares in every number of deletions and for every phenotype.


def with_phenotypes(table: Strains, seed: int, present: tuple[float, ...]) -> Strains:
    """Return the table with phenotypes of which these shares are measured."""
    rng = np.random.default_rng(seed)
    columns = {
        f"p{i}": np.where(rng.random(len(table)) < share, 1.0, np.nan).astype(np.float32)
        for i, share in enumerate(present)
    }
    return replace(table, columns=columns_of(phenotype=columns), units={})


stratified_tables = st.builds(
    with_phenotypes,
    st.builds(
        random_table, strains=st.integers(1, 200), genes=st.just(60), deletions=st.sampled_from([(0, 3), (3, 3)])
    ),
    st.integers(0, 100),
    st.sampled_from([(1.0,), (0.5, 0.5), (0.9, 0.3, 0.05), (0.0, 0.7)]),
)
bins = st.sampled_from([{}, {"fractions": (0.5, 0.3, 0.2)}, {"folds": 5, "fold": 2}])


@examples(30)
@given(table=stratified_tables, bins=bins, seed=st.integers(0, 100))
def test_every_stratum_is_divided_as_its_shares_say(table: Strains, bins: dict[str, Any], seed: int) -> None:
    parts = parts_of("stratified", table, seed, **bins)
    expected = np.array([0.6, 0.2, 0.2] if "folds" in bins else bins.get("fractions", FRACTIONS))
    groups: dict[frozenset[str], int] = {}
    measured: dict[frozenset[str], np.ndarray] = defaultdict(lambda: np.zeros(len(table.phenotypes), bool))
    present = ~np.isnan(np.stack(list(table.phenotypes.values()), axis=1))
    for strain, part, row in zip(table.genotypes, parts, present, strict=True):
        assert groups.setdefault(frozenset(strain), int(part)) == part
        measured[frozenset(strain)] = measured[frozenset(strain)] | row
    strata: dict[tuple[int, bytes], Counter[int]] = defaultdict(Counter)
    for genes, part in groups.items():
        strata[len(genes), measured[genes].tobytes()][part] += 1
    for counts in strata.values():
        found = np.array([counts[part] for part in range(len(PARTS))])
        assert abs(found - expected * counts.total()).max() < (3 if "folds" in bins else 1)


# Splits by gene: which genes training never saw.


def genes_by_part(table: Strains, parts: Parts) -> dict[int, set[str]]:
    genes = defaultdict(set)
    for strain, part in zip(table.genotypes, parts, strict=True):
        genes[int(part)].update(strain)
    return genes


def check_new_genes(table: Strains, parts: Parts) -> None:
    """Test strains have a gene that no other part has, and validation strains one that training lacks."""
    genes = genes_by_part(table, parts)
    for strain, part in zip(table.genotypes, parts, strict=True):
        if part == VALIDATION:
            assert not genes[TRAIN].issuperset(strain)
        if part == TEST:
            assert not (genes[TRAIN] | genes[VALIDATION]).issuperset(strain)
        if not strain:
            assert part == TRAIN


@examples(40)
@given(table=tables, fractions=fractions, seed=seeds)
def test_no_test_gene_occurs_in_training(table: Strains, fractions: tuple[float, ...], seed: int) -> None:
    parts = parts_of("gene_disjoint", table, seed, fractions)
    assert set(parts.tolist()) <= {TRAIN, VALIDATION, TEST}
    check_new_genes(table, parts)


@examples(40)
@given(table=tables, folds=st.integers(3, 5), seed=seeds)
def test_folds_of_genes_test_each_strain_once(table: Strains, folds: int, seed: int) -> None:
    tested = np.zeros(len(table), np.int64)
    for fold in range(folds):
        parts = parts_of("gene_disjoint", table, seed, folds=folds, fold=fold)
        tested += parts == TEST
        check_new_genes(table, parts)
    np.testing.assert_array_equal(tested, table.num_deletions > 0)


@examples(40)
@given(table=tables, seed=seeds, test_genes=st.integers(1, 4), by_deletions=st.booleans(), number=st.integers(1, 2))
def test_gene_splits_are_those_of_dango(
    table: Strains, seed: int, test_genes: int, by_deletions: bool, number: int
) -> None:
    def held_out(number: int) -> Parts:
        options: dict[str, Any] = {"test_genes": test_genes, "by_deletions": by_deletions}
        return parts_of(f"gene_split_{number}", table, seed, (0.72, 0.18, 0.1), **options)

    occurring = set().union(*table.genotypes)
    parts = held_out(number)
    # No gene of training and validation was drawn; split 1 tells the most of the others.
    rest = genes_by_part(table, held_out(1)), genes_by_part(table, parts)
    drawn = occurring - rest[0][TRAIN] - rest[1][TRAIN] - rest[1][VALIDATION]
    for strain, part in zip(table.genotypes, parts, strict=True):
        held = len(drawn & set(strain))
        if part == TEST:
            assert held >= 1 if number == 1 else held == len(strain) > 0
        elif part == UNUSED:
            assert number == 2
            assert held > 0
        else:
            assert held == 0


OTHERS = [("gene_split_1", {"test_genes": 30}), ("gene_split_2", {"test_genes": 30})]
FOLDED = ["random", "pair_disjoint", "stratified", "gene_disjoint"]


@pytest.mark.parametrize(
    ("kind", "more"), [*((kind, of) for kind in FOLDED for of in ({}, {"folds": 5, "fold": 1})), *OTHERS]
)
def test_a_part_depends_on_the_strain_and_the_seed_not_on_the_order_of_rows(kind: str, more: dict[str, Any]) -> None:
    table = triples(2000, genes=100)
    parts = parts_of(kind, table, 5, **more)
    np.testing.assert_array_equal(parts_of(kind, table, 5, **more), parts)
    assert (parts_of(kind, table, 6, **more) != parts).mean() > 0.02
    moved, order = shuffled_rows(table)
    np.testing.assert_array_equal(parts_of(kind, moved, 5, **more), parts[order])

"""Splits by gene: which genes training never saw."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dglcell.data.config import TEST, TRAIN, UNUSED, VALIDATION
from dglcell.data.partition import Bins, Parts, gene_disjoint_parts, gene_fold_parts, held_out_gene_parts
from dglcell.data.table import StrainTable
from dglcell.errors import DataError
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

REST = Bins.of_training((0.72, 0.18, 0.1))


def genes_by_part(table: StrainTable, parts: Parts) -> dict[int, set[str]]:
    genes = defaultdict(set)
    for strain, part in zip(gene_lists(table), parts, strict=True):
        genes[int(part)].update(strain)
    return genes


@settings(max_examples=200)
@given(table=tables, fractions=fractions, seed=seeds)
def test_no_test_gene_occurs_in_training_under_any(table: StrainTable, fractions: tuple[float, ...], seed: int) -> None:
    parts = gene_disjoint_parts(table, fractions, seed, "any")
    genes = genes_by_part(table, parts)
    seen, chosen = genes[TRAIN], genes[TRAIN] | genes[VALIDATION]
    for strain, part in zip(gene_lists(table), parts, strict=True):
        assert part in (TRAIN, VALIDATION, TEST)
        if part == VALIDATION:
            assert not seen.issuperset(strain)
        if part == TEST:
            assert not chosen.issuperset(strain)


@settings(max_examples=200)
@given(table=tables, fractions=fractions, seed=seeds)
def test_no_gene_is_in_two_parts_under_all(table: StrainTable, fractions: tuple[float, ...], seed: int) -> None:
    parts = gene_disjoint_parts(table, fractions, seed, "all")
    genes = genes_by_part(table, parts)
    assert not genes[TRAIN] & genes[VALIDATION]
    assert not genes[TRAIN] & genes[TEST]
    assert not genes[VALIDATION] & genes[TEST]
    homes = {gene: part for part in (TRAIN, VALIDATION, TEST) for gene in genes[part]}
    for strain, part in zip(gene_lists(table), parts, strict=True):
        if part == UNUSED and all(gene in homes for gene in strain):
            assert len({homes[gene] for gene in strain}) > 1
        if len(strain) == 1:
            assert part != UNUSED


def test_gene_disjoint_meets_its_fractions() -> None:
    table = triples(20_000, genes=600)
    np.testing.assert_allclose(shares(gene_disjoint_parts(table, FRACTIONS, 0, "any")), FRACTIONS, atol=0.005)
    parts = gene_disjoint_parts(table, (0.5, 0.3, 0.2), 0, "all")
    genes = genes_by_part(table, parts)
    np.testing.assert_allclose([len(genes[part]) / 600 for part in range(3)], (0.5, 0.3, 0.2), atol=0.01)
    assert (parts == UNUSED).mean() == pytest.approx(1 - 0.5**3 - 0.3**3 - 0.2**3, abs=0.01)


def test_a_gene_of_many_strains_is_a_training_gene() -> None:
    strains = [["HUB", f"X{i:03d}"] for i in range(300)] + [[f"C{i:03d}", f"D{i:03d}"] for i in range(700)]
    table = table_of(strains)
    for seed in range(20):
        parts = gene_disjoint_parts(table, FRACTIONS, seed, "any")
        assert "HUB" in genes_by_part(table, parts)[TRAIN]
        np.testing.assert_allclose(shares(parts), FRACTIONS, atol=2e-3)


def test_genes_that_no_strain_deletes_do_not_matter() -> None:
    table = triples(2000, genes=300)
    padded = replace(table, names=table.names + tuple(f"unused{i}" for i in range(1000)))
    for rule in ("any", "all"):
        np.testing.assert_array_equal(
            gene_disjoint_parts(padded, (0.4, 0.3, 0.3), 1, rule),
            gene_disjoint_parts(table, (0.4, 0.3, 0.3), 1, rule),
        )


@settings(max_examples=200)
@given(table=tables, folds=st.integers(3, 5), seed=seeds)
def test_folds_under_any_hold_out_genes_and_test_each_strain_once(table: StrainTable, folds: int, seed: int) -> None:
    tested = np.zeros(len(table), np.int64)
    for fold in range(folds):
        parts = gene_fold_parts(table, folds, fold, seed, "any")
        tested += parts == TEST
        genes = genes_by_part(table, parts)
        for strain, part in zip(gene_lists(table), parts, strict=True):
            if part == VALIDATION:
                assert not genes[TRAIN].issuperset(strain)
            if part == TEST:
                assert not (genes[TRAIN] | genes[VALIDATION]).issuperset(strain)
            if not strain:
                assert part == TRAIN
    np.testing.assert_array_equal(tested, table.num_deletions > 0)


@settings(max_examples=200)
@given(table=tables, folds=st.integers(3, 5), seed=seeds)
def test_folds_under_all_share_no_gene_and_test_no_strain_twice(table: StrainTable, folds: int, seed: int) -> None:
    tested, test_genes = np.zeros(len(table), np.int64), []
    for fold in range(folds):
        parts = gene_fold_parts(table, folds, fold, seed, "all")
        tested += parts == TEST
        genes = genes_by_part(table, parts)
        assert not genes[TRAIN] & genes[VALIDATION]
        assert not (genes[TRAIN] | genes[VALIDATION]) & genes[TEST]
        test_genes += sorted(genes[TEST])
    assert tested.max(initial=0) <= 1
    assert (tested[table.num_deletions == 1] == 1).all()
    assert len(test_genes) == len(set(test_genes))


def test_folds_of_genes_are_equal_and_a_third_of_pairs_train() -> None:
    table = random_table(20_000, 400, (2, 2))
    for fold in range(5):
        parts = gene_fold_parts(table, 5, fold, 0, "any")
        assert (parts == TRAIN).mean() == pytest.approx(0.36, abs=0.02)
        assert (parts == TEST).mean() == pytest.approx(0.2, abs=0.02)
        assert len(genes_by_part(table, parts)[TRAIN]) == 240


@settings(max_examples=200)
@given(
    table=tables,
    seed=seeds,
    test_genes=st.integers(1, 4),
    by_deletions=st.booleans(),
    rule=st.sampled_from(["any", "all"]),
)
def test_gene_splits_are_those_of_dango(
    table: StrainTable, seed: int, test_genes: int, by_deletions: bool, rule: str
) -> None:
    occurring = set().union(*gene_lists(table))
    if test_genes >= len(occurring):
        with pytest.raises(DataError, match=r"leaves no gene for training\n.*test genes of \d"):
            held_out_gene_parts(table, REST, seed, test_genes, rule, by_deletions)
        return
    parts = held_out_gene_parts(table, REST, seed, test_genes, rule, by_deletions)
    # The genes of training and validation are known to be none of the drawn; find the drawn by the one rule that
    # says most of them, then check every strain by DANGO's definition.
    drawn = occurring - genes_by_part(table, held_out_gene_parts(table, REST, seed, test_genes, "any", True))[TRAIN]
    rest = genes_by_part(table, parts)
    drawn -= rest[TRAIN] | rest[VALIDATION]
    for strain, part in zip(gene_lists(table), parts, strict=True):
        held = len(drawn & set(strain))
        if part == TEST:
            assert held >= 1 if rule == "any" else held == len(strain) > 0
        elif part == UNUSED:
            assert rule == "all"
            assert held > 0
        else:
            assert held == 0


def test_gene_splits_draw_as_many_genes_as_asked_and_divide_the_rest() -> None:
    table = triples(20_000, genes=300)
    first = held_out_gene_parts(table, REST, 0, 40, "any", True)
    second = held_out_gene_parts(table, REST, 0, 40, "all", True)
    for parts in (first, second):
        genes = genes_by_part(table, parts)
        assert len(genes[TRAIN] | genes[VALIDATION]) == 260
        assert (parts == VALIDATION).sum() / (parts <= VALIDATION).sum() == pytest.approx(0.2, abs=1e-3)
        assert genes[TRAIN] == genes[VALIDATION]
    np.testing.assert_array_equal(first <= VALIDATION, second <= VALIDATION)
    assert (first == TEST).mean() == pytest.approx(1 - (260 / 300) ** 3, abs=0.02)
    assert 0 < (second == TEST).sum() < (second == UNUSED).sum()
    assert len(genes_by_part(table, second)[TEST]) <= 40


def make(kind: str, table: StrainTable, seed: int) -> Parts:
    if kind.startswith("fold"):
        return gene_fold_parts(table, 5, 2, seed, kind.split()[1])
    if kind.startswith("split"):
        return held_out_gene_parts(table, REST, seed, 30, kind.split()[1], True)
    return gene_disjoint_parts(table, FRACTIONS, seed, kind)


KINDS = ["any", "all", "fold any", "fold all", "split any", "split all"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_depends_on_the_strain_and_the_seed_not_on_the_order_of_rows(kind: str) -> None:
    table = triples(2000, genes=100)
    parts = make(kind, table, 5)
    np.testing.assert_array_equal(make(kind, table, 5), parts)
    assert (make(kind, table, 6) != parts).mean() > 0.02
    moved, order = shuffled_rows(table)
    np.testing.assert_array_equal(make(kind, moved, 5), parts[order])


@pytest.mark.parametrize("kind", KINDS[:4])
def test_wild_type_rows_are_training(kind: str) -> None:
    table = table_of([[], []])
    assert make(kind, table, 0).tolist() == [TRAIN, TRAIN]

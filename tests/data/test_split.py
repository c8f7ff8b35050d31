"""Splits, from the configuration to the file, and how strains are divided."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dglcell.data.columns import columns_of, shuffled
from dglcell.data.config import FOLDED, PARTS, TEST, TRAIN, UNUSED, VALIDATION, SplitConfig, SubsetConfig
from dglcell.data.split import Parts, Split, divide, fill, make_split, subset_parts
from dglcell.data.strains import Strains
from dglcell.errors import ConfigError, DataError
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

# What the section `split` can say: every wrong value is named by its key.


WRONG = [
    ({"kind": "startified"}, r"kind` is unknown\n.*startified\n.*random, stratified, pair_disjoint, gene"),
    ({"fractions": [0.8, 0.2]}, r"fractions` do not divide the strains\n.*\[0.8, 0.2\]\n.*three"),
    ({"fractions": [1.2, -0.1, -0.1]}, "fractions` do not divide"),
    ({"folds": 5}, r"folds` and `split.fold` go together\n.*folds 5, fold None\n"),
    ({"folds": 2, "fold": 0}, r"folds` is out of range\n.*2\n.*3 … 100"),
    ({"folds": 5, "fold": 5}, r"fold` is out of range\n.*5\n.*0 … 4"),
    ({"test_genes": 40}, r"test_genes` is for a split of another kind\n.*random\n.*gene_split_1 or gene_split_2"),
    ({"kind": "gene_split_2", "test_genes": 0}, r"test_genes` is too small\n.*0\n.*1 or more"),
    ({"all_train": 1}, "all_train` is for a split of another kind"),
    ({"kind": "deletions", "all_train": 2}, r"all_train` leaves no strain for validation\n.*2\n.*less than"),
    ({"kind": "file"}, r"kind: file` and `split.path` go together\n.*kind file, path None\n"),
    ({"kind": "covariate"}, "kind: covariate` and `split.covariate` go together"),
    ({"test_values": ["b"]}, "test_values` is for a covariate or gene_disjoint split"),
    ({"kind": "gene_disjoint", "test_values": ["b"]}, r"test_values` go together in a gene_disjoint .*\n.*None.*\[b\]"),
    ({"kind": "gene_disjoint", "covariate": "medium"}, "test_values` go together in a gene_disjoint"),
    ({"train_share": 0.0}, r"train_share` is no share .*\n.*0.0\n.*more than 0, and at most 1"),
    ({"kind": "gene_split_1", "folds": 5, "fold": 0}, r"gene_split_1 split has no folds\n.*folds: 5`\n.*null"),
    ({"subset": SubsetConfig(size=2)}, r"subset.size` is too small\n.*2\n.*3 or more"),
]


@pytest.mark.parametrize(("keys", "message"), WRONG)
def test_a_wrong_configuration(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SplitConfig(**keys).validate()


STORE = "5" * 64


# Cross-validation: folds take turns at being the test part.


KINDS_OF_GENES = [kind for kind in FOLDED if kind != "covariate"]
"""Strains of these tests have no covariate; see `tests/data/test_activities.py`."""


@pytest.mark.parametrize("kind", KINDS_OF_GENES)
@examples(15)
@given(table=tables, folds=st.integers(3, 7), seed=st.integers(0, 50))
def test_every_strain_is_in_exactly_one_test_fold(kind: str, table: Strains, folds: int, seed: int) -> None:
    parts = [divide(SplitConfig(kind, seed=seed, folds=folds, fold=fold), table)[0] for fold in range(folds)]
    tested = np.sum([fold == TEST for fold in parts], axis=0)
    # Without a query pair, or without a gene, there is nothing to hold out.
    expected = table.num_deletions >= {"pair_disjoint": 2, "gene_disjoint": 1}.get(kind, 0)
    np.testing.assert_array_equal(tested, expected)
    for fold, following in zip(parts, parts[1:] + parts[:1], strict=True):
        # What is validated is what the next fold tests, but for strains that share a gene with this fold's.
        if kind == "gene_disjoint":
            check_new_genes(table, fold)
            assert set(following[fold == VALIDATION].tolist()) <= {TEST}
        else:
            np.testing.assert_array_equal(fold == VALIDATION, following == TEST)
            assert not (fold == UNUSED).any()


TABLE = random_table(2000, 300, (1, 4))


@pytest.fixture(scope="module")
def split() -> Split:
    return make_split(SplitConfig(), TABLE, STORE)


@pytest.mark.parametrize(
    "config",
    [
        SplitConfig(),
        SplitConfig("stratified", folds=5, fold=4),
        SplitConfig("gene_disjoint", folds=4, fold=3),
        SplitConfig("gene_split_2", test_genes=100),
        SplitConfig("deletions"),
        SplitConfig("none"),
        SplitConfig("gene_disjoint", subset=SubsetConfig(200), train_share=0.1),
    ],
)
def test_parts_are_disjoint_and_complete_and_come_back(config: SplitConfig, tmp_path: Path) -> None:
    split = make_split(config, TABLE, STORE)
    indices = [split.indices(part) for part in ("train", "validation", "test")]
    assert all(found.dtype == np.int64 and (np.diff(found) > 0).all() for found in indices)
    together = np.concatenate([*indices, np.flatnonzero(split.part == 255)])
    np.testing.assert_array_equal(np.sort(together), np.arange(len(TABLE)))
    assert [len(found) for found in indices] == [split.counts[part] for part in ("train", "validation", "test")]
    split.save(tmp_path / "runs" / "split.npz")
    found = Split.load(tmp_path / "runs" / "split.npz", STORE)
    assert (found.sha256, found.meta) == (split.sha256, split.meta)
    np.testing.assert_array_equal(found.part, split.part)
    assert os.listdir(tmp_path / "runs") == ["split.npz"]


def test_every_field_changes_the_hash(split: Split) -> None:
    moved = split.part.copy()
    moved[0] = (moved[0] + 1) % 3
    changes = {"part": moved, "kind": "other", "seed": 1, "parameters": {}, "store_sha256": "6" * 64}
    hashes = {replace(split, **{name: value}).sha256 for name, value in changes.items()}
    assert len({split.sha256, *hashes}) == 1 + len(changes)


def test_a_file_of_something_else(split: Split, tmp_path: Path) -> None:
    path = tmp_path / "split.npz"
    config = SplitConfig("file", path=str(path))
    with pytest.raises(DataError, match=r"split .*split.npz' not found"):
        make_split(config, TABLE, STORE)
    split.save(path)
    assert make_split(config, TABLE, STORE).sha256 == split.sha256
    subset = make_split(replace(config, subset=SubsetConfig(100)), TABLE, STORE)
    assert subset.parameters["subset_of"] == split.sha256
    np.testing.assert_array_equal(subset.part[subset.part != 255], split.part[subset.part != 255])
    with pytest.raises(DataError, match=r"belongs to another store\n.*sha256 5{12}…\n.*sha256 6{12}…\n"):
        make_split(config, TABLE, "6" * 64)
    part = split.part.copy()
    part[5] = 2 - part[5]
    with np.load(path) as archive:
        meta = archive["meta"]
    np.savez_compressed(path, part=part, meta=meta)
    with pytest.raises(DataError, match="was altered: it does not fit its hash"):
        make_split(config, TABLE, STORE)
    path.write_text("train: 0 1 2")
    with pytest.raises(DataError, match="is not a split, or it is damaged"):
        make_split(config, TABLE, STORE)


SIDE = random_table(200, 50, (2, 3))


@pytest.mark.parametrize(
    ("config", "table", "message"),
    [
        (SplitConfig(), table_of([["A"], ["B"]]), r"random split: no strain in .*\n.* train.*\n.*\n.*the fraction"),
        (SplitConfig("pair_disjoint"), table_of([["A"], ["B"], ["C"]] * 9), "pair_disjoint split: no strain in valid"),
        (SplitConfig("deletions", max_deletions=3), SIDE, r"no strain in test\n[\s\S]*change `split.max_deletions`"),
        (SplitConfig("deletions", max_deletions=1), SIDE, "no strain in train and validation"),
        (SplitConfig("gene_split_1", test_genes=50), SIDE, r"no strain in train[\s\S]*change `split.test_genes`"),
        (SplitConfig(subset=SubsetConfig(201)), SIDE, r"larger than the set of strains\n.*size 201\n.*at most 200 "),
    ],
)
def test_a_split_that_cannot_be(config: SplitConfig, table: Strains, message: str) -> None:
    with pytest.raises(DataError, match=message):
        make_split(config, table, STORE)


def test_every_strain_trains(tmp_path: Path) -> None:
    table = table_of([["A"]])
    split = make_split(SplitConfig("none"), table, STORE)
    assert split.counts == {"train": 1, "validation": 0, "test": 0, "unused": 0}
    some = make_split(SplitConfig("none", subset=SubsetConfig(20)), random_table(30, 9), STORE)
    assert some.counts == {"train": 20, "validation": 0, "test": 0, "unused": 10}
    split.save(tmp_path / "split.npz")
    with pytest.raises(DataError, match=r"has no validation and no test part\n.*\n.*set `split.kind: none` and"):
        make_split(SplitConfig("file", path=str(tmp_path / "split.npz")), table, STORE)


@pytest.mark.parametrize("kind", ["random", "gene_disjoint", "none"])
def test_a_smaller_share_of_training_strains_is_inside_a_larger_one(kind: str) -> None:
    whole = make_split(SplitConfig(kind), TABLE, STORE)
    larger = set(whole.indices("train").tolist())
    for share in (0.5, 0.05, 0.01, 1e-9):
        split = make_split(SplitConfig(kind, train_share=share), TABLE, STORE)
        trained = set(split.indices("train").tolist())
        assert len(trained) == max(1, round(share * whole.counts["train"]))
        assert trained < larger
        for part in ("validation", "test"):
            np.testing.assert_array_equal(split.indices(part), whole.indices(part))
        assert split.parameters["train_share"] == share
        assert split.parameters["train_share_of"] == whole.sha256
        larger = trained


@pytest.mark.parametrize("options", [{}, {"folds": 4, "fold": 1}])
def test_a_group_of_genes_is_in_one_part(options: dict[str, Any], tmp_path: Path) -> None:
    table = random_table(600, 120, (1, 1))
    of = {name: f"group {number // 3}" for number, name in enumerate(table.names[:90])}  # the others have none
    (tmp_path / "groups.csv").write_text("\n".join(["gene,group", *(f"{a},{b}" for a, b in of.items())]))
    config = SplitConfig("gene_disjoint", [0.6, 0.2, 0.2], groups="groups.csv", **options)
    split = make_split(config, table, STORE, str(tmp_path))
    group = [of.get(table.names[gene], table.names[gene]) for gene in table.targets]
    parts = {name: {group[s] for s in split.indices(name)} for name in ("train", "validation", "test")}
    assert sum(map(len, parts.values())) == len(set(group))
    assert not set.intersection(*parts.values())
    alone = make_split(replace(config, groups=None), table, STORE)
    assert split.parameters["groups"]["file"] == "groups.csv"
    assert (split.part != alone.part).any()
    first, second = table.names[:2]
    for content, message in (
        ("gene\na\n", "has one column"),
        (f"gene,group\n{first},a\n{second},a\n{first},b\n", f"has gene '{first}' in several groups"),
        ("gene,group\nunknown,a\n", "has no gene of the strains\n  got: *unknown\n  expected: names such as Y"),
    ):
        (tmp_path / "groups.csv").write_text(content)
        with pytest.raises(DataError, match=rf"`split.groups`: 'groups.csv' {message}"):
            make_split(config, table, STORE, str(tmp_path))
    alone_too = "".join(f"{gene},\n" for gene in table.names[1:])  # genes without a group are none
    (tmp_path / "groups.csv").write_text(f"gene,group\n{first},{first}\n{alone_too}")
    np.testing.assert_array_equal(make_split(config, table, STORE, str(tmp_path)).part, alone.part)


def test_gene_splits_hold_out_40_and_400_genes_unless_told() -> None:
    for kind, genes in (("gene_split_1", 40), ("gene_split_2", 400)):
        table = random_table(6000, 450, (1, 2))
        found = make_split(SplitConfig(kind, [0.72, 0.18, 0.1]), table, STORE)
        assert found.parameters["test_genes"] == genes
        seen = set(table.targets[np.repeat(found.part <= 1, table.num_deletions)].tolist())
        assert len(set(table.targets.tolist()) - seen) == genes


def test_strains_with_more_deletions_are_the_test_part() -> None:
    table = random_table(6000, 50, (1, 4))

    def divided(fractions: tuple[float, ...] = (0.6, 0.2, 0.2), **more: Any) -> Split:
        return make_split(SplitConfig("deletions", list(fractions), **more), table, STORE)

    found = divided()
    assert found.parameters["max_deletions"] == 2
    np.testing.assert_array_equal(found.part == 2, table.num_deletions > 2)
    for number in (1, 2):
        share = (found.part[table.num_deletions == number] == 0).mean()
        assert share == pytest.approx(0.75, abs=0.01)
    mixed = divided(by_deletions=False)
    assert mixed.counts["train"] == pytest.approx(3 * mixed.counts["validation"], rel=0.01)
    np.testing.assert_array_equal(divided(max_deletions=1).part == 2, table.num_deletions > 1)
    some = divided((0.45, 0.45, 0.1), all_train=1)
    assert some.parameters["all_train"] == 1
    assert (some.part[table.num_deletions == 1] == 0).all()
    assert (some.part[table.num_deletions == 2] == 0).mean() == pytest.approx(0.5, abs=0.01)


SUBSET_TABLE = random_table(3000, 200, (1, 4), seed=3)
DIVIDED_PARTS = divide(SplitConfig(seed=101, by_deletions=False), SUBSET_TABLE)[0]  # a seed that no test draws


@examples(25)
@given(size=st.integers(3, 3000), seed=st.integers(0, 100))
def test_a_subset_has_its_size_and_the_proportions_of_the_whole(size: int, seed: int) -> None:
    kept = subset_parts(DIVIDED_PARTS, SUBSET_TABLE, size, seed)
    np.testing.assert_array_equal(kept, subset_parts(DIVIDED_PARTS, SUBSET_TABLE, size, seed))
    used = kept != UNUSED
    assert used.sum() == size
    np.testing.assert_array_equal(kept[used], DIVIDED_PARTS[used])
    whole = np.bincount(DIVIDED_PARTS, minlength=3) / len(DIVIDED_PARTS)
    assert abs(np.bincount(kept[used], minlength=3) - whole * size).max() < 1


def test_singles_come_first_then_all_numbers_of_deletions_evenly() -> None:
    strains = [[f"A{i:03d}"] for i in range(50)]
    strains += [[f"A{i:03d}", f"B{j}"] for i in range(50) for j in range(8)]
    strains += [[f"A{i:03d}", "C", "D"] for i in range(30)]
    strains += [[f"A{i:03d}", "C", "D", f"B{j}"] for i in range(50) for j in range(8)]
    table = table_of(strains)
    parts = np.zeros(len(strains), np.uint8)

    def taken(size: int) -> dict[int, int]:
        kept = subset_parts(parts, table, size, 0)
        return dict(sorted(Counter(table.num_deletions[kept != UNUSED].tolist()).items()))

    assert taken(20) == {1: 20}
    assert taken(110) == {1: 50, 2: 20, 3: 20, 4: 20}
    assert taken(280) == {1: 50, 2: 100, 3: 30, 4: 100}
    assert taken(880) == {1: 50, 2: 400, 3: 30, 4: 400}


# How strains are divided.


def parts_of(kind: str, table: Strains, seed: int = 0, fractions: tuple[float, ...] = FRACTIONS, **more: Any) -> Parts:
    return divide(SplitConfig(kind, list(fractions), seed, **more), table)[0]


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


def test_random_meets_its_fractions_for_each_number_of_deletions() -> None:
    table = random_table(4000, 500, (1, 4))
    strata = [table.num_deletions == number for number in range(1, 5)]
    stratified = parts_of("random", table)
    for stratum in strata[1:]:
        np.testing.assert_allclose(shares(stratified[stratum]), FRACTIONS, atol=2e-3)
    plain = parts_of("random", table, by_deletions=False)
    assert max(abs(shares(plain[stratum]) - FRACTIONS).max() for stratum in strata[1:]) > 2e-3


@pytest.mark.parametrize("kind", ["random", "pair_disjoint"])
@examples(40)
@given(table=tables, fractions=fractions, seed=seeds, by_deletions=st.booleans())
def test_no_gene_set_is_in_two_parts_nor_maybe_a_query_pair(
    kind: str, table: Strains, fractions: tuple[float, ...], seed: int, by_deletions: bool
) -> None:
    parts = parts_of(kind, table, seed, fractions, by_deletions=by_deletions)
    assert (parts.shape, parts.dtype) == ((len(table),), np.uint8)
    assert set(parts.tolist()) <= {TRAIN, VALIDATION, TEST}
    found = defaultdict(set)
    for strain, part in zip(table.genotypes, parts, strict=True):
        found["set", frozenset(strain)].add(int(part))
        if kind == "pair_disjoint" and len(strain) >= 2:
            found["pair", frozenset(strain[:2])].add(int(part))
        elif kind == "pair_disjoint":
            assert part == TRAIN
    assert all(len(where) == 1 for where in found.values())


def test_the_query_pair_of_a_triple_is_that_of_its_query_strain() -> None:
    queries = [["Q", f"X{i:02d}"] for i in range(20)]
    parts = parts_of("pair_disjoint", table_of([[*query, "A"] for query in queries]))
    assert set(parts.tolist()) == {TRAIN, VALIDATION, TEST}, "pairs of an array gene may be in several parts"
    both = parts_of("pair_disjoint", table_of([[*q, "A"] for q in queries] + [[*q[::-1], "B"] for q in queries]))
    np.testing.assert_array_equal(both[:20], both[20:])


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
@given(table=tables, seed=seeds, test_genes=st.integers(1, 4), by_deletions=st.booleans(), number=st.integers(1, 2))
def test_gene_splits_are_dangos(table: Strains, seed: int, test_genes: int, by_deletions: bool, number: int) -> None:
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


@pytest.mark.parametrize(
    ("kind", "more"), [*((kind, of) for kind in KINDS_OF_GENES for of in ({}, {"folds": 5, "fold": 1})), *OTHERS]
)
def test_a_part_depends_on_the_strain_and_the_seed_not_on_the_order_of_rows(kind: str, more: dict[str, Any]) -> None:
    table = triples(2000, genes=100)
    parts = parts_of(kind, table, 5, **more)
    np.testing.assert_array_equal(parts_of(kind, table, 5, **more), parts)
    assert (parts_of(kind, table, 6, **more) != parts).mean() > 0.02
    moved, order = shuffled_rows(table)
    np.testing.assert_array_equal(parts_of(kind, moved, 5, **more), parts[order])

"""Splits, from the configuration to the file."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dglcell.data.config import FOLDED, TEST, UNUSED, VALIDATION, SplitConfig, SubsetConfig
from dglcell.data.split import Split, divide, make_split, subset_parts
from dglcell.data.strains import Strains
from dglcell.errors import ConfigError, DataError
from tests.data.strain_tables import random_table, table_of, tables
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


@examples(30)
@given(table=tables, kind=st.sampled_from(KINDS_OF_GENES), folds=st.integers(3, 7), seed=st.integers(0, 50))
def test_every_strain_is_in_exactly_one_test_fold(table: Strains, kind: str, folds: int, seed: int) -> None:
    parts = [divide(SplitConfig(kind, seed=seed, folds=folds, fold=fold), table)[0] for fold in range(folds)]
    tested = np.sum([fold == TEST for fold in parts], axis=0)
    # Without a query pair, or without a gene, there is nothing to hold out.
    expected = table.num_deletions >= {"pair_disjoint": 2, "gene_disjoint": 1}.get(kind, 0)
    np.testing.assert_array_equal(tested, expected)
    for fold, following in zip(parts, parts[1:] + parts[:1], strict=True):
        # What is validated is what the next fold tests, but for strains that share a gene with this fold's.
        if kind == "gene_disjoint":
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
    variants = [
        split,
        replace(split, part=moved),
        replace(split, kind="other"),
        replace(split, seed=1),
        replace(split, parameters={}),
        replace(split, store_sha256="6" * 64),
    ]
    assert len({variant.sha256 for variant in variants}) == len(variants)


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
    (tmp_path / "groups.csv").write_text("gene\na\n")
    with pytest.raises(DataError, match=r"`split.groups`: 'groups.csv' has one column"):
        make_split(config, table, STORE, str(tmp_path))


def test_gene_splits_hold_out_40_and_400_genes_unless_told() -> None:
    for kind, genes in (("gene_split_1", 40), ("gene_split_2", 400)):
        table = random_table(6000, 450, (1, 2))
        found = make_split(SplitConfig(kind, [0.72, 0.18, 0.1]), table, STORE)
        assert found.parameters["test_genes"] == genes
        seen = set(table.targets[np.repeat(found.part <= 1, table.num_deletions)].tolist())
        assert len(set(table.targets.tolist()) - seen) == genes


def test_strains_with_more_deletions_are_the_test_part() -> None:
    table = random_table(6000, 50, (1, 4))
    found = make_split(SplitConfig("deletions", [0.6, 0.2, 0.2]), table, STORE)
    assert found.parameters["max_deletions"] == 2
    np.testing.assert_array_equal(found.part == 2, table.num_deletions > 2)
    for number in (1, 2):
        share = (found.part[table.num_deletions == number] == 0).mean()
        assert share == pytest.approx(0.75, abs=0.01)
    mixed = make_split(SplitConfig("deletions", [0.6, 0.2, 0.2], by_deletions=False), table, STORE)
    assert mixed.counts["train"] == pytest.approx(3 * mixed.counts["validation"], rel=0.01)
    fewer = make_split(SplitConfig("deletions", max_deletions=1), table, STORE)
    np.testing.assert_array_equal(fewer.part == 2, table.num_deletions > 1)

    some = make_split(SplitConfig("deletions", [0.45, 0.45, 0.1], all_train=1), table, STORE)
    assert some.parameters["all_train"] == 1
    assert (some.part[table.num_deletions == 1] == 0).all()
    assert (some.part[table.num_deletions == 2] == 0).mean() == pytest.approx(0.5, abs=0.01)


SUBSET_TABLE = random_table(3000, 200, (1, 4), seed=3)
PARTS = divide(SplitConfig(seed=101, by_deletions=False), SUBSET_TABLE)[0]  # a seed that no test draws


@examples(25)
@given(size=st.integers(3, 3000), seed=st.integers(0, 100))
def test_a_subset_has_its_size_and_the_proportions_of_the_whole(size: int, seed: int) -> None:
    kept = subset_parts(PARTS, SUBSET_TABLE, size, seed)
    np.testing.assert_array_equal(kept, subset_parts(PARTS, SUBSET_TABLE, size, seed))
    used = kept != UNUSED
    assert used.sum() == size
    np.testing.assert_array_equal(kept[used], PARTS[used])
    whole = np.bincount(PARTS, minlength=3) / len(PARTS)
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

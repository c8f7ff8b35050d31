"""Splits as lists of strain numbers in JSON, as torchcell writes them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dglcell.data.config import UNUSED, SplitConfig, SubsetConfig
from dglcell.data.partition import Bins, random_parts
from dglcell.data.split import make_split, read_index_file, subset_parts
from dglcell.errors import DataError
from tests.data.strain_tables import random_table, table_of
from tests.examples import examples

STORE = "5" * 64
GOOD = {"train": [0, 3, 4, 6], "val": [1], "test": [2, 5]}


def write(folder: Path, content: Any) -> Path:
    """Write the file as torchcell does."""
    path = folder / "index_seed_42.json"
    path.write_text(json.dumps(content, indent=2))
    return path


@given(
    parts=st.lists(st.sampled_from([0, 1, 2, 255]), min_size=1, max_size=60),
    name=st.sampled_from(["val", "validation"]),
)
def test_numbers_become_parts(tmp_path_factory: pytest.TempPathFactory, parts: list[int], name: str) -> None:
    lists = {
        key: [i for i, part in enumerate(parts) if part == code] for code, key in enumerate(("train", name, "test"))
    }
    path = write(tmp_path_factory.mktemp("split"), lists)
    assert read_index_file(path, len(parts), "unused").tolist() == parts
    if 255 in parts:
        with pytest.raises(
            DataError, match=r"does not list every strain of the store\n.*\n.*set `split.unlisted: unused`"
        ):
            read_index_file(path, len(parts), "refuse")
    else:
        assert read_index_file(path, len(parts), "refuse").tolist() == parts


def test_a_file_makes_a_split_with_its_hash(tmp_path: Path) -> None:
    table = random_table(7, 20)
    path = write(tmp_path, GOOD)
    split = make_split(SplitConfig("file", path=str(path)), table, STORE)
    assert {
        name: split.indices(part).tolist() for name, part in zip(GOOD, ("train", "validation", "test"), strict=True)
    } == GOOD
    assert (split.kind, split.parameters["file"]) == ("file", "index_seed_42.json")
    moved = make_split(
        SplitConfig("file", path=str(write(tmp_path, {**GOOD, "val": [5], "test": [2, 1]}))), table, STORE
    )
    assert moved.sha256 != split.sha256
    smaller = make_split(SplitConfig("file", path=str(write(tmp_path, GOOD)), subset=SubsetConfig(4)), table, STORE)
    assert smaller.counts["unused"] == 3
    np.testing.assert_array_equal(smaller.part[smaller.part != 255], split.part[smaller.part != 255])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({**GOOD, "test": [2, 5, 7]}, r"strains of `test` that the store does not have\n.*7\n.*0 … 6\n"),
        ({**GOOD, "val": [-1, 1]}, r"strains of `val` that the store does not have\n.*-1\n"),
        ({**GOOD, "val": [1, 3]}, r"lists strains more than once\n.*3\n.*each strain in one of train, val"),
        ({**GOOD, "test": [2, 2, 5]}, r"lists strains more than once\n.*2\n"),
        ({**GOOD, "train": [0, 3, 4]}, r"does not list every strain of the store\n.*6 of 7; not 6\n"),
        ({"train": [0], "test": [1]}, r"has no `val`, or two\n.*keys train, test\n"),
        ({**GOOD, "validation": [1]}, r"has no `val`, or two\n"),
        ([0, 1], r"has no `train`, or two\n.*list\n"),
        (
            {"methods": [], "train": {"a": {"indices": [0]}}, "val": {}, "test": {}},
            r"`train` is no list.*\n.*\n.*details",
        ),
        ({**GOOD, "val": [1.0]}, r"`val` is no list of strain numbers\n"),
        ({**GOOD, "val": [True]}, r"`val` is no list of strain numbers\n"),
        ({**GOOD, "val": [10**30]}, r"`val` is no list of strain numbers\n"),
    ],
)
def test_a_file_that_does_not_fit(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_index_file(write(tmp_path, content), 7, "refuse")


def test_a_file_that_is_no_json_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "torn.json"
    path.write_text('{"train": [0, 1')
    with pytest.raises(DataError, match=r"torn.json' is no JSON\n"):
        read_index_file(path, 7, "refuse")
    with pytest.raises(DataError, match=r"split '.*nowhere.json' not found\n"):
        make_split(SplitConfig("file", path=str(tmp_path / "nowhere.json")), random_table(7, 20), STORE)


def test_empty_lists_leave_a_part_empty(tmp_path: Path) -> None:
    path = write(tmp_path, {"train": [0, 1, 2, 3, 4, 5, 6], "val": [], "test": []})
    with pytest.raises(DataError, match=r"file split: no strain in validation and test\n"):
        make_split(SplitConfig("file", path=str(path)), random_table(7, 20), STORE)


SUBSET_TABLE = random_table(3000, 200, (1, 4), seed=3)
PARTS = random_parts(SUBSET_TABLE, Bins.of_fractions((0.8, 0.1, 0.1)), 101, False)  # a seed that no test draws


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


def test_unused_strains_stay_unused() -> None:
    parts = PARTS.copy()
    parts[::2] = UNUSED
    assert (subset_parts(parts, SUBSET_TABLE, 1000, 0)[::2] == UNUSED).all()


def test_a_subset_larger_than_the_whole() -> None:
    with pytest.raises(DataError, match=r"larger than what it is taken from\n.*size 3,001\n.*at most 3,000 strains\n"):
        subset_parts(PARTS, SUBSET_TABLE, 3001, 0)

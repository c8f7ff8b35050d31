from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dglcell.errors import GraphError
from dglcell.graph.networks import pairs_within_groups, read_matrix

Write = Callable[[str, str], str]


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), max_size=20))
def test_pairs_within_groups_are_all_combinations(rows: list[tuple[int, int]]) -> None:
    members, groups = (np.array([row[i] for row in rows], dtype=np.int64) for i in (0, 1))
    expected = [
        pair
        for group in sorted(set(groups.tolist()))
        for pair in itertools.combinations(sorted({m for m, g in rows if g == group}), 2)
    ]
    first, second = pairs_within_groups(members, groups)
    assert sorted(zip(first.tolist(), second.tolist(), strict=True)) == sorted(expected)


@pytest.mark.parametrize("text", ["\tX\tY\tZ\nP\t0\t1\t0\nQ\t-2\t0\t0.5\n", ';X;Y;Z\n"P";0;1;0\n"Q";-2;0;0.5\n'])
@pytest.mark.parametrize("name", ["m.txt", "m.txt.gz"])
def test_a_matrix_gives_its_cells_that_are_not_zero(write: Write, name: str, text: str) -> None:
    table = read_matrix(Path(write(name, text)), "auto")
    row, column = table.text("row"), table.text("column")
    cells = [(row.names[r], column.names[c]) for r, c in zip(row.rows, column.rows, strict=True)]
    assert cells == [("P", "Y"), ("Q", "X"), ("Q", "Z")]
    assert table.lines.tolist() == [2, 3, 3]


@pytest.mark.parametrize("text", ["\tX\tY\nP\t0\tyes\n", "\tX\tY\nP\t0\n", "tf\ttarget\nP\tQ\n"])
def test_cells_that_are_no_numbers(write: Write, text: str) -> None:
    with pytest.raises(GraphError, match=r"the cells below '.*' are not all numbers"):
        read_matrix(Path(write("m.txt", text)), "\t")


def test_damaged_matrices(write: Write) -> None:
    path = Path(write("m.txt.gz", "\tX\n" + "P\t1\n" * 9999))
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(GraphError, match="cannot be read to its end"):
        read_matrix(path, "\t")
    with pytest.raises(GraphError, match="is empty or begins with an empty line"):
        read_matrix(Path(write("m.txt", "")), "\t")

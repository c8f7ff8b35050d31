"""The record of strains: taken, joined, moved and given to others without losing what belongs together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dglcell.data.columns import CROSS, PHENOTYPE, Column, columns_of
from dglcell.data.strains import Strains
from dglcell.errors import DataError
from tests.data.strain_tables import assert_same_strains, random_table, table_of, with_columns

TABLE = random_table(30, 9, (0, 4), columns=True)


@given(rows=st.lists(st.integers(0, 29), min_size=1, max_size=12), fillers=st.integers(0, 5))
@pytest.mark.parametrize("deletions", [(0, 4), (2, 2)])
def test_strains_are_taken_alike_from_arrays_and_from_tensors(
    deletions: tuple[int, int], rows: list[int], fillers: int
) -> None:
    table = random_table(30, 9, deletions, columns=True)
    taken = table.take(np.array(rows))
    assert taken.genotypes == [table.genotypes[row] for row in rows]
    for column, values in table.columns.items():
        np.testing.assert_array_equal(taken.columns[column], values[rows])
    tensors = table.to("cpu").take(torch.tensor(rows), len(taken.targets) + fillers)
    assert tensors.targets.tolist() == [*taken.targets.tolist(), *[-1] * fillers]
    assert_same_strains(tensors.with_(targets=tensors.targets[: len(taken.targets)]).numpy(), taken)
    assert tensors.perturbations.max_deletions == table.max_deletions


@given(cut=st.integers(0, 30))
def test_slices_joined_are_the_whole(cut: int) -> None:
    assert_same_strains(Strains.concat([TABLE.slice(0, cut), TABLE.slice(cut, 30)]), TABLE)


def test_what_a_part_lacks_is_missing_and_genes_are_matched_by_name() -> None:
    one, other = table_of([["A", "B"]]), table_of([["C", "A"], []])
    other = other.with_(columns=columns_of(phenotype={"score": np.array([1, 2], np.float32)}), units={"score": "x"})
    both = Strains.concat([one, other])
    assert both.genotypes == [["A", "B"], ["C", "A"], []]
    np.testing.assert_array_equal(both.labels, [[0, np.nan], [np.nan, 1], [np.nan, 2]])
    assert both.units == {"fitness": "1", "score": "x"}


def test_the_hash_covers_everything_but_the_order_of_names_and_what_no_store_keeps() -> None:
    fitness = np.arange(3, dtype=np.float32)
    base = with_columns(table_of([["A"], ["A", "B"], ["C"]]), phenotype={"a": fitness, "b": fitness})
    variants = [
        base,
        replace(base, targets=base.targets[::-1]),
        replace(base, offsets=np.array([0, 2, 3, 4])),
        replace(base, names=("A", "B", "D")),
        replace(base, units={"a": "1/h"}),
        with_columns(base, phenotype={"a": fitness, "b": fitness + 1}),
        with_columns(base, phenotype={"a": fitness, "c": fitness}),
        with_columns(base, p_value={"a": fitness}),
        with_columns(base, sd={"a": fitness}),
        with_columns(base, replicates={"a": fitness}),
    ]
    assert len({strains.sha256 for strains in variants}) == len(variants)
    turned = replace(base, names=base.names[::-1], targets=2 - base.targets)
    crossed = replace(base, columns={Column(CROSS): np.arange(3), **base.columns})
    assert base.sha256 == turned.sha256 == crossed.sha256 == base.slice(0, 3).sha256


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"offsets": np.array([0, 1])}, r"offsets do not cover the targets\n  got: +2 targets"),
        ({"offsets": np.array([0, 3, 2])}, "offsets decrease"),
        ({"targets": np.array([0, 2])}, r"targets outside their names\n  got: +0 … 2\n  expected: 0 … 1"),
        ({"names": ("A", " B")}, r"the name of a gene cannot be used\n  got: +' B'"),
        ({"columns": {Column(PHENOTYPE, "a"): np.zeros(3)}}, r"column 'a' has the wrong length\n  got: +3\n.*2"),
    ],
)
def test_what_does_not_fit_together_is_refused(fields: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        replace(Strains(("A", "B"), np.array([0, 1]), np.array([0, 1, 2])), **fields)


def test_an_infinite_label_is_refused() -> None:
    frame = pd.DataFrame({"gene_1": ["b0008", "b0114"], "fitness": [1.0, np.inf]})
    with pytest.raises(DataError, match="strain 1: fitness is infinite"):
        Strains.from_dataframe(frame, phenotypes=["fitness"])


def test_some_targets_of_strains_are_kept() -> None:
    strains = Strains.from_names(
        [{"a": 0.0, "b": 0.5}, {"b": 0.5}, {}, {"c": 0.0}], conditions={"dose": [1.0, 2.0, 3.0, 4.0]}
    )
    deleted = strains.with_targets(strains.left() == 0)
    assert [list(genes) for genes in deleted.genotypes] == [["a"], [], [], ["c"]]
    assert deleted.left().tolist() == [0, 0]
    assert deleted.columns == strains.columns
    assert deleted.with_(strengths=None).num_deletions.tolist() == [1, 0, 0, 1]

"""Strains that a store does not take: each is named by its number."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dglcell.data.store_build import build_store
from dglcell.errors import DataError, GenotypeError
from tests.data.strain_tables import changed, gene_lists, table_of


def test_a_gene_twice_in_a_strain(tmp_path: Path) -> None:
    strains = [["A", "B"]] * 5 + [["C", "A", "C"], ["A", "A"]]
    with pytest.raises(GenotypeError, match=r"^strain 6 deletes gene 'C' twice\n.*distinct genes.*\n.*drop the row"):
        build_store(table_of(strains), tmp_path / "store", command="test")
    assert os.listdir(tmp_path) == []


def test_one_gene_under_two_equal_names(tmp_path: Path) -> None:
    table = replace(table_of([["A", "B"], ["C"]]), names=("A", "A", "C"))
    with pytest.raises(GenotypeError, match="strain 1 deletes gene 'A' twice"):
        build_store(table, tmp_path / "store", command="test")


def test_a_strain_without_a_deletion(tmp_path: Path) -> None:
    table = table_of([["A"], [], ["B"]])
    with pytest.raises(GenotypeError, match=r"^strain 2 deletes no gene\n.*\n.*`allow_empty`"):
        build_store(table, tmp_path / "store", command="test")
    store = build_store(table, tmp_path / "store", command="test", allow_empty=True)
    assert gene_lists(store.read()) == [["A"], [], ["B"]]


def test_more_deletions_than_a_byte_counts(tmp_path: Path) -> None:
    table = table_of([["A"], [f"G{i:03d}" for i in range(256)]])
    with pytest.raises(GenotypeError, match=r"^strain 2 deletes too many genes\n.*256\n.*at most 255"):
        build_store(table, tmp_path / "store", command="test")


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e39])
def test_an_infinite_label(tmp_path: Path, value: float) -> None:
    table = table_of([["A"], ["B"], ["C"]])
    table = replace(table, phenotypes={"fitness": np.array([1, 2, value])})
    with pytest.raises(DataError, match=r"^strain 3 has an unusable phenotype of 'fitness'\n.*inf\n.*a finite number"):
        build_store(table, tmp_path / "store", command="test")


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("p_values", 1.5, r"strain 2 has an unusable p_value of 'fitness'\n.*1.5\n.*from 0 to 1"),
        ("p_values", -0.1, r"unusable p_value"),
        ("sds", -1.0, r"strain 2 has an unusable sd of 'fitness'\n.*-1.0\n.*0 or more"),
        ("sds", np.inf, r"unusable sd"),
        ("replicates", 1.5, r"strain 1 has an unusable replicates of 'fitness'\n.*nan\n.*a whole number, 0 or more"),
    ],
)
def test_a_p_value_or_sd_out_of_range(tmp_path: Path, column: str, value: float, message: str) -> None:
    table = table_of([["A"], ["B"], ["C"]])
    values = {"fitness": np.array([np.nan, value, 0.5], np.float32)}
    with pytest.raises(DataError, match=message):
        build_store(replace(table, **{column: values}), tmp_path / "store", command="test")


def test_a_strain_without_any_label(tmp_path: Path) -> None:
    nan = np.nan
    table = changed(table_of([["A"], ["B"], ["C"]]), a=np.array([1, nan, nan]), b=np.array([nan, 2, nan]))
    with pytest.raises(DataError, match=r"^strain 3 has no label at all\n.*1 such.*\n.*one of a, b\n.*drop the rows"):
        build_store(table, tmp_path / "store", command="test")

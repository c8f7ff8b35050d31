"""Building a store: what is refused, what is written, what a crash leaves."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dglcell.data import store as store_module
from dglcell.data.columns import covariate_columns
from dglcell.data.report import describe_store, format_stats, format_table_stats
from dglcell.data.store import Store, build_store
from dglcell.data.strains import Strains
from dglcell.errors import DataError, GenotypeError
from tests.data.strain_tables import PROVENANCE, assert_same_strains, changed, random_table, table_of, with_columns
from tests.examples import examples

# Strains that a store does not take: each is named by its number.


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            table_of([["A", "B"]] * 5 + [["C", "A", "C"], ["A", "A"]]),
            r"^strain 6 deletes gene 'C' twice\n.*distinct genes.*\n.*drop the row",
        ),
        (replace(table_of([["A", "B"], ["C"]]), names=("A", "A", "C")), "^strain 1 deletes gene 'A' twice"),
        (table_of([["A"], [], ["B"]]), r"^strain 2 deletes no gene\n.*0\n.*1 to 255 genes.*\n.*drop the row"),
        (table_of([["A"], [f"G{i:03d}" for i in range(256)]]), r"^strain 2 deletes too many genes\n.*256\n.*1 to 255"),
    ],
)
def test_strains_of_wrong_genes(tmp_path: Path, table: Strains, message: str) -> None:
    with pytest.raises(GenotypeError, match=message):
        build_store(table, tmp_path / "store", command="test")
    assert os.listdir(tmp_path) == []


def test_the_wild_type_may_be_a_strain_in_some_covariate(tmp_path: Path) -> None:
    table = table_of([["A"], [], ["B"]])
    table = table.with_(columns={**table.columns, **covariate_columns({"medium": ["lb", "lb", "m9"]})})
    assert build_store(table, tmp_path / "store", command="test").read().genotypes == table.genotypes


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        *(
            ("phenotype", value, r"strain 2 has an unusable phenotype of 'fitness'\n.*inf\n.*a finite number")
            for value in (np.inf, -np.inf, 1e39)
        ),
        ("p_value", 1.5, r"strain 2 has an unusable p_value of 'fitness'\n.*1.5\n.*from 0 to 1"),
        ("p_value", -0.1, r"unusable p_value"),
        ("sd", -1.0, r"strain 2 has an unusable sd of 'fitness'\n.*-1.0\n.*0 or more"),
        ("sd", np.inf, r"unusable sd"),
        ("replicates", 1.5, r"strain 1 has an unusable replicates of 'fitness'\n.*nan\n.*a whole number, 0 or more"),
    ],
)
def test_a_number_out_of_range(tmp_path: Path, column: str, value: float, message: str) -> None:
    table = table_of([["A"], ["B"], ["C"]])
    values = {"fitness": np.array([np.nan, value, 0.5])}
    with pytest.raises(DataError, match=message):
        build_store(with_columns(table, **{column: values}), tmp_path / "store", command="test")


def test_a_strain_without_any_label(tmp_path: Path) -> None:
    nan = np.nan
    table = changed(table_of([["A"], ["B"], ["C"]]), a=np.array([1, nan, nan]), b=np.array([nan, 2, nan]))
    with pytest.raises(DataError, match=r"^strain 3 has no label at all\n.*1 such.*\n.*one of a, b\n.*drop the rows"):
        build_store(table, tmp_path / "store", command="test")


@examples(20)
@given(
    strains=st.integers(1, 60),
    deletions=st.tuples(st.integers(1, 6), st.integers(1, 6)).map(lambda pair: (min(pair), max(pair))),
    seed=st.integers(0, 1000),
)
def test_a_table_comes_back(
    tmp_path_factory: pytest.TempPathFactory, strains: int, deletions: tuple[int, int], seed: int
) -> None:
    table = random_table(strains, 8, deletions, seed, columns=True)
    store = build_store(table, tmp_path_factory.mktemp("stores") / "a", command="test")
    assert_same_strains(store.read(), table)
    assert store.sha256 == table.sha256 == store.read().sha256


def test_the_hash_depends_on_the_strains_only(tmp_path: Path) -> None:
    table = random_table(300, 20, columns=True)
    first = build_store(table, tmp_path / "a", command="one")
    order = np.argsort(table.names)
    by_name = replace(
        table,
        names=tuple(sorted(table.names)),
        targets=np.argsort(order)[table.targets].astype(np.int32),
        provenance=replace(PROVENANCE, source="elsewhere"),
    )
    second = build_store(by_name, tmp_path / "b", command="two")
    assert first.sha256 == second.sha256
    other = {name: values + np.float32(1e-6) for name, values in table.phenotypes.items()}
    assert build_store(changed(table, **other), tmp_path / "c", command="one").sha256 != first.sha256


def test_missing_labels_hash_alike_whatever_their_bits(tmp_path: Path) -> None:
    table = random_table(3, 5)
    odd = np.array([1, np.nan, 1], np.float32)
    odd.view(np.uint32)[1] |= 0x80000123
    fitness = np.ones(3)
    stores = [
        build_store(changed(table, a=np.array([1, np.nan, 1]), b=fitness), tmp_path / "a", command="t"),
        build_store(changed(table, a=odd, b=fitness), tmp_path / "b", command="t"),
    ]
    assert stores[0].sha256 == stores[1].sha256 == changed(table, a=odd, b=fitness).sha256


def test_numbers_of_deletions_are_stored_only_where_they_differ(tmp_path: Path) -> None:
    sizes = []
    for name, last in (("a", ["A", "B"]), ("b", ["A"])):
        store = build_store(table_of([["A", "B"]] * 100_000 + [last]), tmp_path / name, command="test")
        sizes.append(store.file_size)
    assert sizes[0] < 8.5 * 100_000
    assert 95_000 < sizes[1] - sizes[0] < 110_000


def test_a_source_without_phenotypes_or_strains(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^no phenotype: a store needs at least one\n.*name a phenotype column"):
        build_store(changed(table_of([["A"]])), tmp_path / "store", command="test")
    with pytest.raises(DataError, match=r"^no strains: a store needs at least one\n.*check the source"):
        build_store(table_of([]), tmp_path / "store", command="test")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("column", ["p_value", "sd", "replicates"])
def test_columns_of_an_absent_phenotype(tmp_path: Path, column: str) -> None:
    table = with_columns(table_of([["A"]]), **{column: {"tau": np.ones(1, np.float32)}})
    with pytest.raises(DataError, match=rf"^a column belongs to a phenotype .*: {column} of tau\n.*some of fitness"):
        build_store(table, tmp_path / "store", command="test")


def test_an_existing_store_stays_unless_it_may_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "store"
    build_store(table_of([["A"]]), path, command="test")
    with pytest.raises(DataError, match=r"exists already\n.*--overwrite"):
        build_store(table_of([["A"], ["B"]]), path, command="test")
    with pytest.raises(GenotypeError):
        build_store(table_of([["A"], ["B", "B"]]), path, command="test", overwrite=True)
    assert len(Store(path).read()) == 1
    assert len(build_store(table_of([["A"], ["B"]]), path, command="test", overwrite=True)) == 2
    assert os.listdir(tmp_path) == ["store"]


def test_a_directory_that_is_no_store_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(DataError, match=r"will not be replaced: it is not a store\n.*thesis.tex\n.*\n.*choose another"):
        build_store(table_of([["A"]]), tmp_path, command="test", overwrite=True)
    file = tmp_path / "thesis.tex"
    with pytest.raises(DataError, match="will not be replaced"):
        build_store(table_of([["A"]]), file, command="test", overwrite=True)
    assert file.read_text() == "years of work"


def test_an_interrupted_build_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(store_module, "StoreMeta", interrupt)
    with pytest.raises(KeyboardInterrupt):
        build_store(random_table(30_000, 50), tmp_path / "s", command="t")
    assert os.listdir(tmp_path) == []


def test_the_content_hash_is_the_same_in_every_version() -> None:
    table = table_of([["YAL001C", "YBR020W"], ["YCL018W"], []], fitness=[0.5, np.nan, 1.0])
    table = with_columns(table, sd={"fitness": np.array([0.1, np.nan, 0.2], np.float32)})
    table = changed(table, **table.phenotypes, s_score=np.array([1, 2, np.nan]))
    assert table.sha256[:16] == "5adff21bf1c93c16"


def test_options_that_json_cannot_hold_are_found_before_the_build(tmp_path: Path) -> None:
    table = replace(table_of([["A"]]), provenance=replace(PROVENANCE, parameters={"path": tmp_path}))
    with pytest.raises(TypeError, match="not JSON serializable"):
        build_store(table, tmp_path / "store", command="test")


def row(text: str, start: str, number: int = 0) -> list[str]:
    """Cells of a line that begins with ``start``; sentences are below the tables."""
    return [line for line in text.splitlines() if line.startswith(start)][number].split()


def test_counts_of_a_small_table() -> None:
    text = format_table_stats(table_of([["A", "B"], ["B", "A"], ["B"], ["C", "A", "B"]], fitness=[1, 2, 3, np.nan]))
    assert row(text, "fitness")[:6] == ["fitness", "[1]", "3", "1", "2", "0.8165"]
    assert row(text, "fitness", 1)[2:] == ["1", "1.5", "2", "2.5", "3"]
    for said in (
        "deletions     1 with 1, 2 with 2, 1 with 3",
        "3 distinct among 4 strains",
        "3 of 3 names",
        "B (4), A (3), C (1)",
    ):
        assert said in text


def test_a_store_tells_what_it_holds_and_where_it_came_from(tmp_path: Path) -> None:
    store = build_store(random_table(1500, 40, columns=True), tmp_path / "s", command="dglcell data build x.yaml")
    text = describe_store(store)
    for piece in (
        "1,500 with",
        "fitness [1/h], s_score",
        "made_up: Random strains",
        "Nobody 2026",
        "CC0",
        "https://example.org/strains.tsv",
        "strains.tsv  sha256 abababababab…",
        "rows read 12, rows dropped 2",
        "unknown=drop, threshold=0.5",
        "dglcell data build x.yaml",
        store.sha256,
    ):
        assert piece in text
    assert max(len(line) for line in text.splitlines() if str(tmp_path) not in line) <= 80


def test_statistics_are_a_table(tmp_path: Path) -> None:
    table = random_table(1500, 40, columns=True)
    store = build_store(table, tmp_path / "s", command="test")
    text = format_stats(store)
    assert text.startswith(describe_store(store))
    score = table.phenotypes["s_score"]
    assert row(text, "s_score")[:4] == [
        "s_score",
        f"{np.isfinite(score).sum():,}",
        f"{np.isnan(score).sum():,}",
        f"{np.nanmean(score, dtype=float):.4g}",
    ]
    assert "█" in text
    assert max(len(line) for line in text.splitlines() if str(tmp_path) not in line) <= 80
    assert "40 of 40 names" in text
    replicated = int((table.of_kind("replicates")["fitness"] > 1).sum())
    assert f"fitness: {replicated:,} strains with 2 to 3 measurements" in text

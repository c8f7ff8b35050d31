"""Stores and splits as text."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dglcell.data.report import describe_split, describe_store, format_stats, format_table_stats
from dglcell.data.split import Split
from dglcell.data.store_build import build_store
from tests.data.strain_tables import random_table, table_of


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


def test_a_split_counts_what_is_trained() -> None:
    table = table_of([["A"], ["A", "B"], ["B", "C"], ["C", "D"], ["A", "B", "C"]])
    split = Split(np.array([0, 0, 1, 2, 0], np.uint8), "random", 7, {}, "5" * 64)
    text = describe_split(split, table, np.array([True, True, True, True, False]))
    assert row(text, "train")[:3] == ["train", "2", "40.0%"]
    assert row(text, "unused")[:3] == ["unused", "1", "20.0%"]
    assert split.sha256 in text


def test_a_split_tells_what_of_a_part_training_has_seen_and_what_that_shows() -> None:
    strains = [["A", "B", "X"], ["C"], ["B", "A", "Y"], ["A", "X", "B"], ["B"], ["C", "X", "Z"], ["A", "B"]]
    split = Split(np.array([0, 0, 2, 2, 2, 2, 2], np.uint8), "pair_disjoint", 7, {}, "5" * 64)
    text = describe_split(split, table_of(strains))
    # Known genes: A X B, B and A B of five; known query pairs: B A Y and A B of the four that have one.
    assert row(text, "test ")[-2:] == ["60.0%", "50.0%"]
    assert row(text, "validation")[-2:] == ["0", "0"]  # no strain: no share either
    assert "pair_disjoint: the query pairs of test strains do not occur in training" in text

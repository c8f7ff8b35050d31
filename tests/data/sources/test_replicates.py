"""Rows of one strain become one: against plain Python, strain by strain."""

from __future__ import annotations

import math
import re
import statistics
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dglcell.data.columns import CROSS, Column, Provenance, columns_of
from dglcell.data.sources.config import ConflictConfig
from dglcell.data.sources.replicates import concatenate, merge_replicates
from dglcell.data.strains import Strains
from dglcell.errors import DataError, and_more
from tests.examples import examples

NAMES = tuple("ABCDE")
SCORES = (-0.5, -0.2, -0.1, 0.0, 0.1, 0.2, 0.5, math.nan)
P_VALUES = (0.01, 0.04, 0.06, 0.9, math.nan)


@st.composite
def row(draw: st.DrawFn) -> tuple[tuple[int, ...], float, float, float, int]:
    """Return genes, score, its p-value, fitness, cross."""
    genes = tuple(draw(st.permutations(range(len(NAMES))))[: draw(st.integers(1, 3))])
    # Crosses name strains, so that one of them never belongs to two sets of genes.
    cross = sum(2**gene for gene in genes) * 10 + draw(st.integers(0, 1))
    return (
        genes,
        draw(st.sampled_from(SCORES)),
        draw(st.sampled_from(P_VALUES)),
        draw(st.sampled_from((0.5, 1.0))),
        cross,
    )


Rows = list[tuple[tuple[int, ...], float, float, float, int]]


def measured(rows: Rows, names: tuple[str, ...] = NAMES, source: str = "made up") -> Strains:
    genes = np.full((len(rows), 3), -1, dtype=np.int32)
    for i, (chosen, *_) in enumerate(rows):
        genes[i, : len(chosen)] = chosen
    columns = [np.array([r[i] for r in rows], dtype=np.float32) for i in (1, 2, 3)]
    kinds = columns_of(
        phenotype={"score": columns[0], "fitness": columns[2]},
        p_value={"score": columns[1]},
        sd={"fitness": columns[2] / 10},
    )
    crosses = {Column(CROSS): np.array([r[4] for r in rows], dtype=np.int64)}
    about = {"units": {"fitness": "1/h"}, "provenance": Provenance(source)}
    return Strains.from_matrix(names, genes, columns={**kinds, **crosses}, **about)


def same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def expected_groups(rows: Rows) -> dict[frozenset[int], Rows]:
    """Return rows of each strain without copies, in order of appearance."""
    groups: dict[frozenset[int], Rows] = defaultdict(list)
    for r in rows:
        group = groups[frozenset(r[0])]
        if not any(r[4] == o[4] and all(same(a, b) for a, b in zip(r[1:4], o[1:4], strict=True)) for o in group):
            group.append(r)
    return groups


def present(values: list[float]) -> list[float]:
    return [float(np.float32(value)) for value in values if not math.isnan(value)]


def contradicts(group: Rows, p: float, difference: float) -> bool:
    significant = [r[1] for r in group if r[2] < p]
    opposite = any(a < 0 < b for a in significant for b in significant)
    scores = present([r[1] for r in group])
    return len(group) > 1 and (opposite or (bool(scores) and max(scores) - min(scores) > difference))


@given(st.lists(row(), min_size=1, max_size=40))
@examples(30)
def test_means_spreads_and_numbers_are_those_of_each_strain(rows: Rows) -> None:
    table = merge_replicates(measured(rows), ConflictConfig())
    groups = expected_groups(rows)
    assert table.genotypes == [[NAMES[g] for g in group[0][0]] for group in groups.values()]
    repeated = any(len(group) > 1 for group in groups.values())
    assert set(table.of_kind("replicates")) == ({"score", "fitness"} if repeated else set())
    for s, group in enumerate(groups.values()):
        for name, column in (("score", 1), ("fitness", 3)):
            values = present([r[column] for r in group])
            mean = statistics.fmean(values) if values else math.nan
            np.testing.assert_allclose(table.phenotypes[name][s], mean, rtol=1e-6, atol=1e-7)
            sd = statistics.stdev(values) if len(values) > 1 else math.nan
            if len(group) == 1 and name == "fitness":
                sd = group[0][3] / 10
            np.testing.assert_allclose(table.of_kind("sd")[name][s], sd, rtol=1e-5, atol=1e-7)
            if repeated:
                assert table.of_kind("replicates")[name][s] == len(values)
        p = group[0][2] if len(group) == 1 else math.nan
        np.testing.assert_allclose(table.of_kind("p_value")["score"][s], p, rtol=1e-6)
    counts = table.provenance.counts
    assert counts["rows_identical"] == len(rows) - sum(map(len, groups.values()))
    assert counts["strains"] == len(groups)
    assert counts["strains_with_replicates"] == sum(len(group) > 1 for group in groups.values())


@given(st.lists(row(), min_size=1, max_size=40), st.sampled_from((0.05, 0.5)), st.sampled_from((0.16, 0.35)))
@examples(30)
def test_contradictions_are_those_of_each_strain(rows: Rows, p: float, difference: float) -> None:
    groups = expected_groups(rows)
    kept = [group for group in groups.values() if not contradicts(group, p, difference)]
    config = ConflictConfig("drop", p, difference)
    if not kept:
        with pytest.raises(DataError, match="no strain is left"):
            merge_replicates(measured(rows), config)
        return
    table = merge_replicates(measured(rows), config)
    assert table.genotypes == [[NAMES[g] for g in group[0][0]] for group in kept]
    dropped = len(groups) - len(kept)
    assert table.provenance.counts["strains_dropped_as_conflicting"] == dropped
    if dropped:
        with pytest.raises(DataError, match=r"contradict each other\n.*" + re.escape(and_more(dropped - 1, "strain"))):
            merge_replicates(measured(rows), ConflictConfig("refuse", p, difference))
    assert len(merge_replicates(measured(rows), ConflictConfig("mean", p, difference))) == len(groups)


def test_directions_of_a_cross_are_compared_by_their_means() -> None:
    ab, ba, p = (0, 1), (1, 0), 0.9
    rows = [(ab, 0.10, p, 1.0, 0), (ab, 0.20, p, 1.0, 1), (ba, 0.0, p, 1.0, 2), (ba, -0.1, p, 1.0, 3)]
    rows += [((0, 2), 0.1, p, 1.0, 4), ((2, 0), 0.1, p, 1.0, 5), ((1, 2), 0.1, p, 1.0, 6)]
    counts = merge_replicates(measured(rows), ConflictConfig(difference=0.16)).provenance.counts
    assert (counts["strains_crossed_both_ways"], counts["strains_whose_ways_differ"]) == (2, 1)
    counts = merge_replicates(measured(rows), ConflictConfig(difference=0.25)).provenance.counts
    assert (counts["strains_whose_rows_differ"], counts["strains_whose_ways_differ"]) == (1, 0)
    counts = merge_replicates(measured(rows), ConflictConfig(difference=None)).provenance.counts
    assert (counts["strains_whose_rows_differ"], counts["strains_whose_ways_differ"]) == (0, 0)


@pytest.mark.parametrize("genes", [(), (0,)])
def test_rows_of_the_wild_type_are_crossed_in_one_way(genes: tuple[int, ...]) -> None:
    rows: Rows = [((), 0.1, 0.9, 1.0, 0), (genes, 0.2, 0.9, 1.0, 1), ((), 0.9, 0.9, 1.0, 2)]
    counts = merge_replicates(measured(rows), ConflictConfig()).provenance.counts
    assert (counts["strains_whose_rows_differ"], counts["strains_crossed_both_ways"]) == (1, 0)


def test_unused_names_are_left_out() -> None:
    table = merge_replicates(measured([((4,), 0.1, 0.1, 1.0, 0), ((2, 4), 0.1, 0.1, 1.0, 1)]), ConflictConfig())
    assert table.names == ("C", "E")
    assert table.units == {"score": "", "fitness": "1/h"}


@given(st.lists(row(), min_size=1, max_size=15), st.lists(row(), min_size=1, max_size=15))
@examples(15)
def test_parts_are_matched_by_name(one: Rows, two: Rows) -> None:
    turned = [(tuple(4 - g for g in r[0]), *r[1:4], r[4] + 10_000) for r in two]
    together = concatenate([measured(one), measured(turned, NAMES[::-1])], Provenance("both"))
    table = merge_replicates(together, ConflictConfig())
    apart = merge_replicates(measured(one + [(*r[:4], r[4] + 10_000) for r in two]), ConflictConfig())
    assert table.genotypes == apart.genotypes
    for name in ("score", "fitness"):
        np.testing.assert_array_equal(table.phenotypes[name], apart.phenotypes[name])
        np.testing.assert_array_equal(table.of_kind("sd")[name], apart.of_kind("sd")[name])

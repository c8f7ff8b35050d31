"""Rows of one strain become one: against plain Python, strain by strain."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dglcell.data.columns import CROSS, Column, Provenance, columns_of
from dglcell.data.sources.replicates import concatenate, merge_replicates
from dglcell.data.strains import Strains
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


@given(st.lists(row(), min_size=1, max_size=40))
@examples(30)
def test_means_spreads_and_numbers_are_those_of_each_strain(rows: Rows) -> None:
    table = merge_replicates(measured(rows))
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


def test_unused_names_are_left_out() -> None:
    table = merge_replicates(measured([((4,), 0.1, 0.1, 1.0, 0), ((2, 4), 0.1, 0.1, 1.0, 1)]))
    assert table.names == ("C", "E")
    assert table.units == {"score": "", "fitness": "1/h"}


@given(st.lists(row(), min_size=1, max_size=15), st.lists(row(), min_size=1, max_size=15))
@examples(15)
def test_parts_are_matched_by_name(one: Rows, two: Rows) -> None:
    turned = [(tuple(4 - g for g in r[0]), *r[1:4], r[4] + 10_000) for r in two]
    together = concatenate([measured(one), measured(turned, NAMES[::-1])], Provenance("both"))
    table = merge_replicates(together)
    apart = merge_replicates(measured(one + [(*r[:4], r[4] + 10_000) for r in two]))
    assert table.genotypes == apart.genotypes
    for name in ("score", "fitness"):
        np.testing.assert_array_equal(table.phenotypes[name], apart.phenotypes[name])
        np.testing.assert_array_equal(table.of_kind("sd")[name], apart.of_kind("sd")[name])

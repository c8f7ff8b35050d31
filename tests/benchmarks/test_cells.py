"""Cell graphs to measure on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.cells import GENES, PUBLISHED, generated_cell, real_cell
from dglcell.errors import ConfigError
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.schema import gene_relation

# The generated cell graph: sizes and degrees as published, the same from the same seed.


STORED = {
    "physical": 144_211,
    "regulatory": 44_310,
    "tflink": 207_250,
    "coexpression": 1_002_806,
    "experimental": 828_701,
    "neighborhood": 153_320,
    "database": 79_224,
    "fusion": 18_394,
    "cooccurence": 17_692,
}


@pytest.fixture(scope="module")
def cell() -> CellGraph:
    """At full size."""
    return generated_cell()


@pytest.mark.slow
def test_every_network_has_the_published_number_of_stored_edges(cell: CellGraph) -> None:
    assert len(cell.genes) == GENES == 6_607
    assert {r[1]: len(cell.edges(r)) for r in cell.relations} == STORED


@pytest.mark.slow
def test_pairs_are_distinct_and_every_gene_has_one_self_loop(cell: CellGraph) -> None:
    for size in PUBLISHED:
        edges = cell.edges(gene_relation(size.name))
        loops = edges.src == edges.dst
        assert np.array_equal(np.sort(edges.src[loops]), np.arange(GENES))
        src, dst = edges.src[~loops], edges.dst[~loops]
        if size.regulators is None:
            src, dst = np.minimum(src, dst), np.maximum(src, dst)
        seen = np.zeros(GENES**2, dtype=bool)
        seen[src * GENES + dst] = True
        assert int(seen.sum()) == size.pairs


@pytest.mark.slow
def test_hubs_are_about_as_large_as_published(cell: CellGraph) -> None:
    for size in PUBLISHED:
        relation = gene_relation(size.name)
        # A self-loop is not among the pairs, and counts twice here.
        degrees = sum(cell.degrees(relation)) - 2
        assert int(degrees.max()) == pytest.approx(size.largest_degree, rel=0.15), size.name
        assert int((degrees > 0).sum()) == pytest.approx(size.genes, rel=0.02), size.name
        if size.regulators is not None:
            regulators = cell.degrees(relation)[0] > 1
            assert int(regulators.sum()) <= size.regulators


@pytest.mark.slow
def test_networks_share_as_many_pairs_as_published(cell: CellGraph) -> None:
    def pairs(name: str) -> np.ndarray:
        edges = cell.edges(gene_relation(name))
        keys = np.minimum(edges.src, edges.dst) * GENES + np.maximum(edges.src, edges.dst)
        return keys[edges.src != edges.dst]

    found = {size.name: pairs(size.name) for size in PUBLISHED}
    in_network = {name: np.zeros(GENES**2, dtype=bool) for name in ("coexpression", "experimental")}
    for name, mask in in_network.items():
        mask[found[name]] = True
    common = int((in_network["coexpression"] & in_network["experimental"]).sum())
    either = in_network["coexpression"] | in_network["experimental"]
    assert common / int(either.sum()) == pytest.approx(0.44, abs=0.01)
    for keys in found.values():
        either[keys] = True
    assert int(either.sum()) == pytest.approx(1_514_071, rel=0.05)


def test_seeds_decide_and_scale_keeps_density() -> None:
    one, same, other = (generated_cell(seed=seed, scale=0.1) for seed in (0, 0, 1))
    assert one.sha256 == same.sha256 != other.sha256
    number = len(one.genes)
    share = (len(one.edges(gene_relation("coexpression"))) - number) / number**2
    assert share == pytest.approx(996_199 / GENES**2, rel=0.01)


def test_symmetrised_networks_have_both_directions_but_regulation_stays_directed() -> None:
    once, both = generated_cell(scale=0.05), generated_cell(scale=0.05, symmetrise=True)
    number = len(once.genes)
    for size in PUBLISHED:
        relation = gene_relation(size.name)
        pairs = len(once.edges(relation)) - number
        factor = 2 if size.regulators is None else 1
        assert len(both.edges(relation)) == factor * pairs + number


def test_scales_without_enough_genes_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"`scale` is out of range\n  got:      0.001"):
        generated_cell(scale=0.001)
    with pytest.raises(ConfigError, match="`scale` is out of range"):
        generated_cell(scale=9.5)


# The cell graph from public files.


@pytest.mark.raw
def test_nine_networks_with_a_self_loop_per_gene(raw: Path) -> None:
    cell = real_cell(str(raw))
    number = len(cell.genes)
    pairs = {r[1]: len(cell.edges(r)) for r in cell.relations}
    assert len(pairs) == 9
    assert all(r[0] == r[2] == "gene" for r in cell.relations)
    # Counted from the files by other means; 43 factors regulate themselves already.
    assert pairs["string_physical"] == 176_303 + number
    assert pairs["action_binding"] == 104_483 + number
    assert pairs["string_coexpression"] == 54_317 + number
    assert pairs["regulatory"] == 11_486 + number - 43

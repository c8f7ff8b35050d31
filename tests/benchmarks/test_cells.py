"""The generated cell graph: sizes and degrees as published, the same from the same seed."""

from __future__ import annotations

import pytest

from benchmarks.cells import GENES, PUBLISHED, generated_cell
from dglcell.errors import ConfigError
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.schema import gene_relation

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

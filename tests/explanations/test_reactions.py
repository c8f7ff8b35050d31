"""Shares of reaction nodes, summed over directions and enzyme complexes."""

from __future__ import annotations

import numpy as np
import pandas as pd

import dglcell
from dglcell.explanations.network import network_of
from dglcell.explanations.reactions import of_whole_reactions
from dglcell.explanations.tables import Explanations
from dglcell.report.network import Network, Node, draw


def test_nodes_of_a_reaction_become_one_row() -> None:
    nodes = pd.DataFrame(
        {
            "strain": 0,
            "phenotype": "fitness",
            "layer": [1, 1, 1, 1, 2],
            "node_type": ["reaction", "reaction", "metabolite", "others", "reaction"],
            "node": ["TKT1#1+", "TKT1#2-", "e4p_c", "", "TKT1#1+"],
            "name": "",
            "share": [0.25, -0.5, 0.3, 0.1, 1.0],
        }
    )
    found = of_whole_reactions(nodes)
    assert found.columns.tolist() == nodes.columns.tolist()
    assert found[["layer", "node", "share"]].values.tolist() == [
        [1, "e4p_c", 0.3],
        [1, "TKT1", -0.25],
        [1, "", 0.1],
        [2, "TKT1", 1.0],
    ]


def test_a_reaction_that_an_isoenzyme_carries_is_not_missing(of_core: Explanations) -> None:
    of_one, of_both = (  # talB, and talA with it
        {node.key: node for node in network_of(of_core, strain, "fitness").nodes}["reaction TALA"] for strain in (3, 1)
    )
    assert of_both.missing
    assert not of_one.missing
    removed = of_core.removed
    lost = removed[(removed["strain"] == 3) & (removed["node"].str.startswith("TALA#"))]
    assert lost["node"].tolist() == ["TALA#1+", "TALA#1-"]
    np.testing.assert_allclose(of_one.share, lost["share"].sum())


def test_a_drawing_has_the_genes_of_the_strain_and_what_it_lacks_with_them(of_core: Explanations) -> None:
    """The model reads no gene, and most of the change of growth is at other reactions than citrate synthase."""
    network = network_of(of_core, 0, "fitness")
    nodes = {node.key: node for node in network.nodes}
    assert nodes["gene b0720"].label == "gltA (b0720)"
    assert nodes["gene b0720"].missing
    assert nodes["gene b0720"].share == 0
    assert nodes["reaction CS"].missing
    assert ("gene b0720", "reaction CS", "catalyses") in network.edges
    drawing = draw(network, "a title")
    assert ">CS <tspan" in drawing
    assert "<title>reaction citrate synthase (CS): " in drawing
    assert "gene gltA (b0720): no share of its own" in drawing
    assert drawing.count('<path class="lowers"') + drawing.count('<path class="raises"') == len(network.nodes) - 1


def test_a_strain_without_a_change_has_no_drawing() -> None:
    network = network_of(dglcell.load("ecoli").explain([{"b1136": 1.0}]), 0, "fitness")
    assert network.nodes == []


def test_a_drawing_has_the_title_of_a_reaction_whose_identifier_is_a_number() -> None:
    nodes = [
        Node("reaction r_0300", "reaction", "citrate synthase (r_0300)", -1.0, False),
        Node("metabolite s_0633", "metabolite", "diphosphate (s_0633)", 0.5, False),
        Node("reaction PFK", "reaction", "phosphofructokinase (PFK)", 0.25, False),
    ]
    drawing = draw(Network(nodes, [], 1.0), "a title")
    for shown in ("citrate synt…", "diphosphate…", "PFK"):
        assert f">{shown} <tspan" in drawing

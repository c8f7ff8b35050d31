"""Shares of edges: they sum to the shares of relations, and agree with those of what is missing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import dglcell
from dglcell.cli import main
from dglcell.explanations.shares import LATER, OWN_STATE
from dglcell.explanations.split import Explainer
from dglcell.explanations.tables import OTHERS
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.runs.directory import RunDirectory
from tests.explanations.test_split import STRAINS, textbook_model

PYRUVATE = ["b0114", "b0115", "b0116"]
"""The genes of pyruvate dehydrogenase."""


@pytest.mark.parametrize("conv", ["gin", "sage"])
def test_in_the_first_layer_the_edges_out_of_a_node_have_the_share_of_what_it_no_longer_sends(conv: str) -> None:
    model = textbook_model(conv=conv, layers=1).double()
    [split, _] = Explainer(model, edges=True)(GenotypeBatch.from_lists(STRAINS[1:3]))
    missing = {at.relation: share_NB for at, share_NB in split.removed if at.layer == 1 and at.relation}
    seen = 0
    for edges, share_P in split.edges:
        if edges.layer == 1:
            expected_NB = missing[edges.relation]
            found_NB = torch.zeros_like(expected_NB)
            sources = model.cell[edges.relation].src[edges.edge_P]
            found_NB.index_put_((sources, edges.strain_P), share_P, accumulate=True)
            torch.testing.assert_close(found_NB, expected_NB, atol=1e-10, rtol=0)
            seen += len(share_P)
    assert seen > 0


def test_equal_sources_share_by_the_weights_of_their_edges() -> None:
    """Stoichiometry is the weight of edges from reactions to metabolites."""
    model = textbook_model(layers=1, relations=["converts"], pool=["metabolite"], conv_options=None).double()
    with torch.no_grad():
        for parameter in model.encoder.parameters():
            if parameter.dim() == 2 and len(parameter) == model.cell.num_nodes["reaction"]:
                parameter.copy_(parameter[:1].expand_as(parameter))
    [split, _] = Explainer(model, edges=True)(GenotypeBatch.from_lists(STRAINS))
    [(edges, share_P)] = split.edges
    known = model.cell[edges.relation]
    assert known.weight is not None
    weight_P, order = known.weight[edges.edge_P].double(), torch.argsort(edges.target_P, stable=True)
    per_weight_P = (share_P / weight_P)[order]
    same = edges.target_P[order].diff() == 0
    assert bool(same.any())
    torch.testing.assert_close(per_weight_P[1:][same], per_weight_P[:-1][same])


@pytest.mark.parametrize("interaction", [False, True])
def test_tables_of_edges_sum_to_relations(tiny_run: RunDirectory, interaction: bool) -> None:
    predictor, strains = dglcell.load(tiny_run.path), [PYRUVATE, ["b0008", "b0720"]]
    whole, few = (predictor.explain(strains, edges=True, nodes=most, interaction=interaction) for most in (None, 1))
    assert whole.edges is not None
    assert few.edges is not None
    relations = whole.layers[~whole.layers["relation"].isin([OWN_STATE, LATER])]
    keys = ["strain", "phenotype", "layer", "relation"]
    expected = relations.groupby(keys)["share"].sum()
    found = whole.edges.groupby(keys)["share"].sum().reindex(expected.index, fill_value=0)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    of_few, of_whole = (table.groupby(keys[:3])["share"].sum() for table in (few.edges, whole.edges))
    pd.testing.assert_series_equal(of_few, of_whole, atol=1e-9)
    named = few.edges[few.edges["relation"] != OTHERS]
    assert named.groupby(keys[:3]).size().max() == 1


def test_edges_are_edges_of_the_cell_graph(tiny_run: RunDirectory) -> None:
    found = dglcell.load(tiny_run.path).explain([PYRUVATE], edges=True)
    assert found.edges is not None
    named = found.edges[found.edges["relation"] != OTHERS]
    assert len(named) > 0
    for row in named.to_dict("records"):
        relation = row["source_type"], row["relation"], row["target_type"]
        known = found.cell.content[relation]
        source = found.cell.vocabularies[row["source_type"]].index(row["source"])
        target = found.cell.vocabularies[row["target_type"]].index(row["target"])
        assert bool(((known.src == source) & (known.dst == target)).any())


def test_edges_are_shown_and_written(
    tiny_run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(tiny_run.path)
    assert main(["explain", run, " ".join(PYRUVATE), "--edges"]) == 0
    said = capsys.readouterr().out
    assert "part `graph`, by the edges of layer 1" in said
    assert " → sucB (b0727)" in said
    for name in ("out.csv", "out.json", "out.html"):
        assert main(["explain", run, " ".join(PYRUVATE), "--edges", "-o", str(tmp_path / name)]) == 0
    table = pd.read_csv(tmp_path / "out.csv", keep_default_na=False)
    assert "AKGDH#1+" in set(table["source"][table["table"] == "edges"])
    assert set(table["source"][table["table"] == "nodes"]) == {""}
    [strain] = json.loads((tmp_path / "out.json").read_text())["strains"]
    assert strain["edges"][0]["source"]
    assert "Edges of the part" in (tmp_path / "out.html").read_text()


def test_without_being_asked_for_there_are_no_edges(tiny_run: RunDirectory) -> None:
    found = dglcell.load(tiny_run.path).explain([PYRUVATE])
    assert found.edges is None
    assert "edges" not in found.tables

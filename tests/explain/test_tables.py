"""What users see of attributions: names, sums by kind, text of few lines, one CSV and one picture."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import dglcell
from dglcell.api import Predictor
from dglcell.cli import main
from dglcell.explain import attribute, tables
from dglcell.explain.attribute import Attributed, check_attributable
from dglcell.explain.tables import KINDS, STRONGEST, TOGETHER, split, text_of
from dglcell.graph.cell import build_cell
from dglcell.graph.config import CellConfig
from dglcell.graph.schema import CATALYSES
from dglcell.models.config import HeteroCellConfig
from dglcell.runs.directory import RunDirectory

STRAINS = [["b0008", "b2464"], ["b0114", "b0115", "b0116"], ["b0720"]]


@pytest.fixture(scope="module")
def predictor(tiny_run: RunDirectory) -> Predictor:
    return dglcell.load(tiny_run.path, predict_with="network")


def test_every_kind_sums_to_the_predicted_change(predictor: Predictor) -> None:
    found, subsets = predictor.attribute(STRAINS), predictor.explain(STRAINS)
    change = subsets.groupby("strain")["change"].last()
    sums = found.pivot_table(index="strain", columns="kind", values="change", aggfunc="sum")
    assert set(sums.columns) <= set(KINDS)
    for kind in ("term", "gene"):
        np.testing.assert_allclose(sums[kind], change, atol=2e-6)
    graph = found[(found.kind == "term") & (found.name == "graph")].set_index("strain")["change"]
    for kind in ("relation", "lost", "node"):
        np.testing.assert_allclose(sums[kind], graph, atol=1e-10)
    assert found.groupby(["strain", "kind"])["name"].count().max() == STRONGEST + 1
    assert {"talB (b0008)", "talA (b2464)"} <= set(found[(found.strain == 0) & (found.kind == "gene")].name)
    assert found[(found.strain == 2) & (found.kind == "gene")].name.tolist() == ["gltA (b0720)"]
    np.testing.assert_allclose(found.part, found.change / change[found.strain].to_numpy(), rtol=1e-3, atol=1e-4)


def test_batches_do_not_matter_and_several_seeds_have_a_mean(predictor: Predictor) -> None:
    columns = ["strain", "kind", "name"]
    whole, alone = (predictor.attribute(STRAINS, batch_size=size).set_index(columns).change for size in (None, 1))
    pd.testing.assert_series_equal(whole.sort_index(), alone.sort_index(), atol=1e-10)
    twice = Predictor(predictor.members * 2, predictor.directories * 2).attribute(STRAINS).set_index(columns).change
    pd.testing.assert_series_equal(whole.sort_index(), twice.sort_index(), atol=1e-10)


def test_a_lost_reaction_is_shared_by_the_genes_that_take_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three genes: the first two catalyse one reaction; another reaction is lost for none of them."""
    cell = build_cell(CellConfig(model="textbook"))
    edges = cell.edges(CATALYSES)
    by_reaction = pd.Series(edges.src).groupby(edges.dst).unique()
    reaction = next(node for node, genes in by_reaction.items() if len(genes) == 2)
    first, second = by_reaction[reaction]
    other = next(node for node, genes in by_reaction.items() if first not in genes and second not in genes)
    rows = [("reaction", reaction, 1.0), ("gene", first, 0.25), ("reaction", other, 8.0), ("", -1, 2.0)]
    sources = pd.DataFrame(rows, columns=["node_type", "node", "change"]).assign(strain=0, phenotype=0)
    changed = pd.DataFrame({"strain": 0, "node": [first, second]})
    nothing = np.zeros((1, 1))
    found = tables._by_gene(Attributed(nothing, nothing, sources, sources, changed), cell)
    names = [tables._called(cell.genes, cell.genes.names[gene]) for gene in (first, second)]
    assert found.groupby("name").change.sum().to_dict() == {names[0]: 0.75, names[1]: 0.5, TOGETHER: 10.0}


def test_text_is_short(predictor: Predictor) -> None:
    found = predictor.attribute(STRAINS)
    lines = text_of(found[found.strain == 1]).splitlines()
    assert len(lines) <= 14
    assert max(map(len, lines)) <= tables.WIDTH
    assert lines[0].startswith("  terms:")


def test_the_command_writes_text_a_table_and_a_picture(
    tiny_run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, output, picture = str(tiny_run.path), tmp_path / "out.csv", tmp_path / "out.png"
    assert main(["explain", run, "b0114 b0115 b0116"]) == 0
    said = capsys.readouterr().out.rstrip().splitlines()
    assert len(said) <= 25
    assert any(line.startswith("  relations: ") for line in said)
    assert main(["explain", run, "b0114 b0115 b0116", "b0720", "-o", str(output), "--picture", str(picture)]) == 0
    table = pd.read_csv(output)
    assert table.kind.iloc[0] == "subset"
    assert set(table.kind) <= {"subset", *KINDS}
    whole = table[(table.kind == "subset") & (table["size"] == table.groupby("strain")["size"].transform("max"))]
    terms = table[table.kind == "term"].groupby("strain").change.sum()
    np.testing.assert_allclose(terms, whole.change, atol=2e-6)
    with Image.open(picture) as drawn:
        assert drawn.format == "PNG"
        assert drawn.width > 1000
    assert main(["explain", run, "b0720", "--picture", str(picture)]) == 2
    assert "exists already; nothing was written" in capsys.readouterr().err
    assert main(["explain", run, "b0720", "--picture", "out.svg"]) == 2


def test_without_differences_the_subsets_are_shown_and_the_reason(
    tiny_run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    attending = SimpleNamespace(config=SimpleNamespace(model=HeteroCellConfig(conv="gatv2")))
    monkeypatch.setattr(attribute, "check_attributable", lambda members: check_attributable([attending]))
    assert main(["explain", str(tiny_run.path), "b0720"]) == 0
    said = capsys.readouterr().out
    assert "responsible: gltA (b0720)" in said
    assert "this model computes whole states" in said
    assert main(["explain", str(tiny_run.path), "b0720", "--picture", str(tmp_path / "a.png")]) == 2
    assert "this model computes whole states" in capsys.readouterr().err


def test_a_model_without_any_change_has_no_rows(predictor: Predictor) -> None:
    _, table = predictor._read([["b0008"]], {})
    nothing = table.strains.take(np.zeros(0, np.int64))
    assert split(predictor.members, nothing).empty

"""``dglcell explain`` and ``Predictor.explain``: tables, files and what is said of strains."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dglcell
from dglcell.api import Predictor
from dglcell.cli import main
from dglcell.cli.outputs import check_output
from dglcell.errors import ConfigError, GenotypeError
from dglcell.explanations.network import ENOUGH, MOST_NODES, network_of
from dglcell.explanations.shares import LATER, OWN_STATE
from dglcell.explanations.tables import OTHERS, Explanations
from dglcell.explanations.text import with_rest
from dglcell.report.network import draw
from dglcell.runs.directory import RunDirectory

STRAINS = [["b0008", "b2464"], ["b0720"], ["b0008"]]


@pytest.fixture(scope="module")
def predictor(tiny_run: RunDirectory) -> Predictor:
    return dglcell.load(tiny_run.path)


@pytest.fixture(scope="module")
def found(predictor: Predictor) -> Explanations:
    return predictor.explain(STRAINS)


def sums(table: pd.DataFrame, *more: str) -> pd.Series:
    return table.groupby(["strain", "phenotype", *more])["share"].sum()


def test_shares_of_every_table_sum_to_the_change(found: Explanations, predictor: Predictor) -> None:
    strains = found.strains.set_index(["strain", "phenotype"])
    np.testing.assert_allclose(sums(found.parts) + strains["rest"], strains["change"], atol=1e-12)
    np.testing.assert_allclose(strains["rest"], 0, atol=1e-5)
    expected = predictor.predict(STRAINS)["predicted_fitness"]
    np.testing.assert_allclose(strains["predicted"], expected, atol=1e-6)
    graph = sums(found.parts[found.parts["part"] == "graph"])
    for table in (found.layers, found.nodes):
        by_layer = sums(table, "layer").unstack()
        np.testing.assert_allclose(
            by_layer.to_numpy(), np.repeat(graph.to_numpy()[:, None], by_layer.shape[1], 1), atol=1e-6
        )
    np.testing.assert_allclose(sums(found.removed), graph, atol=1e-6)


def test_tables_name_what_they_are_of(found: Explanations) -> None:
    assert found.strains["genes"].tolist() == ["b0008;b2464", "b0720", "b0008"]
    assert {OWN_STATE, LATER} <= set(found.layers["relation"])
    missing = found.removed[(found.removed["strain"] == 1) & (found.removed["node_type"] == "gene")]
    assert set(missing["node"]) == {"b0720"}
    assert set(missing["name"]) == {"gltA"}
    assert found.nodes.groupby(["strain", "layer"]).size().max() <= 21
    whole = found.nodes.groupby(["strain", "layer"])["share"]
    assert all(share.abs().iloc[0] == share.abs().max() for _, share in whole)


def test_as_many_nodes_as_asked_for(predictor: Predictor, found: Explanations) -> None:
    every, one = (predictor.explain(STRAINS[:1], nodes=most).nodes for most in (None, 1))
    assert OTHERS not in set(every["node_type"])
    assert (one[one["node_type"] != OTHERS].groupby("layer").size() == 1).all()
    np.testing.assert_allclose(sums(one, "layer"), sums(every, "layer"), atol=1e-9)


def test_batches_do_not_matter(predictor: Predictor, found: Explanations) -> None:
    alone = predictor.explain(STRAINS, batch_size=1)
    pd.testing.assert_series_equal(sums(alone.parts, "part"), sums(found.parts, "part"), atol=1e-6, rtol=1e-4)


def test_several_seeds_are_explained_by_means(predictor: Predictor, found: Explanations) -> None:
    twice = Predictor(predictor.members * 2, predictor.directories * 2).explain(STRAINS)
    pd.testing.assert_frame_equal(twice.strains, found.strains)
    pd.testing.assert_frame_equal(twice.layers, found.layers)


def test_the_wild_type_has_no_change(predictor: Predictor, capsys: pytest.CaptureFixture[str]) -> None:
    found = predictor.explain([{"b0008": 1.0}])
    assert found.strains["change"].abs().max() < 1e-9
    assert found.parts["share"].abs().max() < 1e-9
    assert main(["explain", str(predictor.directory), "b0008:1.0"]) == 0
    assert "The model predicts the same as for the wild type." in capsys.readouterr().out


def test_genes_of_another_cell_are_named(predictor: Predictor) -> None:
    with pytest.raises(GenotypeError, match="unknown gene 'YAL001C'"):
        predictor.explain([["YAL001C"]])


def test_null_models_are_not_explained(tiny_run: RunDirectory) -> None:
    with pytest.raises(ConfigError, match=r"null models pass no messages"):
        dglcell.load(tiny_run.path, predict_with="additive-ridge").explain(STRAINS)


def test_a_model_without_layers_has_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    found = dglcell.load("ecoli").explain([{"b1136": 0.3}])
    assert len(found.layers) == 0
    assert set(found.nodes["layer"]) == {0}
    np.testing.assert_allclose(sums(found.nodes).iloc[0] + found.strains["rest"][0], found.strains["change"][0])
    assert main(["explain", "ecoli", "b1136:0.3"]) == 0
    assert "icd (b1136):0.3: fitness" in capsys.readouterr().out


def test_strains_on_the_command_line(
    tiny_run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(tiny_run.path)
    assert main(["explain", run, "b0008, b2464"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("talB (b0008), talA (b2464): fitness")
    assert "what layer 1 computes with" in said
    (tmp_path / "in.csv").write_text("genes\nb0008\nb0720\nb0114;b0115\nb0116\n")
    assert main(["explain", run, str(tmp_path / "in.csv")]) == 0
    assert "gltA (b0720)" in capsys.readouterr().out
    assert main(["explain", run, "--top", "3"]) == 0
    assert capsys.readouterr().out.count("of the wild type") == 3


def test_files(tiny_run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, strains = str(tiny_run.path), ["b0008 b2464", "b0720"]
    for name in ("out.csv", "out.parquet", "out.json", "out.html"):
        assert main(["explain", run, *strains, "-o", str(tmp_path / name)]) == 0
        check_output(tmp_path / name, "explanations")  # which a later output replaces
        assert "2 strains explained in" in capsys.readouterr().out
    table = pd.read_csv(tmp_path / "out.csv", keep_default_na=False)
    again = pd.read_parquet(tmp_path / "out.parquet")
    assert table.columns.tolist() == again.columns.tolist()
    assert len(table) == len(again)
    change = table[(table["table"] == "strains") & (table["part"] == "change")]["share"]
    parts = table[table["table"] == "parts"].groupby("strain")["share"].sum()
    np.testing.assert_allclose(change, parts, atol=1e-5)
    page = (tmp_path / "out.html").read_text()
    assert page.count("<svg") == 2
    assert "The\nparts describe the model, not the cell." in page
    written = json.loads((tmp_path / "out.json").read_text())
    assert [strain["genes"] for strain in written["strains"]] == ["b0008;b2464", "b0720"]
    elements = written["strains"][0]["elements"]
    keys = {node["data"]["id"] for node in elements["nodes"]}
    assert all({edge["data"]["source"], edge["data"]["target"]} <= keys for edge in elements["edges"])


def test_a_map_of_escher(tiny_run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "shares.json"
    assert main(["explain", str(tiny_run.path), "b0720", "--escher", str(output)]) == 2
    assert "no reaction has a share in this change" in capsys.readouterr().err
    assert not output.exists()
    assert main(["explain", "ecoli-core", "b0720", "--escher", str(output)]) == 0
    shares = json.loads(output.read_text())
    assert "CS" in shares
    assert all(isinstance(share, float) for share in shares.values())


def test_a_run_without_predictions_has_no_top(
    tiny_run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(tiny_run.path, run)
    RunDirectory(run).predictions("test").unlink()
    assert main(["explain", str(run), "--top", "3"]) == 2
    assert "has no predictions of the test part" in capsys.readouterr().err


def test_a_network_is_small_and_carries_most_of_the_change(found: Explanations) -> None:
    for strain in range(3):
        network = network_of(found, strain, "fitness")
        assert len(network.nodes) <= MOST_NODES
        assert network.carried >= ENOUGH or len(network.nodes) == MOST_NODES
        keys = {node.key for node in network.nodes}
        assert all({source, target} <= keys for source, target, _ in network.edges)
        drawing = ET.fromstring(draw(network, "a title"))
        names = [text.text for text in drawing.iter("{http://www.w3.org/2000/svg}text")]
        assert len(names) >= len(network.nodes)


def test_a_rest_that_is_more_than_rounding_is_shown() -> None:
    parts = pd.DataFrame({"part": ["graph", "flux balance"], "share": [-0.5, 0.25]})
    assert with_rest(parts, 1e-6) == {"graph": -0.5, "flux balance": 0.25}
    assert with_rest(parts, -0.01) == {"graph": -0.5, "flux balance": 0.25, "rest, which no part explains": -0.01}

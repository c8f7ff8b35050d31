"""Strains that change edges, from a table to a trained model and its predictions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dglcell
from dglcell.errors import ConfigError, DataError, GenotypeError

EXPERIMENT = """\
experiment: {{name: edges}}
cell: {{model: textbook, derived: [shares_complex]}}
data:
  source:
    name: csv
    csv: {{path: {table}, genes: [gene], phenotypes: {{growth: growth}}, conditions: {{edges: edges}}}}
  batch_size: 16
split: {{kind: random, seed: 0}}
model: {{name: hetero_cell, hidden: 8, layers: 1, local_heads: 2, pool: [gene, reaction]}}
optimizer: {{lr: 3.0e-3}}
scheduler: {{name: none}}
trainer: {{epochs: 1, threads: 1, accelerator: cpu}}
"""
GENES = ["b0008", "b0114", "b0720", "b0721", "b0722", "b0723"]
CHANGED = "catalyses:b0008>TALA#1+:0.5"


def write(folder: Path, edges: list[str]) -> Path:
    numbers = np.random.default_rng(0)
    rows = [(gene, cell, numbers.uniform()) for cell in edges for gene in ["", *GENES] if gene or cell]
    pd.DataFrame(rows, columns=["gene", "edges", "growth"]).to_csv(folder / "strains.csv", index=False)
    path = folder / "edges.yaml"
    path.write_text(EXPERIMENT.format(table=folder / "strains.csv"))
    return path


def overrides(folder: Path, *more: str) -> list[str]:
    kept = ["plot=false", "null_models=false"]
    return [*kept, f"paths.runs={folder / 'runs'}", f"paths.data={folder / 'data'}", *more]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dglcell.Predictor:
    folder = tmp_path_factory.mktemp("edges")
    return dglcell.train(write(folder, ["", CHANGED, "shares_complex:b0721<>b0722"]), *overrides(folder))


def predicted(trained: dglcell.Predictor, genes: list[str], edges: str) -> float:
    return float(trained.predict([genes], conditions={"edges": edges}).predicted_growth.iloc[0])


def test_edges_that_were_not_trained_on_are_predicted(trained: dglcell.Predictor) -> None:
    whole = predicted(trained, ["b0114"], "none")
    assert predicted(trained, ["b0114"], "catalyses:b0008>TALA#1+:1") == pytest.approx(whole, abs=1e-6)
    weak = [predicted(trained, ["b0114"], f"catalyses:b0008>TALA#1+:{left}") for left in (0.5, 0.25, 0)]
    assert len({round(value, 7) for value in [whole, *weak]}) == 4


def test_an_edge_of_a_deleted_gene_changes_nothing(trained: dglcell.Predictor) -> None:
    alone = predicted(trained, ["b0008"], "none")
    assert predicted(trained, ["b0008"], CHANGED) == pytest.approx(alone, abs=1e-6)


def test_an_edge_that_is_not_there_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    with pytest.raises(GenotypeError, match=r"of no relation of the cell graph: 'physical:b0008>b0114'"):
        dglcell.train(write(tmp_path, ["", "physical:b0008>b0114"]), *overrides(tmp_path))
    assert not list(tmp_path.glob("runs/**/*.ckpt"))


def test_a_cell_that_cannot_be_read_is_named_by_its_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"lines 8, .*a changed edge cannot be read"):
        dglcell.train(write(tmp_path, ["", "b0008>b0114"]), *overrides(tmp_path))


def test_a_model_without_graphs_of_strains_refuses_edges(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"condition `edges` needs a model with a graph for each strain\n.*set_op"):
        dglcell.train(write(tmp_path, ["", CHANGED]), *overrides(tmp_path, "model.name=set_operator"))

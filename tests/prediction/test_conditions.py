"""Predictions and batches of a model that was trained on a table with two media and several temperatures."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from dglcell import api
from dglcell.cli import main
from dglcell.config.read import load_config
from dglcell.prediction.conditions import seen_by, wild_type_in
from dglcell.prediction.design import Design
from dglcell.prediction.predict import predict_design
from dglcell.runs.directory import RunDirectory
from dglcell.training.checkpoint import load_trained
from dglcell.training.run import train


@pytest.fixture(scope="module", params=["seen", "learnt", "in media"])
def doses(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Return the model; one also learns from the medium what is left of genes, and one has a cell graph with media."""
    folder, learnt = tmp_path_factory.mktemp("conditions"), request.param == "learnt"
    rows = [
        f"{gene},{'' if learnt or not gene else 0.25},{medium},{30 + number},{number % 3 / 2}"
        for number, gene in enumerate(("b0008", "b0114", "b0115", "b0720", "b1241", "b2464", "b0351", ""))
        for medium in ("glucose", "glycerol")
    ]
    (folder / "doses.csv").write_text("\n".join(["orf,left,agar,celsius,growth", *rows]) + "\n")
    columns = {"genes": ["orf"], "strengths": ["left"], "phenotypes": {"growth": "growth"}}
    conditions = {"medium": "agar", "temperature": "celsius"}
    source = {"name": "csv", "csv": {"path": str(folder / "doses.csv"), **columns, "conditions": conditions}}
    media = {"glucose": {}, "glycerol": {"EX_glc__D_e": 0.0, "EX_ac_e": 10.0}}
    model = {"hidden": 8, "layers": 1, "local_heads": 2, "strategy": "difference"}
    config = {
        "experiment": {"name": "doses"},
        "cell": {"model": "textbook"} | ({"media": media} if request.param == "in media" else {}),
        "data": {"store": str(folder / "store"), "batch_size": 4, "source": source},
        "model": model | ({"strength_from": ["medium"]} if learnt else {}),
        "optimizer": {"lr": 0.01},
        "split": {"fractions": [0.5, 0.25, 0.25]},
        "trainer": {"epochs": 2, "threads": 1, "accelerator": "cpu"},
        "paths": {"runs": str(folder)},
        "plot": False,
        "null_models": False,
    }
    (folder / "doses.yaml").write_text(yaml.safe_dump(config))
    return train(load_config(folder / "doses.yaml")).directory


def test_a_medium_makes_a_difference(doses: RunDirectory, tmp_path: Path) -> None:
    text = "orf,left,agar,celsius\nb0720,0.5,glucose,30\nb0720,0.5,glycerol,30\nb0720,0.5,glycerol,35\n"
    (tmp_path / "in.csv").write_text(text + ",,glucose,30\n,,glycerol,30\n")
    assert main(["predict", str(doses.path), str(tmp_path / "in.csv"), "-o", str(tmp_path / "out.csv")]) == 0
    with (tmp_path / "out.csv").open(newline="") as file:
        found = [float(row["predicted_growth"]) for row in csv.DictReader(file)]
    # Where a medium only says what is left of genes, it says nothing of the wild type.
    is_learnt = bool(load_trained(doses).config.model.strength_from)
    assert len({round(value, 6) for value in found}) == (4 if is_learnt else 5)


def test_a_design_is_predicted_as_a_table_would_be(doses: RunDirectory, tmp_path: Path) -> None:
    trained = load_trained(doses)
    background = wild_type_in(seen_by(trained), {"medium": "glycerol", "temperature": 33}, "")
    design = Design.of(range(8), 2, background=background)
    for worth_sharing, name in ((2, "shared.parquet"), (99, "apart.parquet")):
        predict_design(
            [trained], design, tmp_path / name, batch_size=5, worth_sharing=worth_sharing, report=lambda _: None
        )
    shared, apart = pq.read_table(tmp_path / "shared.parquet"), pq.read_table(tmp_path / "apart.parquet")
    assert shared.column_names[2:4] == ["condition_medium", "condition_temperature"]
    again = api.load(doses.path).predict(shared.drop_columns(["predicted_growth", "predicted_by"]).to_pandas())
    for table in (shared, apart):
        np.testing.assert_allclose(table["predicted_growth"].to_numpy(), again.predicted_growth, atol=1e-5)

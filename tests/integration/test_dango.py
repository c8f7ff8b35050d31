"""DANGO from the command line: trained, continued, evaluated and used, or refused."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dglcell
from dglcell.cli import main
from dglcell.errors import ConfigError, DataError, GenotypeError
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.runs import RunDirectory
from dglcell.training.checkpoint import load_trained
from tests.config_files import refusal, write
from tests.tiny import BARE, Tiny, history

DANGO = """\
extends: tiny.yaml
experiment: {name: dango}
cell: {derived: [shares_complex, metabolic_neighbour]}
model: {name: dango, hidden: 16, zero_weights: {shares_complex: 1.0, metabolic_neighbour: 0.1}}
loss: {name: dango, transition_epoch: 2}
optimizer: {lr: 0.01}
"""


@pytest.fixture(scope="module")
def dango(tiny: Tiny) -> Tiny:
    """Return the tiny experiment with DANGO on two networks that follow from the metabolic model."""
    return Tiny(write(tiny.file.parent, "dango.yaml", DANGO), tiny.store)


def test_dango_is_trained_continued_and_used(dango: Tiny, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(dango.file), *dango.overrides(tmp_path, *BARE)]
    main(["train", *arguments])
    directory = RunDirectory(tmp_path / "dango" / "seed-0")
    assert [row["epoch"] for row in history(directory)] == [0, 1]
    main(["train", *arguments, "trainer.epochs=16"])
    rows = history(directory)
    assert len(rows) == 16
    assert rows[-1]["train/fitness/pearson"] > 0.6 > rows[0]["train/fitness/pearson"]
    # In validation only the interaction counts: log cosh of the errors, about half their square.
    assert 0.3 < rows[-1]["validation/loss"] / rows[-1]["validation/fitness/normalised/mse"] < 0.5
    strains = write(tmp_path, "strains.csv", "gene_1,gene_2\nb0008,b0114\nb0114,b0008\n")
    capsys.readouterr()
    main(["predict", str(directory.path), str(strains), "--output", str(tmp_path / "predicted.csv")])
    with (tmp_path / "predicted.csv").open() as file:
        predicted = [row["predicted_fitness"] for row in csv.DictReader(file)]
    assert predicted[0] == predicted[1]


def test_features_of_genes_travel_with_the_checkpoint(dango: Tiny, tmp_path: Path) -> None:
    table = write(tmp_path, "features.csv", "gene,length\nb0008,951\nb0114,2664\nb0115,1893\n")
    directory = dango.train(tmp_path, f"model.features.gene={table}", "trainer.epochs=1").directory
    table.unlink()
    trained = load_trained(directory)
    assert trained.model(GenotypeBatch.from_lists([[0, 1]])).phenotypes.isfinite().all()


def test_loss_and_model_that_do_not_fit_are_refused(dango: Tiny) -> None:
    message = refusal(dango.file, "loss=mse")
    assert message.startswith(
        "`loss.name: mse` does not read the model's reconstruction, which nothing else would train"
    )
    assert "do:       set `loss.name: dango`, or `model.reconstruction: false`" in message
    message = refusal(dango.file, "model=hetero_cell")
    assert message.startswith(
        "`loss.name: dango` needs what the model does not give: reconstruction\n  got:      `model."
    )
    assert "`loss.name: dango` needs what" in refusal(dango.file, "model.reconstruction=false")


EXPERIMENT = """\
experiment: {{name: edges}}
cell: {{model: textbook, derived: [shares_complex]}}
data:
  source:
    name: csv
    csv: {{path: {table}, genes: [gene], phenotypes: {{growth: growth}}, covariates: {{edges: edges}}}}
  batch_size: 16
split: {{kind: random, seed: 0}}
model: {{name: hetero_cell, hidden: 8, layers: 1, local_heads: 2, pool: [gene, reaction]}}
optimizer: {{lr: 3.0e-3}}
scheduler: {{name: none}}
trainer: {{epochs: 1, threads: 1, accelerator: cpu}}
"""
GENES = ["b0008", "b0114", "b0720", "b0721", "b0722", "b0723"]
CHANGED = "catalyses:b0008>TALA#1+:0.5"


def experiment(folder: Path, edges: list[str]) -> Path:
    numbers = np.random.default_rng(0)
    rows = [(gene, cell, numbers.uniform()) for cell in edges for gene in ["", *GENES] if gene or cell]
    pd.DataFrame(rows, columns=["gene", "edges", "growth"]).to_csv(folder / "strains.csv", index=False)
    path = folder / "edges.yaml"
    path.write_text(EXPERIMENT.format(table=folder / "strains.csv"))
    return path


def overrides(folder: Path, *more: str) -> list[str]:
    kept = ["plot=false", "baselines=false"]
    return [*kept, f"paths.runs={folder / 'runs'}", f"paths.data={folder / 'data'}", *more]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dglcell.Predictor:
    folder = tmp_path_factory.mktemp("edges")
    return dglcell.train(experiment(folder, ["", CHANGED, "shares_complex:b0721<>b0722"]), *overrides(folder))


def predicted(trained: dglcell.Predictor, genes: list[str], edges: str) -> float:
    return float(trained.predict([genes], covariates={"edges": edges}).predicted_growth.iloc[0])


def test_edges_that_were_not_trained_on_are_predicted(trained: dglcell.Predictor) -> None:
    whole = predicted(trained, ["b0114"], "none")
    assert predicted(trained, ["b0114"], "catalyses:b0008>TALA#1+:1") == pytest.approx(whole, abs=1e-6)
    weak = [predicted(trained, ["b0114"], f"catalyses:b0008>TALA#1+:{left}") for left in (0.5, 0.25, 0)]
    assert len({round(value, 7) for value in [whole, *weak]}) == 4
    alone = predicted(trained, ["b0008"], "none")
    assert predicted(trained, ["b0008"], CHANGED) == pytest.approx(alone, abs=1e-6), "its gene is deleted"


@pytest.mark.parametrize(
    ("edges", "more", "error", "message"),
    [
        ("physical:b0008>b0114", [], GenotypeError, r"of no relation of the cell graph: 'physical:b0008>b0114'"),
        ("b0008>b0114", [], DataError, r"lines 8, .*a changed edge cannot be read"),
        (
            CHANGED,
            ["model.name=set_operator"],
            ConfigError,
            r"`edges` needs a model with a graph for each strain\n.*set_",
        ),
    ],
)
def test_edges_that_cannot_be_changed_are_refused_before_anything_is_trained(
    tmp_path: Path, edges: str, more: list[str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        dglcell.train(experiment(tmp_path, ["", edges]), *overrides(tmp_path, *more))
    assert not list(tmp_path.glob("runs/**/*.ckpt"))

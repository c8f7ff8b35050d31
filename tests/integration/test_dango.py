"""DANGO from the command line: trained, continued, evaluated and used, or refused."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from dglcell.cli import main
from dglcell.runs import RunDirectory
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

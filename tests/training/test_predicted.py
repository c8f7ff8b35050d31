"""Predictions of a trained model, in memory and in their table."""

from __future__ import annotations

import csv
import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from dglcell.config.read import load_config
from dglcell.report.pictures import described
from dglcell.report.run_files import read_doses, read_predictions, read_run
from dglcell.training import predicted as predicted_module
from dglcell.training.checkpoint import Trained, load_trained
from dglcell.training.predicted import predict_and_embed, write_predictions
from dglcell.training.prepare import Prepared
from dglcell.training.run import train
from tests.tiny import BARE, TINY


def test_predictions_are_in_the_order_asked_for_whatever_the_batch(trained: Trained, prepared: Prepared) -> None:
    strains = prepared.parts["test"].flip(0)

    def predict(batch_size: int) -> np.ndarray:
        return predict_and_embed(trained.model, trained.normaliser, prepared.dataset, strains, batch_size=batch_size)[0]

    expected = [
        predict_and_embed(trained.model, trained.normaliser, prepared.dataset, strains[i : i + 1], batch_size=1)[0]
        for i in range(len(strains))
    ]
    assert predict(7).shape == (30, 1)
    assert len(np.unique(predict(7))) > 5
    np.testing.assert_allclose(predict(7), np.concatenate(expected), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(predict(100), predict(7), rtol=1e-4, atol=1e-5)


ALLELES = """\
    name: csv
    csv:
      path: PATH
      genes: [gene_1, gene_2]
      strengths: [strength_1, strength_2]
      phenotypes: {growth: growth}
      conditions: {allele: allele}
"""


def test_learned_strengths_stand_beside_those_of_the_table(tmp_path: Path) -> None:
    rows = ["gene_1,strength_1,gene_2,strength_2,allele,growth"]
    genes = ("b0008", "b0720", "b1136", "b1676", "b1779")
    for number, (one, two) in enumerate(itertools.product(("", *genes), genes)):
        for allele, left in (("damp", 0.2), ("ts", 0.5)):
            weakened = f"{one},{left if one and one != two else ''}"
            rows.append(f"{weakened if one != two else ','},{two},{(number % 3) / 2},{allele},{left + number / 60}")
    (tmp_path / "table.csv").write_text("\n".join(rows))
    source = TINY[TINY.index("    name: insilico") : TINY.index("  phenotypes")]
    keys = TINY.replace(source, ALLELES.replace("PATH", f"{tmp_path}/table.csv")).replace("[fitness]", "[growth]")
    (tmp_path / "alleles.yaml").write_text(keys.replace(", subset: {size: 300}", ""))
    more = ["model.strength_from=[allele]", "model.strength_hidden=0", "optimizer.lr=0.1", "trainer.epochs=3"]
    paths = [f"data.store={tmp_path}/store", f"paths.runs={tmp_path}/runs", *BARE]
    directory = train(load_config(tmp_path / "alleles.yaml", [*paths, *more])).directory
    learned = load_trained(directory).model.learned
    assert learned is not None
    layer = learned.network[-1]
    change = dict(zip(("damp", "ts"), (layer.weight[0] + layer.bias).tolist(), strict=True))
    assert min(map(abs, change.values())) > 0.01
    seen = set()
    for line in csv.DictReader(directory.predictions("test").open()):
        given, found = ([float(text) for text in line[name].split(";")] for name in ("strengths", "learned_strengths"))
        expected = [s if s in (0, 1) else 1 / (1 + (1 / s - 1) * math.exp(-change[line["allele"]])) for s in given]
        assert found == pytest.approx(expected, rel=1e-4)
        seen |= {len(given), *given}
    assert seen >= {0, 0.2, 0.5, 1, 2}
    doses = read_doses(directory, "test")
    assert doses is not None
    assert doses.learned
    assert list(read_predictions(directory, "test")) == ["growth"]
    assert "as the model has learned it" in described(read_run(directory.path))


def test_predictions_are_written_in_blocks_without_a_seam(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strains = torch.cat([prepared.parts["test"], prepared.parts["validation"]])
    predicted = np.linspace(-1, 1, len(strains), dtype=np.float32)[:, None]
    write_predictions(tmp_path / "whole.csv", prepared, strains, predicted, predicted)
    monkeypatch.setattr(predicted_module, "WRITTEN_STRAINS", 7)
    write_predictions(tmp_path / "blocks.csv", prepared, strains, predicted, predicted + 1)
    rows = list(csv.DictReader((tmp_path / "blocks.csv").open()))
    assert {row["genes"].count(";") for row in rows} == {0, 1}
    assert [float(row["predicted_fitness"]) for row in rows] == pytest.approx(predicted[:, 0].tolist(), rel=1e-5)
    assert "network_fitness" not in (tmp_path / "whole.csv").read_text()
    network = [float(row.pop("network_fitness")) for row in rows]
    assert network == pytest.approx((predicted[:, 0] + 1).tolist(), rel=1e-5)
    assert rows == list(csv.DictReader((tmp_path / "whole.csv").open()))


def test_written_predictions_name_genes_and_leave_missing_labels_empty(prepared: Prepared, tmp_path: Path) -> None:
    strains = prepared.parts["validation"][:3]
    labels = prepared.dataset.labels.clone()
    prepared.dataset.labels[strains[1]] = torch.nan
    try:
        predicted = np.array([[30012.346], [2.0], [-0.1]], np.float32)
        write_predictions(tmp_path / "x.csv", prepared, strains, predicted, predicted)
    finally:
        prepared.dataset.labels.copy_(labels)
    rows = list(csv.DictReader((tmp_path / "x.csv").open()))
    assert [row["predicted_fitness"] for row in rows] == ["30012.346", "2", "-0.1"]
    assert rows[1]["measured_fitness"] == ""
    assert float(rows[0]["measured_fitness"]) == pytest.approx(float(labels[strains[0], 0]), rel=1e-5)
    offsets, names = prepared.dataset.offsets, prepared.cell.genes.names
    genes = prepared.dataset.targets[offsets[strains[2]] : offsets[strains[2] + 1]]
    assert rows[2]["genes"] == ";".join(names[g] for g in genes.tolist())

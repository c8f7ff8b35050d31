"""What a finished run leaves."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import json
import math
import re
from pathlib import Path

import cobra
import numpy as np
import pytest
import torch

from dglcell.baselines.fit import MEAN_OF_TWO, NULL_MODELS
from dglcell.baselines.simple import AdditiveRidge
from dglcell.config.read import load_config
from dglcell.data.columns import CONDITION, Column
from dglcell.data.strains import Strains
from dglcell.metrics import ResultRow, regression_metrics
from dglcell.report.run_files import read_run
from dglcell.report.run_tables import read_doses, read_predictions
from dglcell.runs.directory import RunDirectory
from dglcell.training import evaluate
from dglcell.training.checkpoint import Trained, load_trained
from dglcell.training.evaluate import evaluate_null_models, report, rows_as_json, with_ceilings, write_embedding
from dglcell.training.next_steps import example
from dglcell.training.null_problems import strains_by_part
from dglcell.training.predicted import predict_and_embed, write_predictions
from dglcell.training.prepare import Prepared, prepare, prepare_run
from dglcell.training.result_rows import null_results, null_rows_on, same_conditions
from dglcell.training.run import train
from tests.tiny import TINY, Tiny

# Predictions of the model and of null models on the parts of a split.


@pytest.fixture(scope="module")
def trained(tiny_run: RunDirectory) -> Trained:
    """Return the tiny model."""
    return load_trained(tiny_run)


@pytest.fixture(scope="module")
def prepared(tiny_run: RunDirectory, trained: Trained) -> Prepared:
    """Return what it was trained on."""
    return prepare_run(trained.config, tiny_run, "tests", continued=True)


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


def test_null_models_see_the_training_part_and_nothing_else(
    prepared: Prepared, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "dglcell"):
        rows = {(row.model, row.part): row for row in null_results(prepared).rows}
    said = "\n".join(caplog.messages)
    assert re.search(r"null model of fitness: query-pair mean \(pseudo count [\d.]+, mean [\d.]+\)", said)
    assert re.search(rf"null model of fitness: {MEAN_OF_TWO} \([a-z -]+ and [a-z -]+\)", said)
    assert all(row.is_null for row in rows.values())
    dataset, parts = prepared.dataset, prepared.parts
    mean = float(dataset.labels[parts["train"]].double().mean())
    test = dataset.labels[parts["test"], 0].double()
    assert rows["training mean", "test"].metrics["mse"] == pytest.approx(float((test - mean).square().mean()))
    everything = dataset.numpy()
    strains = {name: everything.take(numbers.numpy()) for name, numbers in parts.items()}
    labels = {name: dataset.labels[numbers, 0].numpy() for name, numbers in parts.items()}
    candidates = []
    for alpha in (0.1, 1.0, 10.0, 100.0, 1000.0):
        ridge = AdditiveRidge(alpha).fit(strains["train"], labels["train"])
        metrics = {p: regression_metrics(ridge.predict(strains[p]), labels[p]) for p in ("validation", "test")}
        candidates.append(metrics)
    chosen = min(candidates, key=lambda metrics: metrics["validation"]["mse"])
    assert rows["additive ridge", "test"].metrics == pytest.approx(chosen["test"])
    assert {model for model, _ in rows} == {*NULL_MODELS, MEAN_OF_TWO} - {
        "low-rank profiles",
        "kernel ridge and low rank",
    }


def test_null_models_of_other_strains_are_those_of_the_split(prepared: Prepared) -> None:
    strains, labels = strains_by_part(prepared)["test"], prepared.dataset.labels[prepared.parts["test"], 0].numpy()
    found = {row.model: row for row in null_rows_on(prepared, strains, {"fitness": labels}, "elsewhere")}
    expected = {row.model: row for row in null_results(prepared).rows if row.part == "test"}
    assert found.keys() == expected.keys()
    assert all(row.part == "elsewhere" and row.is_null for row in found.values())
    for name, row in found.items():
        assert row.metrics == pytest.approx(expected[name].metrics, nan_ok=True)
    assert null_rows_on(prepared, strains, {"growth": labels}, "elsewhere") == []
    everything = dataclasses.replace(prepared, parts=dict.fromkeys(prepared.parts, torch.zeros(0, dtype=torch.int64)))
    assert null_rows_on(everything, strains, {"fitness": labels}, "elsewhere") == []


def test_null_models_alone_are_those_beside_a_run(tiny_run: RunDirectory, tiny: Tiny, tmp_path: Path) -> None:
    prepared = prepare_run(load_trained(tiny_run).config, tiny_run, "tests", continued=True)
    found = evaluate_null_models(tiny.config(tmp_path / "runs"), command="dglcell baselines tiny.yaml")
    assert found == null_results(prepared)
    written = json.loads((tmp_path / "runs/tiny/baselines.json").read_text())
    assert written["rows"] == rows_as_json(found.rows)
    assert written["command"] == "dglcell baselines tiny.yaml"
    assert written["hashes"]["split"] == prepared.split.sha256
    reason = "needs strains with exactly two deletions (found 1, 2)"
    left_out = dict.fromkeys(("low-rank profiles", "kernel ridge and low rank"), reason)
    assert written["left_out"] == {"fitness": left_out}
    assert list((tmp_path / "runs/tiny").iterdir()) == [tmp_path / "runs/tiny/baselines.json"]


CSV = """\
    name: csv
    csv:
      path: PATH
      genes: [gene]
      strengths: [strength]
      phenotypes: {growth: growth}
      conditions: {medium: medium, temperature: temperature}
"""


def test_a_table_with_strengths_and_conditions_has_null_models_of_its_own(tmp_path: Path) -> None:
    rows, genes = ["gene,strength,medium,temperature,growth"], ("b0008", "b0720", "b1136", "b2464")
    for number, (gene, tenth, medium) in enumerate(itertools.product(genes, range(10), ("glucose", "acetate"))):
        growth = 1 - (1 - tenth / 10) * genes.index(gene) / 4 - 0.1 * (medium == "acetate")
        rows.append(f"{gene},{tenth / 10},{medium},{30 + 7 * (number % 3 == 0)},{growth}")
    table, experiment = tmp_path / "table.csv", tmp_path / "weak.yaml"
    table.write_text("\n".join(rows))
    source = TINY[TINY.index("    name: insilico") : TINY.index("  phenotypes")]
    keys = TINY.replace(source, CSV.replace("PATH", str(table))).replace("[fitness]", "[growth]")
    experiment.write_text(keys.replace(", subset: {size: 300}", ""))
    config = load_config(experiment, [f"data.store={tmp_path}/store", f"paths.runs={tmp_path}/runs"])
    found = evaluate_null_models(config)
    r2 = {row.model: row.metrics["r2"] for row in found.rows if row.part == "test"}
    assert r2["kernel ridge over strains"] > 0.95
    assert r2["curve of each gene"] > 0.9
    assert r2["training mean"] < r2["pooled curve"] < 0.5
    reason = "knows deletions only, and the strains have strengths and conditions"
    assert found.left_out["growth"]["kernel ridge"] == reason
    assert json.loads((tmp_path / "runs/tiny/baselines.json").read_text())["left_out"] == found.left_out


def test_strains_of_the_same_medium_and_batch_are_a_group(tmp_path: Path) -> None:
    media, batches = Column(CONDITION, "medium", ("a", "b")), Column(CONDITION, "batch", ("x", "y"))
    columns = {media: [0, 1, 0, 1, 0], batches: [1, 0, 1, 1, 0], Column(CONDITION, "temperature"): [30, 37, 37, 30, 30]}
    made = Strains.from_indices(("g",), [[0]] * 5)
    found = dataclasses.replace(made, columns={name: np.array(values) for name, values in columns.items()})
    groups = same_conditions(found)
    assert groups[0] == groups[2]
    assert len(set(groups.tolist())) == 4
    assert not same_conditions(made).any()


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
    paths = [f"data.store={tmp_path}/store", f"paths.runs={tmp_path}/runs", "null_models=false"]
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
    said = example(directory)
    assert said.startswith("genes,strengths,allele\\n")
    doses = read_doses(directory, "test")
    assert doses is not None
    assert doses.learned
    assert list(read_predictions(directory, "test")) == ["growth"]
    assert (directory.figures / "growth-dose-response.png").is_file()
    assert "Dose and response" in directory.page.read_text()


def test_predictions_are_written_in_blocks_without_a_seam(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strains = torch.cat([prepared.parts["test"], prepared.parts["validation"]])
    predicted = np.linspace(-1, 1, len(strains), dtype=np.float32)[:, None]
    write_predictions(tmp_path / "whole.csv", prepared, strains, predicted)
    monkeypatch.setattr(evaluate, "WRITTEN_STRAINS", 7)
    write_predictions(tmp_path / "blocks.csv", prepared, strains, predicted)
    rows = list(csv.DictReader((tmp_path / "blocks.csv").open()))
    assert {row["genes"].count(";") for row in rows} == {0, 1}
    assert [float(row["predicted_fitness"]) for row in rows] == pytest.approx(predicted[:, 0].tolist(), rel=1e-5)
    assert (tmp_path / "blocks.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_written_predictions_name_genes_and_leave_missing_labels_empty(prepared: Prepared, tmp_path: Path) -> None:
    strains = prepared.parts["validation"][:3]
    labels = prepared.dataset.labels.clone()
    prepared.dataset.labels[strains[1]] = torch.nan
    try:
        write_predictions(tmp_path / "x.csv", prepared, strains, np.array([[30012.346], [2.0], [-0.1]], np.float32))
    finally:
        prepared.dataset.labels.copy_(labels)
    rows = list(csv.DictReader((tmp_path / "x.csv").open()))
    assert [row["predicted_fitness"] for row in rows] == ["30012.346", "2", "-0.1"]
    assert rows[1]["measured_fitness"] == ""
    assert float(rows[0]["measured_fitness"]) == pytest.approx(float(labels[strains[0], 0]), rel=1e-5)
    offsets, names = prepared.dataset.offsets, prepared.cell.genes.names
    genes = prepared.dataset.targets[offsets[strains[2]] : offsets[strains[2] + 1]]
    assert rows[2]["genes"] == ";".join(names[g] for g in genes.tolist())


# What a finished run says.


def test_the_report_says_what_was_trained_on_what(tiny_run: RunDirectory) -> None:
    prepared = prepare_run(load_trained(tiny_run).config, tiny_run, "tests", continued=True)
    files = read_run(tiny_run.path)
    edges = prepared.cell.num_edges
    sizes = "strains: 240 train, 30 validation, 30 test (random split)"
    assert files.size_line == f"{sizes} · cell: 137 genes, {edges:,} edges"
    assert " parameters · hetero_cell, node_mask · seed 0 · 2 epochs in " in files.training_line


def test_the_chosen_embeddings_are_those_of_their_strains(tiny_run: RunDirectory, tmp_path: Path) -> None:
    trained = load_trained(tiny_run)
    prepared = prepare_run(trained.config, tiny_run, "tests", continued=True)
    strains, dataset = prepared.parts["test"], prepared.dataset
    _, vectors = predict_and_embed(trained.model, trained.normaliser, dataset, strains, batch_size=7)
    assert vectors is not None
    kept = read_run(tiny_run.path).embedding
    assert kept is not None
    np.testing.assert_allclose(kept.vectors, vectors, rtol=1e-3, atol=1e-4)
    write_embedding(tmp_path / "some.npz", vectors, 5, 0)
    with np.load(tmp_path / "some.npz") as archive:
        np.testing.assert_array_equal(archive["vectors"], vectors[archive["strains"]])
        assert len(archive["strains"]) == 5
    write_embedding(tmp_path / "some.npz", None, 5, 0)
    assert not (tmp_path / "some.npz").exists()


def test_the_numbers_behind_the_picture_are_those_of_the_table(tiny_run: RunDirectory) -> None:
    table = json.loads(tiny_run.results.read_text())
    drawn = list(csv.DictReader(tiny_run.report.with_suffix(".csv").open()))
    for row in table["rows"]:
        (found,) = (
            line for line in drawn if (line["panel"], line["series"], line["x"]) == ("mse", row["model"], row["part"])
        )
        assert float(found["value"]) == pytest.approx(row["metrics"]["mse"])
    epochs = {line["x"] for line in drawn if line["panel"] == "learning"}
    assert epochs == {"1", "2"}


def test_a_report_without_picture_and_null_models_has_the_model_alone(tiny: Tiny, tmp_path: Path) -> None:
    result = tiny.train(tmp_path, "trainer.epochs=1")
    assert {row.model for row in result.rows} == {"hetero_cell"}
    assert not result.directory.report.exists()
    config = tiny.config(tmp_path, "trainer.epochs=1", "plot=false", "trainer.checkpoint=last")
    again = report(config, result.directory, prepare_run(config, result.directory, "tests", continued=True))
    assert {row.model for row in again} > {"hetero_cell", "training mean"}
    assert json.loads(result.directory.results.read_text())["checkpoint"] == "last.ckpt"


def test_a_table_of_replicates_has_a_ceiling(tmp_path: Path) -> None:
    genes = cobra.io.load_model("textbook").genes[:60]
    rng = np.random.default_rng(0)
    levels = rng.normal(size=60)
    drawn = levels[:, None] + 0.5 * rng.normal(size=(60, 2))
    rows = [f"{gene.id},{value:.4f}" for gene, both in zip(genes, drawn, strict=True) for value in both]
    (tmp_path / "table.csv").write_text("\n".join(["gene,growth", *rows, ""]))
    file = tmp_path / "own.yaml"
    table = "{path: table.csv, genes: [gene], phenotypes: {growth: growth}, replicates: mean}"
    file.write_text(f"cell: {{model: textbook}}\ndata: {{source: {{name: csv, csv: {table}}}}}\n")
    config = load_config(file, [f"paths.raw={tmp_path}", f"paths.data={tmp_path / 'data'}"])
    prepared = prepare(config, command="test")
    rows_before = [ResultRow("hetero_cell", part, "growth", {"pearson": 0.5}) for part in ("validation", "test")]
    prepared.store.path.rename(tmp_path / "moved")  # the store was read once, and is not read again
    validation, test = with_ceilings(rows_before, prepared)
    assert validation.metrics == {"pearson": 0.5}
    assert 0.8 < test.metrics["ceiling"] < 1

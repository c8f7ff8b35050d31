"""What a finished run leaves."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import cobra
import numpy as np

from dglcell.config.read import load_config
from dglcell.metrics import ResultRow
from dglcell.runs.directory import RunDirectory
from dglcell.training.baselines import fit_baselines
from dglcell.training.checkpoint import load_trained
from dglcell.training.evaluate import evaluate_baselines, report, rows_as_json, with_ceilings, write_embedding
from dglcell.training.predicted import predict_and_embed
from dglcell.training.predicting import score
from dglcell.training.prepare import prepare, prepare_run
from tests.tiny import TINY, Tiny


def test_baselines_alone_are_those_beside_a_run(tiny_run: RunDirectory, tiny: Tiny, tmp_path: Path) -> None:
    prepared = prepare_run(load_trained(tiny_run).config, tiny_run, "tests", continued=True)
    rows, baselines = evaluate_baselines(tiny.config(tmp_path / "runs"), command="dglcell baselines tiny.yaml")
    assert rows == score(prepared, fit_baselines(prepared)).rows
    written = json.loads((tmp_path / "runs/tiny/baselines.json").read_text())
    assert written["rows"] == rows_as_json(rows)
    assert written["command"] == "dglcell baselines tiny.yaml"
    assert written["hashes"]["split"] == prepared.split.sha256
    assert written["left_out"] == baselines.left_out == {"fitness": {}}
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
    rows, found = evaluate_baselines(config)
    r2 = {row.model: row.metrics["r2"] for row in rows if row.part == "test"}
    assert r2["kernel ridge over strains"] > 0.95
    assert r2["training mean"] < r2["additive ridge"] < r2["kernel ridge over strains"]
    reason = "knows deletions only, and the strains have strengths and conditions"
    assert found.left_out["growth"]["kernel ridge"] == reason
    assert json.loads((tmp_path / "runs/tiny/baselines.json").read_text())["left_out"] == found.left_out


def test_the_chosen_embeddings_are_those_of_their_strains(tiny_run: RunDirectory, tmp_path: Path) -> None:
    trained = load_trained(tiny_run)
    prepared = prepare_run(trained.config, tiny_run, "tests", continued=True)
    strains, dataset = prepared.parts["test"], prepared.dataset
    _, vectors = predict_and_embed(trained.model, trained.normaliser, dataset, strains, batch_size=7)
    assert vectors is not None
    with np.load(tiny_run.embedding) as kept:
        np.testing.assert_allclose(kept["vectors"], vectors[kept["strains"]], rtol=1e-3, atol=1e-4)
    write_embedding(tmp_path / "some.npz", vectors, 5, 0)
    with np.load(tmp_path / "some.npz") as archive:
        np.testing.assert_array_equal(archive["vectors"], vectors[archive["strains"]])
        assert len(archive["strains"]) == 5
    write_embedding(tmp_path / "some.npz", None, 5, 0)
    assert not (tmp_path / "some.npz").exists()


def test_a_report_without_picture_and_baselines_has_the_network_alone(tiny: Tiny, tmp_path: Path) -> None:
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

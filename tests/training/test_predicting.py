"""What predicts: the network, the best baseline, or an ensemble of both; chosen on the validation part, and named."""

from __future__ import annotations

import csv
import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dglcell
from dglcell.baselines.fit import ALL_NULL_MODELS
from dglcell.baselines.problem import ANY, DELETIONS
from dglcell.baselines.simple import AdditiveRidge
from dglcell.cli import main
from dglcell.data.columns import CONDITION, Column
from dglcell.data.strains import Strains
from dglcell.errors import CheckpointError, ConfigError
from dglcell.metrics import ResultRow, regression_metrics
from dglcell.prediction.export import About, export
from dglcell.report.run_files import read_predictions, read_run
from dglcell.runs.directory import RunDirectory
from dglcell.training.baselines import fit_baselines
from dglcell.training.predicting import (
    BASELINE,
    ENSEMBLE,
    NETWORK,
    WAYS,
    choose,
    ensemble_weight,
    mixed,
    same_conditions,
    score,
)
from dglcell.training.prepare import Prepared
from tests.tiny import Tiny

STRAINS = [["b0008", "b2464"], ["b0727"]]


def row(model: str, pearson: float, *, is_null: bool = False) -> ResultRow:
    """Of the validation part."""
    return ResultRow(model, "validation", "fitness", {"pearson": pearson, "n": 30}, is_null)


@pytest.fixture
def run(tiny_run: RunDirectory, tmp_path: Path) -> RunDirectory:
    """A copy of the tiny run, to be changed."""
    return RunDirectory(Path(shutil.copytree(tiny_run.path, tmp_path / "run")))


def let_predict(run: RunDirectory, by: str) -> dict[str, object]:
    """Change what was the best on the validation part, and return what the run says of it."""
    results = json.loads(run.results.read_text())
    choice = results["predicts"]["fitness"]
    ensemble = f"network + {choice['baseline']} ({choice['weight']:.2f})"
    names = {NETWORK: "hetero_cell", BASELINE: choice["baseline"], ENSEMBLE: ensemble}
    choice |= {"by": by, "name": names[by]}
    run.results.write_text(json.dumps(results))
    return dict(choice)


@pytest.mark.parametrize(
    ("scores", "by"),
    [
        ((0.8, 0.7, 0.8), NETWORK),
        ((0.7, 0.8, 0.8), BASELINE),
        ((0.7, 0.8, 0.81), ENSEMBLE),
        ((np.nan, 0.1, 0.0), BASELINE),
        ((np.nan, np.nan, np.nan), NETWORK),
    ],
)
def test_the_best_on_the_validation_part_predicts_and_the_simplest_of_equal_ones(
    scores: tuple[float, float, float], by: str
) -> None:
    rows = row("own", scores[0]), row("ridge", scores[1], is_null=True), row("network + ridge (0.25)", scores[2])
    found = choose(*rows, 0.25, "")
    assert (found.by, found.baseline, found.weight) == (by, "ridge", 0.25)
    assert found.name == dict(zip(WAYS[1:], (one.model for one in rows), strict=True))[by]
    assert [found.weight_of(way) for way in WAYS[1:]] == [0, 1, 0.25]


def test_the_scores_are_said_and_why_there_is_no_ensemble() -> None:
    found = choose(row("own", 0.8), row("ridge", 0.7, is_null=True), None, None, "there are too few strains")
    assert found.why == "Pearson on 30 validation strains: own 0.800, ridge 0.700; there are too few strains"
    assert found.weight_of(ENSEMBLE) is None
    alone = choose(row("own", 0.8), None, None, None, "no baselines were fitted")
    assert (alone.by, alone.name, alone.why) == (NETWORK, "own", "no baselines were fitted")
    assert alone.weight_of(BASELINE) is None


def test_the_weight_has_the_least_squared_error() -> None:
    rng = np.random.default_rng(0)
    y, network, baseline = rng.normal(size=(3, 50))
    y = 0.3 * network + 0.7 * baseline + 0.5 * y
    y[:5] = np.nan
    found = ensemble_weight(network, baseline, y)
    errors = [np.nanmean((mixed(network, baseline, weight) - y) ** 2) for weight in np.arange(101) / 100]
    assert found == np.argmin(errors) / 100
    assert ensemble_weight(network, baseline, 2 * network - baseline) == 0
    assert ensemble_weight(network, baseline, 2 * baseline - network) == 1
    assert ensemble_weight(network, network, y) == 0


def test_a_table_has_three_rows_and_predict_names_the_best(tiny_run: RunDirectory) -> None:
    files = read_run(tiny_run.path)
    choice = files.results["predicts"]["fitness"]
    test = {row.model: row for row in files.rows if row.part == "test"}
    network, ensemble = list(test)[:2]
    assert (network, ensemble) == ("hetero_cell", f"network + {choice['baseline']} ({choice['weight']:.2f})")
    assert [test[name].is_network for name in (network, ensemble, choice["baseline"])] == [True, False, False]
    assert "covered" in test[choice["name"]].metrics
    found = {way: dglcell.load(tiny_run.path, predict_with=way).predict(STRAINS) for way in WAYS}
    names = {way: frame.predicted_by.unique().tolist() for way, frame in found.items()}
    expected = {NETWORK: network, BASELINE: choice["baseline"], ENSEMBLE: ensemble, "best": choice["name"]}
    assert names == {way: [name] for way, name in expected.items()}
    values = {way: frame.predicted_fitness.to_numpy() for way, frame in found.items()}
    np.testing.assert_allclose(values[ENSEMBLE], mixed(values[NETWORK], values[BASELINE], choice["weight"]), rtol=1e-5)
    np.testing.assert_array_equal(values["best"], values[choice["by"]])


@pytest.mark.parametrize("way", WAYS[1:])
def test_each_predicts_what_it_was_evaluated_with(tiny_run: RunDirectory, way: str) -> None:
    predictor = dglcell.load(tiny_run.path, predict_with=way)
    tested = pd.read_csv(tiny_run.predictions("test"))
    error = np.abs(predictor.predict(tested[["genes"]]).predicted_fitness - tested.measured_fitness).mean()
    rows = {row.model: row for row in read_run(tiny_run.path).rows if row.part == "test"}
    found = dglcell.evaluate(predictor, tested.rename(columns={"measured_fitness": "fitness"}))
    assert found.model[0] in rows
    assert error == pytest.approx(rows[found.model[0]].metrics["mae"], rel=1e-4)


def test_the_predictions_of_a_run_are_those_of_what_predicts(tiny_run: RunDirectory) -> None:
    tested = pd.read_csv(tiny_run.predictions("test"))
    best, network = (dglcell.load(tiny_run.path, predict_with=way).predict(tested[["genes"]]) for way in WAYS[:2])
    kept = read_predictions(tiny_run, "test")["fitness"].predicted
    own = read_predictions(tiny_run, "test", of_network=True)["fitness"].predicted
    np.testing.assert_allclose(kept, best.predicted_fitness, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(own, network.predicted_fitness, rtol=1e-4, atol=1e-6)
    assert ("network_fitness" in tested) == (not np.array_equal(kept, own))


@pytest.mark.parametrize("by", WAYS[1:])
def test_the_first_line_and_a_column_say_what_predicts(
    run: RunDirectory, tmp_path: Path, caplog: pytest.LogCaptureFixture, by: str
) -> None:
    name = let_predict(run, by)["name"]
    strains, output = tmp_path / "strains.csv", tmp_path / "out.csv"
    strains.write_text("gene_1,gene_2\nb0008,b2464\nb0727,\n")
    with caplog.at_level("INFO", "dglcell"):
        assert main(["predict", str(run.path), str(strains), "-o", str(output)]) == 0
    assert f"{name} predicts fitness (Pearson on 30 validation strains: hetero_cell 0." in caplog.messages[0]
    found = list(csv.DictReader(output.open()))
    assert list(found[0]) == ["gene_1", "gene_2", "predicted_by", "predicted_fitness"]
    assert {line["predicted_by"] for line in found} == {name}


def test_designs_say_what_predicts(run: RunDirectory, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    output, genes = tmp_path / "next.parquet", tmp_path / "genes.txt"
    genes.write_text("b0008\nb0727\nb2464\n")
    command = ["predict", str(run.path), "--all-pairs", "--genes", str(genes), "-o", str(output)]
    assert main([*command, "--with", "baseline", "--top", "2"]) == 0
    found = pd.read_parquet(output)
    pairs = found[["gene_1", "gene_2"]].to_numpy().tolist()
    expected = dglcell.load(run.path, predict_with="baseline").predict(pairs)
    assert set(found.predicted_by) == set(expected.predicted_by)
    np.testing.assert_allclose(found.predicted_fitness, expected.predicted_fitness, rtol=1e-6)


def test_baselines_are_fitted_once_a_run(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny.config(tmp_path, "plot=false", "trainer.epochs=1")
    directory = RunDirectory(config.run_directory)
    first = dglcell.train(tiny.file, *tiny.overrides(tmp_path, "plot=false", "trainer.epochs=1"))
    expected = first.predict(STRAINS)
    assert directory.baselines.is_file()

    def refuse(*_: object) -> None:
        raise AssertionError("fitted again")

    monkeypatch.setattr("dglcell.training.baselines.fit_null_models", refuse)
    again = dglcell.train(tiny.file, *tiny.overrides(tmp_path, "plot=false", "trainer.epochs=1"))
    np.testing.assert_array_equal(again.predict(STRAINS).predicted_fitness, expected.predicted_fitness)
    assert len(dglcell.evaluate(directory.path)) == len(read_run(directory.path).rows)
    with monkeypatch.context() as other, pytest.raises(AssertionError, match="fitted again"):
        other.setattr("dglcell.training.baselines._made_of", lambda prepared: {"split": "another"})
        dglcell.train(tiny.file, *tiny.overrides(tmp_path, "plot=false", "trainer.epochs=1"))


def test_what_a_run_does_not_have_is_refused(run: RunDirectory, tiny: Tiny, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"what shall predict.*\n.*\n.*network, baseline"):
        dglcell.load(run.path, predict_with="kernel ridge")
    bare = tiny.train(tmp_path, "trainer.epochs=1").directory
    assert dglcell.load(bare.path).predict(STRAINS).predicted_by[0] == "hetero_cell"
    for way in (BASELINE, ENSEMBLE):
        with pytest.raises(ConfigError, match=f"has no {way} for fitness\n  got:      no baselines were fitted"):
            dglcell.load(bare.path, predict_with=way)
    with pytest.raises(ConfigError, match="has no ensemble for fitness\n  got:      the run chose with another"):
        dglcell.load(
            run.path, checkpoint="last" if read_run(run.path).best_epoch == 1 else "best_pearson", predict_with=ENSEMBLE
        )
    run.baselines.write_bytes(b"PK")
    assert len(dglcell.load(run.path, predict_with=NETWORK).predict(STRAINS)) == 2
    with pytest.raises(CheckpointError, match=r"has no baselines\n  got:      baselines.npz: no whole arrays"):
        dglcell.load(run.path, predict_with=BASELINE)
    run.results.write_text(json.dumps(json.loads(run.results.read_text()) | {"predicts": {"fitness": 3}}))
    with pytest.raises(CheckpointError, match="predicts"):
        dglcell.load(run.path)


def test_an_exported_model_predicts_what_its_run_does(tiny_run: RunDirectory, tmp_path: Path) -> None:
    made = export(tiny_run.path, tmp_path / "tiny-model", About("E. coli", "CC0", ["It is a test."], "A test"))
    for way in WAYS:
        expected, found = (dglcell.load(path, predict_with=way).predict(STRAINS) for path in (tiny_run.path, made))
        pd.testing.assert_frame_equal(found, expected)


def test_a_model_of_this_package_predicts_by_its_network() -> None:
    assert dglcell.load("ecoli-core").predict(STRAINS).predicted_by[0] == "hetero_cell"


def test_a_table_that_has_the_column_is_refused(
    tiny_run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    strains = tmp_path / "strains.csv"
    strains.write_text("genes,predicted_by\nb0008,mine\n")
    assert main(["predict", str(tiny_run.path), str(strains)]) == 2
    assert "column 'predicted_by' is there already" in capsys.readouterr().err


def test_baselines_see_the_training_part_and_nothing_else(prepared: Prepared) -> None:
    rows = {(row.model, row.part): row for row in score(prepared, fit_baselines(prepared)).rows}
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
    assert {model for model, _ in rows} == {
        name for name, of in ALL_NULL_MODELS.items() if of.about in (ANY, DELETIONS)
    }


def test_strains_of_the_same_medium_and_batch_are_a_group(tmp_path: Path) -> None:
    media, batches = Column(CONDITION, "medium", ("a", "b")), Column(CONDITION, "batch", ("x", "y"))
    columns = {media: [0, 1, 0, 1, 0], batches: [1, 0, 1, 1, 0], Column(CONDITION, "temperature"): [30, 37, 37, 30, 30]}
    made = Strains.from_indices(("g",), [[0]] * 5)
    found = dataclasses.replace(made, columns={name: np.array(values) for name, values in columns.items()})
    groups = same_conditions(found)
    assert groups[0] == groups[2]
    assert len(set(groups.tolist())) == 4
    assert not same_conditions(made).any()

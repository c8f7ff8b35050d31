"""What predicts: the network, the best baseline, or an ensemble of both; chosen on the validation part, and named."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import json
import math
import re
import shutil
from pathlib import Path

import cobra
import numpy as np
import pandas as pd
import pytest
import torch

import dglcell
from dglcell.baselines.fit import ALL_BASELINES, save_models
from dglcell.baselines.problem import ANY, DELETIONS
from dglcell.baselines.simple import TrainingMean
from dglcell.cli import main
from dglcell.config.read import load_config
from dglcell.data.columns import COVARIATE, Column
from dglcell.data.strains import Strains
from dglcell.errors import CheckpointError, ConfigError
from dglcell.metrics import ResultRow
from dglcell.report.run_files import read_predictions, read_run
from dglcell.runs import RunDirectory
from dglcell.training import evaluate as evaluate_module
from dglcell.training.checkpoint import Trained, load_trained
from dglcell.training.evaluate import (
    ablation_rows,
    evaluate_baselines,
    evaluate_run,
    report,
    rows_as_json,
    with_ceilings,
    write_predictions,
)
from dglcell.training.fit import warn_of_falling_loss
from dglcell.training.predicting import (
    BASELINE,
    ENSEMBLE,
    NETWORK,
    WAYS,
    choose,
    ensemble_weight,
    kept_baselines,
    mixed,
    predict_strains,
    same_covariates,
    score,
)
from dglcell.training.prepare import Prepared, prepare, prepare_run
from dglcell.training.run import RunResult, train, without_messages
from tests.tiny import BARE, TINY, Tiny

STRAINS = [["b0008", "b2464"], ["b0727"]]


def row(model: str, pearson: float, *, is_baseline: bool = False) -> ResultRow:
    return ResultRow(model, "validation", "fitness", {"pearson": pearson, "n": 30}, is_baseline)


@pytest.fixture(scope="module")
def bare(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """Return a run without baselines; for reading only."""
    return tiny.train(tmp_path_factory.mktemp("bare"), "trainer.epochs=1")


def let_predict(run: RunDirectory, by: str) -> dict[str, object]:
    """Change what was the best on the validation part, and return what the run says of it."""
    results = json.loads(run.results.read_text())
    choice = results["predicts"]["fitness"]
    ensemble = f"network + {choice['baseline']} ({choice['weight']:.2f})"
    choice |= {"by": by, "name": {NETWORK: "hetero_cell", BASELINE: choice["baseline"], ENSEMBLE: ensemble}[by]}
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
    rows = row("own", scores[0]), row("ridge", scores[1], is_baseline=True), row("network + ridge (0.25)", scores[2])
    found = choose(dict(zip(WAYS[1:], rows, strict=True)), 0.25, "")
    assert (found.by, found.baseline, found.weight) == (by, "ridge", 0.25)
    assert found.name == dict(zip(WAYS[1:], (one.model for one in rows), strict=True))[by]
    assert [found.weight_of(way) for way in WAYS[1:]] == [0, 1, 0.25]


def test_the_scores_are_said_and_why_there_is_no_ensemble() -> None:
    own, ridge = row("own", 0.8), row("ridge", 0.7, is_baseline=True)
    found = choose({NETWORK: own, BASELINE: ridge}, None, "there are too few strains")
    assert found.why == "Pearson on 30 validation strains: own 0.800, ridge 0.700; there are too few strains"
    assert found.weight_of(ENSEMBLE) is None
    alone = choose({NETWORK: own, BASELINE: None}, None, "no baselines were fitted")
    assert (alone.by, alone.name, alone.weight_of(BASELINE)) == (NETWORK, "own", None)
    assert alone.why == "no baselines were fitted"


def test_the_weight_has_the_least_squared_error_of_many_strains_and_is_a_half_of_few() -> None:
    y, network, baseline = np.random.default_rng(0).normal(size=(3, 5000))
    y = 0.3 * network + 0.7 * baseline + 0.5 * y
    y[:5] = np.nan
    errors = [np.nanmean((mixed(network, baseline, weight) - y) ** 2) for weight in np.arange(101) / 100]
    assert ensemble_weight(network, baseline, y) == np.argmin(errors) / 100
    network, baseline, y = network[5:35], baseline[5:35], y[5:35]
    step = baseline - network
    of_least = step @ (y - network) / (step @ step)
    precision = [step @ step / np.var(y - network - of_least * step), 1 / 0.1**2]  # of strains, and of what is expected
    assert ensemble_weight(network, baseline, y) == round(np.average([of_least, 0.5], weights=precision), 2)
    assert [ensemble_weight(network, baseline, far) for far in (network - 9 * step, baseline + 9 * step)] == [0, 1]


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


def test_the_predictions_of_a_run_are_those_of_what_predicts(tiny_run: RunDirectory) -> None:
    tested = pd.read_csv(tiny_run.predictions("test"))
    best, network = (dglcell.load(tiny_run.path, predict_with=way).predict(tested[["genes"]]) for way in WAYS[:2])
    kept = read_predictions(tiny_run, "test")["fitness"].predicted
    own = tested.get("network_fitness", tested.predicted_fitness)
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
    assert f"fitness is predicted by {name} (Pearson on 30 validation strains: hetero_cell 0." in caplog.messages[0]
    found = list(csv.DictReader(output.open()))
    assert list(found[0]) == ["gene_1", "gene_2", "predicted_by", "predicted_fitness"]
    assert {line["predicted_by"] for line in found} == {name}


def test_baselines_are_fitted_once_a_run(
    run: RunDirectory, tiny_run: RunDirectory, tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("fitted again")

    monkeypatch.setattr("dglcell.training.predicting.fit_families", refuse)
    again = dglcell.train(tiny.file, *tiny.overrides(tmp_path, "plot=false"))
    assert again.directory == run.path
    found, expected = (of.predict(STRAINS).predicted_fitness for of in (again, dglcell.load(tiny_run.path)))
    np.testing.assert_array_equal(found, expected)
    assert len(dglcell.evaluate(run.path)) == len(read_run(run.path).rows)
    with monkeypatch.context() as other, pytest.raises(AssertionError, match="fitted again"):
        other.setattr(Prepared, "hashes", {"split": "another"})
        dglcell.train(tiny.file, *tiny.overrides(tmp_path, "plot=false"))


def test_what_a_run_does_not_have_is_refused(run: RunDirectory, bare: RunResult) -> None:
    with pytest.raises(ConfigError, match=r"what shall predict.*\n.*\n.*network, baseline"):
        dglcell.load(run.path, predict_with="kernel ridge")
    assert dglcell.load(bare.directory.path).predict(STRAINS).predicted_by[0] == "hetero_cell"
    for way in (BASELINE, ENSEMBLE):
        with pytest.raises(ConfigError, match=f"has no {way} for fitness\n  got:      no baselines were fitted"):
            dglcell.load(bare.directory.path, predict_with=way)
    with pytest.raises(ConfigError, match="has no ensemble for fitness\n  got:      the run chose with another"):
        dglcell.load(
            run.path, checkpoint="last" if read_run(run.path).best_epoch == 1 else "best_pearson", predict_with=ENSEMBLE
        )
    save_models(run.baselines, {"fitness": {"another": TrainingMean(0.0)}}, {"left_out": {}})
    with pytest.raises(CheckpointError, match=r"predicts by '.*', which has left the package\n  do: .*--with network"):
        dglcell.load(run.path, predict_with=BASELINE)
    run.baselines.write_bytes(b"PK")
    assert len(dglcell.load(run.path, predict_with=NETWORK).predict(STRAINS)) == 2
    with pytest.raises(CheckpointError, match=r"has no baselines\n  got:      baselines.npz: no whole arrays"):
        dglcell.load(run.path, predict_with=BASELINE)
    run.results.write_text(json.dumps(json.loads(run.results.read_text()) | {"predicts": {"fitness": 3}}))
    with pytest.raises(CheckpointError, match="predicts"):
        dglcell.load(run.path)


def test_baselines_see_the_training_part_and_nothing_else(prepared: Prepared, tiny_run: RunDirectory) -> None:
    rows = {(row.model, row.part): row for row in score(prepared, kept_baselines(tiny_run, prepared.cell)).rows}
    assert all(row.is_baseline for row in rows.values())
    dataset, parts = prepared.dataset, prepared.parts
    mean = float(dataset.labels[parts["train"]].double().mean())
    test = dataset.labels[parts["test"], 0].double()
    assert rows["training mean", "test"].metrics["mse"] == pytest.approx(float((test - mean).square().mean()))
    assert {model for model, _ in rows} == {name for name, of in ALL_BASELINES.items() if of.about in (ANY, DELETIONS)}


def test_strains_of_the_same_medium_and_batch_are_a_group(tmp_path: Path) -> None:
    media, batches = Column(COVARIATE, "medium", ("a", "b")), Column(COVARIATE, "batch", ("x", "y"))
    columns = {media: [0, 1, 0, 1, 0], batches: [1, 0, 1, 1, 0], Column(COVARIATE, "temperature"): [30, 37, 37, 30, 30]}
    made = Strains.from_indices(("g",), [[0]] * 5)
    found = dataclasses.replace(made, columns={name: np.array(values) for name, values in columns.items()})
    groups = same_covariates(found)
    assert groups[0] == groups[2]
    assert len(set(groups.tolist())) == 4
    assert not same_covariates(made).any()


def test_predictions_are_in_the_order_asked_for_whatever_the_batch(trained: Trained, prepared: Prepared) -> None:
    strains = prepared.parts["test"].flip(0)

    def predict(batch_size: int) -> np.ndarray:
        return predict_strains(trained.model, trained.normaliser, prepared.dataset, strains, batch_size=batch_size)

    expected = [
        predict_strains(trained.model, trained.normaliser, prepared.dataset, strains[i : i + 1], batch_size=1)
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
      activities: [activity_1, activity_2]
      phenotypes: {growth: growth}
      covariates: {allele: allele}
"""


def test_learned_activities_stand_beside_those_of_the_table(tmp_path: Path) -> None:
    rows = ["gene_1,activity_1,gene_2,activity_2,allele,growth"]
    genes = ("b0008", "b0720", "b1136", "b1676", "b1779")
    for number, (one, two) in enumerate(itertools.product(("", *genes), genes)):
        for allele, left in (("damp", 0.2), ("ts", 0.5)):
            weakened = f"{one},{left if one and one != two else ''}"
            rows.append(f"{weakened if one != two else ','},{two},{(number % 3) / 2},{allele},{left + number / 60}")
    (tmp_path / "table.csv").write_text("\n".join(rows))
    source = TINY[TINY.index("    name: insilico") : TINY.index("  phenotypes")]
    keys = TINY.replace(source, ALLELES.replace("PATH", f"{tmp_path}/table.csv")).replace("[fitness]", "[growth]")
    (tmp_path / "alleles.yaml").write_text(keys.replace(", subset: {size: 300}", ""))
    more = ["model.activity_from=[allele]", "model.activity_hidden=0", "optimizer.lr=0.1", "trainer.epochs=3"]
    paths = [f"data.store={tmp_path}/store", f"paths.runs={tmp_path}/runs", *BARE]
    directory = train(load_config(tmp_path / "alleles.yaml", [*paths, *more])).directory
    learned = load_trained(directory).model.learned
    assert learned is not None
    layer = learned.network[-1]
    change = dict(zip(("damp", "ts"), (layer.weight[0] + layer.bias).tolist(), strict=True))
    assert min(map(abs, change.values())) > 0.01
    seen = set()
    for line in csv.DictReader(directory.predictions("test").open()):
        given, found = (
            [float(text) for text in line[name].split(";")] for name in ("activities", "learned_activities")
        )
        expected = [s if s in (0, 1) else 1 / (1 + (1 / s - 1) * math.exp(-change[line["allele"]])) for s in given]
        assert found == pytest.approx(expected, rel=1e-4)
        seen |= {len(given), *given}
    assert seen >= {0, 0.2, 0.5, 1, 2}


def test_predictions_are_written_in_blocks_without_a_seam(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strains = torch.cat([prepared.parts["test"], prepared.parts["validation"]])
    predicted = np.linspace(-1, 1, len(strains), dtype=np.float32)[:, None]
    write_predictions(tmp_path / "whole.csv", prepared, strains, predicted, predicted)
    monkeypatch.setattr(evaluate_module, "WRITTEN_STRAINS", 7)
    write_predictions(tmp_path / "blocks.csv", prepared, strains, predicted, predicted + 1)
    rows = list(csv.DictReader((tmp_path / "blocks.csv").open()))
    assert {row["genes"].count(";") for row in rows} == {0, 1}
    assert [float(row["predicted_fitness"]) for row in rows] == pytest.approx(predicted[:, 0].tolist(), rel=1e-5)
    assert "network_fitness" not in (tmp_path / "whole.csv").read_text()
    network = [float(row.pop("network_fitness")) for row in rows]
    assert network == pytest.approx((predicted[:, 0] + 1).tolist(), rel=1e-5)
    assert rows == list(csv.DictReader((tmp_path / "whole.csv").open()))


def test_baselines_alone_are_of_the_run(tiny_run: RunDirectory, prepared: Prepared, tiny: Tiny, tmp_path: Path) -> None:
    rows, baselines = evaluate_baselines(tiny.config(tmp_path / "runs"), command="dglcell baselines tiny.yaml")
    assert rows == score(prepared, kept_baselines(tiny_run, prepared.cell)).rows
    written = json.loads((tmp_path / "runs/tiny/baselines.json").read_text())
    assert written["rows"] == rows_as_json(rows)
    assert written["command"] == "dglcell baselines tiny.yaml"
    assert written["hashes"]["split"] == prepared.split.sha256
    assert written["left_out"] == baselines.left_out == {"fitness": {}}
    assert list((tmp_path / "runs/tiny").iterdir()) == [tmp_path / "runs/tiny/baselines.json"]


def test_a_report_without_baselines_has_the_network_alone(bare: RunResult, tiny: Tiny, tmp_path: Path) -> None:
    assert {row.model for row in bare.rows} == {"hetero_cell"}
    assert not bare.directory.report.exists()
    directory = RunDirectory(shutil.copytree(bare.directory.path, tmp_path / "run"))
    config = tiny.config(tmp_path, "trainer.epochs=1", "plot=false", "trainer.checkpoint=last")
    again = report(config, directory, prepare_run(config, directory, "tests"))
    assert {row.model for row in again} > {"hetero_cell", "training mean"}
    assert json.loads(directory.results.read_text())["checkpoint"] == "last.ckpt"


def test_a_table_of_replicates_has_a_ceiling(tmp_path: Path) -> None:
    genes = cobra.io.load_model("textbook").genes[:60]
    rng = np.random.default_rng(0)
    levels = rng.normal(size=60)
    drawn = levels[:, None] + 0.5 * rng.normal(size=(60, 2))
    rows = [f"{gene.id},{value:.4f}" for gene, both in zip(genes, drawn, strict=True) for value in both]
    (tmp_path / "table.csv").write_text("\n".join(["gene,growth", *rows, ""]))
    file = tmp_path / "own.yaml"
    table = "{path: table.csv, genes: [gene], phenotypes: {growth: growth}}"
    file.write_text(f"cell: {{model: textbook}}\ndata: {{source: {{name: csv, csv: {table}}}}}\n")
    config = load_config(file, [f"paths.raw={tmp_path}", f"paths.data={tmp_path / 'data'}"])
    prepared = prepare(config, command="test")
    rows_before = [ResultRow("hetero_cell", part, "growth", {"pearson": 0.5}) for part in ("validation", "test")]
    prepared.store.path.rename(tmp_path / "moved")  # the store was read once, and is not read again
    validation, test = with_ceilings(rows_before, prepared)
    assert validation.metrics == {"pearson": 0.5}
    assert 0.8 < test.metrics["ceiling"] < 1


def test_it_is_the_same_experiment_without_rounds_and_with_more_epochs(tiny: Tiny, tmp_path: Path) -> None:
    config = tiny.config(tmp_path, "trainer.checkpoint=last", "resume=of/another/run.ckpt")
    ablation = without_messages(config, 16)
    assert ablation.resume == "auto"
    assert ablation.run_directory == tmp_path / "tiny-without-messages" / "seed-0"
    assert (ablation.model.layers, ablation.trainer.epochs, ablation.trainer.checkpoint) == (0, 16, "best_loss")
    assert (ablation.split, ablation.data, ablation.seed) == (config.split, config.data, config.seed)
    blocked = load_config(Path(__file__).parents[2] / "conf" / "106-ecoli-core" / "gene_disjoint.yaml")
    assert (blocked.cell.lose_blocked, without_messages(blocked, 1).cell.lose_blocked) == (True, False)


def test_its_rows_stand_among_the_baselines(
    tiny: Tiny, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    train_both = ["train", str(tiny.file), "--without-messages", "2", *tiny.overrides(tmp_path, *BARE)]
    assert main(train_both) == 0
    assert capsys.readouterr().out.count("\nwithout messages ") == 1, "of the test part"
    run = RunDirectory(tmp_path / "tiny" / "seed-0")
    assert main(["baselines", str(tiny.file), *tiny.overrides(tmp_path, *BARE)]) == 0
    said = capsys.readouterr().out
    assert not [name for name in ("without messages", "additive ridge", "boosted trees") if name not in said]
    assert "left out" not in said
    ablation = tmp_path / "tiny-without-messages" / "seed-0"
    theirs = json.loads((ablation / "results.json").read_text())["rows"]
    for path in (run.results, tmp_path / "tiny" / "baselines.json"):
        found = [row for row in json.loads(path.read_text())["rows"] if row["model"] == "without messages"]
        for own, row in zip(found, theirs, strict=True):
            assert own["part"] == row["part"]
            assert {name: row["metrics"][name] for name in own["metrics"]} == own["metrics"]
            assert "pearson" in own["metrics"]
            assert "covered" not in own["metrics"]
        assert all(row["is_baseline"] for row in found)
        assert {row["part"] for row in found} == {"validation", "test"}
    # Given again, nothing is trained and no row stands twice; an evaluation shows it, too.
    before = (ablation / "metrics.jsonl").read_bytes()
    assert main(train_both) == 0
    assert (ablation / "metrics.jsonl").read_bytes() == before
    assert [row["model"] for row in json.loads(run.results.read_text())["rows"]].count("without messages") == 2
    assert "without messages" in [row.model for row in evaluate_run(run.path)]
    # An ablation of another split is not compared with.
    sha256 = json.loads(run.environment.read_text())["hashes"]["split"]
    assert ablation_rows(run.path, "0" * 64) == ablation_rows(tmp_path / "other" / "seed-0", sha256) == []
    monkeypatch.chdir(run.path)
    assert len(ablation_rows(Path(), sha256)) == len(ablation_rows(run.path, sha256)) == 2


TRAIN = ["train", "FILE", "--without-messages", "1"]


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        ([*TRAIN, "model.layers=0"], "there is no ablation without messages"),
        (
            [*TRAIN, "cell.derived=[isoenzyme]", "model={name: dango, heads: 2, hidden: 8, reconstruction: false}"],
            r"no ablation without messages[\s\S]*leave `--without-messages` out",
        ),
        ([*TRAIN, "trainer.devices=2"], r"a single device only[\s\S]*`experiment.name=tiny-without-messages "),
    ],
)
def test_an_ablation_that_cannot_be_is_refused_before_the_training(
    tiny: Tiny, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], refusal: str
) -> None:
    verb, _, *more = words
    assert main([verb, str(tiny.file), *tiny.overrides(tmp_path, *BARE), *more]) == 2
    assert re.search(refusal, capsys.readouterr().err)
    assert not (tmp_path / "tiny").exists()


@pytest.mark.parametrize(
    ("figure", "losses", "said"),
    [
        (
            "validation",
            [1 / (n + 1) for n in range(10)],
            "the validation loss was still falling at the end, and is 0.1",
        ),
        ("train", [5.0 - n for n in range(5)], "the train loss was still falling"),
        ("validation", [1.0, 0.5, 0.3, 0.3, 0.3], ""),
        ("validation", [1.0, 0.2, 0.3, 0.4, 0.3], ""),
        ("validation", [3.0, 1.0], ""),
        ("validation", [-1.0, -1.1, -1.2, -1.2, -1.21], ""),
    ],
)
def test_a_falling_loss_is_said(caplog: pytest.LogCaptureFixture, figure: str, losses: list[float], said: str) -> None:
    warn_of_falling_loss([{f"{figure}/loss": loss} for loss in losses])
    assert said in caplog.text
    assert bool(caplog.messages) == bool(said)

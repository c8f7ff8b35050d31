"""The few lines of Python that train, load, predict and evaluate."""

from __future__ import annotations

import contextlib
import csv
import doctest
import importlib
import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback, EarlyStopping
from pytorch_lightning.loggers import CSVLogger

import dglcell
from dglcell.cli import main
from dglcell.config.read import experiment_file, load_config, override
from dglcell.data import strains
from dglcell.data.config import VALIDATION
from dglcell.data.split import Split
from dglcell.errors import CheckpointError, ConfigError, DataError, GenotypeError, GraphError
from dglcell.graph import cell_graph
from dglcell.runs import RunDirectory
from tests.tiny import TINY, Tiny, process_environment, seeing_covariates

STRAINS = [["b0008", "b0114"], ["b0115"], ["b0356", "b0351", "b0116"]]


@pytest.fixture(scope="module")
def folder(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("api")
    text = TINY.replace("name: tiny", "name: quickstart").replace("data:\n", f"data:\n  store: {tiny.store}\n")
    (folder / "conf").mkdir()
    (folder / "conf" / "quickstart.yaml").write_text(text + "plot: false\n")
    with contextlib.chdir(folder):
        for seed in (0, 1):
            dglcell.train("quickstart", epochs=1, baselines=False, seed=seed)
        yield folder


@pytest.fixture(scope="module")
def predictor(folder: Path) -> dglcell.Predictor:
    return dglcell.load("runs/quickstart/seed-0")


def test_nothing_is_imported_for_the_names() -> None:
    code = "import sys, dglcell as d; print('torch' in sys.modules, dir(d) == sorted([*d.__all__, '__version__']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=process_environment())
    assert done.stdout == "False True\n", done.stderr


def test_every_public_name_is_there() -> None:
    for name in dglcell.__all__:
        assert getattr(dglcell, name).__doc__
    with pytest.raises(AttributeError, match="module 'dglcell' has no attribute 'loads'"):
        dglcell.loads  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(
    "name", ["dglcell.api", "dglcell.data.strains", "dglcell.graph.cell_graph", "dglcell.perturbation.strains"]
)
def test_examples_of_docstrings_are_right(folder: Path, name: str) -> None:
    found = doctest.testmod(importlib.import_module(name), extraglobs={"dglcell": dglcell})
    assert (found.failed, found.attempted > 3) == (0, True)


def test_every_public_function_and_method_has_an_example() -> None:
    public = [getattr(dglcell, name) for name in dglcell.__all__]
    public += [dglcell.Predictor.predict, dglcell.Predictor.results, dglcell.Predictor.model]
    public += [dglcell.Strains.from_names, dglcell.Strains.from_dataframe]
    public += [dglcell.CellGraph.to_pandas]
    for thing in public:
        assert ">>> " in str(thing.__doc__), thing
    assert strains.Strains is dglcell.Strains
    assert cell_graph.CellGraph is dglcell.CellGraph


def test_a_trained_run_has_its_directory_and_results(folder: Path, predictor: dglcell.Predictor) -> None:
    assert predictor.directory == Path("runs/quickstart/seed-0")
    results = predictor.results
    assert set(results.part) == {"validation", "test"}
    assert results.seed.tolist() == [0] * len(results)
    evaluated = dglcell.evaluate(predictor)
    test = evaluated[(evaluated.part == "test") & ~evaluated.is_baseline]
    np.testing.assert_allclose(test.pearson, results[(results.part == "test")].pearson, rtol=1e-5)


def test_predictions_are_those_of_the_run(predictor: dglcell.Predictor) -> None:
    with open(RunDirectory(predictor.directory).predictions("test"), newline="") as file:
        written = list(csv.DictReader(file))
    frame = pd.DataFrame({"note": range(len(written)), "genes": [row["genes"] for row in written]})
    frame.index = frame.index + 100
    found = predictor.predict(frame, batch_size=7)
    assert found.columns.tolist() == ["note", "genes", "predicted_fitness", "predicted_by", "unknown"]
    assert found.index.equals(frame.index)
    expected = [float(row["predicted_fitness"]) for row in written]
    np.testing.assert_allclose(found.predicted_fitness, expected, rtol=2e-5)


def test_lists_frames_and_strains_give_the_same(predictor: dglcell.Predictor) -> None:
    found = predictor.predict(STRAINS)
    assert found.gene_2.tolist() == ["b0114", "", "b0351"]
    assert found.unknown.tolist() == ["", "", ""]
    pd.testing.assert_frame_equal(predictor.predict(dglcell.Strains.from_names(STRAINS)), found)
    again = predictor.predict(found[["gene_1", "gene_2", "gene_3"]].replace("", None))
    pd.testing.assert_series_equal(again.predicted_fitness, found.predicted_fitness)
    assert predictor.predict([]).columns.tolist() == ["gene_1", "predicted_fitness", "predicted_by", "unknown"]


def test_several_seeds_give_mean_and_spread(folder: Path) -> None:
    both = dglcell.load("runs/quickstart")
    assert both.directory == Path("runs/quickstart")
    single = [dglcell.load(path).predict(STRAINS).predicted_fitness for path in both.directories]
    found = dglcell.load([str(path) for path in both.directories]).predict(STRAINS)
    np.testing.assert_allclose(found.predicted_fitness, np.mean(single, axis=0))
    np.testing.assert_allclose(found.sd_fitness, np.std(single, axis=0, ddof=1))
    assert sorted(set(both.results.seed)) == [0, 1]
    with pytest.raises(CheckpointError, match=r"several seeds have a model each\n.*2 runs"):
        both.model  # noqa: B018


def test_unknown_genes_are_refused_or_left_empty(predictor: dglcell.Predictor) -> None:
    strains = [["b0008"], ["b9999", "b0008", "x"], ["b0114", "b0114"], []]
    with pytest.raises(GenotypeError, match=r"4 faults in 3 of 4 rows\n  row 1: unknown gene 'b9"):
        predictor.predict(strains)
    with pytest.raises(GenotypeError, match=r"2 of 4 .*\n  row 2: gene 'b0114' is deleted twice\n  row 3: no gene is"):
        predictor.predict(strains, unknown="empty")
    found = predictor.predict(strains[:2], unknown="empty")
    assert found.unknown.tolist() == ["", "b9999;x"]
    assert [math.isnan(value) for value in found.predicted_fitness] == [False, True]
    assert math.isnan(predictor.predict([["x"]], unknown="empty").predicted_fitness[0])
    assert predictor.predict([["y"], ["x", "y"]], unknown="empty").unknown.tolist() == ["y", "x;y"]
    with pytest.raises(GenotypeError, match="row 1: no gene is deleted"):  # the model sees no covariates
        predictor.predict(dglcell.Strains.from_names([["b0720"], []]))
    with pytest.raises(GenotypeError, match="row 0: no gene is deleted"):
        dglcell.evaluate(predictor, pd.DataFrame({"genes": [""], "fitness": [1.0]}))


def test_measured_strains_are_compared(predictor: dglcell.Predictor) -> None:
    values = predictor.predict(STRAINS).predicted_fitness
    strains = dglcell.Strains.from_names(STRAINS, phenotypes={"fitness": values + 0.5, "other": [0, 0, 0]})
    found = dglcell.evaluate(predictor, strains)
    assert found.phenotype.tolist() == ["fitness"]
    assert found.mae[0] == pytest.approx(0.5, rel=1e-5)
    classes = dglcell.Strains.from_names(STRAINS, phenotypes={"fitness": [0, 1, math.nan]})
    assert dglcell.evaluate(predictor, classes).n[0] == 2
    assert "average_precision" in dglcell.evaluate(predictor, classes)
    with pytest.raises(DataError, match=r"no phenotype that the model predicts\n.*no phenotype\n.*fitness"):
        dglcell.evaluate(predictor, dglcell.Strains.from_names(STRAINS))


def test_activities_are_given_in_several_forms(predictor: dglcell.Predictor) -> None:
    found = predictor.predict([{"b0720": 0.5, "b0114": 0.0}, ["b0720", "b0114"], {"b0720": 1, "b0114": 0}, ["b0114"]])
    assert found.columns.tolist()[:4] == ["gene_1", "gene_2", "activity_1", "activity_2"]
    assert found.activity_1.tolist() == [0.5, 0, 1, 0]
    half, deleted, wild, without = found.predicted_fitness
    assert deleted == pytest.approx(predictor.predict([["b0720", "b0114"]]).predicted_fitness[0], abs=1e-6)
    assert wild == pytest.approx(without, abs=1e-6)
    assert len({round(value, 6) for value in (half, deleted, wild)}) == 3
    for given in (
        found[["gene_1", "gene_2", "activity_1", "activity_2"]],
        pd.DataFrame({"genes": ["b0114;b0720"], "activities": ["0;0.5"]}),
        pd.DataFrame({"gene_1": ["b0720:0.5"], "gene_2": ["b0114"]}),
        dglcell.Strains.from_names([{"b0720": 0.5, "b0114": 0}]),
        [{"b0720": np.float32(0.5), "b0114": 0}],
    ):
        assert predictor.predict(given).predicted_fitness[0] == pytest.approx(half, abs=1e-6)


@pytest.fixture
def seeing(predictor: dglcell.Predictor) -> dglcell.Predictor:
    """Return a model that is said to see a medium and a temperature."""
    return replace(predictor, members=tuple(map(seeing_covariates, predictor.members)))


def batches_of(predictor: dglcell.Predictor, *given: Any, **keys: Any) -> Any:
    """Return the covariates that a model gets, while strains are predicted."""
    seen: list[Any] = []
    hook = predictor.model.register_forward_pre_hook(lambda _, of: seen.append(of[0].covariates))
    try:
        predictor.predict(*given, batch_size=99, **keys)
    finally:
        hook.remove()
    return seen[-1].tolist()


def test_covariates_are_given_in_several_forms(seeing: dglcell.Predictor) -> None:
    expected = [[0, 30], [1, 30]]
    strains, media = [["b0008"], []], ["glucose", "glycerol"]
    assert batches_of(seeing, strains, covariates={"temperature": 30, "medium": media}) == expected
    found = seeing.predict(strains, covariates={"temperature": 30, "medium": np.array(media)})
    assert found.columns.tolist()[:3] == ["gene_1", "covariate_temperature", "covariate_medium"]
    assert batches_of(seeing, found[["gene_1", "covariate_temperature", "covariate_medium"]]) == expected
    frame = pd.DataFrame({"genes": ["b0008", None], "medium": media, "note": 1})
    assert batches_of(seeing, frame, covariates={"temperature": [30, 30.0]}) == expected
    record = dglcell.Strains.from_names(strains, covariates={"medium": media, "temperature": [30, 30], "dose": [1, 2]})
    assert batches_of(seeing, record) == expected
    assert seeing.predict(record).predicted_fitness.tolist() == found.predicted_fitness.tolist()
    assert seeing.predict(strains[:1], covariates={"temperature": 30, "medium": "glycerol"}).unknown.tolist() == [""]


def test_on_another_experiment_strains_of_the_training_are_left_out(
    predictor: dglcell.Predictor, folder: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = Split.load(RunDirectory(predictor.directory).split).part
    new = int((parts > VALIDATION).sum())
    with caplog.at_level("INFO", "dglcell"):
        row = dglcell.evaluate_on(predictor, "quickstart").iloc[0]
    assert (row.phenotype, row.n) == ("fitness", new)
    trained = f"0 have genes that the cell graph lacks, {len(parts) - new:,} were trained on"
    assert f"{new:,} of {len(parts):,} strains; {trained}" in caplog.text
    command = ["evaluate", "runs/quickstart/seed-0", "--on", "quickstart"]
    assert main([*command, "--phenotype", "fitness=digenic_interaction"]) == 0
    assert "fitness" in capsys.readouterr().out
    assert main([*command, "--phenotype", "fitness=growth"]) == 2
    said = capsys.readouterr().err
    assert "no phenotype to compare" in said
    assert "fitness=growth" in said
    assert main(["evaluate", "runs/quickstart/seed-0", "--phenotype", "a=b"]) == 2
    assert "--phenotype is given without --on" in capsys.readouterr().err
    assert main(["evaluate", "runs/quickstart/seed-0", "seed=1"]) == 2
    assert "keys are given without --on\n  got:      seed=1" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main([*command, "--phenotype", "fitness"])
    assert "'fitness' is not MODEL_PHENOTYPE=MEASURED_PHENOTYPE" in capsys.readouterr().err


def test_an_ensemble_that_knows_deletions_alone_is_left_out(tiny: Tiny, tiny_run: RunDirectory, tmp_path: Path) -> None:
    table = tmp_path / "strains.csv"
    table.write_text("genes,fitness\nb0008:0.5,0.5\nb0114:0.3,0.25\nb0115:0.3,1\n")
    keys = [f"paths.data={tmp_path}", "data.source.name=csv", f"data.source.csv.path={table}", "split.subset=null"]
    keys += ["data.store=null", "data.source.csv.genes=[genes]", "data.source.csv.phenotypes={fitness: fitness}"]
    found = dglcell.evaluate_on(tiny_run.path, tiny.file, *tiny.overrides(tmp_path, *keys))
    assert (found.model[0], found.n[0]) == ("hetero_cell", 3)
    assert not any(found.model.str.startswith("network + "))


def test_runs_that_cannot_be_loaded_are_refused(folder: Path, tmp_path: Path) -> None:
    for given, said in (("runs/no", "'runs/no' not found"), ([], "no run to load"), (tmp_path, "not a run directory")):
        with pytest.raises(CheckpointError, match=said):
            dglcell.load(given)
    with pytest.raises(CheckpointError, match=r"no checkpoint in common\n.*last.ckpt\n.*one of best_loss"):
        dglcell.load("runs/quickstart", checkpoint="runs/quickstart/seed-0/checkpoints/last.ckpt")
    with pytest.raises(CheckpointError, match=r"belongs to another run\n  got:      seed 1\n  expected: seed 0"):
        dglcell.load("runs/quickstart/seed-0", checkpoint="runs/quickstart/seed-1/checkpoints/last.ckpt")
    dglcell.train("quickstart", "experiment.name=other", epochs=1, baselines=False, derived=["isoenzyme"])
    with pytest.raises(CheckpointError, match=r"these runs cannot predict together\n.*seed-0' and 'runs/other/seed-0'"):
        dglcell.load(["runs/quickstart/seed-0", "runs/other/seed-0"])


def test_keys_find_their_sections(folder: Path) -> None:
    path = experiment_file("quickstart")
    assert path == Path("conf/quickstart.yaml") == experiment_file("conf/quickstart.yaml")
    with pytest.raises(ConfigError, match=r"'quickstrat' not found\n.*experiments\n.*did you mean quickstart"):
        experiment_file("quickstrat")
    short = ["seed=3", "epochs=2", "lr=1e-5", "model=set_operator", "local_factors=8", "split.seed=7"]
    full = ["seed=3", "trainer.epochs=2", "optimizer.lr=1e-5", "model=set_operator", "model.local_factors=8"]
    assert load_config(path, short) == load_config(path, [*full, "split.seed=7"])
    assert load_config(path, ["lr=0.1", "optimizer.lr=0.2"]).optimizer.lr == 0.2, "the last one counts"
    assert load_config(path, [override("experiment.name", "é 🦠 1e5")]).experiment.name == "é 🦠 1e5"
    with pytest.raises(ConfigError, match=r"key `name` is in several sections\n.*experiment.name, .*model.name"):
        load_config(path, ["name=x"])
    with pytest.raises(ConfigError, match=r"unknown key `epoch`\n.*did you mean epochs"):
        load_config(path, ["epoch=2"])


def test_cells_of_runs_folders_and_experiments_are_the_same(folder: Path, predictor: dglcell.Predictor) -> None:
    for source in ("quickstart", "conf/quickstart.yaml", "runs/quickstart/seed-0", "runs/quickstart/seed-0/cell"):
        assert dglcell.load_cell(source).sha256 == predictor.cell.sha256
    with pytest.raises(GraphError, match="no cell graph at 'conf'"):
        dglcell.load_cell("conf")


class Epochs(Callback):
    """Remembers the epochs that it was told of, in checkpoints too."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.seen.append(trainer.current_epoch)

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.seen = list(state_dict["seen"])


def test_callbacks_and_loggers_are_told_of_the_training(folder: Path, tmp_path: Path) -> None:
    def train(epochs: int, **told: Any) -> None:
        dglcell.train("quickstart", "experiment.name=told", epochs=epochs, baselines=False, **told)

    counted, logger = Epochs(), CSVLogger(tmp_path)
    train(1, callbacks=[counted], logger=logger)
    rows = pd.read_csv(Path(logger.log_dir) / "metrics.csv")
    assert rows.epoch.tolist() == counted.seen == [0]
    assert rows["validation/loss"].notna().all()
    again = Epochs()
    stopping = EarlyStopping("validation/loss", patience=50)
    train(2, callbacks=[again, stopping], logger=[CSVLogger(tmp_path), CSVLogger(tmp_path)])
    assert again.seen == [0, 1]
    train(3)


@pytest.mark.parametrize(("key", "given"), [("callbacks", [print]), ("logger", "csv"), ("logger", print)])
def test_what_is_no_callback_or_logger_is_refused(folder: Path, key: str, given: Any) -> None:
    with pytest.raises(ConfigError, match=rf"`{key}` cannot be used\n.*\n.*derived from pytorch_lightning"):
        dglcell.train("quickstart", **{key: given})


def test_the_table_of_a_training_is_read_by_columns(folder: Path, predictor: dglcell.Predictor, tmp_path: Path) -> None:
    genes = predictor.cell.genes.names[:40]
    frame = pd.DataFrame({"KO": genes, "fitness": np.linspace(0.1, 1.0, len(genes))})
    path = tmp_path / "own.csv"
    frame.to_csv(path, index=False)
    source = ["data.store=null", "data.source.name=csv", f"data.source.csv.path={path}", "data.source.csv.genes=[KO]"]
    source += ["data.source.csv.phenotypes={fitness: fitness}", "split.subset=null", f"paths.data={tmp_path}"]
    run = dglcell.train("quickstart", "experiment.name=own", *source, epochs=1, baselines=False)
    assert run.predict(frame).columns.tolist() == ["KO", "fitness", "predicted_fitness", "predicted_by", "unknown"]
    assert dglcell.evaluate(run, frame).n.tolist() == [len(genes)]

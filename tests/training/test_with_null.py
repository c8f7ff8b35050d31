"""Null models in place of a run's own: chosen on the validation part, fitted again, named in the output."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dglcell
from dglcell.baselines.fit import ALL_NULL_MODELS
from dglcell.cli import main
from dglcell.errors import CheckpointError, ConfigError
from dglcell.metrics import ResultRow
from dglcell.runs.directory import RunDirectory
from dglcell.training.checkpoint import load_trained
from dglcell.training.with_null import compare, null_model_name, predicting_with

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def row(model: str, part: str, pearson: float, *, is_null: bool = True) -> ResultRow:
    """Of one phenotype."""
    return ResultRow(model, part, "fitness", {"pearson": pearson, "n": 30}, is_null)


@pytest.fixture
def run(tiny_run: RunDirectory, tmp_path: Path) -> RunDirectory:
    """A copy of the tiny run, to be changed."""
    return RunDirectory(Path(shutil.copytree(tiny_run.path, tmp_path / "run")))


def give_score(run: RunDirectory, model: str, part: str, pearson: float) -> None:
    """Change the table of a run."""
    results = json.loads(run.results.read_text())
    for found in results["rows"]:
        if (found["model"], found["part"]) == (model, part):
            found["metrics"]["pearson"] = pearson
    run.results.write_text(json.dumps(results))


def test_only_the_validation_part_chooses() -> None:
    rows = [
        row("own", "validation", 0.8, is_null=False),
        row("multiplicative", "validation", 0.7),
        row("additive ridge", "validation", 0.6),
        row("own", "test", 0.1, is_null=False),
        row("additive ridge", "test", 0.99),
    ]
    found = compare(rows)["fitness"]
    assert (found.null_model, found.is_beaten, found.n) == ("multiplicative", False, 30)
    better = compare([*rows, row("kernel ridge", "validation", 0.81)])["fitness"]
    assert better.is_beaten
    assert str(better) == "Pearson 0.810 against 0.800 on the validation part, 30 strains"
    close = compare([*rows, row("kernel ridge", "validation", 0.80004)])["fitness"]
    assert str(close) == "Pearson 0.80004 against 0.80000 on the validation part, 30 strains"


def test_a_model_without_a_score_is_beaten_and_a_control_never_wins() -> None:
    rows = [row("own", "validation", np.nan, is_null=False), row("training mean", "validation", np.nan)]
    assert compare(rows) == {}
    rows += [row("without messages", "validation", 0.9), row("multiplicative", "validation", 0.2)]
    assert compare(rows)["fitness"].null_model == "multiplicative"
    assert compare(rows)["fitness"].is_beaten


@pytest.mark.parametrize("name", ALL_NULL_MODELS)
@pytest.mark.parametrize("write", [str.title, lambda name: name.replace(" ", "-"), lambda name: name.replace(" ", "_")])
def test_names_may_be_written_as_a_shell_likes_them(name: str, write: Callable[[str], str]) -> None:
    assert null_model_name(write(name)) == name


def test_the_best_null_model_predicts_what_it_was_evaluated_with(
    run: RunDirectory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    give_score(run, "multiplicative", "validation", 0.9999)
    strains, output = tmp_path / "strains.csv", tmp_path / "out.csv"
    strains.write_text("gene_1,gene_2\nb0008,b2464\nb0727,\n")
    with caplog.at_level("INFO", "dglcell"):
        assert main(["predict", str(run.path), str(strains), "--with", "best", "-o", str(output)]) == 0
    assert "the null model 'multiplicative' predicts fitness instead of 'hetero_cell'" in caplog.text
    assert "fitted again to 240 training strains in" in caplog.text
    found = list(csv.DictReader(output.open()))
    assert list(found[0]) == ["gene_1", "gene_2", "model_fitness", "predicted_fitness"]
    assert {line["model_fitness"] for line in found} == {"multiplicative"}
    # The table of results has what the same null model reaches on the test part.
    tested = pd.read_csv(run.predictions("test"))
    predictor = dglcell.load(run.path, predict_with="multiplicative")
    again = predictor.predict(tested[["genes"]])
    expected = {r["model"]: r for r in json.loads(run.results.read_text())["rows"] if r["part"] == "test"}
    error = np.abs(again.predicted_fitness - tested.measured_fitness).mean()
    assert error == pytest.approx(expected["multiplicative"]["metrics"]["mae"], rel=1e-4)
    assert (
        dglcell.evaluate(predictor, tested.rename(columns={"measured_fitness": "fitness"})).model[0] == "multiplicative"
    )


def test_the_model_predicts_where_no_null_model_is_better(run: RunDirectory, tmp_path: Path) -> None:
    give_score(run, "hetero_cell", "validation", 1.0)
    best, own = (dglcell.load(run.path, predict_with=name).predict([["b0008"]]) for name in ("best", "model"))
    assert best.model_fitness[0] == "hetero_cell"
    assert best.predicted_fitness[0] == own.predicted_fitness[0]
    assert "model_fitness" not in own


def test_designs_are_predicted_by_null_models_and_say_so(run: RunDirectory, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    output, genes = tmp_path / "next.parquet", tmp_path / "genes.txt"
    genes.write_text("b0008\nb0727\nb2464\n")
    command = ["predict", str(run.path), "--all-pairs", "--genes", str(genes), "-o", str(output)]
    assert main([*command, "--with", "additive-ridge", "--top", "2"]) == 0
    found = pd.read_parquet(output)
    assert set(found.model_fitness) == {"additive ridge"}
    pairs = found[["gene_1", "gene_2"]].to_numpy().tolist()
    expected = dglcell.load(run.path, predict_with="additive ridge").predict(pairs)
    np.testing.assert_allclose(found.predicted_fitness, expected.predicted_fitness, rtol=1e-6)


def test_what_cannot_be_fitted_again_is_refused(run: RunDirectory, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean kernel-ridge"):
        dglcell.load(run.path, predict_with="kernel-rigde")
    with pytest.raises(ConfigError, match=r"'product of curves' does not apply[\s\S]*needs strains with strengths"):
        dglcell.load(run.path, predict_with="product of curves")
    trained = load_trained(run)
    moved = replace(trained.config, data=replace(trained.config.data, store=str(tmp_path / "gone")))
    with pytest.raises(CheckpointError, match="'multiplicative' cannot be fitted again: the store") as error:
        predicting_with("multiplicative", replace(trained, config=moved), run.path)
    assert "leave out `--with`" in str(error.value)
    with pytest.raises(CheckpointError, match="comes without its strains"):
        dglcell.load("ecoli-core", predict_with="multiplicative")


def test_a_table_that_has_the_column_is_refused(
    tiny_run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    strains = tmp_path / "strains.csv"
    strains.write_text("genes,model_fitness\nb0008,mine\n")
    assert main(["predict", str(tiny_run.path), str(strains), "--with", "additive-ridge"]) == 2
    assert "column 'model_fitness' is there already" in capsys.readouterr().err

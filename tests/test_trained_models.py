"""Trained models by name: what is shipped is right, and what is unknown, damaged or another file is refused."""

from __future__ import annotations

import json
import shlex
import shutil
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dglcell
from dglcell.cli import main
from dglcell.config.read import experiment_file, load_config
from dglcell.data.config import INTERVAL_COVERAGE
from dglcell.errors import CheckpointError, GraphError
from dglcell.files.atomic import sha256_file
from dglcell.metrics import rows_of
from dglcell.prediction.export import export
from dglcell.report.run_files import read_predictions, read_run, result_rows
from dglcell.runs import RunDirectory
from dglcell.trained_models import PACKAGED, find_run, list_models, read_card
from dglcell.training.prepare import open_store
from dglcell.uncertainty import interval_columns
from tests.prediction.test_export import ABOUT

NAMES = sorted(path.parent.name for path in PACKAGED.glob("*/card.json"))


@pytest.mark.parametrize("name", NAMES)
def test_other_names_of_genes_are_known(name: str) -> None:
    model = dglcell.load(name)
    written = model.predict([["pgi"], [" Pgi ", "PFKA"], ["aceB", "b2465"], ["TKTB"]], unknown="empty")
    systematic = model.predict([["b4025"], ["b4025", "b3916"], ["b4014", "b2465"], ["b2465"]])
    assert written.unknown.tolist() == [""] * 4
    assert written.predicted_fitness.tolist() == systematic.predicted_fitness.tolist()
    assert model.cell.genes.standard("b4025") == "pgi"
    if name == "ecoli":  # UniProt, Entrez and the metabolic model's own identifier of one gene
        assert model.predict([["P06996"], ["946716"], ["b2215"]])["predicted_fitness"].nunique() == 1


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in which cell graphs are built once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def surroundings(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DGLCELL_CACHE", str(shared))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DGLCELL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def exported(tiny_run: RunDirectory, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(tiny_run.path, tmp_path_factory.mktemp("exported") / "tiny", ABOUT)


@pytest.fixture
def shelf(exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with the model `tiny` alone."""
    shutil.copytree(exported, tmp_path / "shelf" / "tiny")
    monkeypatch.chdir(tmp_path / "shelf")
    return tmp_path / "shelf"


class TestShipped:
    def test_there_are_models_and_they_are_small(self) -> None:
        assert {"ecoli", "ecoli-core"} <= set(NAMES)
        # As a wheel has them, which is compressed.
        assert sum(len(zlib.compress(path.read_bytes())) for path in PACKAGED.rglob("*") if path.is_file()) < 1_300_000

    @pytest.mark.parametrize("name", NAMES)
    def test_the_weights_give_the_scores_of_the_card(self, name: str) -> None:
        model, card = dglcell.load(name), read_card(PACKAGED / name)
        table = pd.read_csv(PACKAGED / name / "predictions_test.csv")
        chosen = np.arange(0, len(table), 1 + len(table) // 500)
        predicted = model.predict(table[["genes"]].iloc[chosen], interval=INTERVAL_COVERAGE)
        for phenotype, kept in read_predictions(RunDirectory(PACKAGED / name), "test").items():
            (row,) = (row for row in result_rows(card.rows) if row.phenotype == phenotype and not row.is_baseline)
            (found,) = rows_of(row.model, phenotype, None, {"test": kept.predicted}, {"test": kept.measured})
            assert found.metrics == pytest.approx({score: row.metrics[score] for score in found.metrics}, abs=1e-4)
            again = predicted[f"predicted_{phenotype}"].to_numpy()
            np.testing.assert_allclose(again, kept.predicted[chosen], atol=1e-4)
            low, high = (predicted[column].to_numpy() for column in interval_columns(phenotype))
            inside = (low <= kept.measured[chosen]) & (kept.measured[chosen] <= high)
            assert np.mean(inside) == pytest.approx(row.metrics["covered"], abs=0.1)
            assert any(row.is_baseline for row in result_rows(card.rows) if row.phenotype == phenotype)

    @pytest.mark.parametrize("name", NAMES)
    def test_no_state_of_the_training_and_no_path_of_its_machine_is_shipped(self, name: str) -> None:
        folder = RunDirectory(PACKAGED / name)
        (checkpoint,) = folder.checkpoints.iterdir()
        with zipfile.ZipFile(checkpoint) as file:
            content = file.read(next(part for part in file.namelist() if part.endswith("data.pkl")))
        assert b"optimizer_states" not in content
        texts = [path.read_text() for path in (folder.config, folder.card, folder.environment, folder.results)]
        assert not [text for text in texts if "/tmp" in text or "/home" in text or "/root" in text]

    @pytest.mark.slow
    @pytest.mark.parametrize("name", NAMES)
    def test_data_of_the_card_can_be_computed(self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        experiment = shlex.split(read_card(PACKAGED / name).command)[2]
        store = open_store(load_config(experiment_file(experiment)), "tests")
        assert store.sha256 == read_card(PACKAGED / name).hashes["store"]


def test_the_cell_graph_is_built_once_and_kept(cache: Path) -> None:
    first = dglcell.load_cell("ecoli-core")
    (kept,) = (cache / "cells").iterdir()
    assert kept.name == first.sha256 == read_card(PACKAGED / "ecoli-core").hashes["cell"]
    (kept / "edges.npz").write_bytes(b"PK")
    assert dglcell.load_cell("ecoli-core").sha256 == first.sha256


def test_another_metabolic_model_is_refused(shelf: Path) -> None:
    card = json.loads((shelf / "tiny" / "card.json").read_text())
    card["hashes"]["cell"] = "0" * 64
    (shelf / "tiny" / "card.json").write_text(json.dumps(card))
    with pytest.raises(GraphError, match=r"cannot be built here\n  got: +cell .{12}\n  expected: cell 0{12}\n  do: "):
        dglcell.load("tiny")


class TestNames:
    def test_what_is_there_comes_before_a_model_of_the_package(self, shelf: Path) -> None:
        assert find_run("ecoli") == list_models()["ecoli"] == PACKAGED / "ecoli"
        shutil.copytree("tiny", "ecoli")
        assert find_run("ecoli") == Path("ecoli")

    @pytest.mark.parametrize(
        "arguments",
        [
            ["predict", "ecoli-cor", "genotypes.csv"],
            ["evaluate", "ecoli-cor"],
            ["report", "ecoli-cor"],
            ["models", "ecoli-cor"],
        ],
    )
    def test_an_unknown_name_is_answered_with_a_suggestion(
        self, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert main(arguments) == 2
        assert capsys.readouterr().err == (
            "error: run directory 'ecoli-cor' not found, and no trained model is called so\n"
            "  expected: a run directory, or one of ecoli, ecoli-core\n"
            "  do:       did you mean ecoli-core?\n"
        )
        assert not list(tmp_path.iterdir())


class TestDamage:
    def test_weights_that_were_changed_are_refused(self, shelf: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (weights,) = (shelf / "tiny" / "checkpoints").iterdir()
        content = bytearray(weights.read_bytes())
        content[len(content) // 2] ^= 1
        right = sha256_file(weights)
        weights.write_bytes(content)
        Path("genotypes.csv").write_text("genes\nb0008\n")
        assert main(["predict", "tiny", "genotypes.csv", "-o", "out.csv"]) == 2
        said = capsys.readouterr().err
        assert f"error: '{weights.relative_to(shelf)}' is not the file that the card of the model names\n" in said
        assert f"  got:      sha256 {sha256_file(weights)}\n  expected: sha256 {right}\n  do:       copy" in said
        assert not Path("out.csv").exists()
        weights.unlink()
        with pytest.raises(CheckpointError, match=r"is not the file that .*\n  got:      no such file"):
            find_run(shelf / "tiny")

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda card: "{", r"card.json' is damaged\n  got:      no JSON"),
            (lambda card: "{}", r"card.json' is damaged: `description` is missing"),
            (lambda card: card["files"].update({"../secret.csv": "0" * 64}), "is damaged: `files` is wrong"),
            (lambda card: card["files"].clear(), "is damaged: `files` is wrong"),
            (lambda card: card["files"].pop("config.yaml") and None, "is damaged: `files` is wrong"),
            (lambda card: card["files"].pop("split.npz") and None, "split.npz' is not on the card of the model"),
        ],
    )
    def test_a_card_names_all_files_of_a_run_and_no_others(
        self, change: Callable[[dict[str, Any]], str | None], message: str, shelf: Path
    ) -> None:
        card = json.loads((shelf / "tiny" / "card.json").read_text())
        (shelf / "tiny" / "card.json").write_text(change(card) or json.dumps(card))
        with pytest.raises(CheckpointError, match=message):
            find_run("tiny")

    def test_a_run_is_no_trained_model(self, tiny_run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["models", str(tiny_run.path)]) == 2
        assert f"error: '{tiny_run.path}' is no trained model\n  expected: a folder with card.json\n" in (
            capsys.readouterr().err
        )


def test_verbs_of_runs_take_a_name(shelf: Path, tiny_run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "describe", "tiny"]) == 0
    assert "gene          137" in capsys.readouterr().out
    assert main(["report", "tiny"]) == 2
    assert "nothing is written into the trained model" in capsys.readouterr().err
    assert main(["report", "tiny", "-o", "page.html"]) == 0
    assert Path("page.html").stat().st_size > 10_000
    assert main(["evaluate", "tiny"]) == 2  # of a store that is not here
    assert "of this run is not here" in capsys.readouterr().err
    assert dglcell.load("tiny").results.equals(dglcell.load(tiny_run.path).results)
    assert read_run(shelf / "tiny").rows


def test_a_card_is_shown_with_scores_of_baselines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "ecoli-core"]) == 0
    said = capsys.readouterr().out
    card = read_card(PACKAGED / "ecoli-core")
    for text in (card.organism, card.licence, card.command, *card.limits, *card.hashes.values(), "kernel ridge"):
        assert text in said or text == card.hashes["gene_vocabulary"]
    assert said.endswith("Predict with `dglcell predict ecoli-core genotypes.csv`.\n")

"""A finished run as a trained model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import dglcell
from dglcell.cli import main
from dglcell.config.experiment import CellConfig
from dglcell.errors import CheckpointError, ConfigError
from dglcell.prediction.export import export, is_shipped
from dglcell.runs import RunDirectory
from dglcell.trained_models import read_card
from dglcell.training.predicting import WAYS
from tests.tiny import Tiny

ABOUT = {"organism": "E. coli", "licence": "MIT", "limits": ["It is tiny."], "description": "Growth."}


def files(folder: Path) -> dict[str, bytes]:
    """Path inside a folder → content."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_it_has_what_predicts_and_nothing_of_the_machine(
    tiny_run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DGLCELL_CACHE", str(tmp_path / "cache"))
    before = files(tiny_run.path)
    model = RunDirectory(export(tiny_run.path, tmp_path / "model", ABOUT))
    assert files(tiny_run.path) == before
    assert not model.cell.exists()  # cobra ships it, and maybe without names
    assert "adhE,b1241\n" in model.names.read_text()
    (path,) = model.checkpoints.iterdir()
    content = torch.load(path, weights_only=True)
    assert set(content) == {"dglcell", "epoch", "global_step", "state_dict"}
    assert str(tmp_path.parent) not in model.config.read_text() + content["dglcell"]["config"]
    for way in WAYS:
        whole, exported = (dglcell.load(path, predict_with=way) for path in (tiny_run.path, model.path))
        assert exported.predict([["b0008"], ["b0114", "b0115"]]).equals(whole.predict([["b0008"], ["b0114", "b0115"]]))
    card, environment = read_card(model.path), json.loads(tiny_run.environment.read_text())
    assert (card.organism, card.licence, card.limits, card.description) == tuple(ABOUT.values())
    assert (card.hashes, card.strains) == (environment["hashes"], environment["strains"])
    assert card.rows == [row for row in json.loads(tiny_run.results.read_text())["rows"] if row["part"] == "test"]
    assert card.files.keys() == files(model.path).keys() - {"card.json"}


def test_a_new_version_keeps_what_the_card_of_the_old_one_said(tiny_run: RunDirectory, tmp_path: Path) -> None:
    export(tiny_run.path, tmp_path / "model", ABOUT)
    before = files(tmp_path / "model")
    export(tiny_run.path, tmp_path / "model", {})
    assert files(tmp_path / "model") == before
    export(tiny_run.path, tmp_path / "model", {"licence": "CC0"})
    assert read_card(tmp_path / "model").licence == "CC0"


def test_a_cell_graph_with_other_files_goes_with_the_model() -> None:
    assert is_shipped(CellConfig(model="textbook", derived=["isoenzyme"]))
    assert not is_shipped(CellConfig(model="yeast-GEM_9.0.2"))
    assert not is_shipped(CellConfig(model="textbook", genes="genes.txt"))
    assert not is_shipped(CellConfig(model="textbook", aliases="names.csv"))


def test_such_a_model_predicts(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("genes.txt").write_text("".join(f"{name}\n" for name in dglcell.load_cell("quickstart").genes.names))
    run = tiny.train(tmp_path / "runs", "cell.genes=genes.txt", "trainer.epochs=1").directory
    export(run.path, model := tmp_path / "model", ABOUT)
    Path("genes.txt").unlink()
    assert (model / "cell" / "edges.npz").is_file()
    assert dglcell.load(model).predict([["b0008"]]).predicted_fitness.notna().all()


def test_what_cannot_be_a_model_is_refused(
    tiny_run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        export(tiny_run.path, tmp_path / "model", {"organism": "E. coli", "description": "Growth."})
    assert str(caught.value) == (
        "the card of the model is not complete\n"
        "  got:      no licence and no limits\n"
        "  expected: what a user has to know before the first prediction\n"
        "  do:       give --licence TEXT and --limit TEXT"
    )
    with pytest.raises(CheckpointError, match=r"run directory '.*' not found"):
        export(tmp_path / "no", tmp_path / "model", ABOUT)
    for name in ("-model", ".model", "a b"):
        with pytest.raises(ConfigError, match="this is no name of a model"):
            export(tiny_run.path, tmp_path / name, ABOUT)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("mine")
    words = ["models", str(tiny_run.path), "-o", str(tmp_path / "thesis"), "--organism", "E. coli", "--licence", "MIT"]
    for more, said in (
        ([], "exists already; nothing was written"),
        (["--overwrite"], "is there, and is no trained model"),
    ):
        assert main([*words, "--limit", "It is tiny.", *more]) == 2
        assert f"error: '{tmp_path}/thesis' {said}\n" in capsys.readouterr().err
    assert files(tmp_path) == {"thesis/chapter.txt": b"mine"}

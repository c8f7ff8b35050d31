"""The first strains of a design, by each ranking."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import dglcell
from dglcell.cli import main
from dglcell.errors import ConfigError
from dglcell.prediction import predict as module
from dglcell.prediction.design import Design
from dglcell.prediction.predict import predict_design, wild_type_of
from dglcell.prediction.ranking import Ranking
from dglcell.runs.directory import RunDirectory
from dglcell.training.checkpoint import Trained, load_trained


@pytest.fixture(scope="module")
def seeds(tiny_run: RunDirectory, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of an experiment with two runs, of which the second predicts on a wider scale."""
    runs = tmp_path_factory.mktemp("seeds")
    for seed in ("seed-0", "seed-1"):
        shutil.copytree(tiny_run.path, runs / seed)
    path = RunDirectory(runs / "seed-1").checkpoint("best_loss")
    content = torch.load(path, weights_only=True)
    content["state_dict"]["normaliser.scale"] *= 1.5
    torch.save(content, path)
    return runs


def predicted(run: Path, out: Path, *more: str) -> pa.Table:
    """Return what `predict` writes for a design."""
    assert main(["predict", str(run), "--all-pairs", "--limit", "60", "-o", str(out), *more]) == 0
    return pq.read_table(out)


@pytest.fixture(scope="module")
def whole(seeds: Path, tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    """Return the predictions of both runs for the whole design."""
    return predicted(seeds, tmp_path_factory.mktemp("whole") / "whole.parquet")


@pytest.mark.parametrize(
    ("by", "key"),
    [
        ("effect", lambda table: np.abs(table["predicted_fitness"].to_numpy() - 0.7)),
        ("uncertain", lambda table: table["sd_fitness"].to_numpy()),
    ],
)
def test_the_first_rows_are_those_of_the_whole_design(whole: pa.Table, by: str, key: Callable[..., np.ndarray]) -> None:
    found = Ranking(by, 7, "fitness", 0.7).first(whole)
    assert found.to_pylist() == whole.take(np.argsort(-key(whole), kind="stable")[:7]).to_pylist()


def test_a_ranking_is_written_with_standard_names(
    seeds: Path, whole: pa.Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert whole.column_names == ["gene_1", "gene_2", "predicted_by", "predicted_fitness", "sd_fitness"]
    found = predicted(seeds, tmp_path / "top.parquet", "--top", "7", "--by", "uncertain")
    assert f"the first 7 of 60 predictions written to {tmp_path / 'top.parquet'}" in capsys.readouterr().out
    assert found.column_names[2:4] == ["name_1", "name_2"]
    genes = load_trained(RunDirectory(seeds / "seed-0")).cell.genes
    assert found["name_1"].to_pylist() == [genes.standard(gene) for gene in found["gene_1"].to_pylist()]
    expected = Ranking("uncertain", 7, "fitness").first(whole)
    assert found.drop_columns(["name_1", "name_2"]).to_pylist() == expected.to_pylist()
    about = json.loads(found.schema.metadata[b"dglcell"])
    assert (about["by"], about["top"], about["phenotype"]) == ("uncertain", 7, "fitness")
    assert len(about["checkpoint_sha256"]) == 2
    capsys.readouterr()
    assert main(["predict", str(seeds), "--all-pairs", "--limit", "60", "--top", "7", "--by", "uncertain"]) == 0
    printed = capsys.readouterr()
    header, *rows = map(str.split, printed.out.splitlines())
    assert header[:4] == found.column_names[:4]
    assert [row[:2] for row in rows] == [[row["gene_1"], row["gene_2"]] for row in found.to_pylist()]
    assert "the first 7 of 60 predictions" in printed.err


def test_the_first_of_all_parts_are_those_of_one(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranking, design = Ranking.of("effect", 9, None, [trained]), Design.of(range(12), 2)
    for name, size in (("many.parquet", 10), ("one.parquet", 1000)):
        monkeypatch.setattr(module, "PART_STRAINS", size)
        predict_design([trained], design, tmp_path / name, batch_size=5, ranking=ranking, report=lambda _: None)
    many, one = pq.read_table(tmp_path / "many.parquet"), pq.read_table(tmp_path / "one.parquet")
    assert len(many) == 9
    assert many.to_pylist() == one.to_pylist()


def test_effects_are_distances_from_the_wild_type(trained: Trained, tiny_run: RunDirectory, tmp_path: Path) -> None:
    found = predicted(tiny_run.path, tmp_path / "top.parquet", "--top", "60", "--with", "network")
    wild_type = float(
        dglcell.load(tiny_run.path, predict_with="network").predict([{"b0008": 1}]).predicted_fitness.iloc[0]
    )
    away = np.abs(found["predicted_fitness"].to_numpy() - wild_type)
    assert (np.diff(away) <= 0).all()
    assert wild_type_of([trained], Design.of(range(12), 2), "fitness") == pytest.approx(wild_type)


def test_what_cannot_be_ranked_is_refused(trained: Trained) -> None:
    with pytest.raises(ConfigError, match=r"`--by uncertain` requires several seeds or intervals\n  got: +one run"):
        Ranking.of("uncertain", 1, None, [trained])
    with pytest.raises(ConfigError, match=r"ranked by one phenotype\n  got: +growth\n  expected: fitness"):
        Ranking.of("effect", 1, "growth", [trained])
    two = dataclasses.replace(trained, phenotypes=("fitness", "growth"))
    with pytest.raises(ConfigError, match=r"got: +a model of 2\n  expected: fitness or growth\n  do: +name one"):
        Ranking.of("effect", 1, None, [two])

"""Predictions of whole designs: the strains of itertools, the numbers of the table, continued after a kill."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import dglcell
from dglcell import api
from dglcell.cli import main
from dglcell.errors import ConfigError
from dglcell.models.cell_model import HeteroCell
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.prediction import predict as module
from dglcell.prediction.design import Design
from dglcell.prediction.predict import Ranking, predict_design
from dglcell.runs.directory import RunDirectory
from dglcell.training.checkpoint import Trained, load_trained
from tests.tiny import Tiny, seeing_covariates


@pytest.fixture(scope="module")
def set_run(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Return a set operator trained on the tiny experiment."""
    more = ("model={name: set_operator, hidden: 8, layers: 1}", "trainer.epochs=1")
    return tiny.train(tmp_path_factory.mktemp("set"), *more).directory


@pytest.fixture
def genes(trained: Trained, tmp_path: Path) -> list[str]:
    """Return a list of nine genes, not in the order of the vocabulary, in the file ``genes.txt``."""
    names = [trained.cell.genes.names[i] for i in (5, 3, 90, 11, 30, 2, 60, 7, 1)]
    (tmp_path / "genes.txt").write_text("\n".join(names))
    return names


def by_table(run: RunDirectory, folder: Path, strains: list[tuple[str, ...]], *more: str) -> np.ndarray:
    """Return predictions of the same strains from a CSV."""
    (folder / "in.csv").write_text("\n".join(["genes", *map(";".join, strains)]) + "\n")
    output = ["-o", str(folder / "table.parquet")]
    assert main(["predict", str(run.path), str(folder / "in.csv"), *output, *more]) == 0
    found = pq.read_table(folder / "table.parquet")
    assert found["genes"].to_pylist() == [";".join(strain) for strain in strains]
    return found["predicted_fitness"].to_numpy()


def rows_of(path: Path) -> list[tuple[str, ...]]:
    """Return the genes of every row."""
    table = pq.read_table(path)
    columns = [name for name in table.column_names if name.startswith("gene_")]
    return list(zip(*(table[name].to_pylist() for name in columns), strict=True))


@pytest.mark.parametrize(("model", "size"), [("hetero_cell", 2), ("hetero_cell", 3), ("set_operator", 2)])
def test_a_design_is_predicted_as_a_table_would_be(
    model: str,
    size: int,
    tiny_run: RunDirectory,
    set_run: RunDirectory,
    genes: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = tiny_run if model == "hetero_cell" else set_run
    out = tmp_path / "out.parquet"
    option = "--all-pairs" if size == 2 else "--all-triples"
    arguments = ["--genes", str(tmp_path / "genes.txt"), "-o", str(out), "--batch-size", "11"]
    assert main(["predict", str(run.path), option, *arguments]) == 0
    strains = list(itertools.combinations(genes, size))
    printed = capsys.readouterr().out
    assert f"{len(strains)} of {len(strains)} strains" in printed
    assert "strains/s" in printed
    assert f"{len(strains)} predictions written to {out}" in printed
    assert rows_of(out) == strains
    found = pq.read_table(out)
    np.testing.assert_allclose(found["predicted_fitness"].to_numpy(), by_table(run, tmp_path, strains), rtol=1e-5)
    assert found.schema.types == [*([pa.dictionary(pa.int32(), pa.string())] * (size + 1)), pa.float32()]
    about = json.loads(found.schema.metadata[b"dglcell"])
    assert (about["genes"], about["deletions"], about["stop"]) == (9, size, len(strains))
    assert [len(sha256) for sha256 in about["checkpoint_sha256"]] == [64]


def test_differences_in_bfloat16_predict_nearly_the_same(
    tiny_run: RunDirectory, set_run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    design = ["--all-pairs", "--limit", "60", "--with", "network", "--precision"]
    found = []
    for precision in ("32-true", "bf16"):
        out = tmp_path / f"{precision}.parquet"
        assert main(["predict", str(tiny_run.path), *design, precision, "-o", str(out)]) == 0
        found.append(pq.read_table(out)["predicted_fitness"].to_numpy())
    assert 0 < np.abs(found[1] - found[0]).max() < 0.02 * np.ptp(found[0])
    assert main(["predict", str(set_run.path), *design, "bf16", "-o", str(tmp_path / "out.csv")]) == 2
    assert "got:      --precision bf16 and a model `set_operator`\n  do:       leave" in capsys.readouterr().err


def test_a_batch_that_memory_does_not_hold_is_halved(
    tiny_run: RunDirectory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    member = load_trained(tiny_run)
    rows = Design.of(range(12), 2).strains(0, 66, member.cell.genes.names)
    sizes, forward = list[int](), member.model.forward
    expected = module.predict_rows([member], rows, batch_size=66)

    def small_memory(batch: GenotypeBatch) -> Any:
        sizes.append(batch.num_strains)
        if batch.num_strains > 20:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")
        return forward(batch)

    monkeypatch.setattr(member.model, "forward", small_memory)
    found = module.predict_rows([member], rows, batch_size=60)
    assert sizes == [60, 30, 15, 15, 15, 15, 6]
    assert "memory is not enough for 60 strains at once; 30 are tried" in caplog.text
    for name, column in expected.items():
        np.testing.assert_allclose(found[name], column, rtol=1e-5, atol=1e-6)


def test_without_a_list_all_genes_of_the_model_are_meant(set_run: RunDirectory, tmp_path: Path) -> None:
    names = [name for name in load_trained(set_run).cell.genes.names if name != "s0001"]  # which is no gene
    arguments = ["predict", str(set_run.path), "--all-pairs", "--start", "100", "--limit", "50", "-o"]
    assert main([*arguments, str(tmp_path / "out.parquet")]) == 0
    strains = list(itertools.combinations(names, 2))[100:150]
    assert rows_of(tmp_path / "out.parquet") == strains
    assert main([*arguments, str(tmp_path / "out.csv")]) == 0
    rows = list(csv.DictReader((tmp_path / "out.csv").open(newline="")))
    assert [(row["gene_1"], row["gene_2"]) for row in rows] == strains
    written = pq.read_table(tmp_path / "out.parquet")["predicted_fitness"].to_pylist()
    assert [row["predicted_fitness"] for row in rows] == [f"{value:.6g}" for value in written]


def test_parts_make_the_same_file_and_row_groups_of_their_size(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    design, told, ranking = (
        Design.of(range(12), 3),
        list[str](),
        Ranking.of([trained], Design.of(range(12), 3), "effect", 9),
    )
    predict_design([trained], design, tmp_path / "b.parquet", batch_size=20, report=told.append)
    of_one, of_many = tmp_path / "of_one.parquet", tmp_path / "of_many.parquet"
    predict_design([trained], design, of_one, batch_size=20, ranking=ranking, report=lambda _: None)
    monkeypatch.setattr(module, "PART_STRAINS", 60)
    predict_design([trained], design, tmp_path / "a.parquet", batch_size=20, report=told.append)
    predict_design([trained], design, of_many, batch_size=20, ranking=ranking, report=lambda _: None)
    assert pq.read_table(of_many).to_pylist() == pq.read_table(of_one).to_pylist()
    assert pq.read_table(tmp_path / "a.parquet").equals(pq.read_table(tmp_path / "b.parquet"), check_metadata=True)
    assert [line.split(",")[0] for line in told] == [f"{n} of 220 strains" for n in (220, 60, 120, 180, 220)]
    with pq.ParquetFile(tmp_path / "a.parquet") as file:
        assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [60, 60, 60, 40]
        assert "RLE_DICTIONARY" in file.metadata.row_group(0).column(0).encodings
        assert "RLE_DICTIONARY" not in file.metadata.row_group(0).column(4).encodings


@pytest.mark.parametrize("size", [2, 3])
def test_what_strains_share_is_computed_once_and_changes_no_prediction(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    config = dataclasses.replace(trained.config.model, strategy="difference")
    monkeypatch.setattr(trained.model, "config", config)
    design, batches = Design.of(range(12), size), list[tuple[int, ...]]()
    watched = trained.model.register_forward_pre_hook(lambda _, given: batches.append(given[0].shared))
    alone, together = tmp_path / "alone.parquet", tmp_path / "together.parquet"
    predict_design([trained], design, alone, batch_size=8, report=lambda _: None)
    assert not any(batches)
    batches.clear()
    predict_design([trained], design, together, batch_size=8, worth_sharing=5, report=lambda _: None)
    watched.remove()
    assert {len(shared) for shared in batches} == set(range(size))
    assert rows_of(alone) == rows_of(together)
    found, expected = (pq.read_table(path)["predicted_fitness"].to_numpy() for path in (together, alone))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def of_genes(run: RunDirectory, folder: Path, out: str, *more: str) -> int:
    """Predict a design of the nine genes."""
    genes = ["--genes", str(folder / "genes.txt"), "-o", str(folder / out)]
    return main(["predict", str(run.path), *genes, "--with", "network", *more])


def test_a_design_of_weakened_genes_is_predicted_as_a_table_would_be(
    tiny_run: RunDirectory, genes: list[str], tmp_path: Path
) -> None:
    design = ("--all-pairs", "--activity", "0,0.25,2")
    assert of_genes(tiny_run, tmp_path, "out.csv", *design) == 0
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["gene_1", "gene_2", "activity_1", "activity_2", "predicted_by", "predicted_fitness"]
    left = list(itertools.product(("0", "0.25", "2"), repeat=2))
    assert [(row["activity_1"], row["activity_2"]) for row in rows] == left * 36
    strains = [tuple(f"{row[f'gene_{k}']}:{float(row[f'activity_{k}'])}" for k in (1, 2)) for row in rows]
    found = [float(row["predicted_fitness"]) for row in rows]
    np.testing.assert_allclose(found, by_table(tiny_run, tmp_path, strains, "--with", "network"), rtol=2e-5)
    assert of_genes(tiny_run, tmp_path, "plain.parquet", "--all-pairs") == 0
    plain = pq.read_table(tmp_path / "plain.parquet")["predicted_fitness"].to_numpy()
    np.testing.assert_allclose(found[::9], plain, rtol=2e-5)


def test_a_model_that_knows_deletions_only_refuses_before_anything_is_written(
    tiny_run: RunDirectory,
    genes: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(model: object, genotypes: GenotypeBatch) -> None:
        genotypes.refuse_activities("this model", "another")

    monkeypatch.setattr(HeteroCell, "forward", refuse)
    (tmp_path / "in.csv").write_text("genes\nb0008:0.5\n")
    for arguments in (["--all-singles", "--activity", "0.5", "--batch-size", "4"], [str(tmp_path / "in.csv")]):
        output = ["-o", str(tmp_path / "out.csv"), "--with", "network"]
        assert main(["predict", str(tiny_run.path), *arguments, *output]) == 2
        assert "activities cannot be expressed by this model" in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path)) == ["genes.txt", "in.csv"]


def test_all_strains_have_the_covariates_that_are_given(
    tiny_run: RunDirectory, genes: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    design = ("--all-pairs", "--covariate", "medium=glycerol", "--covariate", "temperature=30")
    assert of_genes(tiny_run, tmp_path, "out.parquet", *design) == 2
    monkeypatch.setattr(api, "load_trained", lambda *of: seeing_covariates(load_trained(*of)))
    assert of_genes(tiny_run, tmp_path, "out.parquet", *design) == 0
    found = pq.read_table(tmp_path / "out.parquet")
    assert found.column_names[2:5] == ["covariate_medium", "covariate_temperature", "predicted_by"]
    assert found.to_pylist()[35]["covariate_medium"] == "glycerol"
    about = json.loads(found.schema.metadata[b"dglcell"])
    assert about["covariates"] == {"medium": "glycerol", "temperature": 30}


def test_a_slow_model_has_small_parts(trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART_SECONDS", 0.0)
    told: list[str] = []
    predict_design([trained], Design.of(range(6), 2), tmp_path / "a.parquet", batch_size=4, report=told.append)
    assert [line.split(",")[0] for line in told] == [f"{n} of 15 strains" for n in (4, 8, 12, 15)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "what shall be predicted?\n  got:      nothing\n  expected: a CSV, or --all-singles, --all-pairs or"),
        (["x.csv", "--all-pairs"], "what shall be predicted?\n  got:      x.csv and --all-pairs\n"),
        (["--all-pairs", "--all-triples"], "got:      --all-pairs and --all-triples\n"),
        (["--all-pairs", "--by", "effect"], "how many strains of the ranking are wanted?\n  expected: --top N"),
        (["x.csv", "--activity", "0.5"], "this is a table\n  got:      --activity\n"),
        (["x.csv", "--covariate", "a=1", "--covariate", "a=2"], "gives a covariate twice\n  got:      a, a"),
        (["x.csv", "--top", "3"], "this is a table\n  got:      --top\n"),
        (
            ["x.csv", "--limit", "3", "--genes", "g"],
            "some options are of designs, and this is a table\n  got:      --genes, --limit\n  do:       leave",
        ),
        (["x.csv", "-o", "o.txt"], "'o.txt': the suffix does not say which format is wanted\n  got:      .txt\n"),
        (["x.csv", "-o", "out"], "got:      no suffix\n  expected: .csv or .parquet\n"),
        (["--all-pairs", "--top", "3", "-o", "out"], "got:      no suffix\n  expected: .csv or .parquet\n"),
        (["--all-pairs", "-o", "o.txt"], "expected: .csv or .parquet, or no suffix for a folder of Parquet files\n"),
    ],
)
def test_wrong_options(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    output = [] if "-o" in arguments else ["-o", "out.csv"]
    assert main(["predict", str(tmp_path), *arguments, *output]) == 2
    assert message in capsys.readouterr().err


def test_parquet_without_pyarrow(
    tiny_run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "in.csv").write_text("genes\nb0008\n")
    for arguments in (
        [str(tmp_path / "in.csv"), "-o", str(tmp_path / "x.parquet")],
        ["--all-pairs", "-o", str(tmp_path / "x.csv")],
    ):
        assert main(["predict", str(tiny_run.path), *arguments]) == 2
        error = capsys.readouterr().err
        assert "a Parquet file needs the package 'pyarrow'\n  do:       pip install" in error
    assert os.listdir(tmp_path) == ["in.csv"]
    assert main(["predict", str(tiny_run.path), str(tmp_path / "in.csv"), "-o", str(tmp_path / "out.csv")]) == 0


def test_a_table_to_parquet(tiny_run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "in.csv", tmp_path / "out.parquet"
    source.write_text("note,gene_1,gene_2\nä,b0008, b0114 \n,b0115,\n")
    assert main(["predict", str(tiny_run.path), str(source), "-o", str(target)]) == 0
    table = pq.read_table(target)
    assert table.column_names == ["note", "gene_1", "gene_2", "predicted_by", "predicted_fitness"]
    assert table["note"].to_pylist() == ["ä", ""]
    assert table["gene_2"].to_pylist() == ["b0114", None]
    assert pa.types.is_dictionary(table.schema.field("gene_1").type)
    source.write_text("x,x,genes\n1,2,b0008\n")
    assert main(["predict", str(tiny_run.path), str(source), "-o", str(target), "--overwrite"]) == 2
    assert "two columns are called 'x'\n  do:       give every column a name of its own" in capsys.readouterr().err
    assert len(pq.read_table(target)) == 2


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


def test_effects_are_distances_from_the_wild_type(trained: Trained, tiny_run: RunDirectory, tmp_path: Path) -> None:
    found = predicted(tiny_run.path, tmp_path / "top.parquet", "--top", "60", "--with", "network")
    wild_type = float(
        dglcell.load(tiny_run.path, predict_with="network").predict([{"b0008": 1}]).predicted_fitness.iloc[0]
    )
    away = np.abs(found["predicted_fitness"].to_numpy() - wild_type)
    assert (np.diff(away) <= 0).all()
    assert Ranking.of([trained], Design.of(range(12), 2), "effect", 1).wild_type == pytest.approx(wild_type)


def test_what_cannot_be_ranked_is_refused(trained: Trained) -> None:
    two, design = dataclasses.replace(trained, phenotypes=("fitness", "growth")), Design.of(range(12), 2)
    for member, by, phenotype, message in (
        (trained, "uncertain", None, r"`--by uncertain` requires several seeds or intervals\n  got: +one run"),
        (trained, "effect", "growth", r"ranked by one phenotype\n  got: +growth\n  expected: fitness"),
        (two, "effect", None, r"got: +a model of 2\n  expected: fitness or growth\n  do: +name one"),
    ):
        with pytest.raises(ConfigError, match=message):
            Ranking.of([member], design, by, 1, phenotype)

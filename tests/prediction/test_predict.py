"""Predictions of whole designs: the strains of itertools, the numbers of the table, continued after a kill."""

from __future__ import annotations

import contextlib
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
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import dglcell
from dglcell import api
from dglcell.errors import ConfigError, DataError
from dglcell.models.cell_model import HeteroCell
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.prediction import predict as module
from dglcell.prediction.design import Design
from dglcell.prediction.predict import Intervals, Ranking, predict_design
from dglcell.runs import RunDirectory
from dglcell.training.checkpoint import Trained, load_trained
from tests.forked import Forked
from tests.prediction.conftest import Predict, rows_of
from tests.tiny import Tiny, process_environment, seeing_covariates


@pytest.fixture(scope="module")
def set_run(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Return a set operator trained on the tiny experiment."""
    more = ("model={name: set_operator, hidden: 8, layers: 1}", "trainer.epochs=1")
    return tiny.train(tmp_path_factory.mktemp("set"), *more).directory


@pytest.fixture
def genes(trained: Trained, predict: Predict) -> list[str]:
    """Return a list of nine genes, not in the order of the vocabulary, in the file ``genes.txt``."""
    names = [trained.cell.genes.names[i] for i in (5, 3, 90, 11, 30, 2, 60, 7, 1)]
    Path("genes.txt").write_text("\n".join(names))
    return names


def by_table(predict: Predict, strains: list[tuple[str, ...]], *more: str, run: Path | None = None) -> np.ndarray:
    """Return predictions of the same strains from a CSV."""
    Path("in.csv").write_text("\n".join(["genes", *map(";".join, strains)]) + "\n")
    predict("in.csv", "-o", "table.parquet", *more, run=run)
    found = pq.read_table("table.parquet")
    assert found["genes"].to_pylist() == [";".join(strain) for strain in strains]
    return found["predicted_fitness"].to_numpy()


def genes_of(table: pa.Table) -> list[tuple[str, ...]]:
    """Return the genes of every row."""
    columns = [name for name in table.column_names if name.startswith("gene_")]
    return list(zip(*(table[name].to_pylist() for name in columns), strict=True))


@pytest.mark.parametrize(("model", "size"), [("hetero_cell", 2), ("hetero_cell", 3), ("set_operator", 2)])
def test_a_design_is_predicted_as_a_table_would_be(
    model: str, size: int, predict: Predict, set_run: RunDirectory, genes: list[str]
) -> None:
    run = predict.run if model == "hetero_cell" else set_run.path
    option, strains = ("--all-pairs", "--all-triples")[size - 2], list(itertools.combinations(genes, size))
    printed = predict(option, "--genes", "genes.txt", "-o", "out.parquet", "--batch-size", "11", run=run)
    assert f"{len(strains)} of {len(strains)} strains" in printed
    assert "strains/s" in printed
    assert f"{len(strains)} predictions written to out.parquet" in printed
    found = pq.read_table("out.parquet")
    assert genes_of(found) == strains
    np.testing.assert_allclose(found["predicted_fitness"].to_numpy(), by_table(predict, strains, run=run), rtol=1e-5)
    assert found.schema.types == [*([pa.dictionary(pa.int32(), pa.string())] * (size + 1)), pa.float32()]
    about = json.loads(found.schema.metadata[b"dglcell"])
    assert (about["genes"], about["deletions"], about["stop"]) == (9, size, len(strains))
    assert [len(sha256) for sha256 in about["checkpoint_sha256"]] == [64]


def test_differences_in_bfloat16_predict_nearly_the_same(predict: Predict, set_run: RunDirectory) -> None:
    design = ["--all-pairs", "--limit", "60", "--with", "network", "--precision"]
    whole, half = (
        predict.design(f"{precision}.parquet", *design, precision)["predicted_fitness"].to_numpy()
        for precision in ("32-true", "bf16")
    )
    assert 0 < np.abs(half - whole).max() < 0.02 * np.ptp(whole)
    said = predict(*design, "bf16", "-o", "out.csv", run=set_run.path, status=2)
    assert "got:      --precision bf16 and a model `set_operator`\n  do:       leave" in said


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


def test_without_a_list_all_genes_of_the_model_are_meant(predict: Predict, trained: Trained) -> None:
    names = [name for name in trained.cell.genes.names if name != "s0001"]  # which is no gene
    design = ("--all-pairs", "--start", "100", "--limit", "50")
    found, strains = predict.design("out.parquet", *design), list(itertools.combinations(names, 2))[100:150]
    assert genes_of(found) == strains
    predict(*design, "-o", "out.csv")
    rows = rows_of("out.csv")
    assert [(row["gene_1"], row["gene_2"]) for row in rows] == strains
    written = [f"{value:.6g}" for value in found["predicted_fitness"].to_pylist()]
    assert [row["predicted_fitness"] for row in rows] == written


def test_parts_make_the_same_file_and_row_groups_of_their_size(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    design, told = Design.of(range(12), 3), list[str]()
    ranking = Ranking.of([trained], design, "effect", 9)

    def write(name: str, ranking: Ranking | None = None) -> pa.Table:
        out = tmp_path / name
        predict_design([trained], design, out, batch_size=20, ranking=ranking, report=told.append)
        return pq.read_table(out)

    whole, first = write("b.parquet"), write("of_one.parquet", ranking)
    monkeypatch.setattr(module, "PART_STRAINS", 60)
    assert write("a.parquet").equals(whole, check_metadata=True)
    assert write("of_many.parquet", ranking).to_pylist() == first.to_pylist()
    with pq.ParquetFile(tmp_path / "a.parquet") as file:
        assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [60, 60, 60, 40]
        assert "RLE_DICTIONARY" in file.metadata.row_group(0).column(0).encodings
        assert "RLE_DICTIONARY" not in file.metadata.row_group(0).column(4).encodings
    parts = [220, 220, *[60, 120, 180, 220] * 2]
    assert [line.split(",")[0] for line in told] == [f"{n} of 220 strains" for n in parts]


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
    first, second = map(pq.read_table, (alone, together))
    assert genes_of(first) == genes_of(second)
    np.testing.assert_allclose(*(table["predicted_fitness"].to_numpy() for table in (second, first)), rtol=1e-5)


def test_a_design_of_weakened_genes_is_predicted_as_a_table_would_be(predict: Predict, genes: list[str]) -> None:
    design = ("--all-pairs", "--with", "network", "--genes", "genes.txt")
    predict(*design, "--activity", "0,0.25,2", "-o", "out.csv")
    rows = rows_of("out.csv")
    assert list(rows[0]) == ["gene_1", "gene_2", "activity_1", "activity_2", "predicted_by", "predicted_fitness"]
    left = list(itertools.product(("0", "0.25", "2"), repeat=2))
    assert [(row["activity_1"], row["activity_2"]) for row in rows] == left * 36
    strains = [tuple(f"{row[f'gene_{k}']}:{float(row[f'activity_{k}'])}" for k in (1, 2)) for row in rows]
    found = [float(row["predicted_fitness"]) for row in rows]
    np.testing.assert_allclose(found, by_table(predict, strains, "--with", "network"), rtol=2e-5)
    plain = predict.design("plain.parquet", *design)["predicted_fitness"].to_numpy()
    np.testing.assert_allclose(found[::9], plain, rtol=2e-5)


def test_a_model_that_knows_deletions_only_refuses_before_anything_is_written(
    predict: Predict, genes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(model: object, genotypes: GenotypeBatch) -> None:
        genotypes.refuse_activities("this model", "another")

    monkeypatch.setattr(HeteroCell, "forward", refuse)
    Path("in.csv").write_text("genes\nb0008:0.5\n")
    for arguments in (["--all-singles", "--activity", "0.5", "--batch-size", "4"], ["in.csv"]):
        said = predict(*arguments, "-o", "out.csv", "--with", "network", status=2)
        assert "activities cannot be expressed by this model" in said
    assert sorted(os.listdir()) == ["genes.txt", "in.csv"]


def test_all_strains_have_the_covariates_that_are_given(
    predict: Predict, genes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    design = ("--all-pairs", "--with", "network", "--covariate", "medium=glycerol", "--covariate", "temperature=30")
    predict(*design, "-o", "out.parquet", status=2)
    monkeypatch.setattr(api, "load_trained", lambda *of: seeing_covariates(load_trained(*of)))
    found = predict.design("out.parquet", *design)
    assert found.column_names[2:5] == ["covariate_medium", "covariate_temperature", "predicted_by"]
    assert found.to_pylist()[35]["covariate_medium"] == "glycerol"
    about = json.loads(found.schema.metadata[b"dglcell"])
    assert about["covariates"] == {"medium": "glycerol", "temperature": 30}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "what shall be predicted?\n  got:      nothing\n  expected: a CSV, or --all-singles, --all-pairs or"),
        (["x.csv", "--all-pairs"], "what shall be predicted?\n  got:      x.csv and --all-pairs\n"),
        (["--all-pairs", "--all-triples"], "got:      --all-pairs and --all-triples\n"),
        (["--all-pairs", "--by", "effect"], "how many strains of the ranking are wanted?\n  expected: --top N"),
        (["x.csv", "--activity", "0.5"], "this is a table\n  got:      --activity\n"),
        (["x.csv", "--covariate", "a=1", "--covariate", "a=2"], "gives a covariate twice\n  got:      a, a"),
        (["x.csv", "--limit", "3", "--genes", "g"], "this is a table\n  got:      --genes, --limit\n  do:       leave"),
        (["x.csv", "-o", "o.txt"], "'o.txt': the suffix does not say which format is wanted\n  got:      .txt\n"),
        (["--all-pairs", "--top", "3", "-o", "out"], "got:      no suffix\n  expected: .csv or .parquet\n"),
        (["--all-pairs", "-o", "o.txt"], "expected: .csv or .parquet, or no suffix for a folder of Parquet files\n"),
    ],
)
def test_wrong_options(arguments: list[str], message: str, predict: Predict) -> None:
    output = [] if "-o" in arguments else ["-o", "out.csv"]
    assert message in predict(*arguments, *output, run=Path(), status=2)


def test_parquet_without_pyarrow(predict: Predict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    Path("in.csv").write_text("genes\nb0008\n")
    for arguments in (["in.csv", "-o", "x.parquet"], ["--all-pairs", "-o", "x.csv"]):
        said = predict(*arguments, status=2)
        assert "a Parquet file needs the package 'pyarrow'\n  do:       pip install" in said
    assert os.listdir() == ["in.csv"]
    predict("in.csv", "-o", "out.csv")


def test_a_table_to_parquet(predict: Predict) -> None:
    Path("in.csv").write_text("note,gene_1,gene_2\nä,b0008, b0114 \n,b0115,\n")
    predict("in.csv", "-o", "out.parquet")
    table = pq.read_table("out.parquet")
    assert table.column_names == ["note", "gene_1", "gene_2", "predicted_by", "predicted_fitness"]
    assert table["note"].to_pylist() == ["ä", ""]
    assert table["gene_2"].to_pylist() == ["b0114", None]
    assert pa.types.is_dictionary(table.schema.field("gene_1").type)
    Path("in.csv").write_text("x,x,genes\n1,2,b0008\n")
    said = predict("in.csv", "-o", "out.parquet", "--overwrite", status=2)
    assert "two columns are called 'x'\n  do:       give every column a name of its own" in said
    assert len(pq.read_table("out.parquet")) == 2


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


PAIRS = ("--all-pairs", "--limit", "60")
KEYS: dict[str, Callable[[pa.Table], np.ndarray]] = {
    "effect": lambda table: np.abs(table["predicted_fitness"].to_numpy() - 0.7),
    "uncertain": lambda table: table["sd_fitness"].to_numpy(),
}


def test_a_ranking_has_the_first_rows_of_the_whole_design_with_standard_names(
    predict: Predict, seeds: Path, trained: Trained
) -> None:
    whole = predict.design("whole.parquet", *PAIRS, run=seeds)
    assert whole.column_names == ["gene_1", "gene_2", "predicted_by", "predicted_fitness", "sd_fitness"]
    first = {by: whole.take(np.argsort(-key(whole), kind="stable")[:7]).to_pylist() for by, key in KEYS.items()}
    for by, expected in first.items():
        assert Ranking(by, 7, "fitness", 0.7).first(whole).to_pylist() == expected
    wanted = (*PAIRS, "--top", "7", "--by", "uncertain")
    assert "the first 7 of 60 predictions written to top.parquet" in predict(*wanted, "-o", "top.parquet", run=seeds)
    found = pq.read_table("top.parquet")
    assert found.column_names[2:4] == ["name_1", "name_2"]
    genes = trained.cell.genes
    assert found["name_1"].to_pylist() == [genes.standard(gene) for gene in found["gene_1"].to_pylist()]
    assert found.drop_columns(["name_1", "name_2"]).to_pylist() == first["uncertain"]
    about = json.loads(found.schema.metadata[b"dglcell"])
    assert (about["by"], about["top"], about["phenotype"]) == ("uncertain", 7, "fitness")
    assert len(about["checkpoint_sha256"]) == 2
    header, *rows = map(str.split, predict(*wanted, run=seeds).splitlines())
    assert header[:4] == found.column_names[:4]
    assert [row[:2] for row in rows[:7]] == [[row["gene_1"], row["gene_2"]] for row in found.to_pylist()]


def test_effects_are_distances_from_the_wild_type(trained: Trained, predict: Predict) -> None:
    found = predict.design("top.parquet", *PAIRS, "--top", "60", "--with", "network")
    network = dglcell.load(predict.run, predict_with="network")
    wild_type = float(network.predict([{"b0008": 1}]).predicted_fitness.iloc[0])
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


def test_a_ranking_by_uncertainty_needs_strains_that_differ_in_it(
    tiny_run: RunDirectory, seeds: Path, caplog: pytest.LogCaptureFixture
) -> None:
    design, one = Design.of(range(12), 2), dglcell.load(tiny_run.path).members
    several, same = (dglcell.load(seeds, predict_with=way).members for way in ("network", "baseline"))
    intervals = Intervals.of(one, 0.8)  # of 30 validation strains
    for members, given, said in (
        (several, None, ""),
        (same, None, "all seeds predict by the same baseline"),
        (one, intervals, "intervals are equally wide"),
    ):
        caplog.clear()
        Ranking.of(members, design, "uncertain", 1, intervals=given)
        assert (f"all strains are equally uncertain, and their order says nothing: {said}" in caplog.text) == bool(said)
    (calibrated,) = intervals.calibration.phenotypes.values()
    of_class = {"fitness": dataclasses.replace(calibrated, kind="classification")}
    classes = Intervals(dataclasses.replace(intervals.calibration, phenotypes=of_class), 0.8)
    with pytest.raises(ConfigError, match=r"got: +one run\n.*which classes do not have"):
        Ranking.of(one, design, "uncertain", 1, intervals=classes)


# Folders of parts: continued where they stopped, by one process or several.


RECORD = "_predictions.json"
DESIGN = Design.of(range(9), 2)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten strains a part, so that the design of 36 pairs has four."""
    monkeypatch.setattr(module, "PART_STRAINS", 10)


def parts_of(trained: Trained, out: Path, design: Design = DESIGN, stop_after: int = sys.maxsize) -> list[str]:
    """Return what is told of an output, at most so many lines of it: then the prediction is interrupted."""
    told: list[str] = []

    def report(line: str) -> None:
        told.append(line.split(",")[0])
        if len(told) == stop_after:
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        predict_design([trained], design, out, batch_size=5, report=report)
    return told


def lines(*done: int) -> list[str]:
    """Return what is told of parts."""
    return [f"{number} of 36 strains" for number in done]


@pytest.mark.usefixtures("small_parts")
def test_a_folder_is_a_table_for_others(predict: Predict, trained: Trained) -> None:
    Path("genes.txt").write_text("\n".join(trained.cell.genes.names[:9]))
    for _ in range(2):
        predict("--all-pairs", "--genes", "genes.txt", "--with", "network", "--batch-size", "5", "-o", "out")
    assert sorted(os.listdir("out")) == [RECORD, *(f"part-0000{n}.parquet" for n in range(4))]
    assert parts_of(trained, Path("out.parquet")) == lines(10, 20, 30, 36)
    folder, file = map(pd.read_parquet, ("out", "out.parquet"))
    texts = {"gene_1": str, "gene_2": str}
    assert folder.astype(texts).equals(file.astype(texts))


@pytest.mark.usefixtures("small_parts")
def test_what_is_missing_is_predicted(trained: Trained, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert parts_of(trained, out) == lines(10, 20, 30, 36)
    whole = pq.read_table(out)
    (out / "part-00001.parquet").unlink()
    assert parts_of(trained, out) == [f"continuing after 26 of 36 strains in {out}", *lines(36)]
    assert pq.read_table(out).equals(whole)
    assert parts_of(trained, out) == [f"{out} is complete already"]


@pytest.mark.usefixtures("small_parts")
def test_a_file_that_is_interrupted_is_not_there(trained: Trained, tmp_path: Path) -> None:
    parts_of(trained, tmp_path / "out.parquet", stop_after=3)
    assert os.listdir(tmp_path) == []


@pytest.mark.usefixtures("small_parts")
def test_parts_that_do_not_fit_together_are_refused(run: RunDirectory, trained: Trained, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").write_text("years of work")
    with pytest.raises(DataError, match=f"is in the way: it holds no {RECORD}\n.*choose another output"):
        parts_of(trained, out)
    assert os.listdir(out) == ["thesis.tex"]
    (out / "thesis.tex").unlink()
    parts_of(trained, out, stop_after=3)
    with open(run.checkpoint("best_loss"), "ab") as file:
        file.write(b"\0")
    other = Design.of(range(1, 10), 2)
    sha256 = [design.describe()["design_sha256"][:12] for design in (other, DESIGN)]
    record, part = out / RECORD, out / "part-00001.parquet"
    written = record.read_text()

    def refused(message: str, member: Trained = trained, design: Design = DESIGN) -> None:
        with pytest.raises(DataError) as error:
            parts_of(member, out, design)
        assert message in str(error.value)

    refused(
        f"'{out}' holds parts of other predictions: design_sha256 differ\n"
        f"  got:      design_sha256 {sha256[0]}\n  expected: design_sha256 {sha256[1]}\n"
        "  do:       remove the folder to begin anew",
        design=other,
    )
    refused("stop differ\n", design=Design.of(range(9), 2, 0, 35))
    copy = shutil.copytree(out, tmp_path / "copy")
    predict_design([trained], other, copy, overwrite=True, report=lambda _: None)
    assert pq.read_table(copy)["gene_1"][0].as_py() == trained.cell.genes.names[1]
    assert parts_of(trained, copy, other) == [f"{copy} is complete already"]
    (tmp_path / "file").write_text("years of work")
    with pytest.raises(DataError, match=r"'.*file' is in the way"):
        predict_design([trained], other, tmp_path / "file", overwrite=True)
    refused("other predictions: checkpoint_sha256 differ\n", load_trained(run))
    for torn, differ in (("{", "checkpoint_sha256, cell"), (written.replace('part": 10', 'part": -1'), "rows_of")):
        record.write_text(torn)
        refused(f"other predictions: {differ}")
    record.write_text(written)
    os.truncate(part, 100)
    refused(f"'{part}' is damaged\n  got:      Parquet magic bytes not found")
    part.unlink()
    assert parts_of(trained, out)[1:] == lines(30, 36)
    assert len(pq.read_table(out)) == 36


# Several processes.


@pytest.fixture
def triples(predict: Predict) -> list[str]:
    """Return the options for 20 triples of six genes, which one process has written to ``one.parquet``."""
    Path("genes.txt").write_text("\n".join(["b0008", "b0114", "b0116", "b0118", "b0351", "b2464"]))
    words = ["--all-triples", "--genes", "genes.txt", "--batch-size", "3", "--threads", "1"]
    predict(*words, "-o", "one.parquet")
    return [*words, "-o"]


def check_same() -> None:
    """Check that the parts of several processes are what one has written."""
    found, expected = map(pq.read_table, ("out", "one.parquet"))
    assert found.drop(["predicted_fitness"]).to_pylist() == expected.drop(["predicted_fitness"]).to_pylist()
    values = [table["predicted_fitness"].to_numpy() for table in (found, expected)]
    np.testing.assert_allclose(*values, rtol=1e-4)


@pytest.mark.usefixtures("small_parts")
def test_processes_in_turn_write_what_one_does_and_fewer_go_on(
    predict: Predict, triples: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def as_rank(rank: int, size: int, *words: str, status: int = 0) -> str:
        for name, value in (("RANK", rank), ("WORLD_SIZE", size)):
            monkeypatch.setenv(name, str(value))
        return predict(*words, status=status)

    for rank in (2, 0, 0):  # the last one is started again, and has nothing left to do
        assert f"process {rank + 1} of 3: its share is finished" in as_rank(rank, 3, *triples, "out")
    said = as_rank(0, 1, *triples, "out")
    assert "continuing after 14 of 20 strains in out" in said
    assert "20 predictions written to out" in said
    check_same()
    for other in (["in.csv"], [*triples, "two.parquet"]):
        refused = as_rank(0, 2, *other, status=2)
        assert "several processes share no table or file, but a folder of parts\n" in refused


@pytest.mark.usefixtures("small_parts")
def test_two_processes_at_once(predict: Predict, triples: list[str]) -> None:
    words = ["predict", str(predict.run), *triples, "out"]
    environments = [process_environment(SLURM_PROCID=str(rank), SLURM_STEP_NUM_TASKS="2") for rank in range(2)]
    processes = [Forked(words, environment, Path.cwd()) for environment in environments]
    said = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    check_same()

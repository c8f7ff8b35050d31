"""Genotypes in, the same rows out: in order, in original units, or refused by line."""

from __future__ import annotations

import csv
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dglcell.data.sources.config import CsvConfig
from dglcell.errors import DataError, GenotypeError
from dglcell.graph.vocabulary import Vocabulary
from dglcell.prediction.columns import GenotypeColumns
from dglcell.prediction.predict import batches
from dglcell.prediction.table import prediction_columns, write_table
from dglcell.training.checkpoint import Trained
from tests.prediction.conftest import Predict, rows_of


def test_seeds_of_a_folder_have_a_column_of_their_spread(predict: Predict, tmp_path: Path) -> None:
    for seed in ("seed-0", "seed-1"):
        shutil.copytree(predict.run, tmp_path / "runs" / seed)
    text, more = "gene_1,gene_2\nb0008,b2464\nnope,b0008\n", ("--unknown", "empty", "--with", "network")
    found = predict.table(text, *more, run=tmp_path / "runs")
    assert list(found[0]) == ["gene_1", "gene_2", "predicted_by", "predicted_fitness", "sd_fitness"]
    assert (found[0]["sd_fitness"], found[1]["predicted_fitness"], found[1]["sd_fitness"]) == ("0", "", "")
    for column in ("sd_fitness", "predicted_by"):
        Path("in.csv").write_text(f"{column},gene_1\n1,b0008\n")
        said = predict("in.csv", "-o", "no.csv", run=tmp_path / "runs", status=2)
        assert f"column '{column}' is there already" in said
    assert not Path("no.csv").exists()


def test_rows_columns_and_order_are_kept(predict: Predict) -> None:
    text = 'note,genes,value\n"a, quoted ""x""",b0008;b0114,1.50\nä,b0114;b0008,\n,b0008;b0114,1e5\nlast, b0115 ,0\n'
    rows = predict.table(text)
    assert list(rows[0]) == ["note", "genes", "value", "predicted_by", "predicted_fitness"]
    assert [row["note"] for row in rows] == ['a, quoted "x"', "ä", "", "last"]
    assert [row["genes"] for row in rows] == ["b0008;b0114", "b0114;b0008", "b0008;b0114", " b0115 "]
    assert [row["value"] for row in rows] == ["1.50", "", "1e5", "0"]
    values = [float(row["predicted_fitness"]) for row in rows]
    assert values[0] == values[2] == pytest.approx(values[1], rel=1e-4)
    assert values[3] != values[0]
    assert b"\r" not in Path("out.csv").read_bytes()


def test_a_cell_knows_other_names_and_spellings_of_its_genes(predict: Predict) -> None:
    found = predict.table("genes,note\nADHE ; b0008,x\nB 0008,y\n")
    same = predict.table("genes\nb1241;b0008\nb0008\n")
    assert [row["genes"] for row in found] == ["ADHE ; b0008", "B 0008"]
    assert [row["systematic_names"] for row in found] == ["b1241;b0008", "b0008"]
    assert [row["predicted_fitness"] for row in found] == [row["predicted_fitness"] for row in same]
    assert "systematic_names" not in same[0]


def test_rows_with_unknown_genes_may_stay_empty(predict: Predict) -> None:
    Path("in.csv").write_text("genes\nb0008\nb9999;b0008\nb0115\n")  # neither the store nor the metabolic model is here
    more = ("--unknown", "empty", "--threads", "1", "--checkpoint", "last")
    said = predict("in.csv", "-o", "out.csv", *more)
    assert "3 predictions written to out.csv; 1 is empty, because the model lacks a gene" in said
    assert [row["predicted_fitness"] == "" for row in rows_of("out.csv")] == [False, True, False]
    assert predict.table("genes\nb9999\n", "--unknown", "empty")[0]["predicted_fitness"] == ""


def test_without_an_output_predictions_are_printed(predict: Predict) -> None:
    kept = predict.table("genes\nb0008\n")
    *printed, said = predict("in.csv").splitlines()
    assert (list(csv.DictReader(printed)), said) == (kept, "1 prediction")
    assert predict("--threads", "1", "in.csv").splitlines() == [*printed, said]
    assert "got:      in.csv and --all-pairs" in predict("--all-pairs", "in.csv", status=2)
    assert predict.table("gene\nb0008\n")[0]["predicted_fitness"] == kept[0]["predicted_fitness"]
    assert "where shall the predictions go?" in predict("--all-pairs", status=2)


@pytest.mark.parametrize("scale", [1e-24, 1.0, 1e20, 2e38])
def test_means_and_spreads_keep_the_range_of_the_predictions(scale: float) -> None:
    three = np.array([1.0, 1.5, 0.5], dtype=np.float32).reshape(3, 1, 1) * np.float32(scale)
    columns = prediction_columns(["p"], three)
    assert columns["predicted_p"] == pytest.approx([scale], rel=1e-6)
    assert columns["sd_p"] == pytest.approx([scale / 2], rel=1e-6)


def test_six_figures_of_a_prediction_are_written(tmp_path: Path) -> None:
    values = np.array([1e6 + 0.0625, 0.1, 1 / 3, -1e-7, np.nan], np.float32)
    write_table(tmp_path / "out.csv", pd.DataFrame({"genes": ["A"] * 5, "predicted_p": values}))
    assert [row["predicted_p"] for row in rows_of(str(tmp_path / "out.csv"))] == [
        "1e+06",
        "0.1",
        "0.333333",
        "-1e-07",
        "",
    ]


# Genes, activities and covariates.


SEEN: dict[str, tuple[str, ...]] = {"medium": ("glucose", "glycerol"), "temperature": ()}
PLAIN, LEARNT = GenotypeColumns(), GenotypeColumns(learnt=True)
TRAINED = GenotypeColumns(csv=CsvConfig(genes=["query", "array"], activities=["left", "left_2"]))
NUMBERED = GenotypeColumns(csv=CsvConfig(genes=["gene_1", "gene_2"], activities=["activity_1", "activity_2"]))
SEEING = GenotypeColumns(csv=CsvConfig(covariates={"medium": "agar"}), seen=SEEN)
ALIASED = GenotypeColumns(
    aliases=Vocabulary.of_aliases({"adhE": ("b1241",), "b0008": ("b0114",), "two": ("b0114", "b0115")})
)
PAIR = [["b0008", "b0114"], ["b0115"]]


@pytest.mark.parametrize(
    ("text", "columns", "genotypes", "activities"),
    [
        ("gene_10, gene_2,id,gene_1\nb0114,b0008,7,\n,,8,b0115\n", PLAIN, PAIR, None),
        ("id,query,array\nx,b0008,b0114\ny,b0115,\n", GenotypeColumns(["query", "array"]), PAIR, None),
        ("id,query,array\nx,b0008,b0114\ny,b0115,\n", TRAINED, PAIR, None),
        ("gene,gene_2\nb0008,b0114\nb0115,\n", GenotypeColumns(csv=CsvConfig(genes=["gene", "gene_2"])), PAIR, None),
        ("genes\nb0008:0.3;b0114\nb0115\n", PLAIN, PAIR, [0.3, 0, 0]),
        ("genes,activities\nb0008;b0114,0.3\nb0115,\n", PLAIN, PAIR, [0.3, 0, 0]),
        ("gene_2,activity_1,gene_1,activity_2\nb0114,0.3,b0008,\n,0,b0115,\n", PLAIN, PAIR, [0.3, 0, 0]),
        ("query,left,array,left_2\nb0008,0.3,b0114,0\nb0115,,,\n", TRAINED, PAIR, [0.3, 0, 0]),
        ("gene_1,gene_3,activity_1,activity_3\nb0008,b0114,0.3,\nb0115,,,\n", NUMBERED, PAIR, [0.3, 0, 0]),
        ("gene_1;activity_1\nb0008;0,3\n", PLAIN, [["b0008"]], [0.3]),
        ("gene_1;activity_1\nb0008:0,3;\n", PLAIN, [["b0008"]], [0.3]),
        ("gene_1;activity_1\nb0008;30\n", PLAIN, [["b0008"]], [30]),
        ("genes\nb0008:0;b0114\n", PLAIN, PAIR[:1], None),
        ("genes\nb0008:0;b0114\n", LEARNT, PAIR[:1], [0, 0]),
        ("genes\nadhE;b0008\n", ALIASED, [["b1241", "b0008"]], None),
        ("agar,temperature\nglucose,30\n", SEEING, [[]], None),
    ],
)
def test_genes_and_activities_of_tables(
    trained: Trained, tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, columns: GenotypeColumns,
    genotypes: list[list[str]], activities: list[float] | None,
) -> None:  # fmt: skip
    (tmp_path / "in.csv").write_text(text)
    found = columns.read(tmp_path / "in.csv", trained.cell.genes).strains
    assert found.genotypes == genotypes
    left = None if activities is None else np.float32(activities).tolist()
    assert (None if found.activities is None else found.activities.tolist()) == left
    assert ("activities up to 30 look like percent" in caplog.text) == (activities == [30])


@pytest.mark.parametrize(
    "header", ["genes,agar,temperature", "genes,medium,covariate_temperature", "genes, covariate_medium ,temperature"]
)
def test_covariates_are_columns_named_as_in_training_or_by_name(trained: Trained, tmp_path: Path, header: str) -> None:
    (tmp_path / "in.csv").write_text(header + "\nb0008:0.5,glycerol,30\n,glucose,37.5\nb9999, glucose,1\n")
    table = replace(SEEING, unknown="empty").read(tmp_path / "in.csv", trained.cell.genes)
    assert (table.is_known.tolist(), table.strains.genotypes) == ([True, True, False], [["b0008"], []])
    (batch,) = batches(table.strains, 5)
    assert batch.covariates is not None
    assert (batch.covariates.tolist(), batch.offsets.tolist()) == ([[1, 30], [0, 37.5]], [0, 1, 1])


def test_one_value_of_a_covariate_may_be_given_for_all_rows(trained: Trained, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("genes,medium\nb0008,glycerol\nb0114,glucose\n")
    table = SEEING.read(tmp_path / "in.csv", trained.cell.genes, {"temperature": "30,5"})
    assert table.frame.columns.tolist() == ["genes", "medium", "covariate_temperature"]
    assert table.frame.to_numpy().tolist() == [["b0008", "glycerol", "30,5"], ["b0114", "glucose", "30,5"]]
    assert table.strains.shown("temperature").tolist() == [30.5, 30.5]


MEDIUM, DEGREES = (f"covariate '{name}' has a value that the model cannot see" for name in SEEN)
ANOTHER = "a run knows only what its strains had; to predict another value, train a run on strains that have it"
WARM = {"temperature": "30"}


@pytest.mark.parametrize(
    ("text", "columns", "given", "message"),
    [
        (
            'genes,note\nb0008,ok\nb9999,x\nb0008;b0008,x\n;,x\nb0008,"two\nlines"\nB0008,x\nb9999,x\n',
            PLAIN,
            {},
            "'in.csv': 3 faults in 4 of 7 rows\n  lines 3, 9: unknown gene 'b9999' (close: CLOSE)\n"
            "  line 4: gene 'b0008' is deleted twice\n  line 5: no gene is deleted\n  do:       mend or remove them\n"
            "            in Python, `dglcell.load_cell(RUN).genes.names` lists the genes of the model",
        ),
        ("id,name\n1,b0008\n", PLAIN, {}, "no gene columns\n  got:      id, name\n  expected: either `gene_1"),
        ("genes,gene_1\nb0008,b0114\n", PLAIN, {}, "two kinds of gene columns\n  got:      genes, gene_1"),
        ("genes\nadhX\n", PLAIN, {}, "line 2: unknown gene 'adhX' (close: adh"),
        ("genes\nb0008:0.0000001\n", PLAIN, {}, "line 2: '0.0000001' is no activity of a gene, which is 0"),
        ("genes\nb1241:0.3;adhE\n", PLAIN, {}, "'b1241' is changed twice, with activities 0.3, 0 (written adh"),
        (
            "genes,activity_1\nb0008,1\n",
            PLAIN,
            {},
            "do not fit the columns of genes\n  got:      activity_1 beside genes",
        ),
        ("query,left,array\nb0008,0.3,b0114\n", TRAINED, {}, "no column 'left_2'\n  got:      query, left, array\n"),
        ("gen,activity_1\nb0008,0.3\n", SEEING, {}, "activities do not fit the columns of genes"),
        ("id,query\nx,b0008\n", GenotypeColumns(["orf"]), {}, "no column 'orf'\n  got:      id, query"),
        ("genes\ntwo\n", ALIASED, {}, "line 2: 'two' stands for several genes"),
        ("medium,temperature\nglucose,3\n", replace(TRAINED, seen=SEEN), {}, "no gene columns"),
        (
            "genes,temperatur,medium\nb0008,30,glucose\n",
            SEEING,
            {},
            "'in.csv': no column is the covariate 'temperature', which the model sees\n"
            "  got:      genes, temperatur, medium\n"
            "  expected: a column temperature or covariate_temperature with a finite number in each row\n"
            "  do:       did you mean temperatur?",
        ),
        (
            "genes,medium,temperature\nb0008,glucos,30\n,,30\nb0114,glucose,nan\nb0114,glucose,1e39\n",
            SEEING,
            {},
            f"  line 2: {MEDIUM}; got: 'glucos'; expected: one of glucose, glycerol; do: did you mean glucose?\n"
            f"  line 3: {MEDIUM}; got: ''; expected: one of glucose, glycerol\n"
            f"  line 4: {DEGREES}; got: 'nan'; expected: a finite number\n"
            f"  line 5: {DEGREES}; got: '1e39'; expected: a finite number\n"
            f"  do:       mend or remove them\n            {ANOTHER}",
        ),
        ('genes,medium,temperature\n,glucose,"1,000"\n', SEEING, {}, f"{DEGREES}; got: '1,000'; expected: a finite"),
        ("genes,medium\n,glucose\n", SEEING, WARM | {"medium": "glucose"}, "several columns are the covariate"),
        ("genes,medium\n,glucose\n", SEEING, {"dose": "1"}, "not see a covariate 'dose'\n  expected: medium (one of"),
        ("genes,medium\n,glucose\n", PLAIN, WARM, "not see a covariate 'temperature'\n  expected: none"),
        ("genes,covariate_temperature\n,3\n", SEEING, WARM, "covariate 'temperature' is given twice"),
        (
            "genes\nb0008\nb0114\n",
            SEEING,
            {"medium": "Glycerin"},
            f"{MEDIUM}\n  got:      'Glycerin'\n  expected: one of glycerol, glucose\n  do:       did you mean glyc",
        ),
        ("genes\nb0008\n", SEEING, {"medium": "LB"}, f"expected: one of glucose, glycerol\n  do:       {ANOTHER}"),
    ],
)
def test_what_cannot_be_read_is_refused(
    trained: Trained, tmp_path: Path, text: str, columns: GenotypeColumns, given: dict[str, str], message: str
) -> None:
    (tmp_path / "in.csv").write_text(text)
    with pytest.raises((DataError, GenotypeError)) as refused:
        columns.read(tmp_path / "in.csv", trained.cell.genes, given)
    close = trained.cell.genes.suggestion("b9999")
    assert message.replace(" (close: CLOSE)", close) in str(refused.value)

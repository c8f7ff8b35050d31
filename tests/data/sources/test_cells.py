"""Cells that would give other strains than are written: each is refused, with its line, its column and a remedy."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest

from dglcell.cli import main
from dglcell.data.sources import SourceConfig, load_source
from dglcell.data.sources.config import CsvConfig
from dglcell.data.table import activity_of
from dglcell.errors import DataError, GenotypeError
from dglcell.files.atomic import no_formula
from tests.data.sources.sga_tables import write_xlsx

GOOD = '<c r="B3" t="inlineStr"><is><t>b0114</t></is></c>'
FAR = "delete the rows and columns beyond the table, and save it again; or save it as CSV in UTF-8"
MEND = "write the value into every cell, split merged cells, and let the spreadsheet compute its formulas; then save"


def changed(path: Path, old: str, new: str) -> Path:
    """Write a spreadsheet of two strains, in whose sheet a text has another in its place."""
    write_xlsx(path, [["gene_1", "gene_2"], ["b0008", "b0115"], ["b0116", "b0114"]])
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name).decode() for name in file.namelist()}
    sheet = "xl/worksheets/sheet1.xml"
    assert old in members[sheet]
    members[sheet] = members[sheet].replace(old, new)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


@pytest.mark.parametrize(
    ("old", "new", "where", "do"),
    [
        (GOOD, '<c r="B3" t="e"><v>#N/A</v></c>', "line 3, column 'gene_2': the cell holds an error, #N/A", MEND),
        (GOOD, '<c r="B3"><f>A2</f></c>', "line 3, column 'gene_2': the formula of the cell has not been", MEND),
        (GOOD, '<c r="B3"><f>A2</f><v></v></c>', "line 3, column 'gene_2': the formula of the cell has not", MEND),
        (
            "</sheetData>",
            '</sheetData><mergeCells><mergeCell ref="B2:B3"/></mergeCells>',
            "line 2, column 'gene_2': cells B2:B3 are merged",
            MEND,
        ),
        (
            "</row></sheetData>",
            '<c r="XFD1048576"><v>1</v></c></row></sheetData>',
            "line 1048576: a cell far from",
            FAR,
        ),
        ('r="B3"', 'r="B99999999999999999999"', "line 99999999999999999999: a cell far from", FAR),
    ],
    ids=["#N/A", "uncomputed", "uncomputed and empty", "merged", "far", "a huge row"],
)
def test_a_spreadsheet_is_not_read_as_other_strains(
    old: str, new: str, where: str, do: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = changed(tmp_path / "strains.xlsx", old, new)
    assert main(["predict", "ecoli-core", str(path)]) == 2
    said = capsys.readouterr()
    assert f"error: 'strains.xlsx', {where}" in said.err
    assert f"\n  do:       {do}" in said.err
    assert said.out == ""


def test_computed_formulas_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = changed(tmp_path / "strains.xlsx", GOOD, '<c r="B3" t="str"><f>A2</f><v>b0008</v></c>')
    assert main(["predict", "ecoli-core", str(path)]) == 0
    assert "b0116,b0008," in capsys.readouterr().out


@pytest.mark.parametrize("text", ["1_000", "0_1", "1_0,5"])
def test_underscores_stand_in_no_activity(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(GenotypeError, match=f"an activity is no amount\n  got:      '{text}'"):
        activity_of(text)
    with pytest.raises(SystemExit):
        main(["predict", "ecoli-core", "--all-singles", "--activity", "0_1", "-o", "out.csv"])
    assert "'0_1' is not numbers such as" in capsys.readouterr().err


LOST = ["knockdown", "knockdown (%)", "Knock-down", "% KD", "KD_percent", "repression", "gene repression"]


@pytest.mark.parametrize("column", [*LOST, "Inhibition (%)", "silencing", "target_silencing"])
def test_how_much_of_a_gene_is_lost_is_no_phenotype(
    column: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"b0008,{dose},{1 - dose / 200}" for dose in (10, 30, 60, 90)]
    Path("t.csv").write_text("\n".join([f"gene_1,{column},growth", *rows, "b0114,50,0.7"]) + "\n")
    message = f"'t.csv', line 1: column '{column}' says how much of a gene is lost, and is no phenotype"
    assert main(["init", "mine", "--table", "t.csv", "--cell", "textbook"]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "do:       write what is left, e.g. 0.3 for a knockdown of 70 %, into a column `activities`" in said
    with pytest.raises(DataError, match=re.escape(message)):
        load_source(SourceConfig("csv", csv=CsvConfig("t.csv", ["gene_1"], {"x": column})))


@pytest.mark.parametrize("column", ["growth", "growth inhibition", "kda", "fitness"])
def test_other_columns_are_phenotypes(column: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"gene_1,{column}\nb0008,1.5\nb0114,2.5\n")
    strains = load_source(SourceConfig("csv", csv=CsvConfig(str(tmp_path / "t.csv"), ["gene_1"], {"x": column})))
    assert strains.phenotypes["x"].tolist() == [1.5, 2.5]


def test_texts_that_a_spreadsheet_would_compute_are_written_as_texts(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from dglcell.prediction.table import write_tables

    cells = ["+1+1", "=1+1", "-x", "@x", "b0008", "-1.5"]
    table = pa.table({"gene_1": pa.array(cells).dictionary_encode(), "n": pa.array([1.5] * 6, pa.float32())})
    write_tables(tmp_path / "out.csv", ".csv", iter([table]))
    found = [line.split(",")[0] for line in (tmp_path / "out.csv").read_text().splitlines()[1:]]
    assert found == ["'+1+1", "'=1+1", "'-x", "'@x", "b0008", "-1.5"] == [no_formula(cell) for cell in cells]

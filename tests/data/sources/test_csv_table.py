"""Tables of strains in text files: what is read, and what is refused with its line number."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dglcell.cli import main
from dglcell.data.sources import SourceConfig, list_sources, load_source
from dglcell.data.sources.config import CsvConfig
from dglcell.data.sources.text_table import read_rows
from dglcell.data.strains import Strains
from dglcell.data.table import activity_of
from dglcell.errors import ConfigError, DataError, GenotypeError
from tests.data.sources.sga_tables import write_xlsx

PAIRS = "gene_a,gene_b,score\nB,A,0.5\nA,C,-1\n"


def write(folder: Path, text: str, name: str = "t.csv") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def load_csv(config: CsvConfig) -> Strains:
    return load_source(SourceConfig("csv", csv=config))


def config(path: str, **options: Any) -> CsvConfig:
    defaults: dict[str, Any] = {"genes": ["gene_a", "gene_b"], "phenotypes": {"epsilon": "score"}}
    return CsvConfig(path=path, **{**defaults, **options})


def test_strains_keep_the_order_of_rows_and_genes(tmp_path: Path) -> None:
    table = load_csv(config(write(tmp_path, PAIRS), units={"epsilon": "1/h"}))
    assert table.genotypes == [["B", "A"], ["A", "C"]]
    assert table.phenotypes["epsilon"].tolist() == [0.5, -1.0]
    assert table.units == {"epsilon": "1/h"}
    assert table.of_kind("sd") == table.of_kind("p_value") == {}
    assert table.provenance.counts["rows"] == table.provenance.counts["strains"] == 2
    assert len(table.provenance.files["t.csv"]) == 64


@pytest.mark.parametrize(
    ("text", "options", "genotypes"),
    [
        ("gene_a, gene_b ,score\n B ,A, 0.5\nA,C,-1\n", {}, [["B", "A"], ["A", "C"]]),
        ("gene_a,gene_b,score\nA,,1\n,B,2\nA,B,3\n", {}, [["A"], ["B"], ["A", "B"]]),
        ("genes,score\nA;B;C,1\nD,2\nC; A,3\n", {"genes": ["genes"]}, [["A", "B", "C"], ["D"], ["C", "A"]]),
        ("gene_a,gene_b,score,kind\nA,B,1,di\nA,A,x,bad\n", {"where": {"kind": "di"}}, [["A", "B"]]),
        ("gene_a,gene_b,score\nHO,B,1\nA,HO,2\n", {"ignore_genes": ["HO"]}, [["B"], ["A"]]),
        (
            "gene_a,gene_b,score\nctrl,ctrl,1\ncontrol_1,B,2\nA,,3\n",
            {"ignore_genes": ["ctrl", "control_*"]},
            [[], ["B"], ["A"]],
        ),
        ("gene_a,gene_b,score\nA,B,\nA,C,1\nB,C,NaN\n", {"missing": "drop"}, [["A", "C"]]),
        (
            "gene_a,gene_b,score\nA,B,1\nA,C,N/A\nA,D,n/a\nA,E,NAN\nA,F,\nA,G,ND\n",
            {"missing": "drop", "na_values": ["ND"]},
            [["A", "B"]],
        ),
    ],
)
def test_genes_of_rows(tmp_path: Path, text: str, options: dict[str, Any], genotypes: list[list[str]]) -> None:
    table = load_csv(config(write(tmp_path, text), **options))
    assert table.genotypes == genotypes
    assert set(table.names) == {gene for strain in genotypes for gene in strain}
    counts, rows = table.provenance.counts, len(text.split()) - 1
    left_out = counts["rows_filtered_out"] + counts["rows_not_measured"]
    assert left_out == (rows - len(genotypes) if {"where", "missing"} & set(options) else 0)


def test_replicates_in_either_order_are_averaged(tmp_path: Path) -> None:
    path = write(tmp_path, "gene_a,gene_b,score,p,sd,f\nB,A,1,0.1,9,NA\nA,C,5,0.2,0.5,\nA,B,2,0.3,9,2\nB,A,6,0.1,9,\n")
    columns = {"epsilon": "score", "fitness": "f"}
    table = load_csv(config(path, phenotypes=columns, p_values={"epsilon": "p"}, sds={"epsilon": "sd"}))
    assert table.genotypes == [["B", "A"], ["A", "C"]]
    np.testing.assert_allclose(table.phenotypes["epsilon"], [3, 5])
    np.testing.assert_allclose(table.phenotypes["fitness"], [2, np.nan])
    np.testing.assert_allclose(table.of_kind("sd")["epsilon"], [np.std([1, 2, 6], ddof=1), 0.5], rtol=1e-6)
    np.testing.assert_allclose(table.of_kind("p_value")["epsilon"], [np.nan, 0.2], rtol=1e-6)
    assert table.provenance.counts["strains_with_replicates"] == 1
    assert table.provenance.counts["replicate_rows_merged"] == 2


def test_aliases_become_systematic_names(tmp_path: Path) -> None:
    aliases = write(
        tmp_path,
        "Strain\tOrf\tCommon\tAllele\nYAL001C_sn1\tYAL001C\tTFC3\ttfc3\nYBR002W_x\tYBR002W\tRER2\trer2_damp\n",
        "alias.tsv",
    )
    path = write(tmp_path, "gene_a,gene_b,score\nTFC3,rer2_damp,1\nYAL001C_sn1,UNKNOWN,2\nYBR002W,YAL001C,3\n")
    table = load_csv(config(path, aliases=aliases))
    assert table.genotypes == [["YAL001C", "YBR002W"], ["YAL001C", "UNKNOWN"]]
    assert table.phenotypes["epsilon"].tolist() == [2.0, 2.0]
    assert "alias.tsv" in table.provenance.files


def test_an_alias_of_several_genes_is_refused(tmp_path: Path) -> None:
    aliases = write(tmp_path, "systematic,name\nYAL001C,X1\nYBR002W,X1\n", "alias.csv")
    with pytest.raises(DataError, match="line 2: 'B' stands for several genes"):
        load_csv(config(write(tmp_path, PAIRS), aliases=write(tmp_path, "systematic,name\nY1,B\nY2,B\n", "a.csv")))
    assert len(load_csv(config(write(tmp_path, PAIRS), aliases=aliases))) == 2


def test_all_kinds_of_mistakes_are_said_at_once(tmp_path: Path) -> None:
    rows = "A,D,high\nB,B,1\nA,E,\n,,2\n\n\nA,F,1e300\nA,G,\nC,A,1\n"
    with pytest.raises(DataError) as error:
        load_csv(config(write(tmp_path, PAIRS + rows), replicates="refuse"))
    assert str(error.value).splitlines() == [
        "'t.csv': 6 faults in 8 of 9 rows",
        "  lines 3, 12: A, C is listed again",
        "  line 4: score 'high' is no number",
        "  line 5: gene 'B' is deleted twice",
        "  lines 6, 11: no phenotype is measured: no number in score",
        "  line 7: no gene is deleted",
        "  line 10: score '1e300' is no finite number",
        '  do:       mend the cell, or add it to `na_values` if it means "not measured"',
        "            mend the row, or set `missing: drop` to leave such rows out",
        "            remove the row, or check `genes` and `ignore_genes`",
        "            remove the row or the repeated gene; two alleles of one gene are one gene here",
        "            set `replicates: mean`",
    ]


def test_decimal_commas(tmp_path: Path) -> None:
    path = write(tmp_path, 'gene_a,gene_b,score\nA,B,"0,5"\nA,C,-1\nA,D," -2,5"\n')
    assert load_csv(config(path, decimal=",")).phenotypes["epsilon"].tolist() == [0.5, -1.0, -2.5]
    with pytest.raises(DataError, match=r"line 4: score '-2,5' has a decimal comma(.|\n)*do: +set `decimal: \",\"`"):
        load_csv(config(path))
    with pytest.raises(DataError, match=r"line 2: score '1.234,5' is no number"):
        load_csv(config(write(tmp_path, 'gene_a,gene_b,score\nA,B,"1.234,5"\n'), decimal=","))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gene_a,other,score\nA,B,1\n", r"no column 'gene_b', which `genes` asks for\n.*gene_a, other, score"),
        ("gene_a,gene_b,s\nA,B,1\n", r"no column 'score', which `phenotypes` asks for\n.*gene_a, gene_b, s"),
        ("gene_a,gene_b,Scores\nA,B,1\n", r"which `phenotypes` asks for\n.*Scores\n  do: +did you mean Scores\?"),
        ("gene_a,gene_b,score\nA,B,NA\n", "no row has a phenotype"),
        (PAIRS.replace("A", "Z"), r"no row has gene_a = A\n.*one of B, Z"),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_csv(config(write(tmp_path, text), where={"gene_a": "A"} if "Z" in text else {}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": ""}, "needs `data.source.csv.path`"),
        ({"genes": []}, "needs `data.source.csv.genes`"),
        ({"phenotypes": {}}, "needs `data.source.csv.phenotypes`"),
        ({"genes": ["a", "a"]}, "genes` lists 'a' twice"),
        ({"sds": {"fitness": "sd"}}, r"`data.source.csv.sds` names phenotypes that .* does not\n.*fitness"),
        ({"replicates": "median"}, "`data.source.csv.replicates` is unknown"),
    ],
)
def test_a_bad_configuration_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(**{"path": "t.csv", **options}).validate()


HEADER, ROWS = ["id", "the gene", "score"], [["a", "b0008;b0115", "0.5"], ["b", "b0114", "-1"]]
TEXT = "".join(",".join(row) + "\n" for row in [HEADER, *ROWS])
TITLE = ["Table S4. Fitness", "", ""]

FORMS: dict[str, tuple[str, str | bytes | list[list[str]], int]] = {
    # name: (file, content, line of the last row)
    "commas": ("t.csv", TEXT, 3),
    "tabs": ("t.tsv", TEXT.replace(",", "\t"), 3),
    "semicolons": ("t.csv", 'id;the gene;score\na;"b0008;b0115";0.5\nb;b0114;-1\n', 3),
    "packed": ("t.csv.gz", gzip.compress(TEXT.encode()), 3),
    "packed, told by its content": ("t", gzip.compress(TEXT.encode()), 3),
    "a byte order mark, other line ends, blank lines": ("t.csv", "\ufeff" + TEXT.replace("\n", "\r\n\r\n"), 5),
    "utf-16": ("t.csv", TEXT.encode("utf-16"), 3),
    "line ends of old systems": ("t.csv", TEXT.replace("\n", "\r"), 3),
    "no line end at the end": ("t.csv", TEXT[:-1], 3),
    "blanks around names": ("t.csv", TEXT.replace("the gene", " the gene "), 3),
    "quotation marks": ("t.csv", TEXT.replace("the gene", '"the gene"').replace("b0114", '"b0114"'), 3),
    "a line break in the header": ("t.csv", TEXT.replace("the gene", '"the\r\ngene"'), 4),
    "blank lines above the header": ("t.csv", "\n\n" + TEXT, 5),
    "a title above the header": ("t.csv", "Table S4. Fitness of strains\n\n" + TEXT, 5),
    "a title in cells above the header": ("t.csv", "Table S4. Fitness of strains,,\n,,\n" + TEXT, 5),
    "a comment above the header": ("t.tsv", "#exported\n" + TEXT.replace(",", "\t"), 4),
    "separators alone below the rows": ("t.csv", TEXT + ",,\n,,\n", 3),
    "a spreadsheet": ("t.xlsx", [HEADER, ROWS[0], ["", "", ""], ROWS[1]], 4),
    "a spreadsheet with a title": ("t.xlsx", [TITLE, ["", "", ""], HEADER, *ROWS], 5),
    "a line break in a header's cell": ("t.xlsx", [["id", "the\ngene", "score"], *ROWS], 3),
}


@pytest.mark.parametrize("form", FORMS)
def test_everyday_forms_are_read(tmp_path: Path, form: str) -> None:
    name, content, line = FORMS[form]
    if isinstance(content, list):
        write_xlsx(tmp_path / name, content)
    else:
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    rows = read_rows(tmp_path / name)
    assert [*rows.frame] == HEADER
    assert rows.frame.to_numpy().tolist() == ROWS
    assert rows.lines[-1] == line


def test_parquet_is_read(tmp_path: Path) -> None:
    pq.write_table(pa.table({"gene": ["b0008", None], "n": [1, 2], "x": [0.5, None]}), tmp_path / "t.parquet")
    rows = read_rows(tmp_path / "t.parquet")
    assert rows.frame.to_numpy().tolist() == [["b0008", "1", "0.5"], ["", "2", ""]]
    assert rows.lines.tolist() == [2, 3]


def test_names_that_are_missing_or_cells_with_lines(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(',gene,,note\n0,b0008,,"two\nlines"\n1,b0114,,\n')
    rows = read_rows(tmp_path / "t.csv")
    assert [*rows.frame] == ["Unnamed: 0", "gene", "Unnamed: 2", "note"]
    assert rows.lines.tolist() == [2, 4]
    (tmp_path / "t.csv").write_text("gene_1,gene_2\nb0008,\n,\n")
    assert [len(read_rows(tmp_path / "t.csv", keep_blank=keep)) for keep in (False, True)] == [1, 2]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", "", "'t.csv' is empty"),
        ("t.csv", TEXT.splitlines()[0], "'t.csv' has a header but no rows"),
        ("t.csv", TEXT.replace("score", "id"), "line 1: two columns are called 'id'"),
        ("t.csv", TEXT + "c,b0115\n", r"line 4: not as many cells as in the header\n.*2\n.*3\n.*the file is cut off"),
        ("t.csv", TEXT + 'c,"b0115,1"\n', r"line 4: not as many cells as in the header\n.*2\n.*3"),
        ("t.csv", TEXT + "\nc,b0115,1,2\nd,,,,\n", r"lines 5, 6: not as many cells as in the header\n.*4\n.*3"),
        ("t.csv", TEXT + 'c,b0115,"1\nd,b0116,1\n', r'line 4: a quotation mark is not closed\n.*c,b0115,"1\n'),
        ("t.csv", TEXT + 'c,b0115,1\nd,b0116,"1\ne,b0118,1"\n', "line 5: a quotation mark is not closed"),
        ("t.csv", TEXT + 'c,"b0115"x,1\n', "line 4: it cannot be read as cells"),
        ("t.csv", "genes\nb0008,b0114\n", r"line 2: not as many cells as in the header\n.*2\n.*1"),
        ("t.csv", b"genes\n\xff\xfe\n", r"'t.csv' cannot be read to its end\n.*utf-8"),
        ("t.parquet", b"PAR1", "'t.parquet' is no whole Parquet file"),
        ("t.xlsx", b"gene,growth\n", "'t.xlsx' is no spreadsheet"),
        ("", b"", r"none\.xlsx' not found\n  expected: a table of strains: CSV, TSV, Excel or Parquet"),
    ],
)
def test_others_are_refused(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    if name:
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(DataError, match=message):
        read_rows(tmp_path / (name or "none.xlsx"))


# Cells that would give other strains than are written: each is refused, with its line, its column and a remedy.


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
        load_csv(CsvConfig("t.csv", ["gene_1"], {"x": column}))


@pytest.mark.parametrize("column", ["growth", "growth inhibition", "kda", "fitness"])
def test_other_columns_are_phenotypes(column: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"gene_1,{column}\nb0008,1.5\nb0114,2.5\n")
    strains = load_csv(CsvConfig(str(tmp_path / "t.csv"), ["gene_1"], {"x": column}))
    assert strains.phenotypes["x"].tolist() == [1.5, 2.5]


# Sources.


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("collins2006", "collins2007"),
        ("in-silico", "insilico"),
        ("kuzmin2020pilot", "kuzmin2020_pilot"),
        ("####", "see `dglcell data list`"),
    ],
)
def test_an_unknown_source_suggests_close_ones(name: str, suggestion: str) -> None:
    with pytest.raises(ConfigError, match=rf"`data.source.name` is unknown\n.*{name}(.|\n)*do: .*{suggestion}"):
        load_source(SourceConfig(name=name))


def test_only_the_chosen_source_is_validated() -> None:
    config = SourceConfig(name="collins2007")
    config.insilico.pairs = "nonsense"
    config.validate()
    config.name = "insilico"
    with pytest.raises(ConfigError, match=r"`data.source.insilico\.pairs`"):
        config.validate()


def test_the_list_says_what_is_available(tmp_path: Path) -> None:
    (tmp_path / "interactions").mkdir()
    (tmp_path / "interactions" / "collins2007_emap.csv.gz").touch()
    available = {info.name: info.available for info in list_sources(str(tmp_path))}
    assert available["insilico"]
    assert available["collins2007"]
    assert not available["tong2004_tested_pairs"]
    assert all(info.description and info.size and info.licence for info in list_sources(str(tmp_path)))


def test_choosing_a_source_imports_neither_cobra_nor_pandas() -> None:
    code = (
        "import sys; from dglcell.data.sources import SourceConfig, list_sources; SourceConfig().validate(); "
        "list_sources(); print([m for m in ('cobra', 'pandas', 'swiglpk', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

"""Everyday forms of tables: each is read as the same rows, or refused with what to mend."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dglcell.data.sources.text_table import read_rows
from dglcell.errors import DataError
from tests.data.sources.sga_tables import write_xlsx

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

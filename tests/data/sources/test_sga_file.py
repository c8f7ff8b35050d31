"""Tables of SGA screens: what is read, however it is packed, and what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dglcell.data.sources import screen_sga
from dglcell.data.sources.screen_sga import FoundTable, RawTable, read_sga
from dglcell.errors import DataError
from dglcell.published.file import Found, PublishedFile
from tests.data.sources.sga_tables import (
    COSTANZO2016,
    KUZMIN2018,
    KUZMIN2020,
    costanzo,
    kuzmin,
    text,
    write_xlsx,
    write_zip,
)

ROWS = [
    kuzmin(
        "YAR002W+YDL227C_tm3180", "nup60Δ+hoΔ", "YAL048C_dma5203", "gem1Δ", "digenic", -0.05, "2.00E-01", 0.81, 0.05
    ),
    kuzmin("YBR160W+YDL227C_tsq508", "cdc28-4+hoΔ", "YBR001C_tsa100", "nth2'-1", "digenic", -0.02, 0.5, 0.7, ""),
    kuzmin("YAR002W+YML107C_tm2550", "nup60Δ+pml39Δ", "YAL048C_dma5203", "gem1Δ", "trigenic", -0.1, 0, 0.4, "NaN"),
]


def found(path: Path, member: str = "", rows: int | None = None) -> FoundTable:
    file = PublishedFile(str(path))
    return FoundTable(RawTable(file, member, rows), Found(file, path, "0" * 64, ""))


def check(found: tuple[pd.DataFrame, dict[str, str]]) -> None:
    """They are ``ROWS``."""
    rows, alleles = found
    assert rows["query"].tolist() == [row[0] for row in ROWS]
    assert rows["array"].tolist() == [row[2] for row in ROWS]
    assert rows["kind"].tolist() == ["digenic", "digenic", "trigenic"]
    assert rows["array_type"].tolist() == ["", "", ""]
    assert alleles == {row[0]: row[1] for row in ROWS}
    nan = np.nan
    for name, expected in (
        ("score", [-0.05, -0.02, -0.1]),
        ("p_value", [0.2, 0.5, 0]),
        ("fitness", [0.81, 0.7, 0.4]),
        ("fitness_sd", [0.05, nan, nan]),
    ):
        np.testing.assert_allclose(rows[name], expected, rtol=1e-6)


def plain(folder: Path, content: str, name: str = "t.tsv") -> FoundTable:
    (folder / name).write_bytes(content.encode())
    return found(folder / name)


def test_text_plain_gzipped_and_in_an_archive(tmp_path: Path) -> None:
    content = text(KUZMIN2018, ROWS)
    check(read_sga([plain(tmp_path, content)]))
    (tmp_path / "t.txt").write_bytes(gzip.compress(content.encode()))
    check(read_sga([found(tmp_path / "t.txt")]))
    write_zip(tmp_path / "t.zip", {"__MACOSX/._t.tsv": b"\0", "Data File S1: tables/t.tsv": content, "b.tsv": "x"})
    with pytest.raises(DataError, match=r"holds 0 files called 'c.tsv'"):
        read_sga([found(tmp_path / "t.zip", "c.tsv")])
    check(read_sga([found(tmp_path / "t.zip", "t.tsv")]))


@pytest.mark.parametrize(
    "content",
    [
        "\ufeff" + text(KUZMIN2018, ROWS).replace("\n", "\r\n"),
        text(KUZMIN2018, ROWS) + "\n\n",
        text(KUZMIN2018, ROWS).removesuffix("\n"),
        text(KUZMIN2020, ROWS),
        text(KUZMIN2018, ROWS).replace("\t", ","),
        text([f"{name} ".upper() for name in KUZMIN2018], ROWS),
    ],
)
def test_what_does_not_matter(tmp_path: Path, content: str) -> None:
    check(read_sga([plain(tmp_path, content)]))


def test_columns_may_stand_in_any_order(tmp_path: Path) -> None:
    order = np.random.default_rng(0).permutation(len(KUZMIN2018))
    table = text([KUZMIN2018[i] for i in order], [[row[i] for i in order] for row in ROWS])
    check(read_sga([plain(tmp_path, table)]))


@pytest.mark.parametrize("chunk", [1, 2])
def test_chunks_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(screen_sga, "CHUNK_ROWS", chunk)
    check(read_sga([plain(tmp_path, text(KUZMIN2018, ROWS))]))


def test_a_spreadsheet_with_a_title_above_its_header(tmp_path: Path) -> None:
    rows = [[float(cell) if cell in ("2.00E-01", 0) else cell for cell in row] for row in ROWS]
    title = ["Table S1. Raw genetic interaction dataset.", *[""] * 11]
    path = write_xlsx(tmp_path / "t.xlsx", [title, KUZMIN2020, *rows])
    check(read_sga([found(path)]))
    write_zip(tmp_path / "t.zip", {"tables/t.xlsx": path.read_bytes()})
    check(read_sga([found(tmp_path / "t.zip", "t.xlsx")]))
    broken = write_xlsx(tmp_path / "b.xlsx", [title, KUZMIN2020, [*rows[0][:6], "high", *rows[0][7:]]])
    with pytest.raises(DataError, match=r"'b.xlsx': the score is no number\n.*'high'"):
        read_sga([found(broken)])
    (tmp_path / "c.xlsx").write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match=r"'c.xlsx' is no spreadsheet\n.*\n.*copy or download"):
        read_sga([found(tmp_path / "c.xlsx")])
    with pytest.raises(DataError, match=r"'n.xlsx' lacks columns(.|\n)*query strain id"):
        read_sga([found(write_xlsx(tmp_path / "n.xlsx", [title, ["a", "b"], ["c", 1.0]]))])


def test_tables_follow_one_another(tmp_path: Path) -> None:
    row = costanzo("YAL048C_sn1", "YBR001C_tsa100", "TSA26", 0.1, 0.2, 0.9, 0.03)
    one, two = plain(tmp_path, text(KUZMIN2018, ROWS)), plain(tmp_path, text(COSTANZO2016, [row]), "u.txt")
    rows, _ = read_sga([one, two])
    assert rows["array"].tolist()[-1] == "YBR001C_tsa100"
    assert rows["array_type"].tolist() == ["", "", "", "TSA26"]
    np.testing.assert_allclose(rows["score"], [-0.05, -0.02, -0.1, 0.1], rtol=1e-6)


LINES = text(KUZMIN2018, ROWS).splitlines(keepends=True)
BROKEN = [
    ("".join(LINES)[:-20], r"'t.tsv', line 4: not as many cells as in the header\n.*got: +7\n.*12\n.*cut off"),
    ("".join([LINES[0], LINES[1].replace("\tdigenic", ""), LINES[2]]), r"'t.tsv', line 2: not as many cells"),
    ("".join([LINES[0], LINES[1], LINES[2].replace("\n", "\t1\n")]), r"'t.tsv', line 3: not as many cells"),
    ("".join(LINES).replace("0.81", "o.81"), r"'t.tsv', line 2: the fitness is no number\n.*'o.81'"),
    ("".join(LINES).replace("P-value", "p"), r"'t.tsv' lacks columns\n(.|\n)*besides: p-value"),
    (LINES[0], r"a table has a header but no rows"),
    ("", r"'t.tsv' lacks columns"),
]


@pytest.mark.parametrize(("content", "message"), BROKEN)
def test_damaged_tables_are_refused_by_line(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_sga([plain(tmp_path, content)])


@pytest.mark.parametrize("name", ["t.txt.gz", "t.zip"])
def test_archives_that_are_cut_off(tmp_path: Path, name: str) -> None:
    content = text(KUZMIN2018, ROWS * 500)
    path = tmp_path / name
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(content.encode()))
    else:
        write_zip(path, {"t.tsv": content})
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(DataError, match=rf"{name}' (cannot be read to its end|is not a whole archive)"):
        read_sga([found(path, "t.tsv")])


def test_the_number_of_rows_has_to_be_the_published_one(tmp_path: Path) -> None:
    path = plain(tmp_path, text(KUZMIN2018, ROWS)).path
    check(read_sga([found(path, rows=3)]))
    with pytest.raises(DataError, match=r"does not have the rows that were published.*\n.*3 rows\n.*4 rows"):
        read_sga([found(path, rows=4)])

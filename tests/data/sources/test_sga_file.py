"""Tables of SGA screens: what is read, however it is packed, and what is refused."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dglcell.cli import main
from dglcell.data.sources import laboratory, list_sources, screen_sga
from dglcell.data.sources.config import LaboratoryConfig
from dglcell.data.sources.laboratory import load_laboratory
from dglcell.data.sources.screen_sga import FoundTable, RawTable, read_sga
from dglcell.errors import DataError
from dglcell.published.file import Found, PublishedFile, record_path
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
from tests.http_server import Server, serve

Q, CONTROL = "YAR002W+YML107C_tm2550", "YAR002W+YDL227C_tm3180"
ROWS = [
    kuzmin(CONTROL, "nup60Δ+hoΔ", "YAL048C_dma5203", "gem1Δ", "digenic", -0.05, "2.00E-01", 0.81, 0.05),
    kuzmin("YBR160W+YDL227C_tsq508", "cdc28-4+hoΔ", "YBR001C_tsa100", "nth2'-1", "digenic", -0.02, 0.5, 0.7, ""),
    kuzmin(Q, "nup60Δ+pml39Δ", "YAL048C_dma5203", "gem1Δ", "trigenic", -0.1, 0, 0.4, "NaN"),
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
    np.testing.assert_allclose(rows["score"], [-0.05, -0.02, -0.1], rtol=1e-6)
    np.testing.assert_allclose(rows["p_value"], [0.2, 0.5, 0], rtol=1e-6)
    np.testing.assert_allclose(rows["fitness"], [0.81, 0.7, 0.4], rtol=1e-6)
    np.testing.assert_allclose(rows["fitness_sd"], [0.05, np.nan, np.nan], rtol=1e-6)


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


TEXT, ORDER = text(KUZMIN2018, ROWS), np.random.default_rng(0).permutation(len(KUZMIN2018))
FORMS = {
    "a byte order mark and line ends": "\ufeff" + TEXT.replace("\n", "\r\n"),
    "blank lines at the end": TEXT + "\n\n",
    "no line end at the end": TEXT.removesuffix("\n"),
    "other headers": text(KUZMIN2020, ROWS),
    "commas": TEXT.replace("\t", ","),
    "capitals and blanks in headers": text([f"{name} ".upper() for name in KUZMIN2018], ROWS),
    "another order of columns": text([KUZMIN2018[i] for i in ORDER], [[row[i] for i in ORDER] for row in ROWS]),
}


@pytest.mark.parametrize("form", FORMS)
def test_what_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    for chunk in (200_000, 1, 2):
        monkeypatch.setattr(screen_sga, "CHUNK_ROWS", chunk)
        check(read_sga([plain(tmp_path, FORMS[form])]))


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


# Screens on the command line.


CONTENT = text(
    KUZMIN2018,
    [
        kuzmin("YAR002W+YML107C_tm1", "aΔ+bΔ", f"YAL0{i:02d}C_dma{i}", "c", "trigenic", 0.1, 0.2, 1, 0)
        for i in range(90)
    ],
).encode()
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    yield from serve(monkeypatch, CONTENT)


@pytest.fixture
def kuzmin2018(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """Return the screen as a small file of this machine's server."""
    screen = laboratory.LABORATORIES["kuzmin2018"]
    table = screen.tables["S1"]
    file = replace(table.file, urls=(server.url("good"),), sha256=None, size=len(CONTENT), copies=())
    small = {"S1": replace(table, file=file, rows=90)}
    monkeypatch.setitem(laboratory.LABORATORIES, "kuzmin2018", replace(screen, tables=small))
    return server


def test_the_command_line_fetches_lists_and_tells_how_a_file_is_trusted(
    kuzmin2018: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = str(tmp_path / "raw")
    assert main(["data", "list", "--raw", raw]) == 0
    listed = capsys.readouterr().out
    assert re.search(r"^kuzmin2018 +Trigenic screen, Data S1 +90  fetch, < 1 MB$", listed, re.M)
    assert "\nfetch: `dglcell data fetch NAME` downloads the raw files" in listed
    assert "\nkuzmin2018 (yeast; none stated): Kuzmin et al. 2018, Science" in listed
    assert max(len(line) for line in listed.splitlines() if "/" not in line) <= 80  # paths are not broken
    assert main(["data", "fetch", "kuzmin2018", "--raw", raw]) == 0
    printed = capsys.readouterr().out
    path = tmp_path / "raw" / "interactions" / "kuzmin2018_Data_S1.tsv"
    assert printed.startswith(str(path))
    assert f"{len(CONTENT):,} bytes, downloaded\n    sha256 {SHA256} (as recorded when it was downloaded)" in printed
    assert record_path(path).is_file()
    assert {info.name: info.available for info in list_sources(raw)}["kuzmin2018"]
    assert main(["data", "list", "--raw", raw]) == 0
    assert re.search(r"^kuzmin2018 .* 90  here$", capsys.readouterr().out, re.M)
    trust = load_laboratory("kuzmin2018", LaboratoryConfig(), raw).provenance.parameters["raw_files"]
    assert trust[path.name] == f"sha256 {SHA256[:12]} (as recorded when it was downloaded)"


def test_the_command_line_says_what_to_do_without_a_connection(
    kuzmin2018: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kuzmin2018.shutdown()
    kuzmin2018.server_close()
    assert main(["data", "fetch", "kuzmin2018", "--raw", str(tmp_path)]) == 2
    printed = capsys.readouterr().err
    for said in (kuzmin2018.url("good"), str(tmp_path / "interactions" / "kuzmin2018_Data_S1.tsv")):
        assert said in printed
    assert "Traceback" not in printed


@pytest.mark.parametrize("change", [{"csv": {}}, {"reader": 1}, {"tables": {"all": {"file": "interactions/none.csv"}}}])
def test_a_wrong_declaration_is_named(change: dict[str, Any]) -> None:
    right = {"description": "d", "origin": [], "tables": {}, "sga": {}}
    assert laboratory._laboratory("mine", dict(right)).description == "d"
    with pytest.raises(DataError, match=r"`mine` of laboratories\.yaml is no laboratory screen(.|\n)*sga, csv"):
        laboratory._laboratory("mine", right | change)

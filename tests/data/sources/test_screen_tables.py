"""Raw tables of publications."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dglcell.cli import main
from dglcell.data.sources import laboratory, list_sources
from dglcell.data.sources.config import LaboratoryConfig
from dglcell.data.sources.laboratory import load_laboratory
from dglcell.errors import DataError
from dglcell.published.file import record_path
from tests.data.sources.sga_tables import KUZMIN2018, kuzmin, text
from tests.http_server import Server, serve

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
    assert kuzmin2018.url("good") in printed
    assert str(tmp_path / "interactions" / "kuzmin2018_Data_S1.tsv") in printed
    assert "Traceback" not in printed


@pytest.mark.parametrize("change", [{"csv": {}}, {"reader": 1}, {"tables": {"all": {"file": "interactions/none.csv"}}}])
def test_a_wrong_declaration_is_named(change: dict[str, Any]) -> None:
    right = {"description": "d", "origin": [], "tables": {}, "sga": {}}
    assert laboratory._laboratory("mine", dict(right)).description == "d"
    with pytest.raises(DataError, match=r"`mine` of laboratories\.yaml is no laboratory screen(.|\n)*sga, csv"):
        laboratory._laboratory("mine", right | change)

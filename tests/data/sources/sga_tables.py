"""Small tables in the exact formats that the screens were published in, with invented numbers."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest

from dglcell.data.sources import SourceConfig, laboratory, load_source
from dglcell.data.sources.config import LaboratoryConfig
from dglcell.data.strains import Strains

Cell = str | float
Row = Sequence[Cell]

_KUZMIN = [
    "Query strain ID",
    "Query allele name",
    "Array strain ID",
    "Array allele name",
    "Combined mutant type",
    "Raw genetic interaction score (epsilon)",
    "Adjusted genetic interaction score (epsilon or tau)",
    "P-value",
    "Query single/double mutant fitness",
    "Array single mutant fitness",
]
KUZMIN2018 = [*_KUZMIN, "Combined mutant fitness", "Combined mutant fitness standard deviation"]
KUZMIN2020 = [*_KUZMIN, "Double/triple mutant fitness", "Double/triple mutant fitness standard deviation"]
COSTANZO2016 = [
    "Query Strain ID",
    "Query allele name",
    "Array Strain ID",
    "Array allele name",
    "Arraytype/Temp",
    "Genetic interaction score (ε)",
    "P-value",
    "Query single mutant fitness (SMF)",
    "Array SMF",
    "Double mutant fitness",
    "Double mutant fitness standard deviation",
]


def kuzmin(
    query: str, alleles: str, array: str, allele: str, kind: str, score: Cell, p: Cell, fitness: Cell, sd: Cell
) -> list[Cell]:
    """Return a row of a Kuzmin table."""
    return [query, alleles, array, allele, kind, score, score, p, 0.9, 0.95, fitness, sd]


def costanzo(query: str, array: str, covariate: str, score: Cell, p: Cell, fitness: Cell, sd: Cell) -> list[Cell]:
    """Return a row of a Costanzo table."""
    return [query, query[:7].lower(), array, array[:7].lower(), covariate, score, p, 1.0252, 0.6861, fitness, sd]


def text(header: Sequence[str], rows: Sequence[Row]) -> str:
    """Return the table as tab-separated text."""
    return "".join("\t".join(str(cell) for cell in row) + "\n" for row in [header, *rows])


def write_zip(path: Path, members: dict[str, str | bytes]) -> Path:
    """Write an archive."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def write_xlsx(path: Path, rows: Sequence[Row]) -> Path:
    """Write a spreadsheet of one sheet; an empty text is an empty cell."""
    sheet = []
    for number, row in enumerate(rows, start=1):
        cells = []
        for column, cell in enumerate(row):
            at = f'r="{chr(ord("A") + column)}{number}"'
            if isinstance(cell, str):
                cells.append(f'<c {at} t="inlineStr"><is><t>{escape(cell)}</t></is></c>' if cell else "")
            else:
                cells.append(f"<c {at}><v>{cell!r}</v></c>")
        sheet.append(f'<row r="{number}">{"".join(cells)}</row>')
    main, relations = "http://schemas.openxmlformats.org/spreadsheetml/2006/main", "http://schemas.openxmlformats.org"
    kinds = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    office = f"{relations}/officeDocument/2006/relationships"
    package = f"{relations}/package/2006"
    members: dict[str, str | bytes] = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{kinds}.sheet.main+xml"/>'
        f'<Override PartName="/xl/worksheets/sheet1.xml" ContentType="{kinds}.worksheet+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" '
        f'Type="{office}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{office}"><sheets>'
        '<sheet name="Sheet1" sheetId="1" r:id="r1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" '
        f'Type="{office}/worksheet" Target="worksheets/sheet1.xml"/></Relationships>',
        "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{main}"><sheetData>{"".join(sheet)}</sheetData></worksheet>',
    }
    return write_zip(path, members)


def read(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, rows: Sequence[int] | None = None,
    only: Sequence[str] = (), **options: Any,
) -> Strains:  # fmt: skip
    """Read a screen from small files in ``folder``, of some tables, with these numbers of rows declared of them."""
    screen = laboratory.LABORATORIES[name]
    chosen = {key: table for key, table in screen.tables.items() if key in only or not only}
    tables = {
        key: replace(table, file=replace(table.file, sha256=None, size=None, content=None), rows=number)
        for (key, table), number in zip(chosen.items(), rows or [None] * len(chosen), strict=True)
    }
    monkeypatch.setitem(laboratory.LABORATORIES, name, replace(screen, tables=tables))
    return load_source(SourceConfig(name, laboratory=LaboratoryConfig(**options)), str(folder))

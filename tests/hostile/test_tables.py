"""Tables of strains, and the lists and tables that go with them."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator

from tests.hostile.inputs import EXPERIMENT, Input, cases

TABLE = "strains.csv"
BUILD = ("data", "build", EXPERIMENT, "data.store=store")
SOURCE = """\
cell: {model: textbook}
data: {source: {name: csv, csv: {path: strains.csv, genes: [gene_1, gene_2], phenotypes: {fitness: score}}}}
"""
HEADER = "gene_1,gene_2,score\n"
ROW = "b0001,b0002,0.5\n"

WIDE = ",".join(f"c{n}" for n in range(100_000)) + "\n" + ",".join(["x"] * 100_000) + "\n"

TABLES: dict[str, tuple[str | bytes, str]] = {
    "empty": (b"", TABLE),
    "blank lines": ("\n\n\n", TABLE),
    "a header alone": (HEADER, "no rows"),
    "rows of nothing": (HEADER + ",,\n,,\n", "no rows"),
    "a header twice": ("gene_1,gene_1,score\n" + ROW, "'gene_1'"),
    "a phenotype's column twice": ("gene_1,gene_2,score,score\nb0001,b0002,1,2\n", "'score'"),
    "an unused column twice": ("gene_1,gene_2,score,x,x\nb0001,b0002,1,2,3\n", "'x'"),
    "equal once blanks are stripped": ("gene_1,gene_2, gene_1,score\nb0001,b0002,b3,1\n", "'gene_1'"),
    "no such column": ("a,b,c\n1,2,3\n", "'score'"),
    "no gene column": ("a,b,score\n1,2,3\n", "'gene_1'"),
    "a short row": (HEADER + ROW + "b0001,b0002\n", "line 3"),
    "a long row": (HEADER + ROW + "b0001,b0002,1,2\n", "line 3"),
    "an open quote": (HEADER + '"b0001,b0002,1\n', TABLE),
    "a quoted line end": (HEADER + '"b00\n01",b0002,1\n', TABLE),
    "nan": (HEADER + "b0001,b0002,NAN\n", "no row has a phenotype"),
    "inf": (HEADER + ROW + "b0001,b0003,inf\n", "line 3"),
    "minus infinity": (HEADER + ROW + "b0001,b0003,-Infinity\n", "line 3"),
    "beyond float64": (HEADER + ROW + "b0001,b0003,1e999\n", "line 3"),
    "beyond float32": (HEADER + ROW + "b0001,b0003,1e39\n", "line 3"),
    "a hundred thousand digits": (HEADER + ROW + f"b0001,b0003,{'9' * 100_000}\n", "line 3"),
    "text": (HEADER + ROW + "b0001,b0003,high\n", "line 3"),
    "hexadecimal": (HEADER + ROW + "b0001,b0003,0x10\n", "line 3"),
    "a formula": (HEADER + ROW + 'b0001,b0003,"=1+1"\n', "line 3"),
    "two numbers": (HEADER + ROW + "b0001,b0003,1 2\n", "line 3"),
    "an underscore": (HEADER + ROW + "b0001,b0003,1_0\n", "line 3"),
    "a decimal comma": ("gene_1;gene_2;score\nb0001;b0002;0,5\n", "line 2"),
    "truth": (HEADER + ROW + "b0001,b0003,True\n", "line 3"),
    "arabic digits": (HEADER + ROW + "b0001,b0003,٣\n", "line 3"),
    "nothing is measured": (HEADER + "b0001,b0002,NA\n", "no row has a phenotype"),
    "one is not measured": (HEADER + ROW + "b0001,b0003,NA\n", "line 3"),
    "no gene": (HEADER + ROW + ",,1\n", "line 3"),
    "a gene twice": (HEADER + ROW + "b0003,b0003,1\n", "line 3"),
    "a gene twice with blanks": (HEADER + ROW + "b0003, b0003 ,1\n", "line 3"),
    "nul in a name": (HEADER + ROW + "b00\0 03,b0004,1\n", "line 3"),
    "nul alone": (b"\0" * 1000, TABLE),
    "escape in a name": (HEADER + ROW + "\x1b[31mb0003,b0004,1\n", "line 3"),
    "a control character in a header": ("gene_1,gene_2,sc\x07ore\n" + ROW, "line 1"),
    "an invisible letter in a gene": (HEADER + ROW + "\u200bb0003,b0004,1\n", r"got:      '\u200bb0003'"),
    "a gene of many letters": (HEADER + ROW + "x" * 5_000 + ",b0004,1\n", "1 to 200 visible letters"),
    "not utf-8": (HEADER.encode() + b"\xff\xfe,b0002,1\n", TABLE),
    "utf-16": ((HEADER + ROW).encode("utf-16"), TABLE),
    "random bytes": (bytes(range(256)) * 20, TABLE),
    "torn gzip": (gzip.compress((HEADER + ROW * 1000).encode())[:-9], TABLE),
    "a gzip header alone": (b"\x1f\x8b", TABLE),
    "damaged gzip": (gzip.compress((HEADER + ROW).encode())[:10] + bytes(40), TABLE),
    "gzip twice": (gzip.compress(gzip.compress((HEADER + ROW).encode())), TABLE),
    "a spreadsheet": (b"PK\x03\x04" + bytes(200), TABLE),
    "html": ("<!DOCTYPE html>\n<html><body>Not found</body></html>\n", TABLE),
    "old macintosh lines": ("gene_1,gene_2,score\rb0001,b0002,1\r", TABLE),
    "a hundred thousand columns": (WIDE, "100,000"),
    "256 deletions": ("gene_1,score\n" + ";".join(f"g{n}" for n in range(256)) + ",1\n", "deletes too many genes"),
}


def tables() -> Iterator[Input]:
    """Yield tables."""
    for name, (content, says) in TABLES.items():
        own = ("data.source.csv.genes=[gene_1]",) if name == "256 deletions" else ()
        yield Input(name, (*BUILD, *own), says, {EXPERIMENT: SOURCE, TABLE: content})


ASIDE = [
    # (name, override, content of the file `aside`, what the message names)
    ("aliases without a header", "data.source.csv.aliases=aside", "", "aside"),
    ("aliases of nothing", "data.source.csv.aliases=aside", "a,b\n1,2\n", "systematic"),
    ("aliases with two columns of names", "data.source.csv.aliases=aside", "orf,systematic\n1,2\n", "aside"),
    ("aliases that are not utf-8", "data.source.csv.aliases=aside", b"\xff\xfe\n", "aside"),
    ("aliases in one endless cell", "data.source.csv.aliases=aside", 'orf,b\n1,"' + "x" * 200_000 + '"\n', "aside"),
    ("aliases with nul", "data.source.csv.aliases=aside", "orf,b\n1,\0\n", "aside"),
    ("aliases that are ambiguous", "data.source.csv.aliases=aside", "orf,b\nx,b0001\ny,b0001\n", "b0001"),
    ("aliases that make genes equal", "data.source.csv.aliases=aside", "orf,b\nb0002,b0001\n", "line 2"),
    ("aliases that are a folder", "data.source.csv.aliases=.", "", "'.'"),
    ("aliases that are not there", "data.source.csv.aliases=nowhere", "", "nowhere"),
    ("a table that is a folder", "data.source.csv.path=.", "", "'.'"),
    ("a table that is a device", "data.source.csv.path=/dev/zero", "", "/dev/zero"),
    ("a table that is not there", "data.source.csv.path=nowhere.csv", "", "nowhere.csv"),
    ("a table with a long name", "data.source.csv.path=" + "x" * 300, "", "xxx"),
    ("a table with a long path", "data.source.csv.path=" + "x/" * 3_000, "", "x/x"),
    ("no such row", "data.source.csv.where={gene_1: nothing}", "", "gene_1 = nothing"),
    ("no such column of conditions", "data.source.csv.where={nothing: x}", "", "'nothing'"),
    ("no such column of p-values", "data.source.csv.p_values={fitness: p}", "", "'p'"),
    ("p-values of nothing", "data.source.csv.p_values={other: score}", "", "other"),
    ("p-values that are none", "data.source.csv.p_values={fitness: score}", "", ""),
    ("every gene ignored", "data.source.csv.ignore_genes=[b0001, b0002]", "", "line 2"),
    ("the wrong separator", "data.source.csv.separator=;", "", "'score'"),
    ("a store with a long name", "data.store=" + "s" * 300, "", "sss"),
    ("a store below a file", f"data.store={TABLE}/store", "", TABLE),
    ("a store that is a file", f"data.store={TABLE}", "", TABLE),
    ("a store that is this folder", "data.store=.", "", "'.'"),
]


def asides() -> Iterator[Input]:
    """Yield a valid table, with something beside it that is not."""
    for name, override, content, says in ASIDE:
        table = HEADER + ("b0001,b0002,1.5\n" if "none" in name else ROW)
        yield Input(name, (*BUILD, override), says, {EXPERIMENT: SOURCE, TABLE: table, "aside": content})


@cases(tables())
def test_tables(hostile: Input, driven: Callable[[Input], None]) -> None:
    driven(hostile)


@cases(asides())
def test_what_goes_with_a_table(hostile: Input, driven: Callable[[Input], None]) -> None:
    driven(hostile)

"""Networks: edge tables, matrices, groups, gene lists and feature tables."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator

from tests.hostile.inputs import EXPERIMENT, Input, cases

EDGES = "edges.tsv"
DESCRIBE = ("graph", "describe", EXPERIMENT)
PAIRS = "cell: {networks: {near: {path: edges.tsv, columns: [a, b], weight: w, use_weights: true}}}\n"
PLAIN = "cell: {networks: {near: {path: edges.tsv, columns: [a, b]}}}\n"
GOOD = "a\tb\tw\nx\ty\t1\ny\tz\t2\n"

WEIGHTED: dict[str, tuple[str | bytes, str]] = {
    "empty": (b"", EDGES),
    "a header alone": ("a\tb\tw\n", EDGES),
    "no such column": ("p\tq\tw\nx\ty\t1\n", "'a'"),
    "no weight": ("a\tb\nx\ty\n", "'w'"),
    "a header twice": ("a\tb\tb\tw\nx\ty\tz\t1\n", "'b'"),
    "a weight's header twice": ("a\tb\tw\tw\nx\ty\t1\t2\n", "'w'"),
    "nan": ("a\tb\tw\nx\ty\tnan\n", "line 2"),
    "inf": ("a\tb\tw\nx\ty\tinf\n", "line 2"),
    "beyond float32": ("a\tb\tw\nx\ty\t1e39\n", "line 2"),
    "beyond float64": ("a\tb\tw\nx\ty\t1e999\n", "line 2"),
    "text for a weight": ("a\tb\tw\nx\ty\theavy\n", "line 2"),
    "an empty weight": ("a\tb\tw\nx\ty\t\n", "line 2"),
    "an empty end": ("a\tb\tw\nx\t\t1\n", "line 2"),
    "a short row": ("a\tb\tw\nx\n", "line 2"),
    "a long row": ("a\tb\tw\nx\ty\t1\t2\n", EDGES),
    "an open quote": ('a\tb\tw\n"x\ty\t1\n', EDGES),
    "nul": ("a\tb\tw\nx\0\ty\t1\n", EDGES),
    "escape in a name": ("a\tb\tw\n\x1b[31mx\ty\t1\n", EDGES),
    "not utf-8 in a name": (b"a\tb\tw\n\xff\ty\t1\n", EDGES),
    "utf-16": (GOOD.encode("utf-16"), EDGES),
    "random bytes": (bytes(range(256)) * 20, EDGES),
    "a hundred thousand columns": ("\t".join(f"c{n}" for n in range(100_000)) + "\n", "100,000"),
    "html": ("<!DOCTYPE html>\n<html><body>Not found</body></html>\n", EDGES),
    "gzip without its extension": (gzip.compress(GOOD.encode()), EDGES),
}

MATRIX = "cell.networks.near={layout: matrix, columns: [row, column], weight: null, use_weights: false}"

KEYS: list[tuple[str, str, str | bytes, str]] = [
    # (name, overrides, content, what the message names)
    ("no edge reaches the threshold", "cell.networks.near.min_weight=1e9", GOOD, "min_weight"),
    ("a matrix with nan", MATRIX, "\tx\ty\nx\t0\tnan\ny\t1\t0\n", "'y'"),
    ("a matrix with inf", MATRIX, "\tx\ty\nx\t0\tinf\ny\t1\t0\n", "'y'"),
    ("a matrix with text", MATRIX, "\tx\ty\nx\t0\tone\ny\t1\t0\n", "'y'"),
    ("a matrix with a column twice", MATRIX, "\tx\tx\nx\t0\t1\ny\t1\t0\n", "'x'"),
    ("a matrix of one cell", MATRIX, "x\n", EDGES),
    (
        "channels that are no numbers",
        "cell.networks.near={channels: [w], weight: null}",
        "a\tb\tw\nx\ty\tz\n",
        "line 2",
    ),
    (
        "a relation that is no name",
        "cell.networks.near={relation_column: w, weight: null, use_weights: false}",
        "a\tb\tw\nx\ty\t../up\n",
        "../up",
    ),
    ("no such row", "cell.networks.near.where={a: nothing}", GOOD, "nothing"),
    ("a position behind the last column", "cell.networks.near={columns: ['0', '9'], header: true}", GOOD, "'9'"),
    (
        "a position beyond 64 bits",
        "cell.networks.near={columns: ['0', '9999999999999999999'], header: true}",
        GOOD,
        "99",
    ),
    ("a superscript for a position", "cell.networks.near={columns: ['0', '²'], header: true}", GOOD, "²"),
    ("another hash", "cell.networks.near.sha256=" + "f" * 64, GOOD, EDGES),
    ("a folder", "cell.networks.near.path=.", GOOD, "'.'"),
    ("a device", "cell.networks.near.path=/dev/zero", GOOD, "/dev/zero"),
    ("a long name", "cell.networks.near.path=" + "x" * 300, GOOD, "xxx"),
    ("torn gzip", "cell.networks.near.path=edges.tsv.gz", gzip.compress(GOOD.encode() * 500)[:-9], "edges.tsv.gz"),
    ("plain text called gzip", "cell.networks.near.path=edges.tsv.gz", GOOD, "edges.tsv.gz"),
    ("genes that are none", "cell.genes=genes.txt", GOOD, "line 1"),
    ("a list of no genes", "cell.genes=genes.txt", "# none\n", "no names"),
    ("genes that are not utf-8", "cell.genes=genes.txt", b"\xff\xfe\n", "genes.txt"),
    ("a gene with nul", "cell.genes=genes.txt", "b0\0001\n", "line 1"),
    ("a genome that is none", "cell.genes=genome.gff", "nothing\n", "genome.gff"),
    ("features of a genome with too few columns", "cell.genes=genome.tab", "a\tb\n", "line 1"),
]


def weighted() -> Iterator[Input]:
    """Yield edge tables with weights."""
    for name, (content, says) in WEIGHTED.items():
        yield Input(name, DESCRIBE, says, {EXPERIMENT: PAIRS, EDGES: content})


def keys() -> Iterator[Input]:
    """Yield keys with their files."""
    for name, override, content, says in KEYS:
        aside = ("edges.tsv.gz", "genes.txt", "genome.gff", "genome.tab")
        files = {EDGES: GOOD if "genes" in override else content, **dict.fromkeys(aside, content)}
        yield Input(name, (*DESCRIBE, override), says, {EXPERIMENT: PAIRS, **files})


@cases(weighted())
def test_edge_tables(hostile: Input, driven: Callable[[Input], None]) -> None:
    driven(hostile)


@cases(keys())
def test_keys_of_networks(hostile: Input, driven: Callable[[Input], None]) -> None:
    driven(hostile)

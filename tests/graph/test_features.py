"""Fixed node features from tables."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import torch

from dglcell.errors import GraphError
from dglcell.graph.features import read_features
from dglcell.graph.vocabulary import Vocabulary

GENES = Vocabulary.of(["a", "b", "c", "d"])


def write(folder: Path, text: str) -> Path:
    path = folder / "features.csv"
    path.write_text(text)
    return path


def test_columns_are_standardised_and_missing_nodes_get_the_mean(tmp_path: Path) -> None:
    features = read_features(write(tmp_path, "gene,length,constant\nc,3,7\na,1,7\nother,99,7\n"), GENES, "gene")
    expected = torch.tensor([[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    torch.testing.assert_close(features, expected)


def test_blank_lines_and_a_byte_order_mark_are_skipped(tmp_path: Path) -> None:
    features = read_features(write(tmp_path, "\ufeffgene,x\na,1\n\nb,3\n\n"), GENES, "gene")
    assert features[:, 0].tolist() == [-1.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("name", "content"),
    [("x.csv.gz", gzip.compress(b"gene,x\na,1\n", mtime=0)[:-12]), ("x.csv", b"gene,x\n\xff,1\n")],
    # The archive holds the time at which it is made, which would be another one in every worker.
    ids=["torn archive", "no text"],
)
def test_damaged_tables_are_refused(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(
        GraphError, match=rf"{name}' cannot be read to their end\n  got:      .+\n  expected: a CSV text"
    ):
        read_features(tmp_path / name, GENES, "gene")


def test_compressed_tables_are_read(tmp_path: Path) -> None:
    path = tmp_path / "features.csv.gz"
    path.write_bytes(gzip.compress(b"gene,x\na,1\nb,3\n"))
    assert read_features(path, GENES, "gene")[:, 0].tolist() == [-1.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gene\na\n", r"have no feature column\n  got:      \['gene'\]"),
        ("", r"have no feature column"),
        ("gene,x\na,long\n", r"line 2: could not convert string to float: 'long'"),
        ("gene,x\na,nan\n", r"line 2: a value is not finite\n.*\n  expected: finite numbers"),
        ("gene,x\na,1\na,2\n", r"line 3: 'a' is in the table twice\n  do: +keep one line for each name"),
        ("gene,x\na,1,2\n", r"line 2: 3 cells where the header has 2"),
        ("gene,x\nz,1\n", r"name no gene of the cell graph\n  got:      1 names, e.g. z\n  expected: names such as a"),
    ],
)
def test_bad_tables_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        read_features(write(tmp_path, text), GENES, "gene")

"""Vectors of genes and features of nodes from files."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from dglcell.errors import GraphError
from dglcell.graph.features import read_features
from dglcell.graph.gene_space import read_gene_vectors
from dglcell.graph.vocabulary import Vocabulary

GENES = Vocabulary.of(["a", "b", "c", "d"])
NAMES, VECTORS = ["c", "other", "a", "b"], np.array([[3.0, 1.0], [9.0, 9.0], [1.0, 2.0], [2.0, 6.0]])


def read(path: Path, max_missing: float = 0.5) -> np.ndarray:
    return read_gene_vectors(path, GENES, max_missing, "KEY")


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "x.parquet", "x.npz"])
def test_columns_are_standardised_and_rows_of_length_one_in_any_form(tmp_path: Path, name: str) -> None:
    path, frame = tmp_path / name, pd.DataFrame(VECTORS).assign(gene=NAMES)[["gene", 0, 1]]
    frame.columns = frame.columns.astype(str)
    if name == "x.npz":
        np.savez(path, genes=np.array(NAMES), vectors=VECTORS)
    elif name == "x.parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False)
    known = VECTORS[[2, 3, 0]]
    expected = (known - known.mean(0)) / known.std(0)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(read(path), np.concatenate([expected, np.zeros((1, 2))]), atol=1e-12)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("gene,x\na,1\n", r"'x.csv' lacks too many genes .*\n  got:      75% are missing.*\n  expected: at most 50%"),
        ("gene,x\na,1\nb,nan\nc,2\n", r"'x.csv' has numbers that are not finite\n  got:      b\n"),
        ("gene,x,y\na,1,2\nb,1\nc,2,2\n", r"'x.csv' has numbers that are not finite\n  got:      b\n"),
        ("gene,x\na,1,2\nb,1,3\nc,2,4\n", r"'x.csv' cannot be read"),
        ("gene,x\na,1\nb,1,2\nc,2\n", r"'x.csv' cannot be read"),
        ("gene,x\na,1\nb,high\nc,2\n", r"'x.csv' cannot be read\n.*\n  expected: a name and equally many numbers"),
        ("gene\na\nb\nc\n", r"'x.csv' has no vector for each name"),
        ("gene,x\na,1\na,2\nb,1\n", r"'x.csv' has names twice\n  got:      a\n"),
        ("", r"'x.csv' cannot be read"),
    ],
)
def test_a_table_that_is_not_right_is_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(content)
    with pytest.raises(GraphError, match=f"`KEY.vectors`: {message}"):
        read(path)


def test_an_npz_of_wrong_widths_or_names_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, genes=np.array(["a", "b"]), vectors=np.ones((3, 2)))
    with pytest.raises(GraphError, match=r"no vector for each name\n  got:      2 names and numbers of shape \[3, 2\]"):
        read(path)
    np.savez(path, names=np.array(["a", "b"]))
    with pytest.raises(GraphError, match=r"cannot be read\n.*\n  expected: .* in npz the arrays `genes` and `vectors`"):
        read(path)
    with pytest.raises(GraphError, match=r"unknown form of file\n  got:      x.txt\n  expected: .csv, "):
        read(tmp_path / "x.txt")


def test_features_are_standardised_and_missing_nodes_get_the_mean(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("\ufeffgene,length,constant\nc,3,7\n\na,1,7\nother,99,7\n\n")
    expected = torch.tensor([[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    torch.testing.assert_close(read_features(path, GENES, "gene"), expected)
    path.write_text("gene,x\nz,1\n")
    message = r"`model.features.gene`: 'x.csv' names no gene of the cell graph\n.* e.g. z\n  expected: names such as a"
    with pytest.raises(GraphError, match=message):
        read_features(path, GENES, "gene")


@pytest.mark.parametrize(
    ("name", "content"),
    [("x.csv.gz", gzip.compress(b"gene,x\na,1\n", mtime=0)[:-12]), ("x.csv", b"gene,x\n\xff,1\n")],
    # The archive holds the time at which it is made, which would be another one in every worker.
    ids=["torn archive", "no text"],
)
def test_damaged_tables_are_refused(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(GraphError, match=rf"{name}' cannot be read\n  got:      .+\n  expected: a name and equally"):
        read(tmp_path / name)

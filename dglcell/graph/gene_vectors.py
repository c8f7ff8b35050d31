"""Read vectors of genes from a user's file, e.g. embeddings of their sequences by a language model."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import GraphError, import_optional, listing
from dglcell.files.atomic import DAMAGE
from dglcell.files.untrusted import UnreadableError, read_npz
from dglcell.graph.vocabulary import Vocabulary

SUFFIXES = (".csv", ".csv.gz", ".parquet", ".npz")


def read_gene_vectors(path: Path, genes: Vocabulary, max_missing: float, key: str) -> NDArray[np.float64]:
    """Read vectors of length one, of columns that are standardised over the genes that the file has.

    Args:
        path: CSV or Parquet with the name of a gene in the first column and numbers in the others, or an ``.npz`` file
            with the arrays ``genes`` [G] of names and ``vectors`` [G, D].
        genes: genes of the cell graph; names that it lacks are left out.
        max_missing: share of the genes that the file may lack.
        key: dotted path of the source in the configuration, for messages.

    Returns:
        The vectors, [N, D]; zeros for a gene that the file lacks.

    Raises:
        GraphError: the file is damaged or of another form, a number is not finite, a gene occurs twice, or too many
        genes are missing.
        MissingDependencyError: the file is Parquet, and pyarrow is not installed.
    """
    names, vectors = _read(path, key)
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise GraphError(f"`{key}.vectors`: '{path.name}' has genes twice", got=listing(twice), do="keep one of each")
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if bad.size:
        raise GraphError(
            f"`{key}.vectors`: '{path.name}' has vectors with numbers that are not finite",
            got=listing([names[row] for row in bad]),
            expected="finite numbers",
            do="leave these genes out of the file",
        )
    index = genes.indices(names)
    known = index >= 0
    missing = 1 - known.sum() / len(genes)
    if missing > max_missing:
        raise GraphError(
            f"`{key}.vectors`: '{path.name}' lacks too many genes of the cell graph",
            got=f"{missing:.0%} are missing; the file has {len(names):,} names, e.g. {names[0] if names else 'none'}",
            expected=f"at most {max_missing:.0%}, and names such as {genes.names[0]}",
            do=f"give a vector for more genes, or raise `{key}.max_missing`",
        )
    found = vectors[known]
    spread = found.std(axis=0)
    found = (found - found.mean(axis=0)) / np.where(spread > 0, spread, 1)
    length = np.linalg.norm(found, axis=1, keepdims=True)
    profiles = np.zeros((len(genes), vectors.shape[1]))
    profiles[index[known]] = found / np.where(length > 0, length, 1)
    return profiles


def _read(path: Path, key: str) -> tuple[list[str], NDArray[np.float64]]:
    """Return names, and [G, D] numbers."""
    if not path.name.endswith(SUFFIXES):
        raise GraphError(f"`{key}.vectors`: unknown form of file", got=path.name, expected=", ".join(SUFFIXES))
    try:
        names, values = _read_npz(path) if path.suffix == ".npz" else _read_frame(path)
        vectors = np.asarray(values, dtype=np.float64)
    except (*DAMAGE, UnreadableError, ValueError, TypeError, KeyError, Warning) as error:
        raise GraphError(
            f"`{key}.vectors`: '{path.name}' cannot be read",
            got=str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__,
            expected="a gene and equally many numbers in every row; in npz the arrays `genes` and `vectors`",
        ) from error
    if vectors.ndim != 2 or vectors.shape[0] != len(names) or not vectors.shape[1]:
        raise GraphError(
            f"`{key}.vectors`: '{path.name}' has no vector for each gene",
            got=f"{len(names):,} names and numbers of shape {list(vectors.shape)}",
            expected="a row of one or more numbers for each name",
        )
    return names, vectors


def _read_npz(path: Path) -> tuple[list[str], NDArray[np.generic]]:
    arrays = read_npz(path)
    return [str(name) for name in arrays["genes"].ravel()], arrays["vectors"]


def _read_frame(path: Path) -> tuple[list[str], NDArray[np.generic]]:
    import pandas as pd

    if path.suffix == ".parquet":
        import_optional("pyarrow", "Parquet files", "pip install 'dglcell[parquet]'")
        frame = pd.read_parquet(path)
    else:
        with warnings.catch_warnings():
            # pandas only warns when all rows are longer than the first line, and then drops what is too much.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(path, index_col=False)
    return [str(name) for name in frame.iloc[:, 0]], frame.iloc[:, 1:].to_numpy()

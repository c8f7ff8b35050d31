"""Read fixed input features of nodes from a table with names in the first column and numbers in the others."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dglcell.errors import GraphError
from dglcell.files.atomic import DAMAGE, open_text
from dglcell.graph.vocabulary import Vocabulary


def read_features(path: Path, vocabulary: Vocabulary, node_type: str) -> Tensor:
    """Read standardised features of the nodes of one type.

    Every column is shifted and scaled to mean 0 and standard deviation 1 over the nodes that the table has (a constant
    column becomes 0). Nodes that it lacks get 0, the mean; names that the vocabulary lacks are left out.

    Args:
        path: CSV, plain or ``.gz``, with a header; the first column holds names.
        vocabulary: names of the nodes of this type.
        node_type: the node type, for messages.

    Returns:
        The features, [N, F] float32.

    Raises:
        GraphError: the file is damaged, or has no feature column, a cell that is no number, a name twice, a ragged row,
            or no known name.
    """
    try:
        with open_text(path) as file:
            lines = csv.reader(file)
            header = next(lines, [])
            if len(header) < 2:
                raise GraphError(f"features '{path}' have no feature column", got=header, expected="a name and numbers")
            rows = dict(_rows(lines, path, len(header)))
    except (*DAMAGE, csv.Error) as error:
        raise GraphError(
            f"features '{path}' cannot be read to their end", got=error, expected="a CSV text file, plain or .gz"
        ) from error
    known = {name: values for name, values in rows.items() if name in vocabulary}
    if not known:
        raise GraphError(
            f"features '{path}' name no {node_type} of the cell graph",
            got=f"{len(rows):,} names, e.g. {next(iter(rows), 'none')}",
            expected=f"names such as {vocabulary.names[0]}",
        )
    features = torch.zeros(len(vocabulary), len(header) - 1)
    features[torch.as_tensor(vocabulary.indices(list(known)))] = standardised(np.array(list(known.values())))
    return features


def standardised(values_NF: NDArray[np.float64]) -> Tensor:
    """Return every column with mean 0 and standard deviation 1, [N, F] float32; a constant column becomes 0."""
    sd = values_NF.std(0)
    return torch.as_tensor((values_NF - values_NF.mean(0)) / np.where(sd > 0, sd, 1.0)).float()


def _rows(lines: Iterator[list[str]], path: Path, width: int) -> Iterator[tuple[str, list[float]]]:
    seen: set[str] = set()
    for number, line in enumerate(lines, start=2):
        if not line:
            continue
        if len(line) != width:
            raise GraphError(
                f"features '{path}', line {number}: {len(line)} cells where the header has {width}",
                do="give every line as many cells as the header",
            )
        if line[0] in seen:
            raise GraphError(
                f"features '{path}', line {number}: '{line[0]}' is in the table twice", do="keep one line for each name"
            )
        seen.add(line[0])
        try:
            values = [float(cell) for cell in line[1:]]
        except ValueError as error:
            raise GraphError(f"features '{path}', line {number}: {error}", expected="numbers") from error
        if not np.isfinite(values).all():
            raise GraphError(
                f"features '{path}', line {number}: a value is not finite", got=line[1:], expected="finite numbers"
            )
        yield line[0], values

"""Triton's kernels without a GPU, run by Triton's interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import dglcell
from dglcell.graph.resident_graph import ResidentRelation, split_rows
from dglcell.kernels import row_chain
from dglcell.models.cell_model import HeteroCell
from dglcell.models.config import HeteroCellConfig
from dglcell.models.encoder import KEPT, KEPT_CHAINED
from dglcell.nn.hetero_layer import RowSum
from tests.random_cells import resident_cell

pytest.importorskip("triton", reason="Triton has no wheel for this system")

ROOT = Path(dglcell.__file__).parents[1]


@pytest.fixture(scope="module")
def errors() -> list[dict[str, Any]]:
    """Errors of all kernels, from a process in which Triton interprets."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-m", "tests.kernels.interpreted"]
    printed = subprocess.run(command, check=True, capture_output=True, env=environment).stdout
    found: list[dict[str, Any]] = json.loads(printed)
    return found


@pytest.mark.parametrize(
    ("kernel", "dtype", "cases", "limit"),
    [
        ("product", "float32", 8, 1e-6),
        ("product", "float16", 8, 1e-3),
        ("product of another tile", "float32", 2, 0.0),
        ("masked product", "float32", 6, 1e-6),
        ("masked product", "float16", 6, 1e-3),
        ("chain", "float32", 18, 1e-5),
        ("pairs", "float32", 10, 1e-5),
        ("pairs", "bfloat16", 39, 1.0),  # as a multiple of that of operations one by one
        ("model", "float32", 2, 1e-4),
    ],
)
def test_interpreted_kernels_equal_float64(
    errors: list[dict[str, Any]], kernel: str, dtype: str, cases: int, limit: float
) -> None:
    """With rows that are cut, rows without edges, odd widths, and a strain that has lost everything; backward too."""
    found = {row["case"]: row["error"] for row in errors if (row["kernel"], row["dtype"]) == (kernel, dtype)}
    assert len(found) == cases
    assert max(found.values()) <= limit, found


A100, H100, L40 = 166_912, 232_448, 101_376
"""Bytes of shared memory that a program may have."""


@pytest.mark.parametrize(
    ("room", "dtype", "linear", "fit"),
    [
        (L40, torch.bfloat16, 2, True), (L40, torch.bfloat16, 4, False), (A100, torch.bfloat16, 4, True),
        (A100, torch.float32, 2, False), (H100, torch.float32, 2, True), (H100, torch.float64, 2, False),
    ],
)  # fmt: skip
def test_a_chain_that_does_not_fit_is_neither_computed_by_one_kernel_nor_counted_so(
    room: int, dtype: torch.dtype, linear: int, fit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu, width = torch.device("cpu"), 64
    monkeypatch.setattr(row_chain, "DEVICES", ("cpu",))
    monkeypatch.setattr(row_chain, "_shared_memory", lambda device: room)
    started: list[object] = []
    monkeypatch.setattr(row_chain, "chained", lambda *args: started.append(args) or (args[1][0], args[2][1][0]))
    steps = [row_chain.Step(row_chain.LINEAR, str(number)) for number in range(linear)]
    assert row_chain.fits(steps, width, dtype, cpu) == fit
    cell = resident_cell({("gene", "physical", "gene"): ([0], [1])}, {"gene": 2})
    encoder = HeteroCell(cell, HeteroCellConfig(layers=1, gin_layers=linear)).encoder
    assert HeteroCell(cell, HeteroCellConfig(layers=0)).encoder.kept_of_strain(False, dtype) == 0
    kept = encoder.kept_of_strain(False, dtype) / (2 * width)
    assert (encoder.chained(dtype, cpu), kept) == (fit, KEPT_CHAINED if fit else KEPT)
    rows = [torch.zeros(2, width), torch.zeros(4, width, dtype=dtype)]
    found = RowSum(encoder.layers[0].convs[0]).in_one_kernel(2, [rows[0], rows[0]], [None, rows[1]])
    assert (found is not None, len(started)) == (fit, fit)


def test_no_argument_of_a_kernel_is_called_as_one_of_its_launcher() -> None:
    from dglcell.kernels import loops_triton

    found = [kernel.arg_names for kernel in vars(loops_triton).values() if hasattr(kernel, "arg_names")]
    assert found
    assert not any("options" in names for names in found)


def test_rows_are_cut_where_they_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dglcell.graph.resident_graph.PIECE_EDGES", 4)
    pieces, rows = split_rows(torch.tensor([0, 4, 4, 13, 14, 19]).numpy())
    assert pieces.tolist() == [
        [0, 0, 4, -1], [1, 4, 4, -1], [2, 4, 8, 0], [2, 8, 12, 1], [2, 12, 13, 2], [3, 13, 14, -1], [4, 14, 18, 3],
        [4, 18, 19, 4],
    ]  # fmt: skip
    assert rows.tolist() == [[2, 0, 3], [4, 3, 5]]


def test_pieces_follow_the_edges() -> None:
    relation = ResidentRelation(("gene", "p", "gene"), torch.arange(5), torch.zeros(5, dtype=torch.long), 5, 2)
    assert relation.pieces(transposed=False).pieces.tolist() == [[0, 0, 5, -1], [1, 5, 5, -1]]
    assert len(relation.pieces(transposed=True).pieces) == 5
    assert relation.pieces(transposed=True).partial == 0

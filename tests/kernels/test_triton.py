"""Triton's kernels without a GPU: run by Triton's interpreter, and compiled for GPUs."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import dglcell
from dglcell.graph.resident import ResidentRelation, split_rows

pytest.importorskip("triton", reason="Triton has no wheel for this system")

from benchmarks import kernel_resources
from benchmarks.kernel_resources import TARGETS, resources, variants
from dglcell.kernels.triton_products import TILES

ROOT = Path(dglcell.__file__).parents[1]
COMMITTED = ROOT / "benchmarks/results/kernel-resources.json"
LIMITS = {"float32": 1e-6, "float16": 1e-3}
PROOF = 1e-5
"""Errors in single precision that a user's machine may show; it drops a kernel at twice as much."""


@pytest.fixture(scope="module")
def errors() -> dict[tuple[str, str, str], float]:
    """kernel, type, case → error, from a process in which Triton interprets."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.kernel_errors"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    return {(row["kernel"], row["dtype"], row["case"]): row["error"] for row in json.loads(printed)}


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("weighted", ["weighted", "unweighted"])
def test_interpreted_kernels_equal_float64(
    errors: dict[tuple[str, str, str], float], weighted: str, dtype: str
) -> None:
    """With rows that are cut, rows without edges, odd widths, and a strain that has lost everything; backward too."""
    products = [
        f"{weighted} {direction} {size}" for direction in ("forward", "transposed") for size in ("1 x 19", "2 x 6")
    ]
    cases = [("product", case) for case in products]
    cases += [("masked product", f"{weighted} {which}") for which in ("states differ", "the same states")]
    found = {case: errors[case[0], dtype, case[1]] for case in cases}
    assert max(found.values()) <= LIMITS[dtype], found


def test_tiles_change_no_bit(errors: dict[tuple[str, str, str], float]) -> None:
    found = [error for (_, _, case), error in errors.items() if case.startswith("against another tile")]
    assert found == [0.0] * len(TILES)


def test_kernels_prove_themselves(errors: dict[tuple[str, str, str], float]) -> None:
    assert errors["triton", "float32", "proof"] <= PROOF


def chosen(capability: int) -> list[kernel_resources.Variant]:
    """Return one of each kernel, in bfloat16; the rest is in the committed table."""
    kinds = {variant.kernel: variant for variant in variants(TILES[:1]) if variant.what.startswith("bfloat16")}
    return list(kinds.values())


@pytest.mark.parametrize("capability", TARGETS)
def test_compiled_kernels_are_as_committed(capability: int) -> None:
    table = json.loads(COMMITTED.read_text())
    for variant in chosen(capability):
        found = resources(variant, capability)
        assert found.spilled_bytes == 0, found
        assert 0 < found.registers <= variant.registers, found
        assert found.widest_load_bits == 128, found
        if table["triton"] == importlib.metadata.version("triton"):
            rows = [row for row in table["rows"] if (row["kernel"], row["what"]) == (found.kernel, found.what)]
            assert found.registers in [row["registers"] for row in rows if row["target"] == found.target]


def test_the_committed_table_has_every_kernel_and_no_spill() -> None:
    table = json.loads(COMMITTED.read_text())
    expected = {(v.kernel, v.what, f"sm_{capability}") for v in variants() for capability in TARGETS}
    assert {(row["kernel"], row["what"], row["target"]) for row in table["rows"]} == expected
    limits = {(variant.kernel, variant.what): variant.registers for variant in variants()}
    for row in table["rows"]:
        assert row["spilled_bytes"] == 0, row
        assert row["registers"] <= limits[row["kernel"], row["what"]], row
        assert row["widest_load_bits"] == 128, row
    assert all(row["error"] <= 1e-3 for row in table["interpreter_errors"])


def test_rows_are_cut_where_they_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dglcell.graph.resident.PIECE_EDGES", 4)
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

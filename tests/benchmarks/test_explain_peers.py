"""The tables that the guide on explanations has of errors, and beside PyTorch Geometric."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
GUIDE = (ROOT / "docs" / "guides" / "explanations.md").read_text()


def rows_of(section: str) -> dict[str, list[str]]:
    """The rows of a section's tables: name → cells."""
    text = GUIDE[GUIDE.index(f"## {section}\n") :]
    found = re.findall(r"^\| ([^|]+?) \| (.*) \|$", text[: text.index("\n## ", 1)], flags=re.MULTILINE)
    return {name: cells.split(" | ") for name, cells in found}


def test_the_guide_has_the_errors_of_shares() -> None:
    errors = json.loads((RESULTS / "explain-error.json").read_text())["errors"]
    rows = rows_of("How exact it is")
    for name, found in errors.items():
        conv = name.removeprefix("random weights, ").partition(", ")
        shown = rows[f"`{conv[0]}`, {conv[2]}" if conv[1] else f"trained: `{name.partition('/')[0]}`"]
        of_dtypes = (found.get("float64"), found["float32"])
        expected = [of[what] if of else None for of in of_dtypes for what in ("parts", "cuts")]
        assert [None if cell == "\N{EN DASH}" else float(cell) for cell in shown] == expected
        assert max(found.get("float64", {}).values(), default=0) < 1e-10


def test_the_guide_has_what_was_measured_beside_pytorch_geometric() -> None:
    found = json.loads((RESULTS / "explain-peers.json").read_text())
    rows, times = rows_of("Beside PyTorch Geometric"), found["times"]
    for name, key in (
        ("`dglcell.load(…).predict`", "dglcell, prediction"),
        ("`….explain`", "dglcell, explanation"),
        ("`….explain`, with edges", "dglcell, explanation with edges"),
        ("PyG and Captum, gradient × input", "PyG, gradient × input"),
        ("PyG and Captum, integrated gradients, 16 points", "PyG, integrated gradients"),
        ("PyG, GNNExplainer, 100 steps (from 10 strains)", "PyG, GNNExplainer"),
    ):
        assert float(rows[name][0]) == pytest.approx(times[key]["seconds_per_1000"], abs=0.5 if "GNN" in key else 0.06)
    for name in ("gradient × input", "integrated gradients", "GNNExplainer"):
        of_method, of_mean = (
            found["scores"][one]["flux variability"] for one in (name, f"{name}, mean of other strains")
        )
        shown = [float(number) for cell in rows[name] for number in re.findall(r"\d\.\d+", cell)]
        keys = ("precision_10", "precision_50", "within_reactions")
        expected = [
            of_method["auroc"],
            *of_method["auroc_interval"],
            *(of_method[key] for key in keys),
            of_mean["auroc"],
        ]
        assert shown == pytest.approx(expected, abs=6e-4)
    ratios = [times[f"dglcell, explanation{more}"]["seconds_per_1000"] for more in ("", " with edges")]
    ratios = [ratio / times["dglcell, prediction"]["seconds_per_1000"] for ratio in ratios]
    text = " ".join(GUIDE.split())
    assert f"took {ratios[0]:.1f} times the processor time" in text
    assert f"{ratios[1]:.1f} times with edges" in text

"""The page on GPUs says what the committed measurements say."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pytest

from tests.docs.pages import ROOT


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    return json.loads((ROOT / "benchmarks/results/gpu-h100.json").read_text())


@pytest.fixture(scope="module")
def page() -> str:
    return (ROOT / "docs/guides/gpu.md").read_text(encoding="utf-8")


def test_times_of_products_are_sums_over_relations(measured: dict[str, Any], page: str) -> None:
    sums: Counter[tuple[str, str]] = Counter()
    for row in measured["products"]:
        sums[row["kernel"], row["dtype"]] += 1e3 * row["forward_backward_seconds"]
    shown = re.findall(r"^\| `(\w+)` \| ([\d.]+) \| ([\d.]+) \|$", page, flags=re.MULTILINE)
    assert {kernel for kernel, *_ in shown} == {kernel for kernel, _ in sums}
    for kernel, *times in shown:
        for dtype, time in zip(("float32", "bfloat16"), times, strict=True):
            assert float(time) == pytest.approx(sums[kernel, dtype], abs=0.05), (kernel, dtype)


def test_every_step_on_the_page_is_a_committed_row(measured: dict[str, Any], page: str) -> None:
    rows = {(round(row["median_ms"]), row["strains_per_second"], row["peak_gb"]) for row in measured["steps"]["rows"]}
    shown = re.findall(r"^\| .*?\| (\d+) \| (\d+) \| ([\d.]+) \|$", page, flags=re.MULTILINE)
    assert len(shown) == 8
    assert {(int(ms), int(rate), float(peak)) for ms, rate, peak in shown} <= rows

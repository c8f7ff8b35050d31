"""Expected times follow from counts and ceilings, and the committed ones are of this code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.counting import Product
from benchmarks.roofline import Design, Device, as_dense, main, prediction
from benchmarks.workload import Setting
from tests.benchmarks.cells import small_cell

COMMITTED = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "roofline.json"


def test_a_step_takes_what_the_device_or_the_host_takes() -> None:
    device = Device("round", copy=1e12, cache=1e12, flops=1e12, launch=1e-6, of_copy=0.5, of_cache=0.5, of_flops=0.5)
    expected = {"products": 6.0, "others": 2.0, "launches": 1.0, "step": 8.0}
    assert Design("", 10**6, 10**12, 10**12, 2e12).seconds(device) == pytest.approx(expected)
    assert Design("", 10**7, 0, 10**12).seconds(device)["step"] == pytest.approx(10.0)


def test_the_relations_with_most_edges_become_dense() -> None:
    products = [Product("a + b + c", 5 + 50 + 40, 20, 8, itemsize, False) for itemsize in (2, 4)]
    gathered, flops = as_dense(products, [5, 50, 40], 100, most=2)
    assert gathered == (50 + 40) * 8 * (2 + 4)
    assert flops == 2 * 2 * 2 * 128**2 * 8


def test_committed_times_follow_from_committed_counts() -> None:
    content = json.loads(COMMITTED.read_text())
    assert content["is"] == "expected, by arithmetic; nothing was measured on a GPU"
    device = Device(**content["device"])
    names = ("name", "launches", "gathered_bytes", "other_bytes", "dense_flops")
    for row in content["rows"]:
        assert Design(*(row[name] for name in names)).seconds(device) == row["expected_seconds"]
    before, *_, compiled, _, last = content["rows"]
    # A tenth of what is gathered is left, about, and a fifth of the 161 GB that plain torch once moved otherwise.
    assert last["gathered_bytes"] < before["gathered_bytes"] * 0.1
    assert last["other_bytes"] < 161e9 * 0.21
    assert compiled["launches"] <= 600


@pytest.mark.slow
def test_hours_are_divided_among_gpus() -> None:
    config = Setting("gin", 4, 8, 1, 3).model(metabolism=False)
    found = prediction(small_cell(), config, 4, Device())
    assert found.hours(1) == pytest.approx(8 * found.hours(8))
    assert found.gathered_bytes > 0


@pytest.mark.slow
def test_all_of_it_for_a_small_cell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "roofline.json"), "--scale", "0.01"]) == 0
    content = json.loads((tmp_path / "roofline.json").read_text())
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(content))
    launches = [row["launches"] for row in content["rows"]]
    committed = [row["launches"] for row in json.loads(COMMITTED.read_text())["rows"]]
    # Of any size; what the compiler joins may change with its version.
    assert launches[:3] == committed[:3]
    assert launches[3] < launches[2] * 2 / 3

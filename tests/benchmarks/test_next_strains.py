"""A replay of choosing strains, on a tiny screen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import next_strains
from tests.tiny import Tiny


def test_each_strategy_chooses_from_the_pool(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"LABELLED": 60, "VALIDATION": 40, "POOL": 100, "TEST": 50, "BATCH": 10, "ROUNDS": 1, "PER_GENE": 2}
    for name, value in sizes.items():
        monkeypatch.setattr(next_strains, name, value)
    out, keys = tmp_path / "out.json", (f"data.store={tiny.store}", "trainer.epochs=1")
    next_strains.main(str(out), str(tmp_path / "runs"), str(tiny.file), "3", *keys)
    found = json.loads(out.read_text())["experiments"]["tiny"]
    of_seed = found["seeds"]["3"]
    assert of_seed["hits_in_pool"] == 5
    assert list(of_seed["strategies"]) == list(next_strains.ALL)
    for one in of_seed["strategies"].values():
        (hits,) = one["hits"]
        assert all(0 <= hits[kind] <= 5 for kind in next_strains.HITS)
    assert found["mean"]["random"]["lowest_hits"][-1] == of_seed["strategies"]["random"]["hits"][-1]["lowest"]
    # A seed that is there is not replayed again.
    before = out.read_text()
    next_strains.main(str(out), str(tmp_path / "elsewhere"), str(tiny.file), "3", *keys)
    assert out.read_text() == before

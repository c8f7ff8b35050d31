"""A replay of choosing strains, on a tiny screen."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import next_strains
from dglcell.data.strains import Strains
from tests.tiny import Tiny


@pytest.mark.slow
def test_each_strategy_chooses_from_the_pool(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"BATCH": 10, "PER_GENE": 2}.items():
        monkeypatch.setattr(next_strains, name, value)
    monkeypatch.setattr(next_strains, "build_once", lambda cell, genes: None)  # it would last beyond this test
    sizes = {"labelled": 60, "validation": 40, "test": 50, "pool": 100, "rounds": 2}
    starts = tuple(f"start.{name}={value}" for name, value in sizes.items())
    out, keys = tmp_path / "out.json", (f"data.store={tiny.store}", "trainer.epochs=1", *starts)
    next_strains.main(str(out), str(tmp_path / "runs"), str(tiny.file), "3", *keys)
    found = json.loads(out.read_text())["experiments"]["tiny"]
    of_seed = found["seeds"]["3"]
    assert all(n >= 5 for n in of_seed["hits_in_pool"].values())
    assert list(of_seed["strategies"]) == list(next_strains.ALL)
    for one in of_seed["strategies"].values():
        first, last = one["hits"]
        assert all(0 <= first[kind] <= last[kind] <= of_seed["hits_in_pool"][kind] for kind in next_strains.HITS)
    trained = {path.parents[1].name for path in (tmp_path / "runs").glob("tiny/seed-3/*/seed-3/results.json")}
    assert trained == {"first", *(f"{name.split()[0]}-0" for name in next_strains.ALL)}
    assert found["mean"]["random"]["lowest_hits"][-1] == of_seed["strategies"]["random"]["hits"][-1]["lowest"]
    # A seed that is there is not replayed again.
    before = out.read_text()
    next_strains.main(str(out), str(tmp_path / "elsewhere"), str(tiny.file), "3", *keys)
    assert out.read_text() == before
    # Files of two seeds are put together.
    two, joined = tmp_path / "two.json", tmp_path / "joined.json"
    other = json.loads(before)
    other["experiments"]["tiny"]["seeds"] = {"4": of_seed}
    two.write_text(json.dumps(other))
    next_strains.join(str(joined), str(two), str(out))
    both = json.loads(joined.read_text())["experiments"]["tiny"]
    assert list(both["seeds"]) == ["3", "4"]
    assert both["mean"]["random"]["lowest_hits_sd"] == 0


def test_strains_with_a_sick_single_deletion_are_left_out() -> None:
    strains = Strains.from_names([["a"], ["b"], ["c"], ["d"], ["a", "b"], ["b", "c"], ["b", "d"], ["c", "d"]])
    labels = np.array([0.1, 1.0, 0.95, 0.92, 0.0, 0.9, 0.8, 0.7])
    start = next_strains.Start.read(["start.labelled=1", "start.validation=1", "start.test=0", "start.viable=0.9"])
    known, validation, test, pool = start.drawn(strains, labels, np.random.default_rng(0))
    assert set(known[:4].tolist()) == {0, 1, 2, 3}
    assert len(test) == 0
    assert {*known[4:].tolist(), *validation.tolist(), *pool.tolist()} == {5, 6, 7}

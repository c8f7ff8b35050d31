"""What intervals are worth, draw by draw."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import intervals
from dglcell.report.run_files import read_run
from tests.tiny import Tiny


def test_shares_and_widths_are_those_of_the_results(tiny: Tiny, tmp_path: Path) -> None:
    keys = tiny.overrides(tmp_path / "runs", "trainer.epochs=1")
    intervals.main(str(tmp_path / "out.json"), "2", str(tiny.file), *keys)
    found = json.loads((tmp_path / "out.json").read_text())["experiments"]["tiny"]
    shares = []
    for seed, draw in found["draws"].items():
        run = read_run(tmp_path / f"runs/tiny/draw-{seed}/seed-{seed}")
        (own,) = (row.metrics for row in run.rows if row.part == "test" and not row.is_null)
        assert (draw["difficulty"], draw["calibrated"]) == ("constant", 30)
        assert draw["0.9"]["constant"]["inside"] == pytest.approx(own["covered"], abs=1e-4)
        assert draw["0.9"]["chosen"]["width"] == pytest.approx(own["width"], rel=1e-3)
        assert "0.99" not in draw  # 30 strains are too few
        shares.append(own["covered"])
    assert found["mean"]["0.9"]["chosen"]["inside"] == pytest.approx(sum(shares) / 2, abs=1e-4)
    # A finished run says the same without its model.
    intervals.main(str(tmp_path / "again.json"), "1", str(tmp_path / "runs/tiny/draw-1/seed-1"))
    (again,) = json.loads((tmp_path / "again.json").read_text())["experiments"].values()
    assert again["draws"] == {"1": found["draws"]["1"]}
    assert again["split"] == found["split"]

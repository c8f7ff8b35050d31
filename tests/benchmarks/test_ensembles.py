"""What several seeds predict together."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import ensembles
from dglcell.report.run_files import read_run
from dglcell.report.run_tables import read_predictions
from tests.tiny import Tiny


def test_the_mean_prediction_is_compared_with_single_runs(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = ("experiment.name=some/split-0", "trainer.epochs=1", "null_models=false")
    directories = [tiny.train(tmp_path, *keys, f"seed={seed}").directory for seed in (0, 1)]
    monkeypatch.setattr("sys.argv", ["ensembles", str(tmp_path / "out.json"), *(str(run.path) for run in directories)])
    ensembles.main()
    found = json.loads((tmp_path / "out.json").read_text())
    tables = [read_predictions(run, "test")["fitness"] for run in directories]
    singles = [np.corrcoef(table.predicted, table.measured)[0, 1] for table in tables]
    mean = np.corrcoef(np.mean([table.predicted for table in tables], axis=0), tables[0].measured)[0, 1]
    [split], [summary] = found["splits"], found["summary"]
    assert split["experiment"] == read_run(directories[0].path).name == "some/split-0"
    assert split["runs"] == pytest.approx(singles, abs=1e-4)
    assert split["together"] == pytest.approx(mean, abs=1e-4)
    assert summary["difference"] == {"mean": pytest.approx(mean - np.mean(singles), abs=2e-4), "sd": None}
    assert (summary["experiment"], summary["splits"], summary["seeds"]) == ("some", 1, 2)

"""Copies of the tiny run, and runs that differ as their configurations and results say."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from dglcell.runs import RunDirectory

MakeRun = Callable[..., RunDirectory]


@pytest.fixture
def make_run(tiny_run: RunDirectory, tmp_path: Path) -> MakeRun:
    def make(
        name: str, seed: int, pearson: float | None, hashes: dict[str, str] | None = None, **model: Any
    ) -> RunDirectory:
        run = RunDirectory(Path(shutil.copytree(tiny_run.path, tmp_path / name / f"seed-{seed}")))
        config = yaml.safe_load(run.config.read_text())
        config["experiment"]["name"], config["seed"] = name, seed
        config["model"].update(model)
        run.config.write_text(yaml.safe_dump(config))
        results = json.loads(run.results.read_text())
        for row in results["rows"]:
            if not row["is_baseline"] and not row["model"].startswith("network + "):
                row["metrics"].update(pearson=pearson, mse=None if pearson is None else 1 - pearson)
        run.results.write_text(json.dumps(results))
        about = json.loads(run.environment.read_text())
        run.environment.write_text(json.dumps({**about, "hashes": {**about["hashes"], **(hashes or {})}}))
        return run

    return make

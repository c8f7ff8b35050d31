"""Probabilities of classes are compared with what happened."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import cobra
import numpy as np
import pytest

from benchmarks.reliability import EDGES, main, reliability
from dglcell.config.read import load_config
from dglcell.report.run_files import read_run
from dglcell.training.run import train
from tests.tiny import TINY


def test_probabilities_that_are_right_have_hardly_an_error() -> None:
    rng = np.random.default_rng(0)
    true = rng.uniform(size=100_000)
    happened = rng.uniform(size=len(true)) < true
    right, wrong = reliability(true, happened), reliability(true**2, happened)
    assert right["error"] < 0.01 < 0.1 < wrong["error"]
    assert right["brier"] == pytest.approx(np.mean((true - happened) ** 2), rel=1e-3)
    assert len(right["groups"]) == len(EDGES) + 1
    assert sum(one["n"] for one in right["groups"]) == len(true)
    assert all(abs(one["share"] - one["probability"]) < 5 * one["standard_error"] + 1e-3 for one in right["groups"])


def test_a_run_is_measured_on_its_test_part(tmp_path: Path) -> None:
    genes = [gene.id for gene in cobra.io.load_model("textbook").genes[:40]]
    rows = [f"{a},{b},{int((i + j) % 3 == 0)}" for (i, a), (j, b) in itertools.combinations(enumerate(genes), 2)]
    (tmp_path / "table.csv").write_text("\n".join(["one,two,sick", *rows[:400], ""]))
    source = TINY[TINY.index("    name: insilico") : TINY.index("  batch_size")]
    table = "    name: csv\n    csv: {path: table.csv, genes: [one, two], phenotypes: {sick: sick}}\n"
    file = tmp_path / "classes.yaml"
    file.write_text(TINY.replace(source, table).replace(", subset: {size: 300}", ""))
    keys = [f"paths.{name}={tmp_path / name}" for name in ("data", "runs")]
    config = load_config(file, [*keys, f"paths.raw={tmp_path}", "plot=false", "null_models=false"])
    run = train(config).directory
    main(str(tmp_path / "out.json"), str(run.path))
    found = json.loads((tmp_path / "out.json").read_text())["experiments"]["tiny"]
    own = next(row.metrics for row in read_run(run.path).rows if row.part == "test")
    assert (found["phenotype"], found["n"]) == ("sick", own["n"])
    assert found["of_class"] == round(own["n"] * own["prevalence"])
    assert found["probabilities"]["brier"] == pytest.approx(own["calibrated_brier"], rel=1e-3)

"""Invented runs of every shape."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dglcell.data.table import CLASSIFICATION
from dglcell.metrics import ResultRow, classification_metrics, regression_metrics
from dglcell.report.run_files import Predictions, RunFiles
from dglcell.runs import RunDirectory
from dglcell.training.evaluate import rows_as_json


def predictions(n: int, seed: int = 0, *, binary: bool = False) -> Predictions:
    """n strains, every seventh not measured."""
    rng = np.random.default_rng(seed)
    measured = rng.integers(0, 2, n).astype(float) if binary else -np.exp(rng.normal(size=n))
    measured[::7] = np.nan
    predicted = 0.5 * np.nan_to_num(measured) + rng.normal(size=n)
    return Predictions(measured, predicted)


def history(phenotypes: list[str], epochs: int = 5) -> list[dict[str, Any]]:
    """Return a record in which losses fall and correlations rise."""
    scores = [f"validation/{name}/{metric}" for name in phenotypes for metric in ("pearson", "average_precision")]
    return [
        {"epoch": epoch, "train/loss": 2 / (epoch + 1), "validation/loss": 3 / (epoch + 1), "seconds": 30.0}
        | dict.fromkeys(scores, 0.1 * epoch)
        for epoch in range(epochs)
    ]


def row_of(model: str, part: str, phenotype: str, p: Predictions, is_baseline: bool) -> ResultRow:
    metrics = regression_metrics(p.predicted, p.measured)
    if not np.isin(p.usable.measured, (0.0, 1.0)).all():
        return ResultRow(model, part, phenotype, metrics, is_baseline)
    metrics |= classification_metrics(p.predicted, p.measured)
    return ResultRow(model, part, phenotype, metrics, is_baseline, CLASSIFICATION)


def files(
    rows: list[ResultRow], predictions: dict[str, dict[str, Predictions]], record: Sequence[dict[str, Any]] = (),
    name: str = "demo", *, predicts: dict[str, str] | None = None, epoch: int = 1,
) -> RunFiles:  # fmt: skip
    """Return what a run of this content would have written."""
    config = {"experiment": {"name": name}, "seed": 0, "split": {"kind": "random"}, "plot_points": 10_000}
    cell = {"genes": 137, "edges": 1000}
    about = {"strains": {"test": 9}, "cell": cell, "parameters": 1, "model": "hetero_cell", "devices": ["cpu"]}
    by = {phenotype: {"name": name} for phenotype, name in (predicts or {}).items()}
    results = {"rows": rows_as_json(rows), "units": {}, "epoch": epoch, "predicts": by}
    return RunFiles(RunDirectory(Path("demo")), config, about, results, record, predictions)


def run_of(phenotypes: dict[str, Predictions], epochs: int = 5, model: str = "dglcell", **more: Any) -> RunFiles:
    """A run with a model and two baselines."""
    rows = [
        row_of(name, part, phenotype, Predictions(p.measured, factor * p.predicted), is_baseline)
        for phenotype, p in phenotypes.items()
        for name, factor, is_baseline in ((model, 1.0, False), ("additive ridge", -0.5, True), ("mean", 0.0, True))
        for part in ("validation", "test")
    ]
    parts = {"test": phenotypes, "validation": phenotypes}
    return files(rows, parts, history(list(phenotypes), epochs), **more)


CONSTANT = Predictions(np.arange(20.0), np.full(20, 0.3))
NOTHING = Predictions(np.zeros(0), np.zeros(0))
UNMEASURED = Predictions(np.full(9, np.nan), np.zeros(9))
LONG = "a_very_long_name_" * 8
RUNS = {
    "one phenotype, few strains": run_of({"fitness": predictions(20)}),
    "five strains": run_of({"tau": predictions(5)}),
    "one strain": run_of({"fitness": Predictions(np.ones(1), np.zeros(1))}),
    "one phenotype, many strains": run_of({"s_score": predictions(5000)}),
    "yes and no": run_of({"negative_interaction": predictions(100, binary=True)}),
    "three phenotypes": run_of({name: predictions(60) for name in ("fitness", "epsilon", "tau")}),
    "no history": run_of({"fitness": predictions(50)}, epochs=0),
    "one epoch": run_of({"fitness": predictions(50)}, epochs=1),
    "empty test part": run_of({"fitness": NOTHING}),
    "nothing measured": run_of({"fitness": UNMEASURED}),
    "constant prediction": run_of({"fitness": CONSTANT}),
    "long names": run_of({LONG: predictions(40)}, model=LONG),
    "dollar signs": run_of({"cost $x^$_{": predictions(40)}, model="$\\frac"),
    "metrics only": files(run_of({"fitness": CONSTANT}).rows, {}),
    "nothing at all": files([], {}, name=""),
    "epochs without values": files([], {"test": {"y": predictions(9)}}, [{"epoch": 0}, {"epoch": 1}]),
}


def png_size(content: bytes) -> tuple[int, int]:
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", content[16:24])
    return int(width), int(height)

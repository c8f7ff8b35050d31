"""How often intervals held the measured value: draws of the benchmark, committed records, and runs with controls."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dglcell.data.config import CALIBRATES, INTERVAL_COVERAGE, LIKE_VALIDATION
from site_extension.experiments import experiment_files, loaded
from site_extension.markdown import code, table
from site_extension.results import committed

FILE = Path("benchmarks/results/intervals.json")
RUNS = Path("benchmarks/results/controls.json")
HEADER = ("experiment", "split", "draws", "inside", "mean width", "inside, equally wide", "width, equally wide")
COLUMNS = ("covered", "width", "constant_covered", "constant_width")

Draws = list[dict[str, float]]


def pages(root: Path) -> dict[str, str]:
    """One table of splits whose test strains are drawn as the validation strains are, and one of the others."""
    benchmark, runs = (json.loads((root / file).read_text(encoding="utf-8"))["experiments"] for file in (FILE, RUNS))
    found: dict[str, tuple[str, Draws]] = {
        name: (about["split"], [_of_draw(draw) for draw in about["draws"].values()])
        for name, about in benchmark.items()
    }
    for config in map(loaded, experiment_files(root)):
        name = config.experiment.name
        draws = [draw for record in committed(root, config).values() for draw in _of_record(record)]
        draws = draws or _of_record(runs.get(name, {"rows": []}))
        if draws:
            found.setdefault(name, (config.split.kind, draws))
    alike = [name for name, (split, _) in found.items() if CALIBRATES[split] == LIKE_VALIDATION]
    return {
        "parts/coverage-alike.md": _table(found, alike),
        "parts/coverage-others.md": _table(found, [name for name in found if name not in alike]),
    }


def _of_draw(draw: dict[str, Any]) -> dict[str, float]:
    """The figures of a draw of the benchmark, named as in records."""
    chosen, constant = draw[f"{INTERVAL_COVERAGE:g}"].values()
    values = (chosen["inside"], chosen["width"], constant["inside"], constant["width"])
    return dict(zip(COLUMNS, values, strict=True))


def _of_record(record: dict[str, Any]) -> Draws:
    """The figures of a record: those of its model, which are there where intervals were calibrated."""
    own = [row["metrics"] for row in record["rows"] if row["part"] == "test" and not row["is_null"]]
    return [{name: metrics[name] for name in COLUMNS} for metrics in own if metrics.get("covered") is not None]


def _table(found: dict[str, tuple[str, Draws]], names: Sequence[str]) -> str:
    rows = [(code(name), found[name][0], *_cells(found[name][1])) for name in sorted(names)]
    return table(HEADER, rows, "llrrrrr")


def _cells(draws: Draws) -> tuple[str, ...]:
    inside, width, constant_inside, constant_width = ([draw[name] for draw in draws] for name in COLUMNS)
    return str(len(draws)), _share(inside), _width(width), _share(constant_inside), _width(constant_width)


def _share(values: Sequence[float]) -> str:
    spread = f" ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * statistics.fmean(values):.1f}{spread} %"


def _width(values: Sequence[float]) -> str:
    return f"{statistics.fmean(values):.3g}"

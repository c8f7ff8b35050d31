"""Collect what stands beside a model's score: ``python -m benchmarks.controls OUT RUN …``.

Each RUN is the directory of a finished run, for example of ``dglcell train FILE --permuted-labels 20``. OUT has its
results on the test part, from which the site makes the table of controls. A run takes the place of an earlier one of
the same experiment.
"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import yaml

from dglcell.files.atomic import write_json
from dglcell.report.run_files import NODES

DIGITS = 6


def collected(run: Path) -> dict[str, Any]:
    """Return the results of a run on the test part, and how it was made."""
    results = json.loads((run / "results.json").read_text(encoding="utf-8"))
    about = json.loads((run / "environment.json").read_text(encoding="utf-8"))
    rows = [row for row in [*results["rows"], *results.get(NODES, [])] if row["part"] == "test"]
    for row in rows:
        row["metrics"] = {name: _short(value) for name, value in row["metrics"].items()}
    # Where files lay says nothing about a run.
    words = [word for word in shlex.split(about["command"]) if not word.startswith(("paths.", "data.store="))]
    git = about.get("git") or {}
    return {
        "command": shlex.join(words),
        "commit": git.get("commit"),
        "epochs": results["epochs"],
        "split_sha256": about["hashes"]["split"],
        "devices": about["devices"],
        "rows": rows,
    }


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{DIGITS}g}")


def main(out: str, *runs: str) -> None:
    """Write the file."""
    path = Path(out)
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"experiments": {}}
    found["what"] = "Results of single runs on the test part, with null models and controls."
    for run in map(Path, runs):
        config = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
        found["experiments"][config["experiment"]["name"]] = {"seed": config["seed"], **collected(run)}
    found["experiments"] = dict(sorted(found["experiments"].items()))
    write_json(path, found)


if __name__ == "__main__":
    main(*sys.argv[1:])

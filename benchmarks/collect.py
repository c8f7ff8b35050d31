"""Put what finished runs of one commit say into a JSON file: ``python benchmarks/collect.py OUT RUN [RUN …]``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

KEPT = ("pearson", "spearman", "r2")


def summary(run: Path) -> dict[str, Any]:
    """Configuration, cost and scores of a run and of the null models on its split."""
    config = yaml.safe_load((run / "config.yaml").read_text())
    about = json.loads((run / "environment.json").read_text())
    history = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    results = json.loads((run / "results.json").read_text())
    scores: dict[str, dict[str, dict[str, float]]] = {}
    for row in results["rows"]:
        kept = {name: round(row["metrics"][name], 4) for name in KEPT if row["metrics"].get(name) is not None}
        scores.setdefault(row["model"], {})[row["part"]] = kept
    return {
        # Where files lay says nothing about a run.
        "command": " ".join(word for word in about["command"].split() if not word.startswith("paths.")),
        "experiment": config["experiment"]["name"],
        "seed": config["seed"],
        "split": {"kind": config["split"]["kind"], "seed": config["split"]["seed"], "sha256": about["hashes"]["split"]},
        "strains": about["strains"],
        "parameters": about["parameters"],
        "epochs": len(history),
        "reported_epoch": results["epoch"] + 1,
        "training_seconds": round(sum(row["seconds"] for row in history), 1),
        "scores": scores,
    }


def main() -> None:
    """Collect."""
    out, runs = Path(sys.argv[1]), [Path(argument) for argument in sys.argv[2:]]
    about = json.loads((runs[0] / "environment.json").read_text())
    environment = {key: about[key] for key in ("python", "packages", "git", "threads") if key in about}
    content = {"environment": environment, "runs": [summary(run) for run in runs]}
    out.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()

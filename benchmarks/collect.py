"""Put what finished runs say into a JSON file: ``python -m benchmarks.collect [options] OUT RUN [RUN …]``.

Runs that differ in their seed alone are summed up as mean and standard deviation. Of the experiments of an ablation,
``…/whole`` and others beside it, the file also has how far each is from ``…/whole`` with the same seed and split; with
``--whole NAME`` how far all are from the experiment of that name; there may be one for each split.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

KEPT = ("pearson", "spearman", "r2", "average_precision", "auroc")
WHOLE = "whole"

Scores = dict[str, dict[str, float]]


def summary(run: Path) -> dict[str, Any]:
    """Return configuration, cost and scores of a run and of the null models on its split."""
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
        "commit": (about.get("git") or {}).get("commit"),
        "split": {"kind": config["split"]["kind"], "seed": config["split"]["seed"], "sha256": about["hashes"]["split"]},
        "strains": about["strains"],
        "parameters": about["parameters"],
        "epochs": len(history),
        "reported_epoch": results["epoch"] + 1,
        "training_seconds": round(sum(row["seconds"] for row in history), 1),
        "scores": scores,
    }


def spread(runs: list[dict[str, Any]], wholes: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Sum up test scores of every experiment over its seeds: mean and sample standard deviation, null for one seed.

    Args:
        runs: as ``summary`` gives them.
        wholes: the experiments that others with the same split are compared with; the one beside them that is called
            ``whole`` where there are none.
    """
    by_key = {(run["experiment"], run["seed"], run["split"]["sha256"]): _test(run) for run in runs}
    found = []
    for experiment in dict.fromkeys(run["experiment"] for run in runs):
        mine = [run for run in runs if run["experiment"] == experiment]
        seeds = [run["seed"] for run in mine]
        row = {"experiment": experiment, "seeds": seeds, "test": _mean_and_sd([_test(run) for run in mine])}
        compared = wholes or [f"{experiment.rpartition('/')[0]}/{WHOLE}"]
        draws = [(run["seed"], run["split"]["sha256"]) for run in mine]
        theirs = [next((by_key[name, *draw] for name in compared if (name, *draw) in by_key), None) for draw in draws]
        if experiment not in compared and all(scores is not None for scores in theirs):
            row["test_minus_whole"] = _mean_and_sd([_minus(_test(a), b) for a, b in zip(mine, theirs, strict=True)])
        found.append(row)
    return found


def _test(run: dict[str, Any]) -> Scores:
    return {model: parts["test"] for model, parts in run["scores"].items() if "test" in parts}


def _minus(run: Scores, whole: Scores | None) -> Scores:
    """Return by how much the run's own model scores above the model of the whole; a part may be another model."""
    (model, mine), (_, theirs) = next(iter(run.items())), next(iter((whole or {}).items()))
    return {model: {metric: mine[metric] - theirs[metric] for metric in mine if metric in theirs}}


def _mean_and_sd(runs: list[Scores]) -> dict[str, dict[str, dict[str, float | None]]]:
    table: dict[str, dict[str, dict[str, float | None]]] = {}
    for model in runs[0]:
        for metric in runs[0][model]:
            values = [run[model][metric] for run in runs if metric in run.get(model, {})]
            sd = round(statistics.stdev(values), 4) if len(values) > 1 else None
            table.setdefault(model, {})[metric] = {"mean": round(statistics.fmean(values), 4), "sd": sd}
    return table


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--what", help="a sentence on the experiments")
    help_ = "the experiment that all others with the same split are compared with"
    parser.add_argument("--whole", metavar="NAME", action="append", default=[], help=help_)
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("runs", type=Path, metavar="RUN", nargs="+")
    options = parser.parse_args()
    about = json.loads((options.runs[0] / "environment.json").read_text())
    environment = {key: about[key] for key in ("python", "packages", "threads") if key in about}
    rows = [summary(run) for run in options.runs]
    content = {"environment": environment, "summary": spread(rows, options.whole), "runs": rows}
    if options.what:
        content = {"what": options.what, **content}
    options.out.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()

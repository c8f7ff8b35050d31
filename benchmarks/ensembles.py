"""Measure what the mean prediction of several seeds adds: ``python -m benchmarks.ensembles OUT RUN [RUN …]``.

RUNs are run directories of experiments called NAME/split-S, whose seeds differ in their weights alone:
``dglcell train FILE experiment.name=NAME/split-S split.seed=S seed=W``. OUT has the score of each run and of the mean
prediction on the test part: Pearson correlation, or average precision for classes. The difference is that of the mean
prediction from the runs' mean score, split by split.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dglcell.files.atomic import write_json
from dglcell.metrics import HEADLINE
from dglcell.report.ensemble import find_ensembles
from dglcell.report.run_files import RunFiles, read_run


def together(runs: Sequence[RunFiles]) -> dict[str, Any]:
    """Return scores of runs that share a split, and of their mean prediction, for the first phenotype."""
    [ensemble] = find_ensembles(runs)
    row = next(row for row in ensemble.rows if row.part == "test")
    metric = HEADLINE[row.kind]
    scores = [
        next(r.metrics[metric] for r in run.rows if r.part == "test" and not r.is_null and r.phenotype == row.phenotype)
        for run in runs
    ]
    return {
        "experiment": ensemble.name,
        "metric": metric,
        "runs": [round(score, 4) for score in scores],
        "together": round(row.metrics[metric], 4),
    }


def _spread(values: Sequence[float]) -> dict[str, float | None]:
    sd = round(statistics.stdev(values), 4) if len(values) > 1 else None
    return {"mean": round(statistics.fmean(values), 4), "sd": sd}


def summed_up(splits: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return mean and standard deviation over the splits of each experiment."""
    found = []
    for name in dict.fromkeys(split["experiment"].rpartition("/")[0] for split in splits):
        mine = [split for split in splits if split["experiment"].rpartition("/")[0] == name]
        single = [statistics.fmean(split["runs"]) for split in mine]
        joint = [split["together"] for split in mine]
        more = [a - b for a, b in zip(joint, single, strict=True)]
        about = {"experiment": name, "metric": mine[0]["metric"], "splits": len(mine), "seeds": len(mine[0]["runs"])}
        found.append({**about, "single": _spread(single), "together": _spread(joint), "difference": _spread(more)})
    return found


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("runs", type=Path, metavar="RUN", nargs="+")
    options = parser.parse_args()
    groups: dict[str, list[RunFiles]] = {}
    for path in options.runs:
        run = read_run(path)
        groups.setdefault(run.name, []).append(run)
    splits = [together(runs) for runs in groups.values()]
    about = json.loads((options.runs[0] / "environment.json").read_text())
    environment = {key: about[key] for key in ("python", "packages", "threads") if key in about}
    what = "The mean prediction of several seeds against single ones, on the same splits."
    write_json(options.out, {"what": what, "environment": environment, "summary": summed_up(splits), "splits": splits})


if __name__ == "__main__":
    main()

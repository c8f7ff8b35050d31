"""Evaluate models on a screen that they have not seen: ``python -m benchmarks.left_out_screen OUT RUNS [K=V …]``.

RUNS has the run directories of `EXPERIMENTS`, as `dglcell train` made them, with several seeds. `dglcell.evaluate_on`
evaluates each on the strains of a screen that it was not trained on, beside the null models that are fitted on the same
training part. OUT is a JSON file. K=V are keys of the other screen's experiment, as `paths.raw=FOLDER`.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
from pathlib import Path
from typing import Any

import dglcell
from dglcell.files.atomic import write_json

PAIRS = "data.source.laboratory.where.kind=digenic"

COLLINS, COSTANZO, KUZMIN = "101-collins2007/random", "102-costanzo2016/random", "104-kuzmin2020-pilot/random"

EXPERIMENTS = [
    ("109-several-screens/without_costanzo2016", COSTANZO, {"s_score": "digenic_interaction"}),
    ("101-collins2007/set_operator_random", COSTANZO, {"s_score": "digenic_interaction"}),
    ("109-several-screens/without_collins2007", COLLINS, {"digenic_interaction": "s_score"}),
    ("102-costanzo2016/set_operator_random", COLLINS, {"digenic_interaction": "s_score"}),
    ("109-several-screens/without_kuzmin2020_pilot", KUZMIN, {"s_score": "digenic_interaction"}),
    ("109-several-screens/without_kuzmin2020_pilot", KUZMIN, {"digenic_interaction": "digenic_interaction"}),
    ("101-collins2007/set_operator_random", KUZMIN, {"s_score": "digenic_interaction"}),
    ("102-costanzo2016/set_operator_random", KUZMIN, {"digenic_interaction": "digenic_interaction"}),
]
"""An entry is a trained experiment, the experiment whose strains it predicts, and the phenotypes that are compared."""


def evaluated(runs: Path, name: str, on: str, phenotypes: dict[str, str], keys: list[str]) -> dict[str, Any]:
    """Return scores of a model and its null models on another screen, over the seeds that were run."""
    found: dict[str, dict[int, float]] = {}
    strains = []
    for run in sorted((runs / name).glob("seed-*")):
        overrides = [*([PAIRS] if on == KUZMIN else []), *keys]
        rows = dglcell.evaluate_on(run, Path("conf") / f"{on}.yaml", *overrides, phenotypes=phenotypes)
        strains.append(int(rows.n[0]))
        for model, pearson in zip(rows.model, rows.pearson, strict=True):
            if pearson == pearson:  # constant predictions have none
                found.setdefault(model, {})[int(run.name.removeprefix("seed-"))] = round(float(pearson), 4)
    return {
        "trained": name,
        "on": on,
        "phenotypes": phenotypes,
        "strains": strains,
        "pearson": {
            model: {
                "mean": round(statistics.mean(scores.values()), 4),
                "sd": round(statistics.stdev(scores.values()), 4) if len(scores) > 1 else None,
                "seeds": scores,
            }
            for model, scores in found.items()
        },
    }


def main() -> None:
    """Run the command."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("runs", type=Path)
    parser.add_argument("keys", nargs="*")
    options = parser.parse_args()
    rows = [evaluated(options.runs, name, on, phenotypes, options.keys) for name, on, phenotypes in EXPERIMENTS]
    about = json.loads((next((options.runs / EXPERIMENTS[0][0]).glob("seed-*")) / "environment.json").read_text())
    environment = {key: about[key] for key in ("python", "packages", "threads") if key in about}
    what = "Pearson correlation of predictions with the scores of a screen that the model was not trained on."
    write_json(options.output, {"what": what, "environment": environment, "rows": rows})


if __name__ == "__main__":
    main()

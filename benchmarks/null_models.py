"""Null models of the experiments with results: ``python -m benchmarks.null_models OUT [--raw DIR] [--folder DIR]``.

Each is fitted by ``dglcell baselines`` with three draws of the split. FOLDER keeps what each command wrote, and what is
there already is not fitted again. OUT gets the figures of the test part.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from dglcell.cli import main as dglcell
from dglcell.files.atomic import write_json
from dglcell.machine.processor import processor_name
from dglcell.runs.usage import environment

EXPERIMENTS = (
    "quickstart",
    "101-collins2007/set_operator_random",
    "101-collins2007/set_operator_gene_disjoint",
    "102-costanzo2016/set_operator_random",
    "102-costanzo2016/set_operator_gene_disjoint",
    "103-tong2004/set_operator_random",
    "103-tong2004/set_operator_gene_disjoint",
    "104-kuzmin2020-pilot/set_operator_random",
    "105-yeast-gem/random",
    "106-ecoli-core/deletions",
    "106-ecoli-core/half_of_pairs",
)
SEEDS = (0, 1, 2)


def test_figures(content: dict[str, Any]) -> dict[str, float | None]:
    """Return each null model's Pearson correlation on the test part, or average precision where labels are classes."""
    rows = [row for row in content["rows"] if row["part"] == "test"]
    return {row["model"]: row["metrics"].get("average_precision", row["metrics"]["pearson"]) for row in rows}


def main(arguments: list[str] | None = None) -> None:
    """Fit what is missing, then write OUT."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--raw", help="folder of raw files")
    parser.add_argument("--folder", type=Path, default=Path("null-models"))
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in EXPERIMENTS:
        for seed in SEEDS:
            path = options.folder / f"{name.replace('/', '_')}-{seed}.json"
            raw = ["--raw", options.raw] if options.raw else []
            if not path.is_file():
                stores = f"paths.data={options.folder}"
                dglcell(["baselines", name, f"split.seed={seed}", stores, *raw, "-o", str(path)])
            if path.is_file():
                content = json.loads(path.read_text(encoding="utf-8"))
                about = {"experiment": name, "split_seed": seed, "test": content["split"]["counts"]["test"]}
                rows.append(about | test_figures(content))
    machine = {**environment("python -m benchmarks.null_models"), "processor": processor_name()}
    write_json(options.output, {"what": __doc__.splitlines()[0], "environment": machine, "rows": rows})


if __name__ == "__main__":
    main()

"""Put what finished runs say into the tables of `docs/results`: ``python -m benchmarks.collect RUN [RUN …]``.

A number of experiments has a table of scores on the test part, and `runs.csv` says how each run was made and what it
took. Lines of runs with the same experiment and seed are replaced.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from dglcell.config.read import parse_inputs
from dglcell.data.columns import MEDIUM
from dglcell.metrics import ENSEMBLE_OF, regression_metrics
from dglcell.report.run_files import read_run_config
from dglcell.runs import RunDirectory
from dglcell.training.predicting import kept_baselines, strains_by_part
from dglcell.training.prepare import prepare_run

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs/results"
KEY = ("experiment", "seed")

SCORES = (
    *KEY, "where", "model", "baseline", "n", "pearson", "spearman", "r2", "mae", "pearson_within", "lowest_auroc",
    "average_precision", "auroc", "covered", "width", "constant_covered", "constant_width", "ahead_low", "ahead_high",
    "ahead_genes_low", "ahead_genes_high", "ceiling",
)  # fmt: skip
"""Columns; `where` is a part of the test strains, such as a medium, and empty for all of them."""

RUNS = (
    *KEY, "command", "commit", "python", "torch", "device", "threads", "parameters", "train", "validation", "test",
    "epochs", "best_epoch", "training_seconds", "wall_seconds", "peak_resident_bytes", "processes", "split", "store",
    "cell",
)  # fmt: skip

Row = dict[str, str]


def text(value: object) -> str:
    """Return a cell: numbers with five digits, nothing for None."""
    if value is None:
        return ""
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def scores(name: str, seed: int, results: Mapping[str, Any]) -> list[Row]:
    """Return a row for the model and each baseline, on the test part."""
    return [
        {
            "experiment": name,
            "seed": str(seed),
            "where": "",
            # An ensemble has a weight of its own in each run.
            "model": f"{ENSEMBLE_OF}baseline" if row["model"].startswith(ENSEMBLE_OF) else row["model"],
            "baseline": str(int(row["is_baseline"])),
            **{key: text(row["metrics"].get(key)) for key in SCORES[5:]},
        }
        for row in results["rows"]
        if row["part"] == "test"
    ]


def scores_in_media(name: str, seed: int, run: Path, results: Mapping[str, Any]) -> list[Row]:
    """Return rows of the media in which strains were measured, for each model but the ensemble; none of one medium."""
    table = pd.read_csv(run / "predictions_test.csv", dtype={MEDIUM: str})
    if MEDIUM not in table or table[MEDIUM].nunique() < 2:
        return []
    directory = RunDirectory(run)
    config = parse_inputs(read_run_config(directory), where=str(run))
    if config.data.source.name == "insilico":
        return []
    prepared = prepare_run(config, directory, "python -m benchmarks.collect")
    test = strains_by_part(prepared)["test"]
    (phenotype,) = prepared.dataset.phenotypes
    own = next(row["model"] for row in results["rows"] if row["part"] == "test" and not row["is_baseline"])
    column = f"network_{phenotype}" if f"network_{phenotype}" in table else f"predicted_{phenotype}"
    values = {own: table[column].to_numpy()}
    values |= {
        n: model.predict(test) for n, model in kept_baselines(directory, prepared.cell).models[phenotype].items()
    }
    made = []
    for medium in sorted(table[MEDIUM].unique()):
        chosen = (table[MEDIUM] == medium).to_numpy()
        for model, predictions in values.items():
            found = regression_metrics(predictions[chosen], test.phenotypes[phenotype][chosen])
            row = {"experiment": name, "seed": str(seed), "where": medium, "model": model}
            numbers = {key: text(value) for key, value in found.items() if key in SCORES and value == value}
            made.append({**row, "baseline": str(int(model != own)), **numbers})
    return made


def about(name: str, seed: int, folder: Path, results: Mapping[str, Any]) -> Row:
    """Return how a run was made, and what it took."""
    made = json.loads((folder / "environment.json").read_text())
    took = json.loads((folder / "usage.json").read_text())
    epochs = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    # Where files lay says nothing about a run.
    command = [word for word in made["command"].split() if not word.startswith("paths.")]
    found = {
        "experiment": name,
        "seed": seed,
        "command": " ".join(command),
        "commit": ((made.get("git") or {}).get("commit") or "")[:12],
        "python": made["python"],
        "torch": made["packages"]["torch"],
        "device": "cpu" if took["device"] == "cpu" else made["devices"][0],
        "threads": made["threads"],
        "parameters": made["parameters"],
        **{part: made["strains"][part] for part in ("train", "validation", "test")},
        "epochs": took["epochs"],
        "best_epoch": results["epoch"] + 1,
        "training_seconds": round(sum(row["seconds"] for row in epochs), 1),
        "wall_seconds": round(took["wall_seconds"]),
        "peak_resident_bytes": took["peak_resident_bytes"],
        "processes": took["processes"],
        **{key: made["hashes"][key][:12] for key in ("split", "store", "cell")},
    }
    return {key: text(value) for key, value in found.items()}


def read(path: Path) -> list[Row]:
    """Return the rows of a table; none where there is no file."""
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write(path: Path, columns: Iterable[str], rows: Iterable[Row]) -> None:
    """Write a table in the order of experiments and seeds, without columns that nobody fills."""
    ordered = sorted(rows, key=lambda row: (row["experiment"], int(row["seed"])))
    kept = [column for column in columns if column in KEY or any(row.get(column) for row in ordered)]
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, kept, restval="", extrasaction="ignore", lineterminator="\n")
        table.writeheader()
        table.writerows(ordered)


def merge(path: Path, columns: Iterable[str], rows: list[Row]) -> None:
    """Put rows into a table, in place of those of the same runs."""
    new = {(row["experiment"], row["seed"]) for row in rows}
    write(path, columns, [*(row for row in read(path) if (row["experiment"], row["seed"]) not in new), *rows])


def table_of(name: str) -> Path:
    """Return the file of an experiment's scores: that of its number."""
    return RESULTS / f"{name.partition('/')[0].partition('-')[0]}.csv"


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, metavar="RUN", nargs="+")
    for run in parser.parse_args().runs:
        config = yaml.safe_load((run / "config.yaml").read_text())
        results = json.loads((run / "results.json").read_text())
        name, seed = config["experiment"]["name"], config["seed"]
        merge(table_of(name), SCORES, scores(name, seed, results) + scores_in_media(name, seed, run, results))
        merge(RESULTS / "runs.csv", RUNS, [about(name, seed, run, results)])


if __name__ == "__main__":
    main()

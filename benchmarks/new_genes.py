"""Compare what predicts new genes: ``python -m benchmarks.new_genes OUT EXPERIMENT RUNS``.

RUNS is the folder of finished runs of the experiment, of which several may share a draw (``split.seed``), and of its
controls without messages. Beside them stand, on the same test strains, the growth that the rounds of messages give
without training, and the null models and gradient-boosted trees: once with the reactions that gene rules take away, and
once with those that are blocked as well. Differences of the model from each are taken draw by draw; one interval is
Student's over draws, the other is of a bootstrap over the new genes of each draw.
"""

from __future__ import annotations

import csv
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from numpy.typing import NDArray

from benchmarks.boosted_trees import BoostedTrees
from dglcell.baselines.fit import fit_null_models
from dglcell.config.experiment import Config
from dglcell.config.read import load_config
from dglcell.files.atomic import write_json
from dglcell.graph.model_files import read_model
from dglcell.graph.resident import ResidentCell
from dglcell.graph.schema import METABOLITE, REACTION
from dglcell.graph.wild_type import wild_type_balance
from dglcell.machine.processor import processor_name
from dglcell.metrics import json_safe, regression_metrics
from dglcell.models.config import HeteroCellConfig
from dglcell.nn.flux_rounds import FluxRounds
from dglcell.nn.measured import MeasuredStrains
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.runs.directory import RunDirectory
from dglcell.training.control_rows import CONTROL
from dglcell.training.null_problems import null_problems, strains_by_part
from dglcell.training.prepare import Prepared, prepare
from dglcell.uncertainty.paired import student

BOUND = "untrained bound, by gene rules"
"""Where this bound is 1, no training strain loses a part of what the strain loses."""

METRICS = ("pearson", "r2", "spearman", "mae")
RESAMPLES = 1000
STRAINS = 512

Vector = NDArray[np.float64]


def predicted(run: Path) -> Vector:
    """Return a run's predictions of its test part, in the order of its split."""
    with RunDirectory(run).predictions("test").open(newline="", encoding="utf-8") as file:
        return np.array([float(row["predicted_fitness"]) for row in csv.DictReader(file)])


def untrained(prepared: Prepared, rounds: FluxRounds, cell: ResidentCell) -> Vector:
    """Return the growth [n] after all rounds, held between the bounds of measured strains."""
    dataset = prepared.dataset

    def genotypes(rows: torch.Tensor) -> tuple[GenotypeBatch, torch.Tensor]:
        batch = dataset.take(rows)
        return batch.perturbations, batch.labels

    measured = MeasuredStrains(1, REACTION, whole=True)
    measured.remember(cell, *genotypes(prepared.parts["train"]))
    found = []
    for rows in prepared.parts["test"].split(STRAINS):
        strains = genotypes(rows)[0]
        growth = rounds(cell, strains)[0][:, -1:]
        found.append(growth.maximum(measured.largest(cell, strains)).minimum(measured(cell, strains)))
    return torch.cat(found)[:, 0].double().numpy()


def nulls(config: Config, label: str, flux: NDArray[np.float32]) -> dict[str, Vector]:
    """Return all null models' and boosted trees' predictions for the test part; flux is the wild type's, by node."""
    prepared = prepare(config, command="benchmark")
    test, problem = strains_by_part(prepared)["test"], null_problems(prepared)[0]
    models = {**fit_null_models(problem), "boosted trees": BoostedTrees(problem, flux)}
    return {f"{name}, {label}": model.predict(test) for name, model in models.items()}


def draw(experiment: str, seed: int, runs: dict[str, list[Path]], rounds: list[FluxRounds]) -> dict[str, Any]:
    """Return the test part of a draw: new genes of each strain, labels, and all predictions."""
    config = load_config(Path(experiment), [f"split.seed={seed}"])
    assert isinstance(config.model, HeteroCellConfig)
    prepared = prepare(config, command="benchmark")
    cell, dataset, rows = ResidentCell.of(prepared.cell), prepared.dataset, prepared.parts["test"]
    if not rounds:
        assert config.cell.model is not None
        reactions, metabolites = (prepared.cell.vocabularies[kind].names for kind in (REACTION, METABOLITE))
        rounds.append(FluxRounds(cell, config.model.flux_rounds))
        rounds[0].take([wild_type_balance(read_model(config.cell.model, config.paths.raw), reactions, metabolites)])
    flux = rounds[0].reactions[:, 0].numpy()
    trained = set(dataset.targets[_places(prepared, "train")].tolist())
    genes = [dataset.targets[dataset.offsets[i] : dataset.offsets[i + 1]].tolist() for i in rows.tolist()]
    by_rules = load_config(Path(experiment), [f"split.seed={seed}", "cell.lose_blocked=false", "model.flux_rounds=0"])
    return {
        "new": [[gene for gene in strain if gene not in trained] for strain in genes],
        "all_new": np.array([trained.isdisjoint(strain) for strain in genes]),
        "labels": dataset.labels[rows, 0].double().numpy(),
        "predictions": {
            **{f"model, seed {i}": predicted(run) for i, run in enumerate(runs["model"])},
            **{f"without messages, seed {i}": predicted(run) for i, run in enumerate(runs["control"])},
            "rounds without training": untrained(prepared, rounds[0], cell),
            **nulls(config, "with blocked reactions", flux),
            **nulls(by_rules, "by gene rules", flux),
        },
    }


def _places(prepared: Prepared, part: str) -> torch.Tensor:
    """Return the positions of the genes of a part's strains in the data set."""
    rows, offsets = prepared.parts[part], prepared.dataset.offsets
    inside = torch.zeros(len(offsets) - 1, dtype=torch.bool)
    inside[rows] = True
    return inside.repeat_interleave(offsets.diff())


def scores(labels: Vector, predictions: dict[str, Vector]) -> dict[str, dict[str, float | None]]:
    """Return the metrics of each predictor, averaged over several seeds; metrics that are undefined are None."""
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    for name, values in predictions.items():
        found[name.partition(", seed")[0]].append(regression_metrics(values, labels))
    means = {
        name: {metric: statistics.fmean(one[metric] for one in of_seeds) for metric in METRICS}
        for name, of_seeds in found.items()
    }
    return {name: json_safe({k: round(v, 5) for k, v in of.items()}) for name, of in means.items()}


def of_part(one: dict[str, Any], rows: NDArray[np.bool_]) -> dict[str, Any]:
    """Return the number and the scores of some test strains of a draw."""
    predictions = {name: values[rows] for name, values in one["predictions"].items()}
    return {"strains": int(rows.sum()), "scores": scores(one["labels"][rows], predictions)}


def over_draws(found: list[dict[str, dict[str, float | None]]], name: str, metric: str) -> list[float]:
    """Return the mean difference of the model from a predictor, with Student's interval at 95 %."""
    pairs = [(one["model"][metric], one[name][metric]) for one in found]
    values = [own - other for own, other in pairs if own is not None and other is not None]
    return [round(value, 4) for value in (statistics.fmean(values), *student(values))]


def over_genes(draws: list[dict[str, Any]], name: str) -> list[float]:
    """Return the 95 % interval of the mean difference in Pearson's r when new genes of each draw are drawn again."""
    rng, means = np.random.default_rng(0), []
    for _ in range(RESAMPLES):
        differences = []
        for one in draws:
            owner = np.array([strain[0] for strain in one["new"]])
            genes = np.unique(owner)
            rows = np.concatenate([np.flatnonzero(owner == gene) for gene in rng.choice(genes, len(genes))])
            labels, of = one["labels"][rows], one["predictions"]
            own, theirs = (np.corrcoef(of[key][rows], labels)[0, 1] for key in ("model, seed 0", name))
            differences.append(own - theirs)
        means.append(np.nanmean(differences))
    return [round(float(value), 4) for value in np.quantile(means, [0.025, 0.975])]


def main(out: str, experiment: str, folder: str) -> None:
    """Write the file."""
    name = load_config(Path(experiment)).experiment.name
    runs: dict[int, dict[str, list[Path]]] = defaultdict(lambda: {"model": [], "control": []})
    for kind, of in (("model", name), ("control", f"{name}{CONTROL}")):
        for run in sorted((Path(folder) / of).glob("seed-*")):
            config = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
            runs[config["split"]["seed"]][kind].append(run)
    rounds: list[FluxRounds] = []
    draws = [draw(experiment, seed, runs[seed], rounds) for seed in sorted(runs)]
    found = [scores(one["labels"], one["predictions"]) for one in draws]
    parts = {
        "all_genes_new": [of_part(one, one["all_new"]) for one in draws],
        "without_bound": [of_part(one, one["predictions"][BOUND] == 1) for one in draws],
    }
    others = [
        key
        for key in found[0]
        if key != "model" and all(key in one and one[key]["pearson"] is not None for one in found)
    ]
    one_key = {key: next(p for p in draws[0]["predictions"] if p.partition(", seed")[0] == key) for key in others}
    write_json(
        Path(out),
        {
            "command": f"python -m benchmarks.new_genes OUT {experiment} RUNS",
            "experiment": name,
            "processor": processor_name(),
            "draws": [
                {"split_seed": seed, "strains": len(one["labels"]), "scores": s}
                for seed, one, s in zip(sorted(runs), draws, found, strict=True)
            ],
            **parts,
            "differences": {
                key: {
                    **{metric: over_draws(found, key, metric) for metric in METRICS},
                    "pearson_over_genes": over_genes(draws, one_key[key]),
                }
                for key in others
            },
        },
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])

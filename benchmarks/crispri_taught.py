"""Measure what computed fluxes teach of titrated CRISPRi: ``python -m benchmarks.crispri_taught OUT RUNS DRAW […]``.

A teacher learns the fluxes of all reactions of iJO1366 where each gene is deleted or weakened. It knows the genes of
the test part, but nothing that was measured. The model of `conf/110-mathis2020-crispri`, on strains' own graphs, is
then trained as usual, and with the teacher's weights at the beginning (``start_from``). It pools genes and reactions by
what is left of them, and passes no messages in rounds. Each draw has other test genes. What a guide leaves of its gene
is learned from its mismatches.

Beside them stand the null models, and flux balance analysis itself: growth by the linear programs at the strength that
guides with so many mismatches leave. That strength follows from the growth of the training genes. The kernel ridge over
strains is there once more with this growth as a condition.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from benchmarks.new_genes import over_draws, scores
from dglcell.baselines.fit import STRENGTH_MODELS, best_of, fit_null_models
from dglcell.config.experiment import Config
from dglcell.config.read import load_config
from dglcell.data.columns import CONDITION, Column
from dglcell.data.sources.config import InSilicoConfig
from dglcell.data.sources.guides import MISMATCH
from dglcell.data.strains import Strains
from dglcell.files.atomic import write_json
from dglcell.machine.processor import processor_name
from dglcell.nn.null_share import GROWTH
from dglcell.runs.directory import RunDirectory
from dglcell.training.null_problems import null_problems, strains_by_part
from dglcell.training.prepare import prepare
from dglcell.training.run import train

EXPERIMENT = Path("conf/110-mathis2020-crispri/random.yaml")
LENGTH = 20
MISMATCHES = ", ".join(f"{MISMATCH}_{place}: []" for place in range(LENGTH, 0, -1))

FORM = (
    "cell.more_genes=null",
    "cell.genes=model",
    "data.unknown_genes=drop",
    "model.name=hetero_cell",
    "model.hidden=32",
    "model.pool=[gene, reaction]",
    "model.local_head=false",
    "model.combination=none",
    "model.strategy=difference",
    "model.compile=false",
    "optimizer.lr=2.0e-3",
    "scheduler.warmup=50",
    "trainer.precision=32-true",
    "trainer.threads=1",
    "trainer.accelerator=cpu",
    "plot=false",
    "null_models=false",
)
"""What all models have in place of the experiment's settings: the genes of iJO1366, and strains' own graphs."""

STUDENT = ("trainer.checkpoint=last", f"model.conditions={{{MISMATCHES}}}")
"""A model sees mismatches, and not the place that a guide binds, which tells the gene."""

TEACHER = (
    "data.source.name=insilico",
    "data.nodes={flux: {type: reaction, zero_if_lost: true}}",
    "loss.phenotypes=0",
    "split={kind: random, seed: 0, fractions: [0.9, 0.05, 0.05]}",
    "model.strength_from=[]",
    "trainer.epochs=8",
    "trainer.checkpoint=best_loss",
)

STRENGTHS = (0.0, 0.1, 0.3, 0.5, 0.8)
"""The teacher's screen weakens each gene to these."""

GRID = np.linspace(0, 1, 101)
"""What so many mismatches leave of a gene is one of these."""

EPOCHS = 4
"""The models of growth are trained for so long; more epochs raise the validation loss of draw 0."""

UNTAUGHT, TAUGHT = "untaught", "taught by fluxes"
LINEAR, KERNEL = "flux balance analysis", "kernel ridge over strains"
COMMAND = "python -m benchmarks.crispri_taught OUT RUNS DRAW […]"

Vector = NDArray[np.float64]


def teacher(paths: list[str]) -> Config:
    """Return the configuration of the teacher."""
    config = load_config(EXPERIMENT, [*FORM, *TEACHER, *paths, "experiment.name=crispri-fluxes"])
    assert config.cell.model is not None
    screen = InSilicoConfig(
        config.cell.model, pairs="none", triples="none", processes=1, strengths=list(STRENGTHS), fluxes=True
    )
    source = dataclasses.replace(config.data.source, insilico=screen)
    return dataclasses.replace(config, data=dataclasses.replace(config.data, source=source))


def student(paths: list[str], draw: int, start: str = "null", epochs: int = EPOCHS) -> Config:
    """Return the configuration of a model of growth, which begins with the weights of a run, or of none."""
    kind = "untaught" if start == "null" else "taught"
    name = f"experiment.name=crispri-{kind}{'' if epochs == EPOCHS else f'-{epochs}'}"
    split = f"split={{kind: gene_disjoint, seed: {draw}, fractions: [0.7, 0.1, 0.2]}}"
    keys = [split, name, f"seed={draw}", f"start_from={start}", f"trainer.epochs={epochs}"]
    return load_config(EXPERIMENT, [*FORM, *STUDENT, *paths, *keys])


def growth_of_genes(screen: Strains) -> dict[str, Vector]:
    """Return the growth of each gene at every strength of ``GRID``, between those that were computed."""
    assert screen.strengths is not None
    table = pd.DataFrame(
        {
            "gene": [genes[0] for genes in screen.genotypes],
            "strength": screen.strengths,
            "growth": screen.phenotypes["fitness"],
        }
    )
    return {
        str(gene): np.interp(GRID, [*of["strength"], 1.0], [*of["growth"], 1.0])
        for gene, of in table.sort_values("strength").groupby("gene")
    }


def mismatches(strains: Strains) -> NDArray[np.int64]:
    """Return how many mismatches the guide of each strain has, [S]."""
    columns = [of for column, of in strains.columns.items() if column.name.startswith(f"{MISMATCH}_")]
    assert len(columns) == LENGTH
    return np.sum(columns, axis=0).astype(np.int64)


class FluxBalance:
    """Predict growth by linear programs, at the strength that fits the training genes best for a number of mismatches.

    Args:
        growth: gene → growth at the strengths of ``GRID``.
        train: training strains.
        labels: their growth, [S].
    """

    def __init__(self, growth: dict[str, Vector], train: Strains, labels: NDArray[np.floating]) -> None:
        self._growth = growth
        curves_SG, number_S = self._curves(train), mismatches(train)
        errors_SG = np.square(curves_SG - labels[:, None])
        self._best = np.full(LENGTH + 1, int(errors_SG.sum(0).argmin()))
        for number in np.unique(number_S):
            self._best[number] = errors_SG[number_S == number].sum(0).argmin()

    def _curves(self, strains: Strains) -> NDArray[np.float64]:
        wild_type = np.ones(len(GRID))
        return np.array([self._growth[genes[0]] if genes else wild_type for genes in strains.genotypes])

    def predict(self, strains: Strains) -> Vector:
        """Return the growth of strains, [S]."""
        found: Vector = self._curves(strains)[np.arange(len(strains)), self._best[mismatches(strains)]]
        return found

    def seen_by(self, strains: Strains) -> Strains:
        """Return the strains with this growth as a condition."""
        growth = self.predict(strains).astype(np.float32)
        return strains.with_(columns={**strains.columns, Column(CONDITION, GROWTH): growth})


def of_nulls(config: Config, growth: dict[str, Vector]) -> tuple[Vector, dict[str, Vector]]:
    """Return the measured growth of the test part, and what predictors say of it that see no graph."""
    prepared = prepare(config, command="benchmark")
    (problem,) = null_problems(prepared)
    test = strains_by_part(prepared)["test"]
    balance = FluxBalance(growth, problem.train, problem.y_train)
    informed = dataclasses.replace(
        problem, train=balance.seen_by(problem.train), validation=balance.seen_by(problem.validation)
    )
    (labels,) = test.phenotypes.values()
    return labels.astype(float), {
        LINEAR: balance.predict(test),
        **{name: null.predict(test) for name, null in fit_null_models(problem).items()},
        f"{KERNEL} with flux balance": best_of(STRENGTH_MODELS[KERNEL], informed)[1].predict(balance.seen_by(test)),
    }


def predicted(run: Path) -> Vector:
    """Return what a run predicts of its test part, in the order of its split."""
    found: Vector = pd.read_csv(RunDirectory(run).predictions("test"))["predicted_growth"].to_numpy(float)
    return found


def measure(draw: int, paths: list[str], epochs: int, known: dict[str, Any]) -> dict[str, Any]:
    """Train the models of a draw, as far as they are not trained, and return its scores.

    Args:
        draw: seed of weights and of the split.
        paths: keys that say where runs and stores lie.
        epochs: epochs of the models of growth; others than ``EPOCHS`` are named in the scores.
        known: scores of the same draw that were measured before; those of null models are taken from there.
    """
    taught_by = train(teacher(paths)).directory.path
    if LINEAR in known:
        prepared = prepare(student(paths, draw), command="benchmark")
        (labels,) = strains_by_part(prepared)["test"].phenotypes.values()
        predictions: dict[str, Vector] = {}
    else:
        screen = prepare(teacher(paths), command="benchmark").dataset.numpy()
        labels, predictions = of_nulls(student(paths, draw), growth_of_genes(screen))
    for kind, start in ((UNTAUGHT, "null"), (TAUGHT, str(taught_by))):
        run = train(student(paths, draw, start, epochs)).directory.path
        predictions[kind if epochs == EPOCHS else f"{kind}, {epochs} epochs"] = predicted(run)
    return {
        "split_seed": draw,
        "strains": len(labels),
        "scores": {**known, **scores(labels.astype(float), predictions)},
    }


def summary(draws: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return what r each predictor has over draws, and how far the taught model is ahead, with Student's interval.

    A predictor that does not vary on a draw is left out.
    """
    found: dict[str, dict[str, Any]] = {}
    for name in draws[0]["scores"]:
        of = [one["scores"] for one in draws if one["scores"].get(name, {}).get("pearson") is not None]
        if len(of) < max(2, len(draws)):
            continue
        r = [one[name]["pearson"] for one in of]
        found[name] = {"mean": round(statistics.fmean(r), 4), "sd": round(statistics.stdev(r), 4)}
        if name != TAUGHT:
            pairs = [{"model": one[TAUGHT], "other": one[name]} for one in of]
            found[name]["taught_ahead"] = over_draws(pairs, "other", "pearson")
    return found


def main() -> None:
    """Measure the draws that are asked for, and put them into the file; those that are there stay."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="JSON file")
    parser.add_argument("runs", help="folder of runs")
    parser.add_argument("draws", type=int, nargs="+", help="seeds of weights and of the split")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="epochs of the models of growth")
    parser.add_argument("--data", default="data", help="folder of stores")
    args = parser.parse_args()
    paths = [f"paths.runs={args.runs}", f"paths.data={args.data}"]
    for number in args.draws:
        draws = json.loads(args.out.read_text(encoding="utf-8"))["draws"] if args.out.exists() else []
        known: dict[str, Any] = next((one["scores"] for one in draws if one["split_seed"] == number), {})
        draws = [one for one in draws if one["split_seed"] != number]
        draws = sorted([*draws, measure(number, paths, args.epochs, known)], key=lambda one: one["split_seed"])
        about = {"command": COMMAND, "processor": processor_name(), "draws": draws}
        write_json(args.out, {**about, "summary": summary(draws)})


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()

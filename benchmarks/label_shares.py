"""Measure what fluxes teach of growth where few growths are known: ``python -m benchmarks.label_shares RUNS OUT.json``.

In an in-silico screen of the E. coli core model every training strain has its fluxes, and a share of them its growth. A
model learns the fluxes of all training strains first (``loss.phenotypes: 0``) and begins with these weights
(``start_from``) to learn the growths. Beside it are the same model without that beginning, the same with the fluxes of
the strains whose growth is known as a second target, its mean with the best two null models, and null models, which are
fitted to the same growths. One of them knows the fluxes, too: a kernel ridge on lost reactions predicts the fluxes of
test strains, and a linear ridge reads growth from fluxes. In a last row the model predicts the fluxes that this ridge
reads, which needs no training but that on fluxes (``--without-students``). Validation growths choose settings of null
models and ridges; the model has none to choose. With ``--layers 0`` no messages are passed.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.new_genes import predicted as predicted_growth
from dglcell.baselines.fit import MEAN_OF_TWO, fit_null_models
from dglcell.baselines.nodes import NodeProblem, fit_node_nulls
from dglcell.baselines.reactions import Reactions
from dglcell.config.experiment import Config
from dglcell.config.read import experiment_file, load_config
from dglcell.files.atomic import write_json
from dglcell.machine.processor import processor_name
from dglcell.metrics import json_safe, regression_metrics
from dglcell.runs.directory import RunDirectory
from dglcell.training.checkpoint import load_trained
from dglcell.training.null_problems import null_problems, strains_by_part
from dglcell.training.predicted import predict_and_embed
from dglcell.training.prepare import Prepared, prepare
from dglcell.training.run import train
from dglcell.uncertainty.paired import student

EXPERIMENT = experiment_file("quickstart")
SHARES = {0.01: (8, 40), 0.05: (16, 30), 0.2: (32, 20)}
"""Share of the training strains whose growth is known → strains of a batch, and epochs: 120 to 220 steps."""

FRACTIONS = {"random": "[0.8,0.03,0.17]", "gene_disjoint": "[0.8,0.05,0.15]"}
"""Kind of split → shares of training, validation and test part."""

COMMON = (
    "experiment.expected=null",
    "data.source.insilico.pairs='2000'",
    "data.source.insilico.triples=none",
    "data.source.insilico.fluxes=true",
    "cell.lose_blocked=true",
    "model.link=identity",
    "model.relations=[converts,converted_by]",
    "model.compile=false",
    "optimizer.lr=2.0e-3",
    "scheduler.warmup=20",
    "trainer.precision=32-true",
    "trainer.accelerator=cpu",
    "trainer.threads=1",
    "trainer.checkpoint=last",
    "plot=false",
)
FLUXES = "data.nodes={flux: {type: reaction, zero_if_lost: true}}"
TEACHER = (
    FLUXES,
    "loss.phenotypes=0",
    "trainer.epochs=8",
    "data.batch_size=32",
    "null_models=false",
)
PENALTIES = tuple(10.0**power for power in range(-6, 3))
"""Penalties of the linear ridge from fluxes to growth."""

COMMAND = "python -m benchmarks.label_shares RUNS OUT --split SPLIT --layers LAYERS --draw DRAW"
TAUGHT, UNTAUGHT, WITH_NULLS = "taught by fluxes", "untaught", "taught, half null models"
BESIDE = "growth and fluxes together"
NULL_WITH_FLUXES, MODEL_WITH_FLUXES = "kernel ridge of fluxes, then ridge", "the model's fluxes, then ridge"


def configure(args: argparse.Namespace, name: str, *more: str) -> Config:
    """Return the configuration of a run of one draw."""
    draw, split = args.draw, args.split
    return load_config(
        EXPERIMENT,
        [
            *COMMON,
            f"seed={draw}",
            f"split={{kind: {split}, seed: {draw}, fractions: {FRACTIONS[split]}}}",
            f"model.layers={args.layers}",
            f"paths.runs={args.runs}",
            f"paths.data={args.data}",
            f"experiment.name={split}-{args.layers}/{name}",
            *more,
            *args.overrides,
        ],
    )


class Fluxes:
    """Hold the fluxes of all strains [S, M]: those of training strains, and what predictors say of all others.

    Args:
        teacher: the run that has learned fluxes.
        prepared: its data.
    """

    def __init__(self, teacher: RunDirectory, prepared: Prepared) -> None:
        self._teacher, self._prepared = teacher, prepared
        self._train = prepared.parts["train"].numpy()
        values = prepared.nodes["flux"].of_strains(np.arange(len(prepared.dataset)))
        self._centre, scale = np.nanmean(values[self._train], 0), np.nanstd(values[self._train], 0)
        self._scale = np.where(scale > 1e-6, scale, np.inf)
        self._scaled = self._of(values)

    def _of(self, values: NDArray[Any]) -> NDArray[np.float32]:
        scaled: NDArray[np.float32] = ((values - self._centre) / self._scale).astype(np.float32)
        return scaled

    def _with_known(self, found: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return predicted fluxes, with the known ones of training strains that have a steady state."""
        measured = self._train[np.isfinite(self._scaled[self._train]).all(1)]
        fluxes: NDArray[np.float64] = found.astype(np.float64)
        fluxes[measured] = self._scaled[measured]
        return fluxes

    def by_kernel_ridge(self) -> NDArray[np.float64]:
        """Return fluxes that a kernel ridge on lost reactions predicts."""
        prepared, parts = self._prepared, strains_by_part(self._prepared)
        validation = prepared.parts["validation"].numpy()
        problem = NodeProblem(
            parts["train"],
            parts["validation"],
            self._scaled[self._train],
            self._scaled[validation],
            Reactions(prepared.cell),
        )
        ridge = fit_node_nulls(problem)[0]["kernel ridge on lost reactions"]
        return self._with_known(ridge.predict(prepared.dataset.numpy()))

    def by_model(self) -> NDArray[np.float64]:
        """Return fluxes that the taught model predicts."""
        trained, found = load_trained(self._teacher), list[NDArray[Any]]()
        head = trained.model.node_heads["flux"]
        predict_and_embed(
            trained.model,
            trained.normaliser,
            self._prepared.dataset,
            torch.arange(len(self._prepared.dataset)),
            batch_size=128,
            also=lambda prediction: found.append(head.restore(prediction.nodes["flux"].float()).numpy()),
        )
        return self._with_known(self._of(np.concatenate(found)))


def ridge_through_fluxes(prepared: Prepared, train: NDArray[np.int64], fluxes: NDArray[Any]) -> dict[str, float]:
    """Return test metrics of a linear ridge from fluxes to growth, fitted to some strains; validation chooses it.

    Args:
        prepared: data with the parts that are evaluated.
        train: numbers of the strains with known growth.
        fluxes: [S, M] scaled fluxes in float64, known or predicted.
    """
    labels = prepared.dataset.labels[:, 0].double().numpy()
    centre, mean = fluxes[train].mean(0), labels[train].mean()
    x, y = fluxes - centre, labels - mean
    validation, test = (prepared.parts[part].numpy() for part in ("validation", "test"))
    gram, best = x[train] @ x[train].T, (np.inf, np.zeros(0))
    for penalty in PENALTIES:
        weights = x[train].T @ np.linalg.solve(gram + penalty * len(train) * np.eye(len(train)), y[train])
        error = float(np.square(x[validation] @ weights - y[validation]).mean())
        best = min(best, (error, weights), key=lambda one: one[0])
    return regression_metrics(x[test] @ best[1], y[test])


def measure(args: argparse.Namespace) -> None:
    """Train the models of a draw, as far as they are not trained, and write their scores by share."""
    teacher_config = configure(args, "fluxes", *TEACHER)
    teacher = train(teacher_config)
    prepared = prepare(teacher_config, command="benchmark")
    fluxes = Fluxes(teacher.directory, prepared)
    by_predictor = {NULL_WITH_FLUXES: fluxes.by_kernel_ridge(), MODEL_WITH_FLUXES: fluxes.by_model()}
    found: dict[str, Any] = {}
    for share, (batch, epochs) in SHARES.items():
        if share not in args.shares:
            continue
        keys = (f"data.batch_size={batch}", f"trainer.epochs={epochs}", f"split.train_share={share}")
        few = prepare(configure(args, "few", *keys), command="benchmark")
        labels = few.dataset.labels[few.parts["test"], 0].double().numpy()
        test = few.dataset.numpy().take(few.parts["test"].numpy())
        predicted = {name: null.predict(test) for name, null in fit_null_models(null_problems(few)[0]).items()}
        begun = f"start_from={teacher.directory.path}"
        for kind, more in ((TAUGHT, [begun]), (UNTAUGHT, []), (BESIDE, [FLUXES])) if args.students else ():
            name = f"{kind.partition(' ')[0]}-{share}"
            config = configure(args, name, *keys, *more, "null_models=false")
            predicted[kind] = predicted_growth(train(config).directory.path)
        if args.students:
            predicted[WITH_NULLS] = (predicted[TAUGHT] + predicted[MEAN_OF_TWO]) / 2
        scores = {name: regression_metrics(of, labels) for name, of in predicted.items()}
        for predictor, of in by_predictor.items():
            scores[predictor] = ridge_through_fluxes(few, few.parts["train"].numpy(), of)
        found[str(share)] = {"strains": len(few.parts["train"]), "scores": {k: json_safe(v) for k, v in scores.items()}}
        write(args, found, prepared)


def write(args: argparse.Namespace, found: dict[str, Any], prepared: Prepared) -> None:
    """Put what was measured so far of a draw into the file, and sum up all draws.

    Other draws stay, and so do other predictors of the same draw.
    """
    sizes = {part: len(strains) for part, strains in prepared.parts.items()}
    own = {"split": args.split, "layers": args.layers, "draw": args.draw}
    draws = json.loads(args.out.read_text(encoding="utf-8"))["draws"] if args.out.exists() else []
    shares = {**found}
    for one in [one for one in draws if own.items() <= one.items()]:
        draws.remove(one)
        for share, of in one["shares"].items():
            shares[share] = {**of, "scores": {**of["scores"], **shares.get(share, of)["scores"]}}
    draws.append({**own, "processor": processor_name(), "strains": sizes, "shares": dict(sorted(shares.items()))})
    draws.sort(key=lambda one: (one["split"], -one["layers"], one["draw"]))
    write_json(args.out, {"command": COMMAND, "draws": draws, "summary": summary(draws)})


def summary(draws: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return for each split, rounds of messages and share what each predictor's Pearson's r is over the draws.

    Each has mean and standard deviation, and how far the ridge that reads the model's fluxes is ahead of it, with
    Student's interval at 95 % over the draws that have both. Models that learn growth have that for themselves, too. A
    prediction that does not vary counts as r = 0.
    """
    found = []
    for split, layers in dict.fromkeys((one["split"], one["layers"]) for one in draws):
        of = [one for one in draws if (one["split"], one["layers"]) == (split, layers)]
        for share in dict.fromkeys(share for one in of for share in one["shares"]):
            scores = [one["shares"][share]["scores"] for one in of if share in one["shares"]]
            r = [{name: row["pearson"] or 0.0 for name, row in one.items()} for one in scores]
            names = dict.fromkeys(name for one in r for name in one)
            rows = {name: _over_draws([one for one in r if name in one], name) for name in names}
            found.append({"split": split, "layers": layers, "share": share, "draws": len(scores), "pearson": rows})
    return found


def _over_draws(r: list[dict[str, float]], name: str) -> dict[str, Any]:
    """Return number of draws, mean and deviation of a predictor's r, and the leads of others; some need two draws."""
    values = np.array([one[name] for one in r])
    row: dict[str, Any] = {"draws": len(values), "mean": round(float(values.mean()), 4)}
    if len(values) > 1:
        row["sd"] = round(float(values.std(ddof=1)), 4)
    for other, key in ((MODEL_WITH_FLUXES, "fluxes_ahead"), (TAUGHT, "taught_ahead")):
        lead = [one[other] - one[name] for one in r if other in one]
        if len(lead) > 1 and other != name:
            row[key] = [round(x, 4) for x in (statistics.fmean(lead), *student(lead))]
    return row


def main() -> None:
    """Read the arguments and measure a draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", help="folder of runs")
    parser.add_argument("out", type=Path, help="JSON file")
    parser.add_argument("--split", choices=FRACTIONS, default="random")
    parser.add_argument("--draw", type=int, default=0, help="seed of weights and of the split")
    parser.add_argument("--layers", type=int, default=2, help="rounds of messages")
    parser.add_argument("--shares", type=float, nargs="+", default=list(SHARES))
    parser.add_argument("--without-students", action="store_false", dest="students", help="train the teacher alone")
    parser.add_argument("--data", default="data", help="folder of stores")
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE")
    measure(parser.parse_args())


if __name__ == "__main__":
    main()

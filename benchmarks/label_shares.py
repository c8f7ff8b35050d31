"""Measure what fluxes teach of growth where few growths are known: ``python -m benchmarks.label_shares RUNS OUT.json``.

In an in-silico screen of the E. coli core model every training strain has its fluxes, and a share of them its growth. A
model learns the fluxes of all training strains first (``loss.phenotypes: 0``) and begins with these weights
(``start_from``) to learn the growths. Beside it are the same model without that beginning, and null models, which are
fitted to the same growths. One of them knows the fluxes, too: a kernel ridge on lost reactions predicts the fluxes of
test strains, and a linear ridge reads growth from fluxes. Validation growths choose settings of null models; the model
has none to choose. With ``--layers 0`` no messages are passed.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from dglcell.baselines.nodes import NodeProblem, fit_node_nulls
from dglcell.baselines.reactions import Reactions
from dglcell.config.experiment import Config
from dglcell.config.read import experiment_file, load_config
from dglcell.files.atomic import write_json
from dglcell.machine.processor import processor_name
from dglcell.metrics import json_safe, regression_metrics
from dglcell.training.null_problems import strains_by_part
from dglcell.training.prepare import Prepared, prepare
from dglcell.training.run import train

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
TEACHER = (
    "data.nodes={flux: {type: reaction, zero_if_lost: true}}",
    "loss.phenotypes=0",
    "trainer.epochs=8",
    "data.batch_size=32",
    "null_models=false",
)
PENALTIES = tuple(10.0**power for power in range(-6, 3))
"""Penalties of the linear ridge from fluxes to growth."""

COMMAND = "python -m benchmarks.label_shares RUNS OUT --split SPLIT --layers LAYERS --draw DRAW"
TAUGHT, UNTAUGHT = "taught by fluxes", "untaught"
NULL_WITH_FLUXES = "kernel ridge of fluxes, then ridge"


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


def known_fluxes(prepared: Prepared, train: NDArray[np.int64]) -> NDArray[Any]:
    """Return scaled fluxes of the strains [S, M]: those of training strains, and predicted ones of all others.

    Args:
        prepared: data of a run that has fluxes.
        train: numbers of all training strains.
    """
    values = prepared.nodes["flux"].of_strains(np.arange(len(prepared.dataset)))
    centre, scale = np.nanmean(values[train], 0), np.nanstd(values[train], 0)
    scaled = ((values - centre) / np.where(scale > 1e-6, scale, np.inf)).astype(np.float32)
    parts = strains_by_part(prepared)
    validation = prepared.parts["validation"].numpy()
    problem = NodeProblem(
        parts["train"], parts["validation"], scaled[train], scaled[validation], Reactions(prepared.cell)
    )
    ridge = fit_node_nulls(problem)[0]["kernel ridge on lost reactions"]
    found = np.zeros_like(scaled)
    for part, strains in parts.items():
        rows = prepared.parts[part].numpy()
        found[rows] = ridge.predict(strains)
    measured = train[np.isfinite(scaled[train]).all(1)]
    found[measured] = scaled[measured]
    return found


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


def rows_of(results: list[Any], taught: str) -> dict[str, dict[str, float]]:
    """Return name → test metrics of a run's rows, with another name for the model."""
    return {row.model if row.is_null else taught: row.metrics for row in results if row.part == "test"}


def measure(args: argparse.Namespace) -> None:
    """Train the models of a draw, as far as they are not trained, and write their scores by share."""
    teacher_config = configure(args, "fluxes", *TEACHER)
    teacher = train(teacher_config)
    prepared = prepare(teacher_config, command="benchmark")
    everything = prepared.parts["train"].numpy()
    fluxes = known_fluxes(prepared, everything).astype(np.float64)
    found: dict[str, Any] = {}
    for share, (batch, epochs) in SHARES.items():
        if share not in args.shares:
            continue
        scores: dict[str, dict[str, float]] = {}
        for taught, start in ((TAUGHT, str(teacher.directory.path)), (UNTAUGHT, "null")):
            name = f"{taught.partition(' ')[0]}-{share}"
            keys = (f"data.batch_size={batch}", f"trainer.epochs={epochs}", f"split.train_share={share}")
            config = configure(args, name, *keys, f"start_from={start}", f"null_models={start == 'null'}")
            run = train(config)
            scores |= rows_of(run.rows, taught)
        few = prepare(config, command="benchmark")
        scores[NULL_WITH_FLUXES] = ridge_through_fluxes(few, few.parts["train"].numpy(), fluxes)
        found[str(share)] = {"strains": len(few.parts["train"]), "scores": {k: json_safe(v) for k, v in scores.items()}}
        write(args, found, prepared)


def write(args: argparse.Namespace, found: dict[str, Any], prepared: Prepared) -> None:
    """Put what was measured so far of a draw into the file, which keeps other draws, and sum up all draws."""
    sizes = {part: len(strains) for part, strains in prepared.parts.items()}
    own = {"split": args.split, "layers": args.layers, "draw": args.draw}
    draws = json.loads(args.out.read_text(encoding="utf-8"))["draws"] if args.out.exists() else []
    draws = [one for one in draws if any(one[key] != value for key, value in own.items())]
    draws.append({**own, "processor": processor_name(), "strains": sizes, "shares": found})
    draws.sort(key=lambda one: (one["split"], -one["layers"], one["draw"]))
    write_json(args.out, {"command": COMMAND, "draws": draws, "summary": summary(draws)})


def summary(draws: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return for each split, rounds of messages and share what each predictor's Pearson's r is over the draws.

    Each has mean and standard deviation, and how far the taught model is ahead, with Student's interval at 95 % over
    draws. A prediction that does not vary counts as r = 0.
    """
    found = []
    for split, layers in dict.fromkeys((one["split"], one["layers"]) for one in draws):
        of = [one for one in draws if (one["split"], one["layers"]) == (split, layers)]
        for share in dict.fromkeys(share for one in of for share in one["shares"]):
            scores = [one["shares"][share]["scores"] for one in of if share in one["shares"]]
            names = [name for name in scores[0] if all(name in one for one in scores)]
            r = {name: np.array([one[name]["pearson"] or 0.0 for one in scores]) for name in names}
            rows = {name: _over_draws(values, r[TAUGHT] - values) for name, values in r.items()}
            found.append({"split": split, "layers": layers, "share": share, "draws": len(scores), "pearson": rows})
    return found


def _over_draws(values: NDArray[np.float64], lead: NDArray[np.float64]) -> dict[str, Any]:
    """Return mean and deviation of values, and mean and interval of the taught model's lead; some need two draws."""
    row: dict[str, Any] = {"mean": round(float(values.mean()), 4)}
    if len(values) > 1:
        half = stats.t.ppf(0.975, len(lead) - 1) * lead.std(ddof=1) / len(lead) ** 0.5
        row["sd"] = round(float(values.std(ddof=1)), 4)
        row["ahead"] = [round(float(x), 4) for x in (lead.mean(), lead.mean() - half, lead.mean() + half)]
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
    parser.add_argument("--data", default="data", help="folder of stores")
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE")
    measure(parser.parse_args())


if __name__ == "__main__":
    main()

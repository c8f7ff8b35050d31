"""Compare what predicts fluxes of weakened genes: ``python -m benchmarks.flux_strengths OUT RUNS``.

The strains are those of `conf/115-core-fluxes/new_pairs.yaml`, in two tasks. In the first one pairs of genes are
tested, of which training has each gene alone; each draw has other pairs. In the second one every test strain has a gene
at a strength that no training strain has, and each draw leaves out another strength. The model and its control without
messages are trained where they are not yet, and growth and fluxes are scored.

Beside them stand the null models of the runs, and three that know more. A kernel ridge, and the nearest training
strain, see how much of each reaction a strain has left. Curves of single genes say at any strength how fluxes change,
by a straight line between the strengths that training has; the changes of a strain's genes are added, or the largest
is taken. The validation part chooses the settings of the kernel ridge. Differences in Pearson's r are taken draw by
draw, with Student's interval at 95 %.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from benchmarks.core_fluxes import ROUNDS, draw, scores_of, summary
from benchmarks.new_genes import over_draws, predicted, scores
from benchmarks.new_media import kernel_ridge, lost_shares
from dglcell.baselines.fit import fit_null_models
from dglcell.baselines.nodes import NearestStrain
from dglcell.config.experiment import Config
from dglcell.config.read import load_config
from dglcell.data.strains import Strains
from dglcell.files.atomic import atomic_file, write_json
from dglcell.machine.processor import processor_name
from dglcell.metrics import NODES, ResultRow
from dglcell.nn.flux_rounds import FluxRounds
from dglcell.perturbation.sent import keep_masks
from dglcell.runs.directory import RunDirectory
from dglcell.training.checkpoint import Trained, load_trained
from dglcell.training.control import without_messages
from dglcell.training.node_values import MassBalance, NodeScores, scaled_values
from dglcell.training.null_problems import null_problems, strains_by_part
from dglcell.training.prepare import Prepared, prepare
from dglcell.training.run import train

EXPERIMENT = Path("conf/115-core-fluxes/new_pairs.yaml")
PAIRS, STRENGTHS = "new pairs", "new strengths"
DRAWS = 3
HELD_OUT = (0.1, 0.3, 0.5, 0.8)
"""Each of these strengths is left out once; training has a smaller one and a larger one."""

CONTROL_EPOCHS = 24
KERNEL_RIDGE, NEAREST = "kernel ridge on what is left of reactions", "nearest strain by what is left of reactions"
SUM_OF_CURVES, LARGEST_CURVE = "sum of curves", "largest of curves"

Matrix = NDArray[np.float64]


def configure(*keys: str) -> Config:
    """Return the configuration of a run."""
    return load_config(EXPERIMENT, [*keys, "trainer.threads=1", "plot=false"])


def new_pairs(paths: list[str], seed: int) -> Config:
    """Return the configuration of a draw of pairs."""
    return configure(*paths, f"seed={seed}", f"split.seed={seed}", f"data.source.insilico.seed={seed}")


def new_strength(paths: list[str], seed: int, folder: Path) -> Config:
    """Return the configuration of a draw of which a strength is tested, and write its split."""
    held_out = HELD_OUT[seed]
    strains = prepare(configure(*paths), command="benchmark").dataset.numpy()
    split = folder / f"without-{held_out}.json"
    with atomic_file(split) as partial:
        partial.write_text(json.dumps(split_of(strains, held_out, seed)), encoding="utf-8")
    name = load_config(EXPERIMENT).experiment.name.replace("pairs", "strengths")
    own = f"split={{kind: file, path: '{split}', max_deletions: null}}"
    return configure(*paths, f"seed={seed}", f"experiment.name={name}", own)


def split_of(strains: Strains, held_out: float, seed: int) -> dict[str, list[int]]:
    """Return the numbers of the strains of each part; a tenth of those without the strength are validation strains."""
    assert strains.strengths is not None
    number = np.repeat(np.arange(len(strains)), strains.num_deletions)
    test = np.unique(number[np.isclose(strains.strengths, held_out)])
    others = np.random.default_rng(seed).permutation(np.setdiff1d(np.arange(len(strains)), test))
    validation, rest = np.split(others, [len(others) // 10])
    return {"train": np.sort(rest).tolist(), "val": np.sort(validation).tolist(), "test": test.tolist()}


def of_curves(train: Strains, changes: Matrix, test: Strains) -> dict[str, Matrix]:
    """Return what curves of single genes predict, [n, M].

    Args:
        train: the training strains.
        changes: [S, M] by how much their values differ from the wild type's, NaN where not measured.
        test: n other strains.
    """
    curves: dict[int, list[tuple[float, Matrix]]] = defaultdict(lambda: [(1.0, np.zeros(changes.shape[1]))])
    left = train.left()
    for strain in np.flatnonzero((train.num_deletions == 1) & np.isfinite(changes).all(1)):
        place = train.offsets[strain]
        curves[int(train.targets[place])].append((float(left[place]), changes[strain]))
    lines = {gene: sorted(points, key=lambda point: point[0]) for gene, points in curves.items()}
    summed, largest = (np.zeros((len(test), changes.shape[1])) for _ in range(2))
    for i, (start, end) in enumerate(zip(test.offsets[:-1], test.offsets[1:], strict=True)):
        genes = zip(test.targets[start:end].tolist(), test.left()[start:end].tolist(), strict=True)
        found = [at(lines[gene], strength) for gene, strength in genes if gene in lines]
        summed[i] = np.sum(found, axis=0) if found else 0
        largest[i] = max(found, key=np.linalg.norm) if found else 0
    return {SUM_OF_CURVES: summed, LARGEST_CURVE: largest}


def at(points: list[tuple[float, Matrix]], strength: float) -> Matrix:
    """Return the point of a curve at a strength, on the straight line between its neighbours."""
    known = np.array([point[0] for point in points])
    after = int(np.clip(np.searchsorted(known, strength), 1, len(known) - 1)) if len(known) > 1 else 0
    before = max(after - 1, 0)
    span = known[after] - known[before]
    share = np.clip((strength - known[before]) / span, 0, 1) if span else 0
    found: Matrix = (1 - share) * points[before][1] + share * points[after][1]
    return found


def more_null_models(prepared: Prepared, changes: Matrix) -> dict[str, Matrix]:
    """Return what null models that know strengths predict for the test part, [n, M].

    Args:
        prepared: data of a run.
        changes: [S, M] by how much values of all its strains differ from the wild type's, NaN where not measured.
    """
    parts = strains_by_part(prepared)
    train, test = (prepared.parts[part].numpy() for part in ("train", "test"))
    vectors = lost_shares(prepared)
    measured = train[np.isfinite(changes[train]).all(1)]
    nearest = NearestStrain(lambda _: sparse.csr_array(vectors[test]), vectors[measured], changes[measured])
    return {
        KERNEL_RIDGE: kernel_ridge(prepared, changes),
        NEAREST: nearest.predict(parts["test"]),
        **of_curves(parts["train"], changes[train], parts["test"]),
    }


def flux_rows(trained: Trained, prepared: Prepared) -> list[ResultRow]:
    """Return the scores of these null models' fluxes; they know which reactions are lost, as the model does."""
    head, values, test = trained.model.node_heads["flux"], prepared.nodes["flux"], prepared.parts["test"]
    changes = scaled_values(head, values, np.arange(len(prepared.dataset))).astype(np.float64)
    changing = head.changes.numpy()
    changes[:, ~changing] = np.where(np.isfinite(changes[:, changing]).all(1), 0, np.nan)[:, None]
    target = np.where(changing, changes[test], np.nan)
    lost = head.lost(keep_masks(trained.model.cell, prepared.dataset.take(test).perturbations)["reaction"]).numpy()
    rows = []
    for name, found in more_null_models(prepared, changes).items():
        scored = NodeScores(head.scale.double().numpy(), balance=MassBalance.of(head, values, prepared.cell))
        scored.add(np.where(changing, np.where(lost, head.of_zero.numpy(), found), 0), target)
        rows.append(ResultRow(name, "test", "flux", scored.metrics(), is_null=True, kind=NODES))
    return rows


def growth(run: Path, control: Path, trained: Trained, prepared: Prepared) -> dict[str, dict[str, float | None]]:
    """Return how well growth is predicted by a run, its control, its rounds alone, and null models."""
    test, rows = strains_by_part(prepared)["test"], prepared.parts["test"]
    rounds = trained.model.find(FluxRounds)
    assert rounds is not None
    labels = prepared.dataset.labels[:, :1].double().numpy()
    predictions = {
        "model": predicted(run),
        "without messages": predicted(control),
        ROUNDS: rounds(trained.model.cell, prepared.dataset.take(rows).perturbations)[0][:, -1].double().numpy(),
        **{name: null.predict(test) for name, null in fit_null_models(null_problems(prepared)[0]).items()},
        **{name: 1 + found[:, 0] for name, found in more_null_models(prepared, labels - 1).items()},
    }
    return scores(labels[rows, 0], predictions)


def compare(config: Config) -> dict[str, Any]:
    """Train a run and its control if need be, and return all scores of its test part."""
    run = train(config).directory.path
    control = train(without_messages(config, CONTROL_EPOCHS)).directory.path
    trained = load_trained(RunDirectory(run))
    prepared = prepare(trained.config, command="benchmark")
    of_growth, of_nulls = growth(run, control, trained, prepared), flux_rows(trained, prepared)
    record = draw(run, trained, prepared)
    return {**record, "scores": {**record["scores"], **scores_of(of_nulls, "test")}, "growth": of_growth}


def main(out: str, runs: str, data: str = "data") -> None:
    """Write the file, draw by draw."""
    paths = [f"paths.runs={runs}", f"paths.data={data}"]
    tasks: dict[str, list[dict[str, Any]]] = {PAIRS: [], STRENGTHS: []}
    for seed in range(DRAWS):
        tasks[PAIRS].append(compare(new_pairs(paths, seed)))
    for seed, held_out in enumerate(HELD_OUT):
        tasks[STRENGTHS].append({"strength": held_out, **compare(new_strength(paths, seed, Path(runs)))})
    record = {"command": "python -m benchmarks.flux_strengths OUT RUNS", "processor": processor_name()}
    ahead = {task: {"fluxes": summary(draws), "growth": _growth_ahead(draws)} for task, draws in tasks.items()}
    write_json(Path(out), {**record, "tasks": tasks, "ahead": ahead})


def _growth_ahead(draws: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Return by how much the model's r of growth is above that of each predictor that no draw has constant."""
    of_growth = [one["growth"] for one in draws]
    names = [name for name, of in of_growth[0].items() if name != "model" and of["pearson"] is not None]
    return {name: over_draws(of_growth, name, "pearson") for name in names}


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])

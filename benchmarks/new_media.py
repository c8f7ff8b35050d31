"""Compare what predicts growth in new media: ``python -m benchmarks.new_media OUT RUNS``.

RUNS is the folder of finished runs of `conf/113-fba-strengths-media/new_media.yaml`, of which each tests another
medium, and of its controls without messages. Beside the model and the null models of its runs stands a kernel ridge on
lost reactions and the medium. It sees what the model sees: how much of each reaction a strain has left, after the
exchange reactions that its medium closes, and after reactions that then carry no flux. The validation medium chooses
its settings. Differences in Pearson's r are taken medium by medium, with Student's interval at 95 % over media, for all
strains and for deletions alone. Of several runs that test the same medium the first one counts. A second interval is of
a bootstrap over the genes in each medium.
"""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from benchmarks.new_genes import over_draws, over_genes, predicted, scores
from dglcell.baselines.fit import OWN_SHARES, REACTION_PENALTIES, fit_null_models
from dglcell.baselines.reactions import LostSetKernel, Reactions, fit_landmarks
from dglcell.config.read import load_config
from dglcell.data.columns import MEDIUM
from dglcell.data.strains import Strains
from dglcell.files.atomic import write_json
from dglcell.graph.metabolism import whole_reactions
from dglcell.graph.resident import ResidentCell
from dglcell.graph.schema import REACTION
from dglcell.machine.processor import processor_name
from dglcell.perturbation.genotype import ReactionStrengths
from dglcell.perturbation.sent import keep_masks, strengths
from dglcell.runs.directory import RunDirectory
from dglcell.training.checkpoint import read_config
from dglcell.training.control_rows import CONTROL
from dglcell.training.null_problems import null_problems, strains_by_part
from dglcell.training.prepare import Prepared, prepare

EXPERIMENT = Path("conf/113-fba-strengths-media/new_media.yaml")
KERNEL_RIDGE = "kernel ridge on lost reactions and medium"
TOGETHER = 512

Matrix = NDArray[np.float64]


def ways(names: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
    """Return the reactions of a cell graph by direction, and which of them each node is an enzyme complex of.

    A medium closes the direction of uptake alone.
    """
    found, way_of = np.unique([re.sub(r"#\d+", "", name) for name in names], return_inverse=True)
    return found.tolist(), way_of


def lost_shares(prepared: Prepared) -> sparse.csr_array:
    """Return how much of each direction of a reaction the strains of a data set have lost, [S, W], from 0 to 1.

    Of a reaction with several enzyme complexes, that is what its best one has lost.
    """
    cell, dataset = ResidentCell.of(prepared.cell), prepared.dataset
    media = dataset.numpy().shown(MEDIUM).tolist() if cell.media else []
    medium_S = torch.tensor([cell.media.index(str(name)) for name in media])
    _, way_of = ways(prepared.cell.vocabularies[REACTION].names)
    found = []
    for rows in torch.arange(len(dataset)).split(TOGETHER):
        strains = dataset.take(rows).perturbations
        if cell.media:
            closed_BK = cell.media_strengths[medium_S[rows]]
            numbers, offsets = cell.media_nodes.repeat(len(rows)), torch.arange(len(rows) + 1) * closed_BK.shape[1]
            strains = replace(strains, reactions=ReactionStrengths(numbers, offsets, closed_BK.reshape(-1)))
        left_NB = keep_masks(cell, strains)[REACTION].float()
        weakened = strengths(cell, strains).get(REACTION)
        if weakened is not None:
            left_NB = left_NB * weakened
        lost_WB = np.ones((way_of.max() + 1, len(rows)), np.float32)
        np.minimum.at(lost_WB, way_of, 1 - left_NB.numpy())
        found.append(sparse.csr_array(lost_WB.T))
    return sparse.csr_array(sparse.vstack(found))


def kernel_ridge(prepared: Prepared, labels: Matrix) -> Matrix:
    """Return what a kernel ridge on lost reactions and the medium predicts for the test part; validation chooses it.

    Args:
        prepared: the data of a run.
        labels: [S, M] what it learns, NaN in strains that were not measured.

    Returns:
        [n, M].
    """
    lost, names = lost_shares(prepared), prepared.cell.vocabularies[REACTION].names
    reaction_of_way = dict(zip(ways(names)[1], whole_reactions(names)[1], strict=True))
    near = Reactions(prepared.cell).neighbourhood[[reaction_of_way[way] for way in range(lost.shape[1])]]
    train, validation, test = (prepared.parts[part].numpy() for part in ("train", "validation", "test"))
    train, validation = (rows[np.isfinite(labels[rows]).all(1)] for rows in (train, validation))
    mean, best = labels[train].mean(0), (np.inf, np.zeros((0, 0)))
    for own in OWN_SHARES:
        vectors = sparse.csr_array(sparse.hstack([np.sqrt(own) * lost, np.sqrt(1 - own) * (lost @ near)]))
        for _, landmarks, coefficients in fit_landmarks(vectors[train], labels[train] - mean, REACTION_PENALTIES):
            for_validation, for_test = (
                mean + LostSetKernel.between(vectors[rows], landmarks) @ coefficients for rows in (validation, test)
            )
            error = float(np.square(for_validation - labels[validation]).mean())
            best = min(best, (error, for_test), key=lambda one: one[0])
    return best[1]


def draw(run: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the test medium of a run with the scores of all predictors there, and what `over_genes` takes."""
    prepared = prepare(read_config(RunDirectory(run)), command="benchmark")
    test = strains_by_part(prepared)["test"]
    labels = test.phenotypes["fitness"].astype(float)
    control = run.parent.with_name(f"{run.parent.name}{CONTROL}") / run.name
    predictions = {
        "model": predicted(run),
        **({"without messages": predicted(control)} if control.is_dir() else {}),
        KERNEL_RIDGE: kernel_ridge(prepared, prepared.dataset.labels[:, :1].double().numpy())[:, 0],
        **{name: null.predict(test) for name, null in fit_null_models(null_problems(prepared)[0]).items()},
    }
    deletions = only_deletions(test)
    record = {
        "split_seed": prepared.split.seed,
        "medium": str(test.shown(MEDIUM)[0]),
        "strains": len(test),
        "scores": scores(labels, predictions),
        "deletions": int(deletions.sum()),
        "scores_of_deletions": scores(labels[deletions], {name: of[deletions] for name, of in predictions.items()}),
    }
    genes = [list(map(str, strain)) or ["none"] for strain in test.genotypes]
    return record, {
        "new": genes,
        "labels": labels,
        "predictions": {"model, seed 0": predictions["model"], **predictions},
    }


def only_deletions(strains: Strains) -> NDArray[np.bool_]:
    """Return which strains delete every gene that they change, [S], the wild type among them."""
    weakened = np.zeros(len(strains.targets)) if strains.strengths is None else strains.strengths > 0
    return np.array([not part.any() for part in np.split(weakened, strains.offsets[1:-1])])


def main(out: str, runs: str) -> None:
    """Write the file."""
    name = load_config(EXPERIMENT).experiment.name
    once: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    for run in sorted((Path(runs) / name).glob("seed-*"), key=lambda run: int(run.name[5:])):
        record, whole = draw(run)
        once.setdefault(record["medium"], (record, whole))
    records, wholes = ([pair[i] for pair in once.values()] for i in range(2))
    ahead = {key: _ahead([one[key] for one in records]) for key in ("scores", "scores_of_deletions")}
    for predictor, row in ahead["scores"].items():
        if predictor != "model":
            row["ahead_over_genes"] = over_genes(wholes, predictor)
    write_json(
        Path(out),
        {
            "command": "python -m benchmarks.new_media OUT RUNS",
            "experiment": name,
            "processor": processor_name(),
            "draws": records,
            "ahead": ahead,
        },
    )


def _ahead(of_media: list[dict[str, dict[str, float | None]]]) -> dict[str, dict[str, Any]]:
    """Return what r each predictor has over media, and how far the model is ahead.

    Predictors that are constant, or lacking, in a medium are left out.
    """
    names = [name for name in of_media[0] if all(one.get(name, {}).get("pearson") is not None for one in of_media)]
    r = {name: [one[name]["pearson"] or 0.0 for one in of_media] for name in names}
    return {
        name: {
            "mean": round(statistics.fmean(r[name]), 4),
            "sd": round(statistics.stdev(r[name]), 4),
            **({} if name == "model" else {"ahead": over_draws(of_media, name, "pearson")}),
        }
        for name in names
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])

"""Whether explanations find reactions whose fluxes change: ``python -m benchmarks.explain_fba OUT RUN STRAINS``.

RUN has learned growth that flux balance analysis computed, so that the truth is known: the reactions whose range of
fluxes at the largest growth has no flux in common with that of the wild type (flux variability analysis), also per
growth, because all fluxes fall with growth; or whose flux differs in the parsimonious solution. Of test strains that
grow less than the wild type, but grow, STRAINS are drawn. Reactions that the strain loses are left out, because every
list of them would be right. A reaction's score is its absolute share behind the last layer. Simple scores, which know
nothing of what the model computes for the strain, stand beside it.
"""

from __future__ import annotations

import copy
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from cobra import Model
from cobra.flux_analysis import flux_variability_analysis, pfba
from numpy.typing import NDArray

import dglcell
from dglcell.explanations.split import check_model
from dglcell.explanations.tables import explain
from dglcell.files.atomic import write_json
from dglcell.graph.metabolism import model_reaction
from dglcell.graph.model_files import read_model
from dglcell.graph.schema import CONVERTS, REACTION
from dglcell.machine.processor import processor_name
from dglcell.nn.blocks import initialise, start_at_the_mean
from dglcell.prediction.columns import GenotypeColumns
from dglcell.prediction.frames import read_strains
from dglcell.report.run_files import read_predictions
from dglcell.runs.directory import RunDirectory
from dglcell.training.checkpoint import Trained

APART, DIFFERENT = 1e-6, 1e-3
"""Ranges of fluxes are apart by more than the first, and fluxes differ by more than the second, relative to their size
or to 1."""

GROWTH = (0.01, 0.999)
"""Strains with a measured growth between these are explained."""

FIRST = (10, 50)


class Fluxes(NamedTuple):
    """Hold the largest growth, the range of each flux there, and one solution with small fluxes, each [reactions]."""

    growth: float
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    fluxes: NDArray[np.float64]


Scores = dict[str, NDArray[np.float64]]


def fluxes_of(model: Model) -> Fluxes:
    """Return the largest growth, the range of each flux at that growth, and the parsimonious fluxes."""
    ranges = flux_variability_analysis(model, fraction_of_optimum=1.0, processes=1)
    low, high = ranges["minimum"].to_numpy(), ranges["maximum"].to_numpy()
    return Fluxes(model.slim_optimize(), low, high, pfba(model).fluxes.to_numpy())


def truths(model: Model, genes: Sequence[str], before: Fluxes) -> dict[str, NDArray[np.bool_]]:
    """Return which reactions of the model change in a strain, by three definitions, [reactions]."""
    with model:
        for gene in genes:
            model.genes.get_by_id(gene).knock_out()
        after = fluxes_of(model)
    size = np.maximum(1, np.maximum(np.abs(before.fluxes), np.abs(after.fluxes)))
    return {
        "flux variability": _apart(before, after, 1, 1),
        "flux variability, per growth": _apart(before, after, before.growth, after.growth),
        "parsimonious fluxes": np.abs(after.fluxes - before.fluxes) > DIFFERENT * size,
    }


def _apart(before: Fluxes, after: Fluxes, unit: float, new_unit: float) -> NDArray[np.bool_]:
    """Return where two ranges have no flux in common, in units of their own."""
    gap = np.maximum(after.low / new_unit - before.high / unit, before.low / unit - after.high / new_unit)
    return gap > APART * np.maximum(1, np.abs(before.high / unit))


def shares(members: Sequence[Trained], strains: Any, reactions: Sequence[str]) -> NDArray[np.float64]:
    """Return the absolute share of each reaction behind the last layer, [strains, reactions]."""
    found = explain(members, strains, nodes=None).nodes
    found = found[(found["node_type"] == REACTION) & (found["layer"] == found["layer"].max())]
    place = {name: i for i, name in enumerate(reactions)}
    out = np.zeros((len(strains), len(reactions)))
    columns = found["node"].map(lambda node: place[model_reaction(node)]).to_numpy()
    np.add.at(out, (found["strain"].to_numpy(), columns), found["share"].to_numpy())
    return np.abs(out)


def untrained(member: Trained) -> Trained:
    """Return the same network with fresh weights; it keeps the fixed numbers beside them."""
    torch.manual_seed(0)
    model = check_model(copy.deepcopy(member.model))
    model.apply(initialise)
    model.encoder.spread_embeddings()
    start_at_the_mean(model.global_head[-1])
    return replace(member, model=model)


def distances(cell: dglcell.CellGraph, reactions: Sequence[str]) -> tuple[dict[str, set[str]], dict[str, int]]:
    """Return the neighbours of each reaction by metabolites, and how many metabolites' reactions it meets."""
    edges = cell.content[CONVERTS]
    names = [model_reaction(name) for name in cell.vocabularies[REACTION].names]
    by_metabolite: dict[int, set[str]] = {}
    for reaction, metabolite in zip(edges.src.tolist(), edges.dst.tolist(), strict=True):
        by_metabolite.setdefault(metabolite, set()).add(names[reaction])
    neighbours: dict[str, set[str]] = {name: set() for name in reactions}
    for members in by_metabolite.values():
        for one in members:
            neighbours[one] |= members - {one}
    return neighbours, {name: len(found) for name, found in neighbours.items()}


def nearness(neighbours: Mapping[str, set[str]], start: Sequence[str], reactions: Sequence[str]) -> NDArray[np.float64]:
    """Return minus the number of steps from a strain's own reactions, [reactions]."""
    steps = dict.fromkeys(start, 0)
    queue = deque(start)
    while queue:
        one = queue.popleft()
        for other in neighbours[one]:
            if other not in steps:
                steps[other] = steps[one] + 1
                queue.append(other)
    return -np.array([steps.get(name, len(reactions)) for name in reactions], float)


def auroc(score: NDArray[np.float64], truth: NDArray[np.bool_]) -> float:
    """Return the share of pairs of a changed and an unchanged reaction in which the changed one has more."""
    from scipy.stats import rankdata

    ranks, n = rankdata(score), int(truth.sum())
    return float((ranks[truth].sum() - n * (n + 1) / 2) / (n * (len(truth) - n)))


def precision(score: NDArray[np.float64], truth: NDArray[np.bool_], first: int) -> float:
    """Return which part of the first reactions changes; ties share their places."""
    order = np.sort(score)[::-1]
    cut = order[min(first, len(order)) - 1]
    above, tied = score > cut, score == cut
    return float((truth[above].sum() + truth[tied].mean() * (first - above.sum())) / first)


def main(out: Path, run: Path, number: int) -> None:
    """Explain strains of a run, and compare with the truth."""
    predictor = dglcell.load(run)
    [member], cell = predictor.members, predictor.cell
    assert member.config.cell.model is not None
    model = read_model(member.config.cell.model)
    strains, genotypes = _drawn(predictor, run, number)
    reactions = [reaction.id for reaction in model.reactions]
    wild_type = fluxes_of(model)
    neighbours, degree = distances(cell, reactions)
    scores: Scores = {"explanation": shares([member], strains, reactions)}
    with mock.patch("dglcell.explanations.split.secants.secants", nullcontext):
        scores["gradient × difference"] = shares([member], strains, reactions)
    scores["untrained network"] = shares([untrained(member)], strains, reactions)
    own = [[r.id for g in genes for r in model.genes.get_by_id(g).reactions] for genes in genotypes]
    scores["distance"] = np.stack([nearness(neighbours, start, reactions) for start in own])
    scores["degree"] = np.tile(np.array([degree[name] for name in reactions], float), (len(genotypes), 1))
    size = scores["explanation"] / np.maximum(scores["explanation"].sum(1, keepdims=True), 1e-30)
    scores["mean explanation of other strains"] = (size.sum(0) - size) / (len(size) - 1)
    rows: dict[str, dict[str, list[dict[str, float]]]] = {}
    for i, genes in enumerate(genotypes):
        lost = _lost(model, genes)
        for name, truth in truths(model, genes, wild_type).items():
            kept = np.array([reaction not in lost for reaction in reactions])
            if not 0 < truth[kept].sum() < kept.sum():
                continue
            for score, values in scores.items():
                measured = {"auroc": auroc(values[i][kept], truth[kept]), "changed": float(truth[kept].mean())}
                measured |= {f"precision_{k}": precision(values[i][kept], truth[kept], k) for k in FIRST}
                rows.setdefault(name, {}).setdefault(score, []).append(measured)
        print(f"{i + 1} of {len(genotypes)} strains", flush=True)
    write_json(
        out,
        {
            "command": f"python -m benchmarks.explain_fba OUT RUN {number}",
            "experiment": member.config.experiment.name,
            "processor": processor_name(),
            "truths": {name: {score: _summed(found) for score, found in by.items()} for name, by in rows.items()},
        },
    )


def _drawn(predictor: dglcell.Predictor, run: Path, number: int) -> tuple[Any, list[list[str]]]:
    """Return test strains that grow less than the wild type, and the names of their genes."""
    import pandas as pd

    frame = pd.read_csv(RunDirectory(run).predictions("test"))
    growth = read_predictions(RunDirectory(run), "test")[predictor.phenotypes[0]].measured
    frame = frame[(growth > GROWTH[0]) & (growth < GROWTH[1])].sample(number, random_state=0)
    columns = GenotypeColumns.of(predictor.members[0])
    strains = read_strains(frame[["genes"]].reset_index(drop=True), {}, columns, predictor.cell.genes)[2].strains
    return strains, strains.genotypes


def _lost(model: Model, genes: Sequence[str]) -> set[str]:
    with model:
        for gene in genes:
            model.genes.get_by_id(gene).knock_out()
        return {reaction.id for reaction in model.reactions if reaction.bounds == (0, 0)}


def _summed(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {"strains": len(rows)}
    for name in rows[0]:
        values = np.array([row[name] for row in rows])
        found[name] = round(float(values.mean()), 4)
        found[f"{name}_error"] = round(float(values.std(ddof=1) / len(values) ** 0.5), 4)
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))

"""Say whether explanations find changed fluxes: ``python -m benchmarks.explain_fba OUT TRUTH N M RUN …``.

The runs have learned growth that flux balance analysis computed, so that the truth is known: the reactions whose range
of fluxes at the largest growth has no flux in common with that of the wild type (flux variability analysis), also per
growth, because all fluxes fall with growth; or whose flux differs in the parsimonious solution. TRUTH is an ``.npz``
file, which is computed where it does not exist: for at most N test strains of the first run, and for M deletions of
three genes that are drawn at random, because few test strains of large models are sick. All of them grow less than the
wild type, but grow. Reactions that a strain loses are left out, because every list of them would be right.

A reaction's score is its absolute share behind the last layer, the sum over its directions and enzyme complexes. That
of a metabolite is its share there, and the truth is whether its shadow price at the largest growth changes. Simple
scores, which know nothing of what the model computes for the strain, stand beside it, and so do runs with
``data.permuted_labels``. Scores of several seeds are means over runs. Intervals are of a bootstrap over strains.
"""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

import dglcell
from benchmarks.flux_truth import Truth, changed_prices, responsible, sick_triples, subsets, truth_of
from dglcell.data.strains import Strains
from dglcell.explanations.graph import Rows
from dglcell.explanations.reactions import of_whole_reactions
from dglcell.explanations.split import Explainer, check_model
from dglcell.explanations.tables import OTHERS, explain
from dglcell.files.atomic import write_json
from dglcell.graph.metabolism import model_reaction
from dglcell.graph.model_files import read_model
from dglcell.graph.schema import CONVERTS, METABOLITE, REACTION
from dglcell.machine.processor import processor_name
from dglcell.nn.blocks import initialise, start_at_the_mean
from dglcell.report.run_tables import read_predictions
from dglcell.runs.directory import RunDirectory
from dglcell.training.checkpoint import Trained

GROWTH = (0.01, 0.999)
"""Strains with a measured growth between these are explained."""

TRIPLES, FIRST, RESAMPLES = 200, (10, 50), 1000

FEWEST = 5
"""Within a reaction, strains are ranked where it changes in so many of them, and stays in as many."""

EXPLANATION, BALANCE, FLUXES = "explanation", "share of the flux balance", "fluxes of the rounds"
SCORED = (REACTION, METABOLITE)
MEANS = {
    EXPLANATION: "mean explanation of other strains",
    BALANCE: "mean share of the flux balance of other strains",
    FLUXES: "mean change of fluxes of other strains",
}
"""These are scores that explain a strain, and beside each the null model that knows nothing of the strain."""

Matrix = NDArray[np.float64]


# Scores of reactions, [strains, reactions].


def shares(members: Sequence[Trained], strains: Strains, names: Sequence[str]) -> dict[str, Matrix]:
    """Return absolute shares behind the last layer; and of reactions those of the flux balance, and changes of flux."""
    found = explain(members, strains, nodes=None)
    scored, last = found.nodes["node_type"].isin(SCORED), found.nodes["layer"] == found.nodes["layer"].max()
    nodes = of_whole_reactions(found.nodes[scored & last])
    out = {EXPLANATION: _matrix(nodes["node"], nodes["strain"], nodes["share"], strains, names)}
    balance = found.balance[found.balance["reaction"] != OTHERS]
    if len(balance):
        change = balance["flux"] - balance["wild_type"]
        for name, values in ((BALANCE, balance["share"]), (FLUXES, change)):
            out[name] = _matrix(balance["reaction"], balance["strain"], values, strains, names)
    return {name: np.abs(values) for name, values in out.items()}


def _matrix(nodes: Any, rows: Any, values: Any, strains: Strains, names: Sequence[str]) -> Matrix:
    place = {name: i for i, name in enumerate(names)}
    out = np.zeros((len(strains), len(names)))
    np.add.at(out, (rows.to_numpy(), nodes.map(place.__getitem__).to_numpy()), values.to_numpy())
    return out


def changes_of_states(member: Trained, strains: Strains, names: Sequence[str]) -> Matrix:
    """Return by how much the states of each node differ behind the last layer, summed over nodes of a reaction."""
    explainer = Explainer(member.model, member.normaliser)
    [split] = explainer(strains.to("cpu").perturbations)
    out = np.zeros((len(strains), len(names)))
    for rows in (rows for rows, _ in split.rows if _is_last(rows, explainer.num_layers)):
        length = rows.delta_KH.detach().norm(dim=1).double()
        nodes = pd.Series(member.cell.vocabularies[rows.node_type].names)
        nodes = nodes.map(model_reaction) if rows.node_type == REACTION else nodes
        where = nodes.iloc[rows.index.nodes.numpy()].reset_index(drop=True)
        out += _matrix(where, pd.Series(rows.index.strains.numpy()), pd.Series(length.numpy()), strains, names)
    return out


def _is_last(rows: Rows, num_layers: int) -> bool:
    return rows.relation is None and rows.layer == num_layers and rows.node_type in SCORED


def untrained(run: Path) -> Trained:
    """Return the network of a run with fresh weights; it keeps the fixed numbers beside them."""
    [member] = dglcell.load(run).members
    torch.manual_seed(member.config.seed)
    model = check_model(member.model)
    model.apply(initialise)
    model.encoder.spread_embeddings()
    start_at_the_mean(model.global_head[-1])
    return member


def scores_of_run(
    run: Path, member: Trained, strains: Strains, names: Sequence[str], permuted: bool
) -> dict[str, Matrix]:
    """Return the scores of reactions and metabolites that one run gives."""
    of_model = shares([member], strains, names)
    if permuted:
        return {"network trained on permuted labels": of_model[EXPLANATION]}
    found = dict(of_model)
    with mock.patch("dglcell.explanations.split.secants.secants", nullcontext):
        found["gradient × difference"] = shares([member], strains, names)[EXPLANATION]
    if check_model(member.model).config.layers:
        found["change of states"] = changes_of_states(member, strains, names)
    found["untrained network"] = shares([untrained(run)], strains, names)[EXPLANATION]
    return found


def mean_of_others(score: Matrix) -> Matrix:
    """Return the mean of the scores of all other strains, each as parts of its sum."""
    size = score / np.maximum(score.sum(1, keepdims=True), 1e-30)
    return (size.sum(0) - size) / (len(size) - 1)


def simple_scores(
    cell: dglcell.CellGraph, lost: Sequence[Sequence[str]], reactions: Sequence[str], metabolites: Sequence[str]
) -> dict[str, Matrix]:
    """Return scores of reactions and metabolites by the cell graph alone."""
    neighbours, members = distances(cell, reactions)
    near = np.stack([nearness(neighbours, start, reactions) for start in lost])
    place = {name: i for i, name in enumerate(reactions)}
    of_metabolites = [[place[one] for one in members.get(name, ())] for name in metabolites]
    farthest = -np.full(len(lost), float(len(reactions)))
    near_them = [near[:, own].max(1) - 0.5 if own else farthest for own in of_metabolites]
    degree = [len(neighbours[name]) for name in reactions] + [len(own) for own in of_metabolites]
    return {
        "distance": np.concatenate([near, np.stack(near_them, 1)], 1),
        "degree": np.tile(np.array(degree, float), (len(lost), 1)),
    }


def distances(cell: dglcell.CellGraph, reactions: Sequence[str]) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Return the neighbours of each reaction by metabolites, and the reactions of each metabolite."""
    edges, vocabularies = cell.content[CONVERTS], cell.vocabularies
    names = [model_reaction(name) for name in vocabularies[REACTION].names]
    by_metabolite: dict[str, set[str]] = {}
    for reaction, metabolite in zip(edges.src.tolist(), edges.dst.tolist(), strict=True):
        by_metabolite.setdefault(vocabularies[METABOLITE].names[metabolite], set()).add(names[reaction])
    neighbours: dict[str, set[str]] = {name: set() for name in reactions}
    for members in by_metabolite.values():
        for one in members:
            neighbours[one] |= members - {one}
    return neighbours, by_metabolite


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


# How well a score tells what changes.


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


def by_strain(score: Matrix, changed: NDArray[np.bool_], kept: NDArray[np.bool_]) -> dict[str, NDArray[np.float64]]:
    """Return AUROC and precision of each strain, NaN where none or all of its reactions change."""
    names = ("auroc", *(f"precision_{k}" for k in FIRST))
    found = {name: np.full(len(score), np.nan) for name in names}
    for i, keeps in enumerate(kept):
        truth, mine = changed[i][keeps], score[i][keeps]
        if 0 < truth.sum() < len(truth):
            found["auroc"][i] = auroc(mine, truth)
            for k in FIRST:
                found[f"precision_{k}"][i] = precision(mine, truth, k)
    return found


def within_reactions(score: Matrix, changed: NDArray[np.bool_], kept: NDArray[np.bool_]) -> float:
    """Return how well a reaction's part of a strain's scores tells in which strains it changes: the mean AUROC.

    What is the same in every strain, such as the degree of a reaction, has 0.5 here.
    """
    part = score / np.maximum(score.sum(1, keepdims=True), 1e-30)
    found = []
    for r in range(score.shape[1]):
        keeps = kept[:, r]
        truth = changed[keeps, r]
        if min(truth.sum(), (~truth).sum()) >= FEWEST:
            found.append(auroc(part[keeps, r], truth))
    return float(np.mean(found)) if found else float("nan")


def interval(values: NDArray[np.float64]) -> list[float]:
    """Return the ends of the interval at 95 % of a mean, by a bootstrap over strains."""
    known = values[np.isfinite(values)]
    drawn = np.random.default_rng(0).integers(len(known), size=(RESAMPLES, len(known)))
    return [round(float(end), 4) for end in np.quantile(known[drawn].mean(1), (0.025, 0.975))]


def summary(
    runs: Sequence[Matrix], changed: NDArray[np.bool_], kept: NDArray[np.bool_]
) -> tuple[dict[str, Any], Matrix]:
    """Return how good a score is, in the mean over runs; and the AUROC of each strain."""
    found = [by_strain(score, changed, kept) for score in runs]
    out: dict[str, Any] = {"runs": len(runs)}
    for name in found[0]:
        mean = np.mean([one[name] for one in found], axis=0)
        out[name] = round(float(np.nanmean(mean)), 4)
        out[f"{name}_interval"] = interval(mean)
    out["auroc_of_runs"] = [round(float(np.nanmean(one["auroc"])), 4) for one in found]
    out["within_reactions"] = round(float(np.mean([within_reactions(one, changed, kept) for one in runs])), 4)
    return out, np.mean([one["auroc"] for one in found], axis=0)


# Which deletions of a triple are responsible.


def triples_of_run(predictor: dglcell.Predictor, truth: Truth) -> float:
    """Return in which share of triples the model's predictions for subsets name a responsible subset."""
    found = predictor.explain([triple.split(";") for triple in truth.triples], interaction=True, nodes=1).subsets
    assert found is not None
    order = {chosen: i for i, chosen in enumerate(subsets(3))}
    # The package lists subsets by the bits of a number, and the truth by their size.
    bits = [order[tuple(i for i in range(3) if number >> i & 1)] for number in range(8)]
    predicted = np.zeros((len(truth.triples), 8))
    predicted[:, bits] = found["predicted"].to_numpy().reshape(-1, 8)
    return agreement(lambda i: responsible(predicted[i], 0.9), truth)


def agreement(named: Callable[[int], Set[tuple[int, ...]]], truth: Truth) -> float:
    """Return in which share of triples a responsible subset is named; of several names each counts its part."""
    found = []
    for i, growth in enumerate(truth.growth):
        names = named(i)
        found.append(len(names & responsible(growth)) / max(1, len(names)))
    return round(float(np.mean(found)), 4)


def simple_triples(truth: Truth, reactions_of: Mapping[str, int]) -> dict[str, float]:
    """Return the same for guesses that know nothing of the model."""
    singles, pairs = ({chosen for chosen in subsets(3) if len(chosen) == size} for size in (1, 2))

    def most_reactions(i: int) -> set[tuple[int, ...]]:
        numbers = [reactions_of[gene] for gene in truth.triples[i].split(";")]
        return {(place,) for place, number in enumerate(numbers) if number == max(numbers)}

    return {
        "gene with the most reactions": agreement(most_reactions, truth),
        "any gene": agreement(lambda i: singles, truth),
        "any pair": agreement(lambda i: pairs, truth),
        "all three genes": agreement(lambda i: {(0, 1, 2)}, truth),
    }


# The command.


def drawn(run: Path, number: int) -> tuple[list[str], list[str]]:
    """Return test strains that grow less than the wild type, and triples among all test strains that do."""
    frame = pd.read_csv(RunDirectory(run).predictions("test"))
    growth = next(iter(read_predictions(RunDirectory(run), "test").values())).measured
    strains = frame[(growth > GROWTH[0]) & (growth < GROWTH[1])]["genes"]
    triples = frame[(growth < GROWTH[1]) & (frame["genes"].str.count(";") == 2)]["genes"]
    chosen = [
        some.sample(min(most, len(some)), random_state=0).tolist()
        for some, most in ((strains, number), (triples, TRIPLES))
    ]
    return chosen[0], chosen[1]


def compute_truth(model: Any, run: Path, tested: int, random: int) -> Truth:
    """Compute the truth for test strains of a run, and for triples that are drawn at random."""
    strains, triples = drawn(run, tested) if tested else ([], [])
    more = sick_triples(model, random, GROWTH)
    return truth_of(model, strains + more, (triples + more)[:TRIPLES])


def table_of(
    scores: Mapping[str, Sequence[Matrix]], part: slice, changed: NDArray[np.bool_], kept: NDArray[np.bool_]
) -> dict[str, Any]:
    """Return how good every score is at telling what changes, and how far the scores that explain are ahead of it.

    Args:
        scores: score → of each run, [strains, reactions and metabolites].
        part: the columns to look at.
        changed: [strains, columns] the truth.
        kept: [strains, columns] what a strain has.
    """
    mine = {name: [values[:, part] for values in runs] for name, runs in scores.items()}
    mine |= {mean: [mean_of_others(values) for values in mine[name]] for name, mean in MEANS.items() if name in mine}
    found = {name: summary(runs, changed, kept) for name, runs in mine.items()}
    for mean in MEANS.values():  # without the strain itself, a mean is the lower the higher the strain is
        if mean in found:
            del found[mean][0]["within_reactions"]
    ours = [name for name in MEANS if name in found]
    return {
        name: {**about, "ahead": {one: interval(found[one][1] - aurocs) for one in ours if one != name}}
        for name, (about, aurocs) in found.items()
    }


def main(out: Path, path: Path, numbers: tuple[int, int], runs: Sequence[Path]) -> None:
    """Explain strains of runs, and compare with the truth."""
    first = dglcell.load(runs[0])
    source = first.members[0].config.cell.model
    assert source is not None
    model = read_model(source)
    if not path.exists():
        compute_truth(model, runs[0], *numbers).save(path)
    truth = Truth.read(path)
    reactions, metabolites = ([one.id for one in some] for some in (model.reactions, model.metabolites))
    columns, genotypes = [*reactions, *metabolites], [strain.split(";") for strain in truth.genotypes]
    scores: dict[str, list[Matrix]] = defaultdict(list)
    named: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        predictor = dglcell.load(run)
        [member] = predictor.members
        permuted = member.config.data.permuted_labels is not None
        _, _, table = predictor._read(genotypes, {})
        for name, values in scores_of_run(run, member, table.strains, columns, permuted).items():
            scores[name].append(values)
        named[f"predictions, {'permuted labels' if permuted else 'trained'}"].append(triples_of_run(predictor, truth))
        print(f"{run} is explained", flush=True)
    own = [[r.id for gene in genes for r in model.genes.get_by_id(gene).reactions] for genes in genotypes]
    simple = simple_scores(first.cell, own, reactions, metabolites)
    scores |= {name: [values] for name, values in simple.items()}
    R = len(reactions)
    truths = {name: table_of(scores, slice(R), changed, truth.kept) for name, changed in truth.changed.items()}
    of_metabolites = {name: values for name, values in scores.items() if name not in (BALANCE, FLUXES)}
    priced = changed_prices(model, truth.genotypes)
    prices = table_of(of_metabolites, slice(R, None), priced, np.ones_like(priced))
    reactions_of = {gene.id: len(gene.reactions) for gene in model.genes}
    triples = {name: round(float(np.mean(values)), 4) for name, values in named.items()}
    triples |= simple_triples(truth, reactions_of)
    names = " ".join(str(Path(*run.parts[-2:])) for run in runs)
    write_json(
        out,
        {
            "command": f"python -m benchmarks.explain_fba OUT TRUTH {numbers[0]} {numbers[1]} {names}",
            "model": source,
            "processor": processor_name(),
            "strains": len(truth.genotypes),
            "changed": {name: round(float(np.mean(changed[truth.kept])), 4) for name, changed in truth.changed.items()},
            "truths": truths,
            "changed_prices": round(float(priced.mean()), 4),
            "metabolites": prices,
            "triples": {"number": len(truth.triples), **triples},
        },
    )


if __name__ == "__main__":
    main(
        Path(sys.argv[1]), Path(sys.argv[2]), (int(sys.argv[3]), int(sys.argv[4])), [Path(run) for run in sys.argv[5:]]
    )

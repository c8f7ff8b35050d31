"""Compare predictions of titrated CRISPRi with simpler ones: ``python -m benchmarks.crispri OUT GFP RUNS``.

RUNS is the folder of finished runs of `conf/110-mathis2020-crispri/new_genes.yaml` and `new_medium.yaml`. GFP is the
table of guides that repress a fluorescent protein (Hawkins et al. 2020), from which the activity of a guide follows
without any growth.

On new genes stand beside the model and the null models of its run one pooled curve over that activity, and this curve
moved to the mean growth of each test gene, which nobody knows beforehand: it says what knowing the genes is worth.
Extremely randomised trees (Geurts et al. 2006, *Mach Learn* 63:3) also see how the genes' deletions grow (the Keio
collection), and need scikit-learn, in the extra `bench`. In a new medium stand beside the model the growth of the same
guide in glucose, without training, and three that also know something of the gene: its need of flux in either medium by
parsimonious flux balance, its mean growth in glycerol, which nobody knows beforehand either, and the growth of a few
of its guides there. The ceiling of noise is √(1 − the mean squared standard error over the variance).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesRegressor

from benchmarks.guide_strengths import mismatches
from benchmarks.new_genes import over_draws
from dglcell.baselines.curves import Curve
from dglcell.config.experiment import Config
from dglcell.config.read import load_config
from dglcell.data.columns import CONDITION, MEDIUM, PHENOTYPE, SD
from dglcell.data.sources import load_source
from dglcell.data.sources.guides import DISTANCE, MISMATCH
from dglcell.data.strains import Strains
from dglcell.data.table import REGRESSION
from dglcell.files.atomic import find_raw, write_json
from dglcell.graph.media import Media
from dglcell.graph.model_files import read_model
from dglcell.metrics import PERMUTED
from dglcell.report.run_files import read_run
from dglcell.report.run_tables import read_predictions
from dglcell.runs.directory import RunDirectory
from dglcell.training.prepare import Prepared, prepare
from dglcell.uncertainty.paired import ahead

Values = NDArray[np.float64]

GROWTH = "growth"
FOLDER, KEIO = "110-mathis2020-crispri", "ecoli/baba2006_keio.csv.gz"
RIDGE = 3.0
"""Squared weights of positions count so much beside the error of logarithms of the activity."""
LEAST_ACTIVITY = 0.03
FEW, DRAWS = (1, 3, 5), 20
"""So many guides of each gene are taken to be measured in the new medium, drawn so many times."""
SAME_GUIDE, NEEDED, OWN_MEAN = (
    "the same guide in glucose",
    "the same, by need of flux",
    "the same, with the gene's mean",
)
POOLED, KNOWN_MEAN = "pooled curve over activity", "the same, with the gene's mean"
TREES = "randomised trees, with growth of deletions"


class Activity:
    """Say how much of a matching guide's repression mismatches leave, as a product over positions.

    Args:
        table: columns variant, original and relgfp.
    """

    def __init__(self, table: pd.DataFrame) -> None:
        differ = mismatches([*table["variant"]], [*table["original"]]).astype(float)
        logs = np.log(table["relgfp"].to_numpy().clip(LEAST_ACTIVITY))
        self.weights: Values = np.linalg.solve(differ.T @ differ + RIDGE * np.eye(differ.shape[1]), differ.T @ logs)

    def __call__(self, strains: Strains) -> Values:
        """Return the activity of the guide of each strain, [S]; that of a strain without a gene is 0."""
        places, length = strains.of_kind(CONDITION), len(self.weights)
        differ = np.stack([places[f"{MISMATCH}_{length - i}"] for i in range(length)], axis=1)
        active: Values = np.exp(np.minimum(differ @ self.weights, 0.0)) * (strains.num_deletions > 0)
        return active


def gene_of(strains: Strains) -> NDArray[np.int64]:
    """Return the gene that each strain represses, [S], −1 where it represses none."""
    genes = np.full(len(strains), -1, dtype=np.int64)
    genes[strains.num_deletions > 0] = strains.targets
    return genes


def features(strains: Strains, activity: Values, keio: pd.DataFrame) -> Values:
    """Return numbers of each strain for trees, [S, F]: of its guide, and of its gene's deletion, −1 where unknown.

    Args:
        strains: the strains.
        activity: [S] activity of their guides.
        keio: optical densities of deletions, by b-number.
    """
    conditions = strains.of_kind(CONDITION)
    guides = [values for name, values in conditions.items() if name.startswith(MISMATCH) or name == DISTANCE]
    names = [genes[0] if genes else "" for genes in strains.genotypes]
    table = keio.reindex(names).to_numpy(dtype=float)
    deleted = np.concatenate([np.isnan(table).all(1, keepdims=True), np.nan_to_num(table, nan=-1)], axis=1)
    return np.column_stack([*guides, sum(guides), activity, deleted])


def with_means(predicted: Values, wanted: Values, genes: NDArray[np.int64]) -> Values:
    """Return predictions moved so that each gene has the mean of what is wanted, [S]."""
    moved = predicted.copy()
    for gene in np.unique(genes):
        of_gene = genes == gene
        moved[of_gene] += wanted[of_gene].mean() - predicted[of_gene].mean()
    return moved


def with_few(predicted: Values, measured: Values, genes: NDArray[np.int64], few: int) -> float:
    """Return Pearson's r on the other strains if a few strains of each gene are measured, and move its predictions.

    It is the mean over draws of these few.
    """
    found, draw = [], np.random.default_rng(0)
    for _ in range(DRAWS):
        moved, chosen = predicted.copy(), np.zeros(len(genes), dtype=bool)
        for gene in np.unique(genes):
            of_gene = np.flatnonzero(genes == gene)
            some = draw.permutation(of_gene)[:few]
            moved[of_gene] += (measured[some] - predicted[some]).mean()
            chosen[some] = True
        found.append(np.corrcoef(moved[~chosen], measured[~chosen])[0, 1])
    return round(float(np.mean(found)), 4)


def noise_ceilings(strains: Strains) -> dict[str, float]:
    """Return the correlation of labels with what they would be without errors of measurement, in each medium."""
    media, found = strains.shown(MEDIUM), {}
    labels, errors = (strains.of_kind(kind)[GROWTH].astype(float) for kind in (PHENOTYPE, SD))
    for medium in strains.conditions[MEDIUM]:
        there = media == medium
        noise = np.nanmean(np.square(errors[there])) / np.nanvar(labels[there])
        found[medium] = round(float(np.sqrt(1 - noise)), 4)
    return found


def needs(config: Config) -> dict[str, dict[str, float]]:
    """Return how much flux the reactions of each gene carry where growth is 1: medium → gene → sum of fluxes.

    Fluxes are those of parsimonious flux balance analysis.
    """
    from cobra.flux_analysis import pfba

    assert config.cell.model is not None
    model = read_model(config.cell.model, config.paths.raw)
    media, found = Media.of(model, config.cell.media, "cell.media"), {}
    growth = next(reaction.id for reaction in model.reactions if reaction.objective_coefficient)
    for name, uptakes in zip(media.names, media.uptakes, strict=True):
        for exchange, uptake in zip(media.exchanges, uptakes.tolist(), strict=True):
            model.reactions.get_by_id(exchange).lower_bound = -uptake
        fluxes = pfba(model).fluxes.abs()
        found[name] = {
            gene.id: float(sum(fluxes[reaction.id] for reaction in gene.reactions) / fluxes[growth])
            for gene in model.genes
        }
    return found


def by_need(growth: Values, genes: list[str], known: dict[str, float], new: dict[str, float]) -> Values:
    """Return growth in a new medium: a gene that is needed less there than in the known one matters less, [S].

    The effect of a guide, 1 − growth, is multiplied by the ratio of what flux the gene's reactions carry in the new
    medium and in the known one, relative to growth, and at most by 1.
    """
    ratio = [min(1.0, new[gene] / known[gene]) if known.get(gene, 0.0) > 1e-9 else 1.0 for gene in genes]
    return 1 - np.array(ratio) * (1 - growth)


def of_run(run: Path) -> tuple[Prepared, Strains, Values, dict[str, float]]:
    """Return the data of a run, its test strains, its predictions of them, and Pearson's r of its null models."""
    experiment = Path("conf") / FOLDER / f"{run.parent.name}.yaml"
    prepared = prepare(load_config(experiment, [f"split.seed={run.name[5:]}"]), command="benchmark")
    test = prepared.dataset.numpy().take(prepared.parts["test"].numpy())
    rows = [row for row in read_run(run, parts=()).rows if row.is_null and row.part == "test" and row.model != PERMUTED]
    nulls = {row.model: round(row.metrics["pearson"], 4) for row in rows if np.isfinite(row.metrics["pearson"])}
    return prepared, test, read_predictions(RunDirectory(run), "test")[GROWTH].predicted.astype(np.float64), nulls


def correlation(one: Values, other: Values) -> float:
    """Return Pearson's correlation of what both know."""
    known = ~np.isnan(one) & ~np.isnan(other)
    return round(float(np.corrcoef(one[known], other[known])[0, 1]), 4)


def new_genes(run: Path, activity: Activity, keio: pd.DataFrame) -> dict[str, Any]:
    """Return the scores of each predictor on the test part of a run."""
    prepared, test, predicted, nulls = of_run(run)
    train = prepared.dataset.numpy().take(prepared.parts["train"].numpy())
    curve = Curve.of(activity(train), train.phenotypes[GROWTH].astype(float))
    measured, pooled = test.phenotypes[GROWTH].astype(float), curve(activity(test))
    known = with_means(pooled, measured, gene_of(test))
    trees = ExtraTreesRegressor(150, min_samples_leaf=8, max_features=0.4, random_state=0)
    trees.fit(features(train, activity(train), keio), train.phenotypes[GROWTH])
    of_trees = trees.predict(features(test, activity(test), keio))
    scores = {name: {"pearson": pearson} for name, pearson in nulls.items()}
    for name, values in (("model", predicted), (POOLED, pooled), (KNOWN_MEAN, known), (TREES, of_trees)):
        scores[name] = {"pearson": correlation(values, measured)}
    genes = len(np.unique(gene_of(test)))
    return {"seed": int(run.name[5:]), "genes": genes, "scores": scores}


def guide_keys(strains: Strains) -> list[tuple[float, ...]]:
    """Return what tells the guides of strains apart: genes and conditions, but for the medium."""
    conditions = [values for name, values in strains.of_kind(CONDITION).items() if name != MEDIUM]
    return [*zip(gene_of(strains).tolist(), *(values.tolist() for values in conditions), strict=True)]


def new_medium(run: Path, of_genes: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Return scores on the test strains of a run whose guides were measured in glucose, too, and leads over them."""
    prepared, test, predicted, nulls = of_run(run)
    everything = prepared.dataset.numpy()
    known, new = (everything.conditions[MEDIUM].index(name) for name in ("glucose", "glycerol"))
    assert set(test.of_kind(CONDITION)[MEDIUM].tolist()) == {new}
    there = everything.take((everything.of_kind(CONDITION)[MEDIUM] == known).nonzero()[0])
    growth = dict(zip(guide_keys(there), there.phenotypes[GROWTH].tolist(), strict=True))
    same = np.array([growth.get(key, np.nan) for key in guide_keys(test)])
    both = ~np.isnan(same)
    test, predicted, same = test.take(both.nonzero()[0]), predicted[both], same[both]
    measured = test.phenotypes[GROWTH].astype(float)
    names = [genes[0] if genes else "" for genes in test.genotypes]
    others = {
        SAME_GUIDE: same,
        NEEDED: by_need(same, names, of_genes["glucose"], of_genes["glycerol"]),
        OWN_MEAN: with_means(same, measured, gene_of(test)),
    }
    leads = ahead(REGRESSION, predicted, others, measured, test)
    return {
        "seed": int(run.name[5:]),
        "strains": len(test),
        "scores": {name: correlation(of, measured) for name, of in {"model": predicted, **others}.items()},
        "same_guide_with_few_of_each_gene": {str(few): with_few(same, measured, gene_of(test), few) for few in FEW},
        "of_all_test_strains": nulls,
        "ahead": {name: {key: round(value, 4) for key, value in of.items()} for name, of in leads.items()},
    }


def main(out: str, guides: str, folder: str) -> None:
    """Write the file."""
    runs = {name: sorted((Path(folder) / FOLDER / name).glob("seed-*")) for name in ("new_genes", "new_medium")}
    activity = Activity(pd.read_csv(guides))
    config = load_config(Path("conf") / FOLDER / "new_medium.yaml")
    of_genes = needs(config)
    keio = pd.read_csv(find_raw(KEIO, config.paths.raw)).drop_duplicates("b_number").set_index("b_number")
    draws = [new_genes(run, activity, keio.drop(columns="gene")) for run in runs["new_genes"]]
    scores = [one["scores"] for one in draws]
    write_json(
        Path(out),
        {
            "command": "python -m benchmarks.crispri OUT GFP RUNS",
            "ceilings": noise_ceilings(load_source(config.data.source, config.paths.raw)),
            "new_genes": {
                "draws": draws,
                "ahead": {name: over_draws(scores, name, "pearson") for name in scores[0] if name != "model"},
            },
            "new_medium": {"runs": [new_medium(run, of_genes) for run in runs["new_medium"]]},
        },
    )


if __name__ == "__main__":
    main(*sys.argv[1:])

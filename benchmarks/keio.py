"""Compare what predicts growth of the Keio collection, medium by medium: ``python -m benchmarks.keio OUT RUNS``.

RUNS is the folder of finished runs of `conf/111-baba2006-keio/new_genes.yaml`, a run for each draw of the test genes.
Correlations over all media together tell mostly that cells grow more in one medium than in another, so that they are
taken within each medium here. Beside the model stand the null models of its run, the growth that flux balance analysis
gives (linear programs, without training), the kernel ridge over strains once more with this growth as a condition, and
null models that are fitted to one medium alone, which then also see the reactions that strains lose. The same model
without messages is there where it was trained. Intervals are Student's over draws.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.new_genes import over_draws, scores
from dglcell.baselines.fit import MEAN_OF_TWO, STRENGTH_MODELS, Problem, best_of, fit_null_models
from dglcell.config.experiment import Config
from dglcell.config.read import load_config
from dglcell.data.columns import CONDITION, MEDIUM, PHENOTYPE, Column
from dglcell.data.strains import Strains
from dglcell.files.atomic import write_json
from dglcell.graph.media import Media
from dglcell.graph.model_files import read_model
from dglcell.machine.processor import processor_name
from dglcell.nn.null_share import GROWTH
from dglcell.runs.directory import RunDirectory
from dglcell.training.control_rows import CONTROL
from dglcell.training.null_problems import null_problems
from dglcell.training.prepare import prepare

EXPERIMENT = Path("conf/111-baba2006-keio/new_genes.yaml")
DENSITY = "density"
KERNEL = "kernel ridge over strains"
TOGETHER = ("additive ridge", KERNEL, MEAN_OF_TWO)
ALONE = ("reaction ridge", "reaction kernel ridge", MEAN_OF_TWO)

Growth = dict[str, dict[str, float]]
"""This maps media to genes, and these to the growth without them, relative to the wild type in that medium."""


def flux_balance(config: Config) -> Growth:
    """Return what flux balance analysis says of every single deletion in every medium; infeasible is no growth."""
    from cobra.flux_analysis import single_gene_deletion

    assert config.cell.model is not None
    model = read_model(config.cell.model, config.paths.raw)
    model.tolerance = 1e-9
    found: Growth = {}
    media = Media.of(model, config.cell.media, "cell.media")
    for name, uptakes in zip(media.names, media.uptakes, strict=True):
        for exchange, uptake in zip(media.exchanges, uptakes.tolist(), strict=True):
            model.reactions.get_by_id(exchange).lower_bound = -uptake
        same = [other for other in found if config.cell.media[other] == config.cell.media[name]]
        if same:
            found[name] = found[same[0]]
            continue
        whole, table = model.slim_optimize(), single_gene_deletion(model, processes=1)
        growth = table["growth"].fillna(0) / whole
        found[name] = {next(iter(genes)): float(value) for genes, value in zip(table["ids"], growth, strict=True)}
    return found


def in_medium(strains: Strains, medium: str) -> Strains:
    """Return the strains that grow in a medium, which have no conditions then."""
    part = strains.take((strains.shown(MEDIUM) == medium).nonzero()[0])
    return part.with_(columns={column: of for column, of in part.columns.items() if column.kind == PHENOTYPE})


def seeing(strains: Strains, growth: Growth) -> Strains:
    """Return the strains with the growth that flux balance analysis says as a condition."""
    media = strains.shown(MEDIUM).tolist()
    values = [growth[medium][genes[0]] for medium, genes in zip(media, strains.genotypes, strict=True)]
    return strains.with_(columns={**strains.columns, Column(CONDITION, GROWTH): np.array(values, dtype=np.float32)})


def of_run(run: Path) -> pd.Series:
    """Return what a run predicts of its test strains, by gene and medium."""
    table = pd.read_csv(RunDirectory(run).predictions("test"))
    return table.set_index(["genes", MEDIUM])[f"predicted_{DENSITY}"]


def draw(run: Path, growth: Growth) -> dict[str, dict[str, dict[str, float | None]]]:
    """Return the scores of each predictor on the test part of a run: medium → predictor → metrics."""
    seed = int(run.name.removeprefix("seed-"))
    prepared = prepare(load_config(EXPERIMENT, [f"split.seed={seed}"]), command="benchmark")
    (problem,) = null_problems(prepared)
    everything = prepared.dataset.numpy()
    test = everything.take(prepared.parts["test"].numpy())
    runs = {"model": run, "without messages": run.parent.with_name(f"{run.parent.name}{CONTROL}") / run.name}
    tables = {name: of_run(one) for name, one in runs.items() if one.is_dir()}
    together, found = fit_null_models(problem), {}
    seen = replace(problem, train=seeing(problem.train, growth), validation=seeing(problem.validation, growth))
    informed = best_of(STRENGTH_MODELS[KERNEL], seen)[1]
    for medium in growth:
        rows, alone = test.take((test.shown(MEDIUM) == medium).nonzero()[0]), in_medium(test, medium)
        genes = [genes[0] for genes in alone.genotypes]
        train, validation = (in_medium(part, medium) for part in (problem.train, problem.validation))
        own = fit_null_models(
            Problem(
                train,
                validation,
                train.phenotypes[DENSITY],
                validation.phenotypes[DENSITY],
                similarity=problem.similarity,
                most_deletions=1,
                reactions=problem.reactions,
            )
        )
        predictions = {
            **{name: table.loc[[(gene, medium) for gene in genes]].to_numpy() for name, table in tables.items()},
            "flux balance analysis": pd.Series(growth[medium]).reindex(genes).to_numpy(),
            **{f"{name}, all media": together[name].predict(rows) for name in TOGETHER},
            f"{KERNEL} with flux balance, all media": informed.predict(seeing(rows, growth)),
            **{f"{name}, this medium": own[name].predict(alone) for name in ALONE},
        }
        found[medium] = scores(alone.phenotypes[DENSITY].astype(float), predictions)
    return found


def ahead(draws: list[dict[str, dict[str, dict[str, float | None]]]]) -> dict[str, dict[str, list[float]]]:
    """Return by how much the model's r is ahead of each predictor's, with Student's interval: medium → predictor."""
    return {
        medium: {
            name: over_draws([one[medium] for one in draws], name, "pearson")
            for name, of in draws[0][medium].items()
            if name != "model" and of["pearson"] is not None
        }
        for medium in draws[0]
    }


def main(out: str, folder: str) -> None:
    """Write the file."""
    config = load_config(EXPERIMENT)
    growth = flux_balance(config)
    runs = sorted((Path(folder) / config.experiment.name).glob("seed-*"))
    draws = [draw(run, growth) for run in runs]
    differences = ahead(draws)
    write_json(
        Path(out),
        {
            "command": "python -m benchmarks.keio OUT RUNS",
            "experiment": config.experiment.name,
            "processor": processor_name(),
            "draws": [{"split_seed": int(run.name[5:]), "media": of} for run, of in zip(runs, draws, strict=True)],
            "differences": differences,
        },
    )


if __name__ == "__main__":
    main(*sys.argv[1:])

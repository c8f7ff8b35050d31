"""Measure how good `dglcell init` is by default, on twelve tables: ``python -m benchmarks.own_tables OUT.json``.

Every table is computed, so that it is the same on every machine: growth by flux balance analysis, and scores and
classes of invented vectors of genes, which are alike where networks link genes. Noise is added as a laboratory has it.
`init` and `train` are then called as anyone would call them, with one thread. Tables are split several times,
because draws differ. Tables of yeast need its files (DGLCELL_RAW).
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dglcell.config.read import load_config
from dglcell.data.sources import SourceConfig, load_source
from dglcell.data.sources.config import InSilicoConfig
from dglcell.data.table import CLASSIFICATION
from dglcell.files.atomic import write_json
from dglcell.machine import cores, processor_name
from dglcell.metrics import ENSEMBLE_OF, ResultRow
from dglcell.new_experiment.experiment import write_experiment
from dglcell.new_experiment.table import Wanted, find_cell
from dglcell.training.run import train

SPLITS, SMALL = (5, 3), 400
"""How often a table is split that has at most ``SMALL`` rows, and one that has more."""

Rows = list[tuple[tuple[str, ...], float]]
"""Each row has the deleted genes of a strain, and its label."""


@dataclass(frozen=True)
class OwnTable:
    """This is a table of the benchmark."""

    name: str  #: name of its experiment
    cell: str  #: name of its cell, as `--cell` takes it
    about: str  #: what its numbers are
    make: Callable[[], Rows]  #: function that returns its rows, the same at every call

    def write(self, path: Path) -> int:
        """Write the table as CSV, and return the number of rows."""
        rows = self.make()
        most = max(len(genes) for genes, _ in rows)
        lines = [",".join([*(f"gene_{i + 1}" for i in range(most)), "label"])]
        lines += [",".join([*genes, *[""] * (most - len(genes)), f"{label:.6g}"]) for genes, label in rows]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return len(rows)


# These functions compute growth by flux balance analysis.


@cache
def screen(model: str, pairs: str, triples: str) -> list[tuple[tuple[str, ...], dict[str, float]]]:
    """Return strains of an in-silico screen with all that is known of them."""
    table = load_source(SourceConfig(name="insilico", insilico=InSilicoConfig(model, pairs=pairs, triples=triples)))
    columns = {name: values.tolist() for name, values in table.phenotypes.items()}
    return [
        (tuple(genes), {name: values[i] for name, values in columns.items()}) for i, genes in enumerate(table.genotypes)
    ]


def growth(
    counts: tuple[int, int, int],
    *,
    noise: float = 0.0,
    genes: int | None = None,
    phenotype: str = "fitness",
    yeast: bool = False,
) -> Rows:
    """Draw at most ``counts`` strains of one, two and three deletions, of so many ``genes``, of which some matter."""
    rng = np.random.default_rng(0)
    strains = screen("yeast-GEM_9.0.2", "6000", "none") if yeast else screen("textbook", "all", "20000")
    if genes is not None:
        alone = {strain[0]: values["fitness"] for strain, values in strains if len(strain) == 1}
        matter = [gene for gene, value in alone.items() if 0.05 < value < 0.99]
        others = [gene for gene, value in alone.items() if value >= 0.99]
        some = [*rng.permutation(matter)[: genes // 2].tolist()]
        chosen = {*some, *rng.permutation(others)[: genes - len(some)].tolist()}
        strains = [(strain, values) for strain, values in strains if chosen.issuperset(strain)]
    rows: Rows = []
    for deletions, most in enumerate(counts, start=1):
        of_size = [(strain, values[phenotype]) for strain, values in strains if len(strain) == deletions]
        of_size = [(strain, value) for strain, value in of_size if not np.isnan(value)]
        rows += [of_size[i] for i in rng.permutation(len(of_size))[:most]]
    if noise:  # no measured growth is negative
        rows = [(strain, max(0.0, value + noise * rng.normal())) for strain, value in rows]
    return rows


def viable(rows: Rows, least: float = 0.05) -> Rows:
    """Return rows labelled 1 where a strain grows, else 0."""
    return [(strain, float(value > least)) for strain, value in rows]


# These functions compute scores from invented vectors of genes.


DIMENSIONS, STEPS = 6, 2
"""These are the dimensions of the vectors, and how often these are mixed with those of genes that networks link."""


@cache
def vectors(cell: str) -> tuple[list[str], NDArray[np.float64]]:
    """Return genes of a cell graph with networks, and a vector of each: half its own and half its neighbours'."""
    graph, _ = find_cell(Wanted(Path("own.yaml"), Path("table.csv"), cell=cell))
    size, rng = len(graph.genes), np.random.default_rng(1)
    links = np.zeros((size, size), np.float32)
    for relation in graph.relations:
        if relation[0] == relation[2] == "gene":
            edges = graph.edges(relation)
            links[edges.src, edges.dst] = links[edges.dst, edges.src] = 1
    np.fill_diagonal(links, 0)
    degree = links.sum(1)
    own = rng.normal(size=(size, DIMENSIONS))
    mixed = own
    for _ in range(STEPS):
        mean = links @ mixed / np.maximum(degree, 1)[:, None]
        length = np.linalg.norm(mean, axis=1, keepdims=True)
        mixed = mean / np.maximum(length, 1e-9) * np.sqrt(DIMENSIONS) + own
    linked = np.flatnonzero(degree > 4)
    return [graph.genes.names[i] for i in linked], mixed[linked] / np.sqrt(2)


def scores(cell: str, rows: int, genes: int, *, deletions: int = 2, noise: float = 1.0, singles: bool = False) -> Rows:
    """Return scores of so many sets of some genes: sums over pairs of products of vectors, beside effects of genes.

    The noise is relative to the standard deviation of the scores. With ``singles`` each gene is also listed alone.
    """
    names, vector = vectors(cell)
    rng = np.random.default_rng(2)
    chosen = rng.permutation(len(names))[:genes]
    signs = np.where(np.arange(DIMENSIONS) % 3 == 0, -1.0, 1.0)
    candidates = np.sort(chosen[rng.integers(len(chosen), size=(4 * rows, deletions))], axis=1)
    sets = np.unique(candidates[(np.diff(candidates, axis=1) > 0).all(1)], axis=0)
    drawn = [tuple(row) for row in rng.permutation(sets)[:rows].tolist()]
    drawn += [(gene,) for gene in sorted(chosen.tolist())] if singles else []

    def score(strain: tuple[int, ...]) -> float:
        of_pairs = sum(float((vector[a] * signs) @ vector[b]) for a, b in itertools.combinations(strain, 2))
        return of_pairs + 0.5 * float(vector[list(strain), 0].sum())

    values = np.array([score(strain) for strain in drawn])
    values = values / values.std() + noise * rng.normal(size=len(values))
    return [(tuple(names[i] for i in strain), value) for strain, value in zip(drawn, values.tolist(), strict=True)]


def interacting(rows: Rows, share: float = 0.1) -> Rows:
    """Return rows labelled 1 for the lowest scores, else 0."""
    least = np.quantile([value for _, value in rows], share)
    return [(strain, float(value < least)) for strain, value in rows]


CORE, YEAST = "ecoli-core", "yeast"

TABLES = [
    OwnTable("growth-60", CORE, "growth, 20 single and 40 double deletions", lambda: growth((20, 40, 0), genes=20)),
    OwnTable("growth-144", CORE, "growth with noise", lambda: growth((48, 96, 0), genes=48, noise=0.02)),
    OwnTable("singles-137", CORE, "growth, single deletions", lambda: growth((137, 0, 0))),
    OwnTable("growth-3000", CORE, "growth with noise", lambda: growth((137, 2863, 0), noise=0.05)),
    OwnTable("pairs-3000", CORE, "growth of pairs with noise", lambda: growth((0, 3000, 0), noise=0.05)),
    OwnTable("growth-30000", CORE, "growth, one to three deletions", lambda: growth((137, 9316, 20_000))),
    OwnTable("viable-1000", CORE, "which strains grow", lambda: viable(growth((137, 863, 0)))),
    OwnTable("epsilon-5000", CORE, "interactions", lambda: growth((0, 5000, 0), phenotype="digenic_interaction")),
    OwnTable("yeast-growth-3000", YEAST, "growth", lambda: growth((1161, 1839, 0), noise=0.03, yeast=True)),
    OwnTable("yeast-scores-20000", YEAST, "scores of pairs with noise", lambda: scores(YEAST, 20_000, 500)),
    OwnTable("yeast-triples-4000", YEAST, "scores", lambda: scores(YEAST, 4000, 150, deletions=3, singles=True)),
    OwnTable("yeast-classes-10000", YEAST, "classes", lambda: interacting(scores(YEAST, 10_000, 400, noise=0.5))),
]


TOGETHER = f"{ENSEMBLE_OF}baseline"

# These functions run `init` on the tables.


def measure(table: OwnTable, seeds: int | None = None) -> dict[str, Any]:
    """Call `init`, and train what it wrote; once for each split.

    The number of splits follows from the size of the table where ``seeds`` is None.
    """
    here = Path.cwd()
    with TemporaryDirectory() as folder:
        os.chdir(folder)  # an experiment's paths are relative to the folder where it is trained
        try:
            rows = table.write(Path("table.csv"))
            write_experiment(Wanted(Path("own.yaml"), Path("table.csv"), cell=table.cell))
            splits = seeds or SPLITS[rows > SMALL]
            runs = [_train(seed) for seed in range(splits)]
            chosen = load_config(Path("own.yaml"))
        finally:
            os.chdir(here)
    scores_of = {name: [found[name] for found, _ in runs if name in found] for name in runs[0][0]}
    model = chosen.model.name
    # Constant predictions have no correlation.
    whole = {name: values for name, values in scores_of.items() if len(values) == splits and not np.isnan(values).any()}
    means = {name: round(float(np.mean(values)), 4) for name, values in whole.items()}
    baselines = {name: value for name, value in means.items() if name not in (model, TOGETHER)}
    best = max(baselines, key=baselines.__getitem__)
    return {
        "table": table.name,
        "about": table.about,
        "cell": table.cell,
        "rows": rows,
        "chosen": {"model": model, "batch_size": chosen.data.batch_size, "epochs": chosen.trainer.epochs},
        "splits": splits,
        "cpu_minutes": max(minutes for _, minutes in runs),
        "metric": "average precision" if table.name in CLASSES else "pearson",
        "score": means[model],
        "ensemble_score": means.get(TOGETHER),
        "best_baseline": best,
        "best_baseline_score": baselines[best],
        "each_split": {name: [round(value, 4) for value in scores_of[name]] for name in (model, best)},
    }


def _train(seed: int) -> tuple[dict[str, float], float]:
    """Train, and return test scores of the model and of the baselines, and minutes of processor time."""
    config = load_config(Path("own.yaml"), [f"seed={seed}", f"split.seed={seed}", "trainer.threads=1"])
    began = time.process_time()
    rows = train(config).rows
    minutes = round((time.process_time() - began) / 60, 2)
    # An ensemble has a weight of its own in each split.
    tested = {TOGETHER if row.is_ensemble else row.model: _score(row) for row in rows if row.part == "test"}
    return tested, minutes


def _score(row: ResultRow) -> float:
    value = row.metrics.get("average_precision" if row.kind == CLASSIFICATION else "pearson")
    return float("nan") if value is None else float(value)


CLASSES = ("viable-1000", "yeast-classes-10000")


def main() -> None:
    """Measure tables, and write the file after each of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help="tables (default: all); others in the file are kept")
    options = parser.parse_args()
    before = json.loads(options.output.read_text())["tables"] if options.output.exists() else []
    done = {row["table"]: row for row in before}
    for table in TABLES:
        if options.names and table.name not in options.names:
            continue
        done[table.name] = measure(table)
        print(json.dumps(done[table.name]), flush=True)
        machine = {"processor": processor_name(), "cores": cores(), "threads": 1, "load_at_end": os.getloadavg()[0]}
        rows = [done[one.name] for one in TABLES if one.name in done]
        write_json(
            options.output, {"command": "python -m benchmarks.own_tables OUT.json", "machine": machine, "tables": rows}
        )


if __name__ == "__main__":
    main()

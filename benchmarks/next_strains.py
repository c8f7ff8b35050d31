"""Replay of strains chosen in batches: ``python -m benchmarks.next_strains OUT RUNS EXPERIMENT SEED … KEY=VALUE …``.

A screen is taken as if only a few of its strains were measured. In each round a strategy of `dglcell next` chooses a
batch from a pool, its labels become known, and the model is trained again. Hits are strains of the pool with the lowest
or the most extreme phenotypes. A random batch and the lowest predictions, without intervals and without a limit for
each gene, are beside the strategies. Seeds that OUT has already are kept.

Keys are those of the experiment, and those of `Start` as ``start.labelled=300``. Seeds may run side by side, each with
its own OUT. ``python -m benchmarks.next_strains join OUT FILE …`` puts the files together.
"""

from __future__ import annotations

import functools
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dglcell
import dglcell.training.null_problems as null_problems_module
import dglcell.training.prepare as prepare_module
from dglcell.baselines.similarity import GeneSimilarity, gene_similarity
from dglcell.config.read import load_config
from dglcell.data.strains import Strains
from dglcell.files.atomic import write_json
from dglcell.graph.cell_graph import CellGraph
from dglcell.machine.processor import processor_name
from dglcell.metrics import pearson
from dglcell.prediction import STRATEGIES
from dglcell.prediction.intervals import Intervals
from dglcell.prediction.next_strains import Candidates, choose_next
from dglcell.prediction.table import GenotypeTable
from dglcell.training.prepare import prepare

BATCH, PER_GENE = 96, 12

RANDOM, GREEDY = "random", "lowest predictions"
ALL = (RANDOM, GREEDY, *STRATEGIES)

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Start:
    """A replay starts with these strains.

    Attributes:
        labelled: number of strains that train at first.
        validation: number of those that calibrate intervals.
        test: number of those that test the first models, and those that choose the last batch.
        pool: most strains that may be chosen.
        rounds: number of batches that are chosen.
        hits: this share of the pool are hits of each kind, and those that equal the last of them.
        viable: where given, all single deletions train at first, and others are left out if the growth of one of their
            single deletions is lower than this.
    """

    labelled: int = 2_000
    validation: int = 400
    test: int = 2_000
    pool: int = 10_000
    rounds: int = 4
    hits: float = 0.05
    viable: float | None = None

    @classmethod
    def read(cls, keys: Sequence[str]) -> Start:
        """Return what keys ``start.NAME=NUMBER`` say."""
        given = dict(key.removeprefix("start.").split("=") for key in keys)
        read: dict[str, Any] = {
            name: float(value) if name in ("hits", "viable") else int(value) for name, value in given.items()
        }
        return cls(**read)

    def drawn(
        self, strains: Strains, labels: NDArray[np.float64], rng: np.random.Generator
    ) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        """Draw the strains that are known, those of validation and test, and the pool."""
        single = np.zeros(0, np.int64)
        others = np.arange(len(labels))
        if self.viable is not None:
            single = np.flatnonzero(strains.num_deletions == 1)
            sick = strains.take(single[labels[single] < self.viable]).targets
            has_sick = np.add.reduceat(np.isin(strains.targets, sick), strains.offsets[:-1]) > 0
            others = np.flatnonzero((strains.num_deletions > 1) & ~has_sick)
        drawn = np.split(rng.permutation(others), np.cumsum([self.labelled, self.validation, self.test]))
        return np.concatenate([single, drawn[0]]), drawn[1], drawn[2], drawn[3][: self.pool]


@dataclass(frozen=True)
class Replay:
    """A replay is a screen of which some strains are known.

    Attributes:
        experiment: YAML file of the experiment.
        keys: keys of the experiment.
        folder: folder of the runs.
        start: what is known at first.
        strains: all strains.
        labels: their labels, in float64.
        seed: seed of what is known at first, and of the model.
    """

    experiment: Path
    keys: tuple[str, ...]
    folder: Path
    start: Start
    strains: Strains
    labels: NDArray[np.float64]
    seed: int

    def train(self, name: str, known: Numbers, validation: Numbers) -> dglcell.Predictor:
        """Train on the known strains; a run that is there is taken."""
        rows = self.strains.rows
        parts = {"train": rows[known].tolist(), "val": rows[validation].tolist(), "test": rows[validation[:2]].tolist()}
        parts["val"] = parts["val"][2:]
        path = self.folder / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(parts))
        split = [f"split={{kind: file, path: {path.absolute()}, unlisted: unused, subset: null}}", f"seed={self.seed}"]
        fixed = [f"experiment.name={name}", f"paths.runs={self.folder}", "null_models=false", "plot=false"]
        return dglcell.train(self.experiment, *split, *fixed, "trainer.threads=1", *self.keys)

    def predicted(self, predictor: dglcell.Predictor, which: Numbers, intervals: Intervals | None) -> Candidates:
        """Predict some strains."""
        strains = self.strains.take(which)
        table = GenotypeTable([], [], strains, np.ones(len(strains), bool))
        return Candidates.of(predictor.members, table, predictor.phenotypes[0], intervals=intervals, batch_size=4096)

    def run(self) -> dict[str, Any]:
        """Return hits round by round, and the correlation on test strains before the last batch, for each strategy."""
        rng = np.random.default_rng(self.seed)
        known, validation, test, pool = self.start.drawn(self.strains, self.labels, rng)
        labels = self.labels[pool]
        ranked = {"lowest": labels, "extreme": -np.abs(labels - np.median(labels))}
        last = round(self.start.hits * len(pool)) - 1
        hits = {kind: set(pool[value <= np.sort(value)[last]].tolist()) for kind, value in ranked.items()}
        first = self.train(f"seed-{self.seed}/first", known, validation)
        found: dict[str, Any] = {}
        for strategy in ALL:
            predictor, left = first, pool
            chosen = np.zeros(0, np.int64)
            rounds = []
            for number in range(self.start.rounds):
                # The last batch is not trained on; a random one needs no model but the one that is tested.
                if number > 0 and (strategy != RANDOM or number == self.start.rounds - 1):
                    name = f"seed-{self.seed}/{strategy.split()[0]}-{number - 1}"
                    predictor = self.train(name, np.concatenate([known, chosen]), validation)
                picked = left[self._choose(strategy, predictor, left, rng)]
                chosen, left = np.concatenate([chosen, picked]), np.setdiff1d(left, picked)
                rounds.append({kind: len(which.intersection(chosen.tolist())) for kind, which in hits.items()})
            value = self.predicted(predictor, test, None).predicted
            genes = len(np.unique(self.strains.take(chosen).targets))
            test_r = round(pearson(value, self.labels[test]), 4)
            found[strategy] = {"hits": rounds, "genes": genes, "test_pearson": test_r}
        before = pearson(self.predicted(first, test, None).predicted, self.labels[test])
        in_pool = {kind: len(which) for kind, which in hits.items()}
        return {"first_test_pearson": round(before, 4), "hits_in_pool": in_pool, "strategies": found}

    def _choose(self, strategy: str, predictor: dglcell.Predictor, left: Numbers, rng: np.random.Generator) -> Numbers:
        """Return positions in the pool."""
        if strategy == RANDOM:
            return rng.choice(len(left), BATCH, replace=False)
        if strategy == GREEDY:
            return np.argsort(self.predicted(predictor, left, None).predicted, kind="stable")[:BATCH]
        intervals = Intervals.of(predictor.members, predictor.directories, 0.9)
        limit = None if strategy == "informative" else PER_GENE
        return choose_next(self.predicted(predictor, left, intervals), strategy, BATCH, limit)


def summed_up(seeds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return means over the seeds, and standard deviations of the last round."""
    found = {}
    for strategy in ALL:
        mine = [seed["strategies"][strategy] for seed in seeds]
        hits = {
            kind: np.array([[one[kind] for one in each["hits"]] for each in mine]) for kind in ("lowest", "extreme")
        }
        found[strategy] = {
            **{f"{kind}_hits": np.round(of.mean(0), 1).tolist() for kind, of in hits.items()},
            **{f"{kind}_hits_sd": round(float(of[:, -1].std(ddof=1)), 1) for kind, of in hits.items() if len(of) > 1},
            "genes": round(statistics.fmean(each["genes"] for each in mine), 1),
            "test_pearson": round(statistics.fmean(each["test_pearson"] for each in mine), 4),
        }
    return found


def join(out: str, *files: str) -> None:
    """Put the seeds of several files together, with their means."""
    everything: dict[str, Any] = {}
    for name in files:
        one = json.loads(Path(name).read_text())
        everything = one | {"experiments": everything.get("experiments", {})}
        for experiment, replayed in one["experiments"].items():
            there = everything["experiments"].setdefault(experiment, replayed)
            there["seeds"] |= replayed["seeds"]
    for replayed in everything["experiments"].values():
        replayed["seeds"] = dict(sorted(replayed["seeds"].items()))
        replayed["mean"] = summed_up(list(replayed["seeds"].values()))
    write_json(Path(out), everything)


def build_once(cell: CellGraph, genes: NDArray[np.integer]) -> None:
    """Let every training of this process take the cell graph, and how alike its genes are, which take most of its time.

    Args:
        cell: the cell graph of the experiment.
        genes: the genes of all strains.
    """
    prepare_module.build_cell = lambda config, raw=None: cell
    similar = functools.cache(lambda: gene_similarity(cell, genes))

    def of_some(cell: CellGraph, genes: NDArray[np.integer]) -> GeneSimilarity:
        columns = np.unique(genes)
        return GeneSimilarity(columns, similar().matrix[:, np.searchsorted(similar().genes, columns)])

    null_problems_module.gene_similarity = of_some


def main(out: str, runs: str, experiment: str, *more: str) -> None:
    """Write the file."""
    path, keys = Path(out), tuple(one for one in more if "=" in one and not one.startswith("start."))
    start = Start.read([one for one in more if one.startswith("start.")])
    everything = json.loads(path.read_text()) if path.exists() else {"experiments": {}}
    config = load_config(Path(experiment), keys)
    settings = [key for key in keys if not key.startswith(("paths.", "data.store"))]
    of_seeds = everything["experiments"].setdefault(
        config.experiment.name,
        {"keys": settings, "start": asdict(start), "tested_after": BATCH * (start.rounds - 1), "seeds": {}},
    )
    prepared = prepare(config, command="benchmark")
    strains = prepared.dataset.numpy()
    build_once(prepared.cell, strains.targets)
    labels = strains.labels[:, 0].astype(np.float64)
    measured = np.flatnonzero(~np.isnan(labels))
    strains, labels = strains.take(measured), labels[measured]
    for seed in (one for one in more if "=" not in one and one not in of_seeds["seeds"]):
        folder = Path(runs) / config.experiment.name
        replay = Replay(Path(experiment), keys, folder, start, strains, labels, int(seed))
        of_seeds["seeds"][seed] = replay.run()
        of_seeds["mean"] = summed_up(list(of_seeds["seeds"].values()))
        everything |= {"batch": BATCH, "per_gene": PER_GENE, "processor": processor_name()}
        write_json(path, everything)


if __name__ == "__main__":
    join(*sys.argv[2:]) if sys.argv[1] == "join" else main(*sys.argv[1:])

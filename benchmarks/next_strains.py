"""Replay of strains chosen in batches: ``python -m benchmarks.next_strains OUT RUNS EXPERIMENT SEED … KEY=VALUE …``.

A screen is taken as if only a few of its strains were measured. In each round a strategy of `dglcell next` chooses a
batch from a pool, its labels become known, and the model is trained again. Hits are strains of the pool with the lowest
or the most extreme phenotypes. A random batch and the lowest predictions, without intervals and without a limit for
each gene, are beside the strategies. Seeds that OUT has already are kept.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dglcell
from dglcell.config.read import load_config
from dglcell.data.strains import Strains
from dglcell.files.atomic import write_json
from dglcell.machine.processor import processor_name
from dglcell.metrics import pearson
from dglcell.prediction.intervals import Intervals
from dglcell.prediction.next_strains import STRATEGIES, Candidates, choose_next
from dglcell.prediction.table import GenotypeTable
from dglcell.training.prepare import prepare

LABELLED, VALIDATION, TEST, POOL = 800, 200, 2_000, 10_000
"""So many strains train at first, calibrate intervals, test the last model, and at most may be chosen."""

BATCH, ROUNDS, PER_GENE = 96, 4, 12
HIT, HITS = 0.05, ("lowest", "extreme")
"""This share of the pool are hits of each kind."""

RANDOM, GREEDY = "random", "lowest predictions"
ALL = (RANDOM, GREEDY, *STRATEGIES)

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Replay:
    """A replay is a screen of which some strains are known.

    Attributes:
        experiment: YAML file of the experiment.
        keys: keys of the experiment.
        folder: folder of the runs.
        strains: all strains.
        labels: their labels, in float64.
        seed: seed of what is known at first, and of the model.
    """

    experiment: Path
    keys: tuple[str, ...]
    folder: Path
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
        """Return hits and the correlation on test strains, round by round, for each strategy."""
        rng = np.random.default_rng(self.seed)
        order = rng.permutation(len(self.labels))
        known, validation, test, pool = np.split(order, np.cumsum([LABELLED, VALIDATION, TEST]))
        pool = pool[:POOL]
        size = round(HIT * len(pool))
        middle = np.median(self.labels[pool])
        hits = {
            "lowest": set(pool[np.argsort(self.labels[pool], kind="stable")[:size]].tolist()),
            "extreme": set(pool[np.argsort(-np.abs(self.labels[pool] - middle), kind="stable")[:size]].tolist()),
        }
        first = self.train(f"seed-{self.seed}/first", known, validation)
        found: dict[str, Any] = {}
        for strategy in ALL:
            predictor, taken, left = first, known, pool
            chosen = np.zeros(0, np.int64)
            rounds = []
            for number in range(ROUNDS):
                picked = left[self._choose(strategy, predictor, left, rng)]
                chosen, left = np.concatenate([chosen, picked]), np.setdiff1d(left, picked)
                taken = np.concatenate([known, chosen])
                rounds.append({kind: len(which.intersection(chosen.tolist())) for kind, which in hits.items()})
                if strategy != RANDOM or number == ROUNDS - 1:
                    predictor = self.train(f"seed-{self.seed}/{strategy.split()[0]}-{number}", taken, validation)
            value = self.predicted(predictor, test, None).predicted
            genes = len(np.unique(self.strains.take(chosen).targets))
            test_r = round(pearson(value, self.labels[test]), 4)
            found[strategy] = {"hits": rounds, "genes": genes, "test_pearson": test_r}
        before = pearson(self.predicted(first, test, None).predicted, self.labels[test])
        return {"first_test_pearson": round(before, 4), "hits_in_pool": size, "strategies": found}

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


def main(out: str, runs: str, experiment: str, *more: str) -> None:
    """Write the file."""
    path, keys = Path(out), tuple(one for one in more if "=" in one)
    everything = json.loads(path.read_text()) if path.exists() else {"experiments": {}}
    config = load_config(Path(experiment), keys)
    of_seeds = everything["experiments"].setdefault(config.experiment.name, {"seeds": {}})
    prepared = prepare(config, command="benchmark")
    strains = prepared.dataset.numpy()
    labels = strains.labels[:, 0].astype(np.float64)
    measured = np.flatnonzero(~np.isnan(labels))
    strains, labels = strains.take(measured), labels[measured]
    for seed in (one for one in more if "=" not in one and one not in of_seeds["seeds"]):
        replay = Replay(Path(experiment), keys, Path(runs) / config.experiment.name, strains, labels, int(seed))
        of_seeds["seeds"][seed] = replay.run()
        of_seeds["mean"] = summed_up(list(of_seeds["seeds"].values()))
        about = {"labelled": LABELLED, "validation": VALIDATION, "test": TEST, "pool": POOL, "batch": BATCH}
        everything |= {**about, "per_gene": PER_GENE, "share_of_hits": HIT, "processor": processor_name()}
        write_json(path, everything)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A real experiment that trains in a second: single and pair deletions of the E. coli core model, 300 strains."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dglcell.config.experiment import Config
from dglcell.config.read import load_config
from dglcell.runs import RunDirectory
from dglcell.training.checkpoint import Trained
from dglcell.training.run import RunResult, train
from tests.forked import Forked

TINY = """\
experiment: {name: tiny}
cell: {model: textbook}
data:
  source:
    name: insilico
    insilico: {model: textbook, triples: none, processes: 1}
  phenotypes: [fitness]
  batch_size: 64
split: {kind: random, seed: 42, subset: {size: 300}}
model: {hidden: 8, layers: 1, local_heads: 2, strategy: node_mask}
optimizer: {name: AdamW, lr: 0.003}
scheduler: {name: none}
trainer: {epochs: 2, checkpoint: best_loss, threads: 1, accelerator: cpu}
"""

# What most tests of training do without.
BARE = ("plot=false", "baselines=false")

# More epochs than a test waits for. A run that is so long would first time compiled layers, which takes a minute.
ENDLESS = ("trainer.epochs=100000", "model.compile=false")


@dataclass(frozen=True)
class Tiny:
    """The experiment's file and its store, built once."""

    file: Path  #: the configuration
    store: Path  #: the store of its strains

    def overrides(self, runs: Path, *more: str) -> list[str]:
        """Arguments after ``dglcell train FILE``, writing below ``runs``."""
        return [f"data.store={self.store}", f"paths.runs={runs}", *more]

    def config(self, runs: Path, *more: str) -> Config:
        return load_config(self.file, self.overrides(runs, *more))

    def train(self, runs: Path, *more: str) -> RunResult:
        return train(self.config(runs, *BARE, *more))


def seeing_covariates(trained: Trained) -> Trained:
    """Return the same model, said to see a medium and a temperature, which it then ignores."""
    seen = {"medium": ["glucose", "glycerol"], "temperature": list[str]()}
    return replace(trained, config=replace(trained.config, model=replace(trained.config.model, covariates=seen)))


def history(directory: RunDirectory) -> list[dict[str, Any]]:
    """The record of a run without what depends on the clock."""
    rows = [json.loads(line) for line in directory.metrics.read_text().splitlines()]
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]


def dglcell(*arguments: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    words = [str(word) for word in arguments]
    process = Forked(words, process_environment(**environment), cwd)
    said = process.communicate()
    return subprocess.CompletedProcess(words, process.returncode or 0, *said)


def process_environment(**more: str) -> dict[str, str]:
    """Environment of a child process: this one's, one thread, this checkout on the path, and a W&B of its own."""
    root = Path(__file__).resolve().parents[1]
    here = {name: value for name, value in os.environ.items() if name != "WANDB_SERVICE"}
    return {**here, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root), **more}

"""Train a model on permuted labels: ``python -m benchmarks.permuted EXPERIMENT [KEY=VALUE …]``.

The labels of the training strains change places at random, so that the run has seen the same cell graph, the same
strains and the same values, but can have learned nothing of which strain has which value. The labels of the other parts
stay where they are. The run is written as ``dglcell train`` writes it, and the experiment's name ends in ``-permuted``.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np

from dglcell.config.read import experiment_file, load_config
from dglcell.data.columns import PHENOTYPE
from dglcell.training import run
from dglcell.training.prepare import Prepared

NAME = "-permuted"


def permuted(prepared: Prepared, seed: int) -> Prepared:
    """Return the same data, with the labels of the training strains in another order."""
    rows = prepared.parts["train"].numpy()
    order = np.random.default_rng(seed).permutation(rows)
    strains = prepared.dataset.numpy()
    columns = dict(strains.columns)
    for column, values in columns.items():
        if column.kind == PHENOTYPE:
            columns[column] = values.copy()
            columns[column][rows] = values[order]
    return replace(prepared, dataset=replace(strains, columns=columns).to("cpu"))


def main(experiment: str, overrides: list[str]) -> None:
    """Train the experiment on permuted labels."""
    config = load_config(experiment_file(experiment), overrides)
    config = replace(config, experiment=replace(config.experiment, name=config.experiment.name + NAME))
    prepare = run.prepare_run

    def prepare_permuted(*args: Any, **options: Any) -> Prepared:
        return permuted(prepare(*args, **options), config.seed)

    with mock.patch("dglcell.training.run.prepare_run", prepare_permuted):
        run.train(config, f"python -m benchmarks.permuted {experiment} {' '.join(overrides)}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

"""Rows of the model and of null models on the parts of a split."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from dglcell.baselines.fit import ALL_NULL_MODELS
from dglcell.baselines.problem import ANY, DELETIONS
from dglcell.baselines.simple import AdditiveRidge
from dglcell.data.columns import CONDITION, Column
from dglcell.data.strains import Strains
from dglcell.metrics import regression_metrics
from dglcell.training.baselines import fit_baselines
from dglcell.training.prepare import Prepared
from dglcell.training.result_rows import same_conditions, score


def test_baselines_see_the_training_part_and_nothing_else(prepared: Prepared) -> None:
    rows = {(row.model, row.part): row for row in score(prepared, fit_baselines(prepared)).rows}
    assert all(row.is_null for row in rows.values())
    dataset, parts = prepared.dataset, prepared.parts
    mean = float(dataset.labels[parts["train"]].double().mean())
    test = dataset.labels[parts["test"], 0].double()
    assert rows["training mean", "test"].metrics["mse"] == pytest.approx(float((test - mean).square().mean()))
    everything = dataset.numpy()
    strains = {name: everything.take(numbers.numpy()) for name, numbers in parts.items()}
    labels = {name: dataset.labels[numbers, 0].numpy() for name, numbers in parts.items()}
    candidates = []
    for alpha in (0.1, 1.0, 10.0, 100.0, 1000.0):
        ridge = AdditiveRidge(alpha).fit(strains["train"], labels["train"])
        metrics = {p: regression_metrics(ridge.predict(strains[p]), labels[p]) for p in ("validation", "test")}
        candidates.append(metrics)
    chosen = min(candidates, key=lambda metrics: metrics["validation"]["mse"])
    assert rows["additive ridge", "test"].metrics == pytest.approx(chosen["test"])
    assert {model for model, _ in rows} == {
        name for name, of in ALL_NULL_MODELS.items() if of.about in (ANY, DELETIONS)
    }


def test_strains_of_the_same_medium_and_batch_are_a_group(tmp_path: Path) -> None:
    media, batches = Column(CONDITION, "medium", ("a", "b")), Column(CONDITION, "batch", ("x", "y"))
    columns = {media: [0, 1, 0, 1, 0], batches: [1, 0, 1, 1, 0], Column(CONDITION, "temperature"): [30, 37, 37, 30, 30]}
    made = Strains.from_indices(("g",), [[0]] * 5)
    found = dataclasses.replace(made, columns={name: np.array(values) for name, values in columns.items()})
    groups = same_conditions(found)
    assert groups[0] == groups[2]
    assert len(set(groups.tolist())) == 4
    assert not same_conditions(made).any()

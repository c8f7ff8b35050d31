"""The kernel ridge that a model takes part of its prediction from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from dglcell.baselines.fit import NULL_MODELS, best_of
from dglcell.data.columns import CONDITION, Column
from dglcell.errors import ConfigError
from dglcell.models.set_operator import SetOperator
from dglcell.nn.pair_effects import PairEffects
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.runs.directory import RunDirectory
from dglcell.training.fit import make_task
from dglcell.training.null_problems import KERNEL_RIDGE, fit_pair_effects, null_problems, strains_by_part
from dglcell.training.prepare import prepare
from tests.tiny import Tiny

WITH_RIDGE = ("model.name=set_operator", "model.kernel_ridge=0.5", "model.local_heads=2")


@pytest.mark.parametrize("normalise", ["standard", "none"])
def test_it_predicts_what_the_null_model_predicts(tiny: Tiny, tmp_path: Path, normalise: str) -> None:
    config = tiny.config(tmp_path, *WITH_RIDGE, f"data.normalise={normalise}")
    prepared = prepare(config, command="tests")
    task = make_task(config, prepared, RunDirectory(tmp_path))
    assert isinstance(task.model, SetOperator)
    assert task.model.pair_effects is not None
    ridge = best_of(NULL_MODELS[KERNEL_RIDGE], null_problems(prepared)[0])[1]
    rows = prepared.parts["test"]
    batch = prepared.dataset.take(rows).perturbations
    found = task.normaliser.restore(task.model.pair_effects(*batch.padded()))
    expected = ridge.predict(strains_by_part(prepared)["test"])
    np.testing.assert_allclose(found[:, 0].numpy(), expected, atol=1e-4)


def test_new_genes_have_the_same_prediction_whether_or_not_the_data_set_has_them(tiny: Tiny, tmp_path: Path) -> None:
    config = tiny.config(tmp_path, *WITH_RIDGE, "split.kind=gene_disjoint")
    prepared = prepare(config, command="tests")
    test = strains_by_part(prepared)["test"]
    known = np.unique(strains_by_part(prepared)["train"].targets)
    assert not np.isin(test.targets, known).all()
    # A stranger's strains: a data set that never had them.
    dataset = prepared.dataset
    rows = torch.cat([prepared.parts["train"], prepared.parts["validation"]])
    smaller, train = dataset.take(rows), len(prepared.parts["train"])
    numbers = torch.arange(len(rows))
    parts = {"train": numbers[:train], "validation": numbers[train:], "test": numbers[:0]}
    genes_BK, present_BK = GenotypeBatch.from_lists(
        [genes.tolist() for genes in np.split(test.targets, test.offsets[1:-1])]
    ).padded()
    found = []
    for one in (prepared, replace(prepared, dataset=smaller, parts=parts)):
        model = make_task(config, one, RunDirectory(tmp_path / str(len(found)))).model
        assert isinstance(model, SetOperator)
        assert model.pair_effects is not None
        found.append(model.pair_effects(genes_BK, present_BK))
    torch.testing.assert_close(found[1], found[0], atol=1e-6, rtol=0)
    assert found[0].std() > 0.1


def test_strains_that_a_kernel_ridge_does_not_apply_to_are_refused(tiny: Tiny, tmp_path: Path) -> None:
    prepared = prepare(tiny.config(tmp_path, *WITH_RIDGE), command="tests")
    dataset = prepared.dataset
    warm = {Column(CONDITION, "temperature"): torch.arange(len(dataset), dtype=torch.float32)}
    warmed = replace(prepared, dataset=dataset.with_(columns={**dataset.columns, **warm}))
    effects, normaliser = PairEffects(1, len(dataset.names)), prepared.normaliser("standard")
    with pytest.raises(ConfigError, match=r"`model.kernel_ridge` does not apply to fitness\n.*knows deletions only"):
        fit_pair_effects(effects, warmed, normaliser)

"""The kernel ridge that a model takes part of its prediction from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from dglcell.baselines.fit import NULL_MODELS, best_of
from dglcell.errors import ConfigError
from dglcell.models.set_operator import SetOperator
from dglcell.run_directory import RunDirectory
from dglcell.training.checkpoint import load_trained
from dglcell.training.fit import make_task
from dglcell.training.null_problems import KERNEL_RIDGE, null_problems, strains_by_part
from dglcell.training.prepare import prepare
from tests.tiny import Tiny, history

WITH_RIDGE = ("model.name=set_operator", "model.kernel_ridge=0.5", "model.local_heads=2")


@pytest.mark.parametrize("normalise", ["standard", "minmax"])
def test_it_predicts_what_the_null_model_predicts(tiny: Tiny, tmp_path: Path, normalise: str) -> None:
    config = tiny.config(tmp_path, *WITH_RIDGE, f"data.normalise={normalise}")
    prepared = prepare(config, command="tests")
    task = make_task(config, prepared, RunDirectory(tmp_path))
    assert isinstance(task.model, SetOperator)
    assert task.model.pair_effects is not None
    ridge = best_of(NULL_MODELS[KERNEL_RIDGE], null_problems(prepared)[0])[1]
    rows = prepared.parts["test"]
    batch = prepared.dataset.gather(rows, int(prepared.dataset.offsets.diff()[rows].sum())).genotypes
    found = task.normaliser.restore(task.model.pair_effects(*batch.padded()))
    expected = ridge.predict(strains_by_part(prepared)["test"])
    np.testing.assert_allclose(found[:, 0].numpy(), expected, atol=1e-4)


def test_a_run_goes_on_and_predicts_with_the_numbers_of_its_checkpoint(tiny: Tiny, tmp_path: Path) -> None:
    whole = tiny.train(tmp_path / "whole", *WITH_RIDGE).directory
    part = tiny.train(tmp_path / "part", *WITH_RIDGE, "trainer.epochs=1").directory
    again = tiny.train(tmp_path / "part", *WITH_RIDGE).directory
    assert part.path == again.path
    models = [load_trained(directory, "last").model for directory in (whole, again)]
    one, other = (model.state_dict() for model in models)
    assert one["pair_effects.vectors"].abs().max() > 0
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert history(whole) == history(again)


def test_strains_that_it_does_not_apply_to_are_refused(tiny: Tiny, tmp_path: Path) -> None:
    split = tmp_path / "split.npz"
    prepare(tiny.config(tmp_path), command="tests").split.save(split)
    streamed = (f"split={{kind: file, path: {split}, subset: null}}", "data.streaming={}")
    config = tiny.config(tmp_path, *WITH_RIDGE, *streamed)
    with pytest.raises(ConfigError, match=r"`model.kernel_ridge` needs all training strains in memory"):
        make_task(config, prepare(config, command="tests"), RunDirectory(tmp_path))

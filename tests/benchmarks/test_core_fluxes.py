"""What is summed up of draws of new genes, and what the rounds alone say of a small run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.core_fluxes import EXPERIMENT, MODEL, ROUNDS, draw, summary
from dglcell.config.read import load_config
from dglcell.training.checkpoint import load_trained
from dglcell.training.prepare import prepare
from dglcell.training.run import train


def one_draw(model: float, **others: float) -> dict[str, Any]:
    """Return a draw in which all metrics of a predictor are the same."""
    return {"scores": {name: {"pearson": r, "r2": r} for name, r in {MODEL: model, **others}.items()}}


def test_leads_are_taken_draw_by_draw() -> None:
    draws = [one_draw(0.9, nearest=0.5, quiet=0.1), one_draw(0.8, nearest=0.6, quiet=0.1), one_draw(0.7, nearest=0.0)]
    found = summary(draws)
    assert found.keys() == {"nearest"}  # the third draw has no control
    leads = np.array([0.4, 0.2, 0.7])
    mean, low, high = found["nearest"]["pearson"]
    assert mean == pytest.approx(leads.mean(), abs=1e-4)
    assert high - low == pytest.approx(2 * 4.302653 * leads.std(ddof=1) / 3**0.5, abs=1e-3)
    assert summary(draws[:2]).keys() == {"nearest", "quiet"}


@pytest.mark.slow
def test_the_rounds_alone_are_what_an_untrained_model_predicts(tmp_path: Path) -> None:
    paths = [f"paths.data={tmp_path / 'data'}", f"paths.runs={tmp_path / 'runs'}"]
    small = ["data.source.insilico.pairs='200'", "model.flux_rounds=256", "trainer.epochs=1", "null_models=false"]
    config = load_config(EXPERIMENT, [*paths, *small, "optimizer.lr=1e-12", "scheduler.min_lr=0", "plot=false"])
    run = train(config)
    prepared = prepare(config, command="tests")
    found = draw(run.directory.path, load_trained(run.directory), prepared)["scores"]
    assert found[ROUNDS]["pearson"] == pytest.approx(found[MODEL]["pearson"], abs=0.02)
    assert found[ROUNDS]["mae"] == pytest.approx(found[MODEL]["mae"], abs=0.05)
    assert {"nearest training strain", "kernel ridge on lost reactions"} < found.keys()

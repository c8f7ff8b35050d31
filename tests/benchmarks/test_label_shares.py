"""What is summed up of draws, the null model that knows fluxes, and a whole small draw."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from benchmarks.label_shares import (
    BESIDE,
    MODEL_WITH_FLUXES,
    NULL_WITH_FLUXES,
    TAUGHT,
    UNTAUGHT,
    WITH_NULLS,
    main,
    ridge_through_fluxes,
    summary,
)
from dglcell.training.prepare import Prepared


def draw(number: int, **r: float | None) -> dict[str, Any]:
    """Return a draw of one share with the correlations of predictors."""
    names = {"taught": TAUGHT, "fluxes": MODEL_WITH_FLUXES}
    scores = {names.get(name, name): {"pearson": value} for name, value in r.items()}
    return {"split": "random", "layers": 2, "draw": number, "shares": {"0.01": {"strains": 9, "scores": scores}}}


def test_draws_are_summed_up_with_intervals() -> None:
    draws = [draw(0, taught=0.9, fluxes=0.95, mean=0.5), draw(1, taught=0.8, fluxes=0.95, mean=0.6)]
    (found,) = summary([*draws, draw(2, taught=0.7, fluxes=0.9, mean=None), draw(3, fluxes=0.9, mean=0.1)])
    assert (found["share"], found["draws"]) == ("0.01", 4)
    taught, null = found["pearson"][TAUGHT], found["pearson"]["mean"]
    assert (taught["draws"], taught["mean"], taught["sd"]) == (3, 0.8, 0.1)
    assert null["mean"] == pytest.approx(1.2 / 4, abs=1e-4)
    for (lead, low, high), leads, quantile in (
        (null["taught_ahead"], np.array([0.4, 0.2, 0.7]), 4.302653),
        (null["fluxes_ahead"], np.array([0.45, 0.35, 0.9, 0.8]), 3.182446),
        (taught["fluxes_ahead"], np.array([0.05, 0.15, 0.2]), 4.302653),
    ):
        assert lead == pytest.approx(leads.mean(), abs=1e-4)
        assert high - low == pytest.approx(2 * quantile * leads.std(ddof=1) / len(leads) ** 0.5, abs=1e-3)
    assert "taught_ahead" not in taught
    assert "fluxes_ahead" not in summary(draws[:1])[0]["pearson"]["mean"]


def test_growth_is_read_from_fluxes_by_a_ridge() -> None:
    rng = np.random.default_rng(0)
    fluxes, weights = rng.normal(size=(300, 12)), rng.normal(size=12)
    labels = torch.from_numpy(fluxes @ weights + 3)[:, None]
    parts = {"validation": torch.arange(100, 150), "test": torch.arange(150, 300)}
    prepared = cast(Prepared, SimpleNamespace(dataset=SimpleNamespace(labels=labels), parts=parts))
    assert ridge_through_fluxes(prepared, np.arange(80), fluxes)["pearson"] > 0.9999
    assert ridge_through_fluxes(prepared, np.arange(5), fluxes)["pearson"] < 0.95


@pytest.mark.slow
def test_a_small_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = ["data.source.insilico.pairs='300'", "data.source.insilico.triples=none", "trainer.epochs=1"]
    more = [word for key in keys for word in ("--set", key)]
    out = tmp_path / "out.json"
    for number, *without in (("1",), ("0",), ("0", "--without-students")):
        data = [*without, "--data", str(tmp_path / "data"), "--shares", "0.05", "--layers", "0", "--draw", number]
        monkeypatch.setattr(sys, "argv", ["label_shares", str(tmp_path / "runs"), str(out), *data, *more])
        main()
    found = json.loads(out.read_text())
    assert [one["draw"] for one in found["draws"]] == [0, 1]
    (share,) = found["draws"][0]["shares"].values()
    assert share["strains"] == round(0.05 * found["draws"][0]["strains"]["train"])
    rows = {TAUGHT, UNTAUGHT, BESIDE, WITH_NULLS, NULL_WITH_FLUXES, MODEL_WITH_FLUXES, "reaction kernel ridge"}
    assert rows < share["scores"].keys()
    assert found["summary"][0]["draws"] == 2

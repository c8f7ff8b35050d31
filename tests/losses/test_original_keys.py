"""Every key of the original's losses has an answer, and what it is called here exists."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from dglcell.config import TrainerConfig
from dglcell.config_original import LOSS_DROPPED, LOSS_KEYS, LOSS_WEIGHTS, explain
from dglcell.losses.config import LOSS_CONFIGS
from tests.config_files import refusal, write

HERE = {f"loss.{field.name}" for kind in LOSS_CONFIGS.values() for field in fields(kind)}
HERE |= {f"trainer.{field.name}" for field in fields(TrainerConfig)}


@pytest.mark.parametrize("key", [*LOSS_KEYS, *LOSS_DROPPED])
def test_a_key_of_its_losses_is_explained(key: str) -> None:
    for section in ("regression_task", "regression_task.loss_config"):
        answer = explain(f"{section}.{key}")
        if key in LOSS_KEYS:
            assert LOSS_KEYS[key] in HERE
            assert answer == f"`{section}.{key}` of the original system is `{LOSS_KEYS[key]}` here"
        else:
            assert answer == f"leave out `{section}.{key}` of the original system: {LOSS_DROPPED[key]}"


def test_its_weights_are_terms_here(tmp_path: Path) -> None:
    assert {f"loss.{name}" for name in LOSS_WEIGHTS.values()} <= HERE
    text = (
        "cell: {model: textbook}\nregression_task: {lambda_wasserstein: 0.1, loss_config: {wasserstein_blur: 0.05}}\n"
    )
    message = refusal(write(tmp_path, "original.yaml", text))
    assert "`regression_task.lambda_wasserstein` of the original system is `loss.wasserstein` here" in message
    assert "the distance is exact, by sorting, so nothing is blurred" in message

"""Runs go on as if they had not stopped, with all that their models keep beside weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dglcell.nn.config import LINKS
from dglcell.training.checkpoint import load_trained
from tests.tiny import Tiny, history

KEEPING = ("model.link=auto",)
OPERATOR = ("model.name=set_operator", "model.local_heads=2")


@pytest.mark.parametrize("model", [(), OPERATOR], ids=["hetero_cell", "set_operator"])
def test_a_run_goes_on_and_predicts_with_what_its_checkpoint_keeps(
    tiny: Tiny, tmp_path: Path, model: tuple[str, ...]
) -> None:
    whole = tiny.train(tmp_path / "whole", *KEEPING, *model).directory
    part = tiny.train(tmp_path / "part", *KEEPING, *model, "trainer.epochs=1").directory
    again = tiny.train(tmp_path / "part", *KEEPING, *model).directory
    assert part.path == again.path
    one, other = (load_trained(directory, "last").model.state_dict() for directory in (whole, again))
    assert all(torch.equal(other[name], weight) for name, weight in one.items())
    assert history(whole) == history(again)
    assert len(one["terms.link.measured.genes"]) > 0
    assert LINKS[int(one["terms.link.codes"][0])] == "minimum"

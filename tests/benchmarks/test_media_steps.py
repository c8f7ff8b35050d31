"""The benchmark of both forms of media times steps of the same strains."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks import media_steps


def test_strains_have_one_or_two_genes_and_a_medium() -> None:
    batch = media_steps.random_strains(10, 20, torch.arange(20) % 3)
    assert {*batch.offsets.diff().tolist()} == {1, 2}
    assert batch.conditions is not None
    assert batch.conditions[:4, 0].tolist() == [0, 1, 2, 0]


def test_every_form_is_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media_steps, "TURNS", 1)
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
    media_steps.main(str(tmp_path / "out.json"), "data.batch_size=4", "model.hidden=8")
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["ratio_of_medians"]["as differences"] == 1
    assert (found["strains"], found["media"]) == (4, 10)
    assert found["milliseconds"].keys() == found["ratio_of_medians"].keys()

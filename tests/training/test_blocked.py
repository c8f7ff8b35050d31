"""Blocked reactions are found once, when strains are read, and no step looks for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from dglcell.config.experiment import Config
from dglcell.config.read import load_config
from dglcell.data.columns import BLOCKED, Column
from dglcell.graph.resident import ResidentCell
from dglcell.graph.schema import REACTION
from dglcell.graph.steady_state import SteadyState
from dglcell.models.terms.measured import blocked_reactions
from dglcell.perturbation.sent import keep_masks
from dglcell.runs.directory import RunDirectory
from dglcell.training import blocked
from dglcell.training.blocked import strains_in_media
from dglcell.training.fit import make_task
from dglcell.training.prepare import Prepared, prepare, settle_what_models_see

MEDIA = {"glucose": {}, "fructose": {"EX_glc__D_e": 0.0, "EX_fru_e": 10.0}, "closed": {"EX_o2_e": 0.0}}


def config_of(folder: Path, **more: Any) -> Config:
    screen = {
        "model": "textbook",
        "pairs": "60",
        "triples": "none",
        "processes": 1,
        "strengths": [0, 0.3],
        "media": MEDIA,
    }
    content = {
        "experiment": {"name": "blocked"},
        "cell": {"model": "textbook", "lose_blocked": True, "media": MEDIA},
        "data": {"source": {"name": "insilico", "insilico": screen}, "phenotypes": ["fitness"]},
        "model": {"hidden": 8, "layers": 1, "pool": ["gene", "reaction"], **more},
        "split": {"kind": "random"},
        "paths": {"data": str(folder)},
    }
    (folder / "blocked.yaml").write_text(yaml.safe_dump(content))
    return load_config(folder / "blocked.yaml")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("blocked")


@pytest.fixture(scope="module")
def prepared(folder: Path) -> Prepared:
    return prepare(config_of(folder), command="")


def test_the_lists_are_what_every_step_would_find(prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, cell = prepared.dataset, ResidentCell.of(prepared.cell)
    lists = dataset.columns[Column(BLOCKED)]
    assert lists.dtype == torch.int16
    rows = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(0))[:100]
    batch = dataset.take(rows)
    known = strains_in_media(batch, cell)
    asked = replace(known, blocked=None)
    expected, reactions = keep_masks(cell, asked), blocked_reactions(cell, asked)
    assert not torch.equal(reactions.sum(0), reactions.new_zeros(100).sum(0).expand(100))
    monkeypatch.setattr(SteadyState, "blocked", None)  # nobody may look for them again
    torch.testing.assert_close(blocked_reactions(cell, known), reactions)
    for node_type, keep_NB in keep_masks(cell, known).items():
        torch.testing.assert_close(keep_NB, expected[node_type])
    part = keep_masks(cell, known.part(10, 30))[REACTION]
    torch.testing.assert_close(part, expected[REACTION][:, 10:30])


@pytest.mark.parametrize("strategy", ["difference", "node_mask"])
def test_a_model_predicts_the_same_with_them(folder: Path, prepared: Prepared, strategy: str) -> None:
    config = settle_what_models_see(config_of(folder, strategy=strategy), prepared)
    batch = prepared.dataset.take(prepared.parts["test"][:40]).perturbations
    torch.manual_seed(0)
    model = make_task(config, prepared, RunDirectory(folder)).model.eval()
    with torch.no_grad():
        known, asked = (model(one).phenotypes for one in (batch, replace(batch, blocked=None)))
    torch.testing.assert_close(known, asked)


def test_they_are_looked_for_in_steps_where_they_are_not_known_before(
    folder: Path, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = prepared.dataset.with_(
        columns={of: values for of, values in prepared.dataset.columns.items() if of.kind != BLOCKED}
    )
    config = config_of(folder)
    assert Column(BLOCKED) in blocked.with_blocked(bare, prepared.cell, config).columns
    monkeypatch.setattr(blocked, "MOST_STRAINS", 10)
    assert blocked.with_blocked(bare, prepared.cell, config) is bare
    monkeypatch.undo()
    config.model.strength_from = ["medium"]
    assert blocked.with_blocked(bare, prepared.cell, config) is bare

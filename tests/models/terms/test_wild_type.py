"""Models with a link: the wild type's value is exact, whatever heads there are."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dglcell.models.cell_model import HeteroCell, SetOperator
from dglcell.models.config import HeteroCellConfig, SetOperatorConfig
from dglcell.models.terms.link import Link
from dglcell.perturbation.genotype import GenotypeBatch
from tests.random_cells import textbook_cell

CELL = textbook_cell()
STRAINS = [[], [0], [0, 1], [5, 9, 20]]


HEADS = {
    **{how: HeteroCellConfig(combination=how, local_head=how != "none") for how in ("none", "sum", "mean")},
    **{operator: SetOperatorConfig(operator=operator) for operator in ("local", "both")},
}


@pytest.mark.parametrize("heads", HEADS)
def test_the_wild_type_has_its_value_with_any_heads(heads: str) -> None:
    torch.manual_seed(0)
    config = replace(HEADS[heads], hidden=8, layers=1, link="minimum")
    kind = HeteroCell if isinstance(config, HeteroCellConfig) else SetOperator
    model = kind(CELL, config, outputs=2).double().eval()
    link = model.terms["link"]
    assert isinstance(link, Link)
    assert link.measured is not None
    link.choose(["minimum", "log"], torch.tensor([0.5, 0.25]), torch.tensor([2.0, 4.0]))
    measured = GenotypeBatch.from_lists([[0], [1]])
    link.measured.remember(CELL, measured, torch.tensor([[0.5, 0.1], [0.25, 0.1]], dtype=torch.float64))
    for parameter in model.parameters():  # heads begin near zero, where every link is the identity
        torch.nn.init.normal_(parameter, std=0.3)
    out_BT = model(GenotypeBatch.from_lists(STRAINS)).phenotypes * link.scale + link.shift
    assert torch.allclose(out_BT[0], torch.ones(2, dtype=torch.float64))
    assert not torch.allclose(out_BT[1:, 1], torch.ones(3, dtype=torch.float64))
    assert out_BT[2, 0] <= 0.2502  # of [0, 1], measured parts are [0] and [1]
    alone_BT = model(GenotypeBatch.from_lists(STRAINS[3:])).phenotypes * link.scale + link.shift
    assert torch.allclose(alone_BT[0], out_BT[3])


def test_identity_adds_no_weights() -> None:
    models = (
        HeteroCell(CELL, HeteroCellConfig(hidden=8, layers=1)),
        SetOperator(CELL, SetOperatorConfig(hidden=8, layers=1)),
    )
    assert not [name for model in models for name in model.state_dict() if "link" in name]

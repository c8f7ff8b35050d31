"""`hetero_cell` with a link: the wild type's value is exact, whatever heads there are."""

from __future__ import annotations

import pytest
import torch

from dglcell.graph.cell import build_cell
from dglcell.graph.config import CellConfig
from dglcell.graph.resident import ResidentCell
from dglcell.models.config import HeteroCellConfig
from dglcell.models.hetero_cell import HeteroCell
from dglcell.perturbation.genotype import GenotypeBatch

STRAINS = [[], [0], [0, 1], [5, 9, 20]]


@pytest.fixture(scope="module")
def cell() -> ResidentCell:
    return ResidentCell.of(build_cell(CellConfig(model="textbook")))


@pytest.mark.parametrize("combination", ["none", "sum", "mean", "gated"])
def test_the_wild_type_has_its_value_with_any_heads(cell: ResidentCell, combination: str) -> None:
    torch.manual_seed(0)
    config = HeteroCellConfig(
        hidden=8, layers=1, link="minimum", combination=combination, local_head=combination != "none"
    )
    model = HeteroCell(cell, config, outputs=2).double().eval()
    assert model.link is not None
    assert model.link.measured is not None
    model.link.choose(["minimum", "log"], torch.tensor([0.5, 0.25]), torch.tensor([2.0, 4.0]))
    measured = GenotypeBatch.from_lists([[0], [1]])
    model.link.measured.remember(cell, measured, torch.tensor([[0.5, 0.1], [0.25, 0.1]], dtype=torch.float64))
    for parameter in model.parameters():  # heads begin near zero, where every link is the identity
        torch.nn.init.normal_(parameter, std=0.3)
    out_BT = model(GenotypeBatch.from_lists(STRAINS)).phenotypes * model.link.scale + model.link.shift
    assert torch.allclose(out_BT[0], torch.ones(2, dtype=torch.float64))
    assert not torch.allclose(out_BT[1:, 1], torch.ones(3, dtype=torch.float64))
    assert out_BT[2, 0] <= 0.2502  # of [0, 1], measured parts are [0] and [1]
    alone_BT = model(GenotypeBatch.from_lists(STRAINS[3:])).phenotypes * model.link.scale + model.link.shift
    assert torch.allclose(alone_BT[0], out_BT[3])


def test_identity_adds_no_weights(cell: ResidentCell) -> None:
    names = HeteroCell(cell, HeteroCellConfig(hidden=8, layers=1)).state_dict()
    assert not [name for name in names if "link" in name]

"""Small parts: registries, MLPs, which relations are live, cross-relation aggregation."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dglcell.errors import ConfigError
from dglcell.graph.schema import CATALYSED_BY, CATALYSES, CONVERTED_BY, CONVERTS, gene_relation
from dglcell.nn.cross_relation import combine_relations
from dglcell.nn.hetero_layer import live_relations
from dglcell.nn.mlp import mlp
from dglcell.nn.registry import NORMS, REFUSED_NORMS, make_activation, make_norm
from dglcell.perturbation.row_wise import RowWise
from dglcell.perturbation.state_sums import Addend
from dglcell.perturbation.states import DenseStates

PHYSICAL = gene_relation("physical")
ALL = [PHYSICAL, CATALYSES, CATALYSED_BY, CONVERTS, CONVERTED_BY]


class Times(nn.Module):
    """x times a parameter."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


@pytest.mark.parametrize("name", NORMS)
def test_norms_treat_every_row_alone(name: str) -> None:
    norm = make_norm(name, 4)
    x = torch.randn(3, 4)
    changed = x.clone()
    changed[0] += torch.randn(4)
    torch.testing.assert_close(norm(x)[1:], norm(changed)[1:], atol=0, rtol=0)


@pytest.mark.parametrize("name", REFUSED_NORMS)
def test_norms_that_mix_rows_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"norm '{name}' takes statistics over nodes or strains"):
        make_norm(name, 4)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"unknown norm\n  got:      ln\n  expected: layer, rms, none"):
        make_norm("ln", 4)
    with pytest.raises(ConfigError, match=r"unknown activation\n  got:      sigmoidal"):
        make_activation("sigmoidal")


def test_an_mlp_with_one_layer_keeps_its_output_width() -> None:
    assert mlp([5, 3], "relu")(torch.randn(2, 5)).shape == (2, 3)
    kinds = [type(m) for m in mlp([5, 4, 3], "relu", dropout=0.5)]
    assert kinds == [nn.Linear, nn.ReLU, nn.Dropout, nn.Linear]


def test_only_relations_that_reach_what_is_read_are_computed() -> None:
    assert live_relations(ALL, 1, {"gene"}) == [[PHYSICAL, CATALYSED_BY]]
    first, second, third = live_relations(ALL, 3, {"gene"})
    assert third == [PHYSICAL, CATALYSED_BY]
    assert second == [PHYSICAL, CATALYSES, CATALYSED_BY, CONVERTED_BY]
    assert first == ALL


def test_mean_and_sum_over_relations() -> None:
    outputs: list[Addend] = [
        (RowWise(factor, factor), [DenseStates(torch.full((2, 1, 3), value))])
        for factor, value in zip((Times(2.0), Times(1.0), Times(-1.0)), (0.5, 2.0, -6.0), strict=True)
    ]
    residual = DenseStates(torch.full((2, 1, 3), 100.0))
    assert (combine_relations(outputs, "sum").dense() == 9).all()
    assert (combine_relations(outputs, "mean").dense() == 3).all()
    assert (combine_relations(outputs, "sum", [residual]).dense() == 109).all()
    assert (combine_relations(outputs, "mean", [residual]).dense() == 103).all()

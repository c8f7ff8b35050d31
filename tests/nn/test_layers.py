"""Small parts: registries, MLPs, which relations are live, cross-relation aggregation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from dglcell.errors import ConfigError
from dglcell.graph.schema import CATALYSED_BY, CATALYSES, CONVERTED_BY, CONVERTS, gene_relation
from dglcell.nn.blocks import NORMS, make_activation, make_norm, mlp
from dglcell.nn.config import REFUSED_NORMS, CrossRelation
from dglcell.nn.hetero_layer import HeteroLayer, live_relations
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import PerturbedCell, perturb
from dglcell.perturbation.states import States
from tests.random_cells import RandomCell

PHYSICAL = gene_relation("physical")
ALL = [PHYSICAL, CATALYSES, CATALYSED_BY, CONVERTS, CONVERTED_BY]


class Times(nn.Module):
    """A convolution that brings nothing and multiplies a node's state."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor))

    def receive(self, perturbed: PerturbedCell, source: States, destination: States) -> States:
        return destination

    def update(self, x: torch.Tensor, received: torch.Tensor) -> torch.Tensor:
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
    with pytest.raises(ConfigError, match=r"`model.norm` is unknown\n  got:      ln\n  expected: layer, none"):
        make_norm("ln", 4)
    with pytest.raises(ConfigError, match=r"`model.activation` is unknown\n  got:      sigmoidal"):
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


@pytest.mark.parametrize(("how", "residual", "factor"), [("sum", 0, 6), ("mean", 0, 2), ("sum", 1, 7), ("mean", 1, 3)])
def test_mean_and_sum_over_relations(how: str, residual: int, factor: int) -> None:
    relations = [gene_relation(name) for name in "abc"]
    cell = RandomCell({"gene": 2}, {r: (np.array([0]), np.array([1])) for r in relations}, {})
    factors = iter((1.0, 2.0, 3.0))
    options = {"cross_relation": CrossRelation(how), "norm": "none", "activation": "identity", "dropout": 0.0}
    layer = HeteroLayer(relations, lambda _: Times(next(factors)), width=3, residual=bool(residual), **options)
    perturbed = perturb(cell.resident, GenotypeBatch.from_lists([[], [0]]))
    out = layer.double()(perturbed, {"gene": perturbed.start(torch.full((2, 3), 5.0, dtype=torch.float64))})
    assert (out["gene"].whole() == 5 * factor).all()

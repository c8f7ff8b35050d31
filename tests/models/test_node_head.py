"""Values of nodes: all strategies give the same, which is that of the formula, and what is untouched is zero."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from dglcell.errors import ConfigError
from dglcell.models.config import HeteroCellConfig
from dglcell.models.hetero_cell import HeteroCell
from dglcell.models.model import joined, make_model
from dglcell.nn.node_head import NodeHead
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import perturb
from tests.examples import examples
from tests.perturbation.states_of import agree, gradients
from tests.random_cells import RandomCell, genotypes_of, random_cells, textbook_cell

TYPES = {"expression": "gene", "flux": "reaction"}


def close(one: torch.Tensor, other: torch.Tensor) -> None:
    torch.testing.assert_close(one, other, atol=1e-10, rtol=1e-10)


def model_of(cell: RandomCell, strategy: str = "node_mask", **changes: object) -> HeteroCell:
    """A small model of values of genes and reactions, with weights that are not small."""
    torch.manual_seed(0)
    keys: dict[str, Any] = {
        "hidden": 8,
        "layers": 2,
        "local_heads": 2,
        "pool": ["gene", "reaction"],
        "nodes": TYPES,
        **changes,
    }
    model = HeteroCell(cell.resident, HeteroCellConfig(strategy=strategy, **keys)).double()
    with torch.no_grad():
        for head in model.node_heads.values():
            head.own.weight.normal_()
            cast(nn.Linear, head.strain[-1]).weight.normal_()
            head.changes.fill_(True)
    return model


@examples(3)
@given(st.data())
def test_strategies_agree_and_give_the_formula(data: st.DataObject) -> None:
    cell = data.draw(random_cells())
    strains = data.draw(genotypes_of(cell))
    batch = GenotypeBatch.from_lists(strains)
    found = {}
    for strategy in ("node_mask", "difference"):
        model = model_of(cell, strategy)
        nodes = model(batch).nodes
        together = torch.cat([x.flatten() for x in nodes.values()])
        found[strategy] = [*nodes.values(), *gradients(together, list(model.of_nodes.parameters()))]
    agree(*found.values())
    states = model.encoder(perturb(model.cell, batch, "node_mask"))
    embedding = model(batch).embedding
    for (name, kind), head in zip(TYPES.items(), model.node_heads.values(), strict=True):
        change = head.rows(states[kind].whole()) - head.rows(states[kind].base_NH)[:, None]
        of_strain = head.strain(embedding) - head.strain(torch.zeros_like(embedding[:1]))
        expected = (change * head.own.weight[:, None]).sum(-1).T + of_strain
        close(model(batch).nodes[name], expected)


@pytest.mark.parametrize("strategy", ["node_mask", "difference"])
@examples(3)
@given(st.data())
def test_the_wild_type_has_its_own_values_exactly(strategy: str, data: st.DataObject) -> None:
    model = model_of(data.draw(random_cells()), strategy).eval()
    found = model(GenotypeBatch.from_lists([[], [0]])).nodes
    assert all((of[0] == 0).all() for of in found.values())


@examples(3)
@given(st.data())
def test_shared_deletions_and_joined_batches_give_the_same(data: st.DataObject) -> None:
    cell = data.draw(random_cells())
    last = cell.sizes["gene"] - 1
    strains = [[0], [0, last]] if last else [[0], [0]]
    model = model_of(cell, "difference").eval()
    with torch.no_grad():
        plain = model(GenotypeBatch.from_lists(strains))
        shared = GenotypeBatch.from_lists(strains)
        object.__setattr__(shared, "shared", (0,))
        found = model(shared)
        parts = joined([model(GenotypeBatch.from_lists([strain])) for strain in strains])
        nobody = model(GenotypeBatch.from_lists([]))
    for name in TYPES:
        close(found.nodes[name], plain.nodes[name])
        close(parts.nodes[name], plain.nodes[name])
        assert nobody.nodes[name].shape == (0, plain.nodes[name].shape[1])


def test_nodes_of_a_reaction_add_up() -> None:
    head = NodeHead(torch.tensor([0, 0, 1]), 2, width=4, strain_width=4, hidden=4, activation="gelu", dropout=0.0)
    assert head.scale.shape == (2,)
    head.take(torch.tensor([1.0, 5.0]), torch.tensor([2.0, 0.0]), *torch.tensor([[True, False], [True, True]]))
    scaled = head.scaled(torch.tensor([[3.0, 5.0]]))
    assert scaled[0, 0] == 1
    assert scaled[0, 1].isnan()
    head.largest.copy_(torch.tensor([4.0, 2.0]))
    within = head.within_training(torch.tensor([[1.0, 3.0], [-4.0, torch.nan]]))
    assert within.tolist()[0] == [1, 2]
    assert within[1, 0] == -2
    assert within[1, 1].isnan()
    assert "largest" not in head.state_dict()
    torch.testing.assert_close(head.restore(torch.tensor([[1.0, 0.0]])), torch.tensor([[3.0, 5.0]]))
    assert (head(torch.ones(1, 2), torch.ones(1, 4), torch.zeros(1, 2, dtype=torch.bool))[0, 1] == 0).all()


@examples(3)
@given(random_cells())
def test_a_node_type_that_the_cell_lacks_is_refused(cell: RandomCell) -> None:
    with pytest.raises(
        ConfigError, match=r"(?s)`model.nodes` names a node type.*organelle.*gene, metabolite, reaction"
    ):
        model_of(cell, nodes={"x": "organelle"})


@examples(3)
@given(st.data())
def test_what_a_strain_has_lost_is_zero_where_that_is_known(data: st.DataObject) -> None:
    cell = data.draw(random_cells())
    model = model_of(cell, "difference", nodes={"expression": "gene"}).eval()
    head = model.node_heads["expression"]
    number = cell.sizes["gene"]
    head.take(torch.full((number,), 6.0), torch.full((number,), 2.0), *torch.ones(2, number, dtype=torch.bool))
    batch = GenotypeBatch.from_lists([[0], []])
    assert model(batch).nodes["expression"][0, 0] != -3
    head.zero_if_lost.fill_(True)
    found = head.restore(model(batch).nodes["expression"])
    assert found[0, 0] == 0
    assert (found[1] == 6).all()


@examples(3)
@given(random_cells())
def test_without_messages_every_trained_weight_has_a_gradient(cell: RandomCell) -> None:
    model = model_of(cell, layers=0, local_head=False, combination="none", pool=["gene"])
    prediction = model(GenotypeBatch.from_lists([[0], []]))
    total = prediction.phenotypes.sum() + torch.stack([x.sum() for x in prediction.nodes.values()]).sum()
    total.backward()
    assert all(weight.grad is not None for weight in model.parameters() if weight.requires_grad)


@pytest.mark.parametrize("pool", [["gene"], ["reaction"], ["gene", "reaction"]])
def test_all_that_values_of_nodes_depend_on_is_trained(pool: list[str]) -> None:
    config = HeteroCellConfig(
        hidden=8, layers=2, pool=pool, nodes={"flux": "reaction"}, local_head=False, combination="none"
    )
    model = cast("HeteroCell", make_model(config, textbook_cell(), outputs=1))
    for head in model.node_heads.values():
        head.changes.fill_(True)
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    for parameter in model.parameters():
        parameter.requires_grad_(True)
        parameter.data += 0.05 * torch.randn_like(parameter)
    model(GenotypeBatch.from_lists([[3], [5, 9], [20]])).nodes["flux"].square().sum().backward()
    seen = {name for name, parameter in model.named_parameters() if parameter.grad is not None and parameter.grad.any()}
    assert seen
    assert not seen & frozen

"""Small parts: norms, MLPs, which relations are live, genes of their own, GATv2 beside that of PyTorch Geometric."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from torch import nn

from dglcell.errors import ConfigError
from dglcell.graph.schema import CATALYSED_BY, CATALYSES, CONVERTED_BY, CONVERTS, gene_relation
from dglcell.models.terms.scores import FactorisationMachine
from dglcell.nn.blocks import make_norm, mlp
from dglcell.nn.config import NORM_NAMES, PAIRWISE, REFUSED_NORMS, CrossRelation, GATv2Options
from dglcell.nn.convolutions import GATv2Conv, SAGEConv
from dglcell.nn.hetero_layer import HeteroLayer, live_relations
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import perturb
from tests.examples import examples
from tests.random_cells import RandomCell, random_cells

PHYSICAL = gene_relation("physical")
ALL = [PHYSICAL, CATALYSES, CATALYSED_BY, CONVERTS, CONVERTED_BY]


@pytest.mark.parametrize("name", NORM_NAMES)
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
    with pytest.raises(ConfigError, match=rf"`how` is unknown\n.*got: +{name}"):
        CrossRelation(name)


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


WIDTH, HEADS, FACTORS, GENES = 6, 2, 3, 7


def test_a_gene_of_its_own_starts_without_deviation_and_untrained_ones_keep_none() -> None:
    model = FactorisationMachine(WIDTH, 1, factors=FACTORS, dropout=0.0, genes=GENES)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
    genes, present = torch.tensor([[0, 1], [2, 4]]), torch.ones(2, 2, dtype=torch.bool)
    for _ in range(3):
        optimizer.zero_grad()
        (model(torch.ones(2, 2, WIDTH), genes, present) - 1).square().sum().backward()
        optimizer.step()
    trained = (model.own_vectors.abs().sum(1) > 0) & (model.own_effects.abs().sum(1) > 0)
    assert trained.tolist() == [True, True, True, False, True, False, False]


@examples(10)
@given(cell=random_cells())
def test_the_wild_type_equals_pytorch_geometric(cell: RandomCell) -> None:
    geometric = pytest.importorskip("torch_geometric.nn")
    torch.manual_seed(0)
    for relation, ends in cell.edges.items():
        weighted = relation in cell.weights
        conv = GATv2Conv(relation, WIDTH, GATv2Options(HEADS), weighted=weighted).double()
        options = {"heads": HEADS, "add_self_loops": False, "edge_dim": 1 if weighted else None}
        other = geometric.GATv2Conv((WIDTH, WIDTH), WIDTH // HEADS, **options).double()
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.normal_()
            conv.keys.load_state_dict(other.lin_l.state_dict())
            conv.queries.load_state_dict(other.lin_r.state_dict())
            conv.vector.copy_(other.att[0])
            conv.bias.copy_(other.bias)
            if conv.edge_vector is not None:
                conv.edge_vector.copy_(other.lin_edge.weight[:, 0])
        source = torch.randn(cell.sizes[relation[0]], WIDTH, dtype=torch.float64)
        destination = torch.randn(cell.sizes[relation[2]], WIDTH, dtype=torch.float64)
        attributes = torch.as_tensor(cell.weights[relation]) if weighted else None
        edge_index = torch.stack([torch.as_tensor(end) for end in ends])
        expected = other((source, destination), edge_index, attributes)
        perturbed = perturb(cell.resident, GenotypeBatch.from_lists([[]]), "edge_mask")
        received = conv.receive(perturbed, perturbed.start(source), perturbed.start(destination))
        got = conv.update(destination.unsqueeze(1), received.whole())[:, 0]
        torch.testing.assert_close(got, expected, atol=1e-10, rtol=1e-10)


def test_every_node_type_has_a_combination_of_its_own_whatever_its_name() -> None:
    relations = [("x", relation, end) for end in ("a.b", "a_b", "", "_", "type", "type_") for relation in "rs"]
    layer = HeteroLayer(relations, lambda r: SAGEConv(r, 4), width=4, cross_relation=CrossRelation(PAIRWISE))
    assert len(layer.mixers) == 6

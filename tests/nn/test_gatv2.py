"""The attention convolution against PyTorch Geometric's, and what it refuses."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dglcell.errors import ConfigError
from dglcell.nn.config import GATv2Options
from dglcell.nn.convolutions import GATv2Conv
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import perturb
from tests.examples import examples
from tests.random_cells import RandomCell, random_cells

WIDTH, HEADS = 6, 2


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


@given(heads=st.sampled_from([-2, 0, 4, 12]))
def test_heads_that_do_not_divide_the_width_are_refused(heads: int) -> None:
    with pytest.raises(
        ConfigError,
        match=rf"`model.conv_heads` does not divide `model.hidden`\n  got:      {heads}\n  expected: a divisor of 6\n",
    ):
        GATv2Conv(("gene", "physical", "gene"), 6, GATv2Options(heads))

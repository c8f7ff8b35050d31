"""Parts of predicted changes: they sum to what the model's own forward pass says, for all kinds of layers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dglcell.checks import LEAST_STRENGTH
from dglcell.explanations.split import GRAPH, Explainer, Split
from dglcell.models.config import CONVS, HeteroCellConfig
from dglcell.models.hetero_cell import HeteroCell
from dglcell.nn.config import CROSS_RELATION
from dglcell.perturbation.genotype import GenotypeBatch
from tests.random_cells import RandomCell, genotypes_of, random_cells

SMALL = {"hidden": 8, "local_heads": 2, "pool": ["gene", "reaction", "metabolite"]}


def random_model(cell: RandomCell, **changes: Any) -> HeteroCell:
    """In float64, with parameters that are neither 0 nor 1."""
    config = HeteroCellConfig(**{**SMALL, **changes})
    config.validate()
    model = HeteroCell(cell.resident, config, 2).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, dtype=torch.float64, generator=generator))
    return model.eval()


def check_complete(model: HeteroCell, strains: list[Any]) -> list[Split]:
    """The parts, and the shares at every cut, sum to the change that the model itself predicts."""
    batch = GenotypeBatch.from_lists(strains)
    with torch.no_grad():
        change_BT = model(batch).phenotypes - model(GenotypeBatch.from_lists([[]])).phenotypes
    found = Explainer(model)(batch)
    scale = max(1.0, float(change_BT.abs().max()))
    for split, change_B in zip(found, change_BT.T, strict=True):
        torch.testing.assert_close(split.change_B, change_B, atol=1e-12 * scale, rtol=1e-12)
        assert float(split.rest_B.abs().max()) <= 1e-10 * scale
        for layer in range(len(model.encoder.layers) + 1):
            cut_B = torch.zeros(len(strains), dtype=torch.float64)
            for rows, share_K in split.rows:
                if rows.relation is None and rows.layer == layer:
                    cut_B.index_add_(0, rows.index.strains, share_K)
            cut_B += sum(share.sum(0) for removed, share in split.removed if removed.layer > layer)
            assert float((cut_B - split.parts[GRAPH]).abs().max()) <= 1e-10 * scale
    return found


@pytest.mark.parametrize("conv", CONVS)
@pytest.mark.parametrize("cross_relation", CROSS_RELATION)
@settings(max_examples=3)
@given(
    data=st.data(),
    cell=random_cells(),
    gin_layers=st.integers(0, 2),
    combination=st.sampled_from(["sum", "mean", "gated"]),
    local_kind=st.sampled_from(["hyper_sagnn", "factorisation", "both"]),
    residual=st.booleans(),
    norm=st.sampled_from(["layer", "rms", "none"]),
    activation=st.sampled_from(["relu", "gelu", "silu", "elu", "tanh"]),
    layers=st.integers(0, 3),
    weakens=st.booleans(),
)
def test_parts_sum_to_the_predicted_change(
    data: Any, cell: RandomCell, weakens: bool, conv: str, cross_relation: str, **changes: Any
) -> None:
    strains: list[Any] = data.draw(genotypes_of(cell))
    if weakens:
        strength = st.one_of(st.just(0.0), st.floats(LEAST_STRENGTH, 2))
        strains = [{gene: data.draw(strength) for gene in strain} for strain in strains]
    check_complete(random_model(cell, conv=conv, cross_relation=cross_relation, **changes), strains)

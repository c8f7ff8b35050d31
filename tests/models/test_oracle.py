"""Predictions and all gradients equal those of plain torch on every strain's own graph, whatever computes them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dglcell.models.cell_model import HeteroCell
from dglcell.models.config import CONVS, HeteroCellConfig
from dglcell.nn.config import CROSS_RELATION, PAIRWISE
from dglcell.perturbation import DGL_STRATEGIES, STRATEGIES
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import Choices
from tests.examples import examples
from tests.gpu.devices import as_on_a_gpu, needs_gpu
from tests.models.plain_network import left_of, plain_forward
from tests.perturbation.states_of import DENSE_SHARES, ENGINES, Engine, agree
from tests.perturbation.test_strengths import Strain, batch_of, strains_of
from tests.random_cells import RandomCell, genotypes_of, random_cells, randomise

CPU, GPU_PATHS, GPU = "cpu", "as on a gpu", "cuda"

STRAINS = ("deleted", "weakened", "in media")


def strains(data: Any, cell: RandomCell, what: str) -> tuple[list[Strain], list[Strain], GenotypeBatch]:
    """Return the strengths of genes and reactions of some strains, and their batch."""
    if what == "deleted":
        lists = data.draw(genotypes_of(cell))
        zero = torch.zeros((), dtype=torch.float64)
        return [dict.fromkeys(genes, zero) for genes in lists], [{} for _ in lists], GenotypeBatch.from_lists(lists)
    genes, reactions = data.draw(strains_of(cell, special=what == "in media"))
    if what == "weakened":
        reactions = [{} for _ in genes]
    return genes, reactions, batch_of(genes, reactions)


def gradients(y: Tensor, model: HeteroCell, *more: Tensor) -> list[Tensor]:
    """Of the sum of squares, on the host."""
    wanted = [*more, *model.parameters()]
    found = torch.autograd.grad(y.square().sum(), wanted, allow_unused=True, materialize_grads=True)
    return [y.detach().cpu(), *(x.cpu() for x in found)]


@pytest.mark.parametrize("what", STRAINS)
@pytest.mark.parametrize("where", [CPU, GPU_PATHS, pytest.param(GPU, marks=needs_gpu)])
@pytest.mark.parametrize("strategy", STRATEGIES)
@examples(4)
@given(
    data=st.data(),
    cell=random_cells(),
    cross_relation=st.sampled_from(CROSS_RELATION),
    cross_relation_layers=st.integers(2, 3),
    gin_layers=st.integers(1, 4),
    residual=st.booleans(),
    layers=st.integers(1, 3),
    recompute=st.sampled_from(["true", "false"]),
    engine=ENGINES,
    dense_share=DENSE_SHARES,
)
def test_a_model_equals_plain_torch_on_the_strains_own_graphs(
    strategy: str,
    where: str,
    what: str,
    data: Any,
    cell: RandomCell,
    engine: Engine,
    dense_share: float,
    **changes: Any,
) -> None:
    if strategy in DGL_STRATEGIES and where != CPU:
        pytest.skip("DGL has its own paths on a GPU, and needs a build for it")
    conv = data.draw(st.sampled_from([name for name in CONVS if name != "gatv2" or strategy in DGL_STRATEGIES]))
    norm = "layer" if changes["cross_relation"] == PAIRWISE else "none"
    settings = {"hidden": 8, "local_heads": 2, "pool": ["gene", "reaction"], "cross_relation_norm": norm, "conv": conv}
    config = HeteroCellConfig(**settings, strategy=strategy, **changes)
    config.validate()
    torch.manual_seed(0)
    model = randomise(HeteroCell(cell.resident, config, outputs=2).double())
    model.choose(Choices(strategy, dense_share=dense_share))
    genes, reactions, batch = strains(data, cell, what)
    leaves = [x for strain in genes for x in strain.values()] if what == "weakened" else []
    lefts = [left_of(cell, *strain) for strain in zip(genes, reactions, strict=True)]
    expected = gradients(torch.stack([plain_forward(model, cell, left) for left in lefts]), model, *leaves)
    with engine(), pytest.MonkeyPatch.context() as patch:
        if where == GPU_PATHS:
            as_on_a_gpu(patch)
        device = GPU if where == GPU else CPU
        found = model.to(device)(batch.to(device)).parts["graph"]
        agree(gradients(found, model, *leaves), expected, f"{strategy} {where}")

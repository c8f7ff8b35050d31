"""Layers, combinations, heads and links give the same when torch's own compiler has joined their operations."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from dglcell.models.cell_model import HeteroCell
from dglcell.models.config import HeteroCellConfig
from dglcell.perturbation import execution
from dglcell.perturbation.curves import allow_compilation
from dglcell.perturbation.execution import compiler_works
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import Choices
from tests.random_cells import results, textbook_cell

pytestmark = pytest.mark.slow


@pytest.fixture
def compiler() -> Iterator[None]:
    """Machine code takes half a minute for each; ``tests/perturbation/test_states.py`` translates a layer."""
    if not compiler_works("cpu"):
        pytest.skip("needs a C++ compiler")
    torch.manual_seed(0)
    allow_compilation()
    yield
    torch.compiler.reset()


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("conv", ["gin", "sage"])
@pytest.mark.parametrize("how", ["sum", "mean", "pairwise_interaction"])
def test_layers_of_a_model(conv: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "COMPILED_ROWS", 1)
    monkeypatch.setattr(execution, "VARIANTS", 256)
    cell = textbook_cell("shares_complex", "isoenzyme")
    config = HeteroCellConfig(
        hidden=4, layers=1, conv=conv, conv_heads=2, cross_relation=how, local_heads=2,
        strategy="node_mask",
    )  # fmt: skip
    model = HeteroCell(cell, config).double()
    strains, found = GenotypeBatch.from_lists([[3], [10, 40], [3, 5]]), []
    for compiled in (False, True):
        model.choose(Choices("node_mask", compiled=compiled))
        found.append(results(model, strains))
    torch.testing.assert_close(found[1], found[0], rtol=1e-8, atol=1e-10)

"""All strategies and kernels against one graph per strain on cell graphs of yeast's size, in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.cells import generated_cell
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.resident import ResidentCell
from dglcell.graph.schema import GENE, Relation
from dglcell.kernels.spmm import kernels_on
from dglcell.nn.convolutions import GATv2Score
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import perturb
from dglcell.perturbation.states import DENSE_SHARE, Execution

pytestmark = pytest.mark.slow

WIDTH, HEADS = 4, 2
NEVER_DENSE = 1e9

SUMS = [("edge_mask", "auto", DENSE_SHARE)]
SUMS += [("node_mask", kernel, DENSE_SHARE) for kernel in kernels_on("cpu")]
SUMS += [("difference", kernel, DENSE_SHARE) for kernel in kernels_on("cpu")] + [("difference", "auto", NEVER_DENSE)]
WAYS = {"sum": SUMS, "mean": SUMS}
WAYS["attention"] = [(strategy, "auto", DENSE_SHARE) for strategy in ("edge_mask", "node_mask", "difference")]
WAYS["attention"] += [("difference", "auto", NEVER_DENSE)]
"""How messages are received → strategy, kernel, and the share of listed pairs from which all are computed."""


@pytest.fixture(scope="module")
def cell() -> CellGraph:
    return generated_cell()


def strains_of(cell: CellGraph) -> GenotypeBatch:
    """Return one of three genes with the hub of all networks, one of two, one of one, and the wild type."""
    hub = int(np.sum([cell.degrees(relation)[0] for relation in cell.relations], axis=0).argmax())
    others = [gene for gene in range(6) if gene != hub]
    return GenotypeBatch.from_lists([[hub, *others[:2]], others[2:4], [others[4]], []])


def outcome(resident: ResidentCell, strains: GenotypeBatch, relation: Relation, how: str, way: tuple) -> list[Tensor]:
    """Return two rounds along a relation, so that the second starts where strains differ; and all gradients."""
    strategy, kernel, dense_share = way
    generator = torch.Generator().manual_seed(0)
    number = resident.num_nodes[GENE]
    x_NH = torch.randn(number, WIDTH, generator=generator, dtype=torch.float64).requires_grad_()
    vector = torch.randn(HEADS, WIDTH // HEADS, generator=generator, dtype=torch.float64).requires_grad_()
    upstream = torch.randn(number, strains.num_strains, WIDTH, generator=generator, dtype=torch.float64)
    perturbed = perturb(resident, strains, strategy, kernel, execution=Execution(dense_share=dense_share))
    states = perturbed.start(x_NH)
    for _ in range(2):
        if how == "attention":
            states = perturbed.attend(relation, states, states, GATv2Score(vector))
        else:
            states = perturbed.aggregate(relation, states, how)
    y_NBH = states.whole()
    (y_NBH * upstream).sum().backward()
    assert x_NH.grad is not None
    return [y_NBH.detach(), x_NH.grad, *([] if vector.grad is None else [vector.grad])]


@pytest.mark.parametrize("how", WAYS)
def test_strategies_and_kernels_agree(cell: CellGraph, how: str) -> None:
    resident = ResidentCell.of(cell).double()
    strains = strains_of(cell)
    for relation in cell.relations:
        expected = outcome(resident, strains, relation, how, ("edge_subgraph", "auto", DENSE_SHARE))
        assert all(x.isfinite().all() and x.abs().max() > 0 for x in expected)
        for way in WAYS[how]:
            found = outcome(resident, strains, relation, how, way)
            for one, other in zip(expected, found, strict=True):
                difference = float((one - other).abs().max() / one.abs().max())
                assert difference <= 1e-10, f"{relation[1]}, {way}: {difference:.1e}"

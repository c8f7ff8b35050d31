"""Steps on a device without values: they wait for nothing, and take so many launches and bytes and no more."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from benchmarks.cells import generated_cell
from benchmarks.counting import Counts, OperatorCounter, batch_on_meta, count_step, counting, step, task_on_meta
from dglcell.graph.cell import CellConfig, build_cell
from dglcell.graph.cell_graph import CellGraph
from dglcell.models.config import HeteroCellConfig
from dglcell.perturbation.genotype import GenotypeBatch
from tests.perturbation.no_sync import no_sync

CONFIG = HeteroCellConfig(hidden=16, layers=3, local_heads=2, dropout=0.0, metabolism=False, recompute="false")
STRAINS = GenotypeBatch.from_lists([[1, 2, 3], [4], [], [5, 6]])


@pytest.fixture(scope="module")
def metabolic() -> CellGraph:
    """Return the E. coli core cell with metabolism and two gene-gene relations."""
    return build_cell(CellConfig(model="textbook", derived=["shares_complex", "metabolic_neighbour"]))


@pytest.mark.parametrize(
    ("options", "half"),
    [({}, True), ({"conv": "sage"}, False), ({"cross_relation": "cross_attention"}, False)],
    ids=str,
)
def test_a_step_reads_no_value(metabolic: CellGraph, options: dict[str, str], half: bool) -> None:
    config = dataclasses.replace(CONFIG, metabolism=True, layers=1, pool=["gene", "reaction"], **options)
    task, batch = task_on_meta(metabolic, config, half), batch_on_meta(STRAINS)
    with counting(task.model.cell):
        step(task, batch)
        with no_sync():
            step(task, batch)


def test_what_reads_a_value_is_found(metabolic: CellGraph) -> None:
    task, batch = task_on_meta(metabolic, CONFIG, False), batch_on_meta(STRAINS)
    task.model.register_forward_pre_hook(lambda module, arguments: print(arguments[0].genes.sum().item()))
    with pytest.raises(RuntimeError, match="meta"), counting(task.model.cell):
        step(task, batch)


def counted(number: int, *, half: bool = False, scale: float = 0.01, layers: int = 1) -> Counts:
    """Of a step of so many strains of three deletions each, over nine relations."""
    config = dataclasses.replace(CONFIG, layers=layers)
    strains = GenotypeBatch.from_lists([[1, 2, 3]] * number)
    return count_step(generated_cell(scale=scale), config, strains, half=half)


@pytest.mark.slow
def test_launches_of_a_step_of_three_layers() -> None:
    # The nine relations of a layer are computed together.
    assert counted(4, layers=3).all_launches <= 1020
    assert counted(4, layers=3, half=True).all_launches <= 1100
    # Layer 1 multiplies what strains have in common, and has one narrow product for the edges of lost genes.
    assert len(counted(4, layers=3).products) == (2 + 1) + 2 * 4


def test_bytes_and_launches_of_a_row() -> None:
    few, many = counted(50), counted(100, scale=0.02)
    assert many.launches == few.launches
    rows = CONFIG.hidden * 4 * 9 * (100 * 132 - 50 * 66)
    # How often plain torch reads or writes a strain's row of a relation, forward and backward.
    assert (many.all_bytes - few.all_bytes) / rows <= 130
    half = counted(50, half=True)
    wide = [[product for product in counts.products if product.columns > CONFIG.hidden] for counts in (few, half)]
    assert sum(p.gathered_bytes for p in wide[0]) == 2 * sum(p.gathered_bytes for p in wide[1]) > 0


def test_operators_cost_what_they_touch() -> None:
    x, index = torch.zeros(10, 8), torch.arange(3)
    with OperatorCounter() as counter:
        x.view(80).unsqueeze(0)  # looks only
        x + x[:1].expand(10, 8)  # 10 rows, 1 row, 10 rows
        x.index_select(0, index)
        x.zero_()
        x @ x.T
        torch._foreach_mul_([x] * 50, 2.0)
    counts = counter.counts
    row = 8 * 4
    assert counts.launches == {"add": 1, "index_select": 1, "zero_": 1, "mm": 1, "_foreach_mul_": 2}
    assert counts.bytes["add"] == 21 * row
    assert counts.bytes["index_select"] == 3 * 8 + 2 * 3 * row
    assert counts.bytes["zero_"] == 10 * row
    assert counts.flops == 2 * 10 * 8 * 10

"""Products of every kernel."""

from __future__ import annotations

import pytest
import torch

from benchmarks.products import check_product, format_products, product_rows
from dglcell.graph.resident import ResidentCell
from dglcell.kernels import spmm as module
from dglcell.kernels.spmm import kernels_on
from tests.benchmarks.cells import quick_conditions, small_cell


@pytest.mark.slow
def test_every_kernel_has_a_row_with_and_without_weights() -> None:
    cell = small_cell()
    rows = list(product_rows(cell, [(3, 4)], quick_conditions()))
    assert len(rows) == 2 * (1 + len(kernels_on("cpu")))
    assert [row.weighted for row in rows[:: 1 + len(kernels_on("cpu"))]] == [False, True]
    for row in rows:
        assert row.status == "ok", row
        assert row.gathered_bytes == cell.num_edges * row.columns * 4
        assert row.gathered_bytes_per_second == pytest.approx(row.gathered_bytes / row.forward_seconds)
        assert row.share_of_copy_bandwidth == pytest.approx(row.gathered_bytes_per_second / 1e9)
    table = format_products(rows)
    assert table.count("forward ms") == 2
    assert table.splitlines()[0].startswith("B = 3  H = 4  unweighted  float32 on cpu")


def test_a_kernel_that_multiplies_wrongly_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    resident = ResidentCell.of(small_cell())
    monkeypatch.setitem(module.KERNELS, "dgl", lambda edges, x, weighted: torch.zeros(edges.num_dst, x.shape[1]) + x)
    with pytest.raises(RuntimeError, match="kernel 'dgl' differs from the reference by"):
        check_product(resident, "dgl", False)

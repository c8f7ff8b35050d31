"""The cell graph from public files."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.cells import real_cell


@pytest.mark.raw
def test_nine_networks_with_a_self_loop_per_gene(raw: Path) -> None:
    cell = real_cell(str(raw))
    number = len(cell.genes)
    pairs = {r[1]: len(cell.edges(r)) for r in cell.relations}
    assert len(pairs) == 9
    assert all(r[0] == r[2] == "gene" for r in cell.relations)
    # Counted from the files by other means; 43 factors regulate themselves already.
    assert pairs["string_physical"] == 176_303 + number
    assert pairs["action_binding"] == 104_483 + number
    assert pairs["string_coexpression"] == 54_317 + number
    assert pairs["regulatory"] == 11_486 + number - 43

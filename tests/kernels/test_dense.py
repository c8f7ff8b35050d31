"""The size limit of the ``dense`` kernel."""

from __future__ import annotations

import pytest
import torch

from dglcell.errors import ConfigError
from dglcell.graph.resident import ResidentRelation
from dglcell.kernels.spmm import spmm


@pytest.mark.parametrize(("dtype", "size"), [(torch.float64, "3.0 GiB"), (torch.float32, None), (torch.bfloat16, None)])
def test_a_relation_too_large_for_memory_is_refused_before_it_is_made(dtype: torch.dtype, size: str | None) -> None:
    nodes = 20_000 if size else 100
    ends = torch.tensor([0]), torch.tensor([1])
    relation = ResidentRelation(("gene", "wide", "gene"), *ends, num_src=nodes, num_dst=nodes)
    x = torch.ones(nodes, 2, dtype=dtype)
    if size is None:
        assert spmm(relation, x, kernel="dense")[1].tolist() == [1, 1]
        return
    with pytest.raises(ConfigError, match=r"'gene', 'wide', 'gene'\) is too large for kernel 'dense'") as caught:
        spmm(relation, x, kernel="dense")
    assert "got:      20,000 by 20,000 numbers, 3.0 GiB\n  expected: at most 2 GiB\n" in str(caught.value)
    assert "do:       set `kernel: tiled` or `kernel: auto`" in str(caught.value)

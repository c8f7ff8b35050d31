"""Pairwise mixtures of relations by kernels on a GPU; tests/kernels runs them by Triton's interpreter without one."""

from __future__ import annotations

import pytest
import torch

from tests.gpu.devices import needs_gpu
from tests.kernels.pairs import CASES, mixtures

pytestmark = needs_gpu


@pytest.mark.parametrize(
    ("dtype", "most"), [(torch.float32, 1e-4), (torch.bfloat16, 0.01)], ids=["float32", "bfloat16"]
)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_mixtures_of_pairs_are_about_as_exact_as_operations_one_by_one(
    case: tuple[int, int, str, float], dtype: torch.dtype, most: float
) -> None:
    found, right, plain = mixtures(*case, dtype, "cuda")
    again, *_ = mixtures(*case, dtype, "cuda")
    assert all(torch.equal(one, other) for one, other in zip(found, again, strict=True)), "the same bits every time"
    for one, other, of in zip(found, plain, right, strict=True):
        error, of_plain = (float((x - of).norm() / of.norm().clamp(min=1e-9)) for x in (one, other))
        assert error < 3 * of_plain + most

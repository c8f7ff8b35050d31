"""Pairwise mixtures of relations by kernels on a GPU; tests/kernels runs them by Triton's interpreter without one."""

from __future__ import annotations

import pytest
import torch

from tests.gpu.devices import needs_gpu
from tests.kernels.pairs import CASES, mixtures

pytestmark = needs_gpu


@pytest.mark.parametrize(
    ("dtype", "most"), [(torch.float32, 1e-5), (torch.bfloat16, 0.05)], ids=["float32", "bfloat16"]
)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_mixtures_of_pairs_equal_float64(case: tuple[int, int, str, float], dtype: torch.dtype, most: float) -> None:
    found, right = mixtures(*case, dtype, "cuda")
    again, _ = mixtures(*case, dtype, "cuda")
    assert all(torch.equal(one, other) for one, other in zip(found, again, strict=True)), "the same bits every time"
    apart = [float((one - of).norm() / of.norm().clamp(min=1e-9)) for one, of in zip(found, right, strict=True)]
    assert max(apart[:2]) < most
    # Gradients of the base are differences of two sums, right to rounding of either.
    assert max(apart[2:]) * min(1.0, case[-1]) < most, apart

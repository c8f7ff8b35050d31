"""What is fused for a GPU has the kernels and bytes that one would expect."""

from __future__ import annotations

import torch

from benchmarks.gpu_fusion import Fused, compiled

N = 1 << 12


def test_neighbouring_operations_are_one_kernel() -> None:
    torch.compiler.reset()
    seen: list[Fused] = []
    x = torch.randn(N, requires_grad=True)
    y = compiled(lambda x: (2 * x).sin() + 1, seen)(x)
    assert seen == [Fused(1, 2 * 4 * N)]
    torch.testing.assert_close(y, (2 * x).sin() + 1)
    y.backward(torch.ones(N))
    assert seen[1:] == [Fused(1, 3 * 4 * N)]


def test_a_matrix_product_is_a_kernel_of_its_own() -> None:
    torch.compiler.reset()
    seen: list[Fused] = []
    x, weight = torch.randn(N, 64), torch.randn(64, 64)
    with torch.no_grad():
        compiled(lambda x, weight: (x @ weight).relu(), seen)(x, weight)
    assert seen == [Fused(2, 4 * (4 * N * 64 + 64 * 64))]

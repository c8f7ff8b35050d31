"""Every kernel that runs on a GPU against a dense product on the CPU, forward and backward."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dglcell.graph.resident_graph import ResidentRelation
from dglcell.kernels.spmm import KERNELS, check_kernel, runs_on, spmm, triton_works
from tests.gpu.devices import ExplicitDevices, needs_gpu

# Absolute errors allowed, of sums of about 20 products of order one.
TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-4, torch.bfloat16: 0.2}
ON_GPUS = [kernel for kernel in ("auto", *KERNELS) if kernel != "tiled"]
N, M, EDGES, COLUMNS = 70, 50, 1000, 33


def make_relation(weighted: bool, dtype: torch.dtype) -> tuple[ResidentRelation, Tensor]:
    """Return a relation, and its dense adjacency [M, N] in float64; both on the CPU."""
    generator = torch.Generator().manual_seed(0)
    src = torch.randint(0, N - 1, (EDGES,), generator=generator)
    dst = torch.randint(0, M - 1, (EDGES,), generator=generator)
    weight = torch.randn(EDGES, generator=generator, dtype=torch.float64).to(dtype).double()
    weight = weight if weighted else torch.ones_like(weight)
    dense = torch.zeros(M, N, dtype=torch.float64).index_put_((dst, src), weight, accumulate=True)
    kept = weight.to(torch.promote_types(dtype, torch.float32)) if weighted else None
    return ResidentRelation(("gene", "random", "gene"), src, dst, N, M, kept), dense


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("kernel", ON_GPUS)
def test_a_kernel_equals_the_dense_product(device: str, kernel: str, dtype: torch.dtype, weighted: bool) -> None:
    if kernel != "auto" and not runs_on(kernel, device):
        pytest.skip(f"{kernel} has no {device} kernels")
    relation, dense = make_relation(weighted, dtype)
    generator = torch.Generator().manual_seed(1)
    x, upstream = (torch.randn(rows, COLUMNS, generator=generator).to(dtype) for rows in (N, M))
    leaf = x.to(device).requires_grad_()
    relation.to(device)
    with ExplicitDevices():
        y = spmm(relation, leaf, kernel=kernel)
        y.backward(upstream.to(device))
    assert leaf.grad is not None
    assert (y.device.type, y.dtype, leaf.grad.dtype) == (device, dtype, dtype)
    limit = {"atol": TOLERANCES[dtype], "rtol": 2e-2 if dtype == torch.bfloat16 else 0.0}
    torch.testing.assert_close(y.detach().cpu().double(), dense @ x.double(), **limit)
    torch.testing.assert_close(leaf.grad.cpu().double(), dense.T @ upstream.double(), **limit)


@needs_gpu
def test_triton_equals_torch_on_this_gpu() -> None:
    assert triton_works.__wrapped__("cuda")


@needs_gpu
def test_kernels_for_gpus_are_not_refused() -> None:
    for kernel in ON_GPUS:
        check_kernel(kernel, "cuda")

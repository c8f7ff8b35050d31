"""Blocks, tiles, threads, small integers and half precision of the ``tiled`` kernel; sums against a dense product."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from dglcell.graph.resident_graph import ResidentRelation
from dglcell.kernels.loops_numba import jit
from dglcell.kernels.spmm import KERNELS

spmm_tiled = KERNELS["tiled"]


def skewed_relation(num_src: int, num_dst: int, edges: int, weighted: bool) -> ResidentRelation:
    """Return a relation in which one node receives half of the edges and the last one none."""
    rng = np.random.default_rng(0)
    dst = np.where(rng.random(edges) < 0.5, 0, rng.integers(0, num_dst - 1, edges))
    weight = torch.as_tensor(rng.normal(size=edges)) if weighted else None
    src = torch.as_tensor(rng.integers(0, num_src, edges))
    return ResidentRelation(("gene", "random", "gene"), src, torch.as_tensor(dst), num_src, num_dst, weight)


def dense_matrix(relation: ResidentRelation) -> torch.Tensor:
    matrix = np.zeros((relation.num_dst, relation.num_src))
    weight = np.ones(relation.num_edges) if relation.weight is None else relation.weight.numpy()
    np.add.at(matrix, (relation.dst.numpy(), relation.src.numpy()), weight)
    return torch.as_tensor(matrix)


# The last but one is wide enough for several blocks without tiles, the last outgrows the cache and has many edges.
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("num_src", "num_dst", "edges", "columns"),
    [
        (50, 40, 600, 1),
        (50, 40, 600, 64),
        (50, 40, 9000, 131),
        (9, 5, 30, 3000),
        (30, 20, 99, 2064),
        (64, 66, 2200, 17024),
    ],
)
def test_all_shapes_equal_the_dense_product(
    num_src: int, num_dst: int, edges: int, columns: int, weighted: bool, threads: int
) -> None:
    torch.set_num_threads(threads)
    relation = skewed_relation(num_src, num_dst, edges, weighted)
    matrix = dense_matrix(relation)
    x = torch.randn(num_src, columns, dtype=torch.float64, requires_grad=True)
    y = spmm_tiled(relation, x, weighted)
    assert (y[-1] == 0).all()
    torch.testing.assert_close(y.detach(), matrix @ x.detach(), atol=1e-11, rtol=1e-12)
    upstream = torch.randn_like(y)
    y.backward(upstream)
    torch.testing.assert_close(x.grad, matrix.T @ upstream, atol=1e-11, rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("columns", [64, 100])
def test_the_bits_do_not_depend_on_the_number_of_threads(dtype: torch.dtype, columns: int) -> None:
    relation = skewed_relation(300, 200, 20_000, weighted=True).to(dtype)
    x = torch.randn(300, columns).to(dtype)
    results = []
    for threads in (1, 2, 3, 2, 1):
        torch.set_num_threads(threads)
        results.append(spmm_tiled(relation, x, weighted=True))
    assert all(torch.equal(result, results[0]) for result in results)


def test_more_than_65536_nodes() -> None:
    src, dst = torch.tensor([0, 65_535, 65_536, 69_999]), torch.tensor([65_537, 2, 69_998, 2])
    relation = ResidentRelation(("gene", "wide", "gene"), src, dst, 70_000, 70_001)
    x = torch.randn(70_000, 3, dtype=torch.float64, requires_grad=True)
    y = spmm_tiled(relation, x, weighted=False)
    expected = torch.zeros(70_001, 3, dtype=torch.float64).index_add(0, dst, x.detach()[src])
    assert torch.equal(y, expected)
    upstream = torch.randn_like(y)
    y.backward(upstream)
    assert x.grad is not None
    assert torch.equal(x.grad, torch.zeros_like(x).index_add(0, src, upstream[dst]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("columns", [1, 64, 100])
def test_half_precision_is_the_float32_sum_rounded_once(dtype: torch.dtype, columns: int) -> None:
    relation = skewed_relation(50, 40, 3000, weighted=True).float()
    x = torch.randn(50, columns).to(dtype)
    assert torch.equal(spmm_tiled(relation, x, weighted=True), spmm_tiled(relation, x.float(), weighted=True).to(dtype))


def test_bfloat16_is_rounded_as_torch_does() -> None:
    """One edge each, doubled: halfway cases, subnormal, largest, infinite and not-a-number sums of two."""
    relation = ResidentRelation(("a", "b", "c"), torch.tensor([0, 1]), torch.tensor([0, 0]), 2, 1)
    values = torch.arange(1 << 16, dtype=torch.int32).to(torch.uint16).view(torch.bfloat16)
    x = torch.stack([values, values[torch.randperm(1 << 16)]])
    expected = (x[0].float() + x[1].float()).bfloat16()
    assert torch.equal(spmm_tiled(relation, x, weighted=False).nan_to_num(7.0), expected.nan_to_num(7.0)[None])
    assert torch.equal(spmm_tiled(relation, x, weighted=False).isnan(), expected.isnan()[None])


def test_the_package_is_imported_without_numba() -> None:
    script = "import dglcell.cli, dglcell.kernels.spmm, sys; assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_code_that_cannot_be_cached_is_compiled_all_the_same() -> None:
    namespace: dict[str, Any] = {}
    exec("def double(x): return 2 * x", namespace)  # comes from no file, as in a place where nothing can be written
    assert jit(namespace["double"])(21) == 42

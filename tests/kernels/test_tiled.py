"""Blocks, tiles, threads, small integers and half precision of the ``tiled`` kernel; sums against a dense product."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dglcell.graph.resident_graph import ResidentRelation
from dglcell.kernels.loops_numba import jit
from dglcell.kernels.rows import run_tasks
from dglcell.kernels.spmm import spmm


def spmm_tiled(relation: ResidentRelation, x: Tensor, weighted: bool) -> Tensor:
    return spmm(relation, x, weighted=weighted, kernel="tiled")


def skewed_relation(num_src: int, num_dst: int, edges: int, weighted: bool) -> ResidentRelation:
    """Return a relation in which one node receives half of the edges and the last one none."""
    rng = np.random.default_rng(0)
    dst = np.where(rng.random(edges) < 0.5, 0, rng.integers(0, num_dst - 1, edges))
    weight = torch.as_tensor(rng.normal(size=edges)) if weighted else None
    src = torch.as_tensor(rng.integers(0, num_src, edges))
    return ResidentRelation(("gene", "random", "gene"), src, torch.as_tensor(dst), num_src, num_dst, weight)


# The last but one is wide enough for several blocks without tiles, the last outgrows the cache and has many edges.
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("num_src", "num_dst", "edges", "columns"),
    [
        (50, 40, 600, 1), (50, 40, 600, 64), (50, 40, 9000, 131), (9, 5, 30, 3000), (30, 20, 99, 2064),
        (64, 66, 2200, 17024),
    ],
)  # fmt: skip
def test_all_shapes_equal_the_dense_product(
    num_src: int, num_dst: int, edges: int, columns: int, weighted: bool, threads: int
) -> None:
    torch.set_num_threads(threads)
    relation = skewed_relation(num_src, num_dst, edges, weighted)
    matrix = relation.csr(torch.float64, weighted=weighted, transposed=False).to_dense()
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


def test_the_package_is_imported_without_numba() -> None:
    script = "import dglcell.cli, dglcell.kernels.spmm, sys; assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_code_that_cannot_be_cached_is_compiled_all_the_same() -> None:
    namespace: dict[str, Any] = {}
    exec("def double(x): return 2 * x", namespace)  # comes from no file, as in a place where nothing can be written
    assert jit(namespace["double"])(21) == 42


def squares(number: int) -> list[int]:
    results = [-1] * number

    def square(i: int) -> None:
        assert results[i] == -1
        results[i] = i * i

    run_tasks(square, [(i,) for i in range(number)])
    return results


def test_every_task_runs_once_on_as_many_threads_as_torch_uses() -> None:
    for threads in (1, 4, 3):
        torch.set_num_threads(threads)
        assert all(squares(number) == [i * i for i in range(number)] for number in (0, 1, 2, 100))
        all_there = threading.Barrier(threads)
        run_tasks(all_there.wait, [(20,)] * threads)
        assert not all_there.broken


@pytest.mark.parametrize("threads", [1, 2])
def test_a_failure_reaches_the_caller(threads: int) -> None:
    torch.set_num_threads(threads)

    def fail_at_once(i: int) -> None:
        if i == 0:
            raise ValueError("task 0 failed")

    with pytest.raises(ValueError, match="task 0 failed"):
        run_tasks(fail_at_once, [(i,) for i in range(50)])
    assert squares(10) == [i * i for i in range(10)]


def test_a_child_forked_after_use_has_threads_of_its_own() -> None:
    torch.set_num_threads(2)
    squares(10)  # the parent's pool, whose threads do not exist in the child
    child = os.fork()
    if child == 0:
        status = 1
        try:
            both_there = threading.Barrier(2)
            run_tasks(both_there.wait, [(20,), (20,)])
            status = 0 if squares(10) == [i * i for i in range(10)] else 2
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0

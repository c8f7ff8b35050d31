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
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dglcell.graph.resident_graph import ResidentRelation
from dglcell.kernels import pair_error as module
from dglcell.kernels.loops_numba import jit
from dglcell.kernels.pair_error import pair_error
from dglcell.kernels.rows import run_tasks
from dglcell.kernels.spmm import KERNELS
from tests.examples import examples

spmm_tiled = KERNELS["tiled"]


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


def make_edges(rng: np.random.Generator, sizes: tuple[int, int], share: float) -> ResidentRelation:
    """Distinct pairs, self-loops among them; the last node may have no edge."""
    src, dst = np.nonzero(rng.random(sizes) < share)
    return ResidentRelation(("gene", "random", "gene"), torch.as_tensor(src), torch.as_tensor(dst), *sizes)


def make_factors(rng: np.random.Generator, sizes: tuple[int, int]) -> list[Tensor]:
    shapes = (sizes[0], 8), (sizes[1], 8), (sizes[1],)
    return [torch.as_tensor(rng.normal(size=shape)).requires_grad_() for shape in shapes]


def dense_error(edges: ResidentRelation, left: Tensor, right: Tensor, bias: Tensor, zero_weight: float) -> Tensor:
    """Return the definition, pair by pair."""
    target = torch.zeros(edges.num_src, edges.num_dst, dtype=left.dtype)
    target[edges.src, edges.dst] = 1
    squares = (left @ right.T + bias - target).square()
    return torch.where(target == 1, squares, zero_weight * squares).mean()


@examples(13)
@given(
    sizes=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    share=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    zero_weight=st.sampled_from([0.0, 0.1, 1.0, 2.5]),
    seed=st.integers(0, 2**32 - 1),
)
def test_error_and_gradients_equal_those_of_dense_matrices(
    sizes: tuple[int, int], share: float, zero_weight: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    edges = make_edges(rng, sizes, share)
    factors = make_factors(rng, sizes)
    expected = dense_error(edges, *factors, zero_weight)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_EDGES", 7)
        got = pair_error(edges, *factors, zero_weight)
    torch.testing.assert_close(got, expected, atol=1e-10, rtol=1e-10)
    given_gradients = torch.autograd.grad(3 * got, factors)
    for gradient, right in zip(given_gradients, torch.autograd.grad(3 * expected, factors), strict=True):
        torch.testing.assert_close(gradient, right, atol=1e-10, rtol=1e-10)


def nearly_perfect(dtype: torch.dtype) -> tuple[ResidentRelation, list[Tensor]]:
    """Return two cliques of 300 genes, guessed to 1 %: nearly all of the sum of squares over all pairs is edges."""
    generator = torch.Generator().manual_seed(0)
    clique = torch.arange(600) // 300
    src, dst = (clique.unsqueeze(0) == clique.unsqueeze(1)).nonzero().unbind(1)
    edges = ResidentRelation(("gene", "cliques", "gene"), src, dst, 600, 600)
    left, right = (torch.nn.functional.one_hot(clique, 2).double() for _ in range(2))
    noise = [0.01 * torch.randn(x.shape, generator=generator, dtype=torch.float64) for x in (left, right, left[:, 0])]
    factors = [left + noise[0], right + noise[1], noise[2]]
    return edges, [x.to(dtype).requires_grad_() for x in factors]


def test_single_precision_survives_that_edges_are_subtracted_from_all_pairs() -> None:
    edges, factors = nearly_perfect(torch.float32)
    got = pair_error(edges, *factors, 1.0)
    exact = [x.detach().double().requires_grad_() for x in factors]
    expected = dense_error(edges, *exact, 1.0)
    # The squares of all pairs are a thousand times the error, so float32 may lose three of its seven digits.
    assert float(got.detach()) == pytest.approx(float(expected.detach()), rel=3e-5)
    pairs = zip(torch.autograd.grad(got, factors), torch.autograd.grad(expected, exact), strict=True)
    for gradient, right in pairs:
        assert gradient.dtype == torch.float32
        assert (gradient - right).norm() < 1e-4 * right.norm()


def test_half_precision_is_computed_in_single_precision_also_under_autocast() -> None:
    edges, factors = nearly_perfect(torch.float32)
    rounded = factors[0].detach().bfloat16().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = pair_error(edges, rounded, *factors[1:], 1.0)
    got.backward()
    assert (got.dtype, rounded.grad.dtype) == (torch.float32, torch.bfloat16)
    expected = pair_error(edges, rounded.detach().float(), *factors[1:], 1.0)
    torch.testing.assert_close(got, expected, atol=0.0, rtol=1e-6)

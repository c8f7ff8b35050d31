"""Every kernel against a dense product, forward and backward, and products over single rows against loops."""

from __future__ import annotations

import copy
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dglcell.errors import ConfigError, MissingDependencyError
from dglcell.graph.resident_graph import ResidentRelation
from dglcell.kernels import spmm as spmm_module
from dglcell.kernels.loops_numba import jit
from dglcell.kernels.rows import RowIndex, mark, pull, push, run_tasks, sum_rows
from dglcell.kernels.spmm import KERNELS, check_kernel, default_kernel, kernels_on, spmm, triton_works
from tests.examples import examples
from tests.gpu.devices import ExplicitDevices, needs_gpu

ON_CPUS = kernels_on("cpu")


@pytest.fixture(autouse=True)
def same_threads_afterwards() -> Iterator[None]:
    """Give the number of threads back that a test changes."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def random_relation(
    seed: int, weighted: bool, dtype: torch.dtype = torch.float64
) -> tuple[ResidentRelation, torch.Tensor]:
    """Return a relation with multi-edges and isolated nodes, and its dense adjacency [M, N] in float64."""
    rng = np.random.default_rng(seed)
    num_src, num_dst, edges = (int(rng.integers(*ends)) for ends in ((1, 9), (1, 9), (0, 40)))
    src, dst = (torch.as_tensor(rng.integers(0, number, edges)) for number in (num_src, num_dst))
    weight = torch.as_tensor(rng.normal(size=edges)).to(dtype).double() if weighted else None
    ones = torch.ones(edges, dtype=torch.float64)
    dense = torch.zeros(num_dst, num_src, dtype=torch.float64)
    dense.index_put_((dst, src), ones if weight is None else weight, accumulate=True)
    kept = None if weight is None else weight.to(torch.promote_types(dtype, torch.float32))
    return ResidentRelation(("gene", "random", "gene"), src, dst, num_src, num_dst, kept), dense


# Absolute errors of sums of about 20 products of order one.
TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-4, torch.bfloat16: 0.2}


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize(
    ("device", "kernel"),
    [
        *itertools.product(["cpu"], ["auto", *ON_CPUS]),
        *(pytest.param("cuda", kernel, marks=needs_gpu) for kernel in ("auto", *KERNELS) if kernel != "tiled"),
    ],
)
@examples(10)
@given(
    seed=st.integers(0, 2**32 - 1), weighted=st.booleans(), read=st.booleans(), columns=st.integers(1, 33),
    autocast=st.booleans(),
)  # fmt: skip
def test_a_kernel_equals_the_dense_product(
    device: str, kernel: str, dtype: torch.dtype, seed: int, weighted: bool, read: bool, columns: int, autocast: bool
) -> None:
    """Forward and backward, with multi-edges and isolated nodes; no tensor is made on another device.

    Weights may be left out, and a layer may run under ``torch.autocast``.
    """
    relation, dense = random_relation(seed, weighted, dtype)
    if not read:
        dense = copy.deepcopy(relation).csr(torch.float64, weighted=False, transposed=False).to_dense()
    x, upstream = (torch.randn(len(ends), columns).to(dtype) for ends in (dense.T, dense))
    leaf = x.to(device).requires_grad_()
    relation.to(device)
    with ExplicitDevices(), torch.autocast(device, torch.bfloat16, enabled=autocast):
        y = spmm(relation, leaf, weighted=read, kernel=kernel)
    limit = {"atol": TOLERANCES[dtype], "rtol": 2e-2 if dtype == torch.bfloat16 else 0.0}
    assert (y.device.type, y.dtype) == (device, dtype)
    torch.testing.assert_close(y.detach().cpu().double(), dense @ x.double(), **limit)
    if y.requires_grad:
        y.backward(upstream.to(device))
        assert leaf.grad is not None
        assert leaf.grad.dtype == dtype
        torch.testing.assert_close(leaf.grad.cpu().double(), dense.T @ upstream.double(), **limit)


@needs_gpu
def test_triton_equals_torch_on_this_gpu() -> None:
    assert triton_works.__wrapped__("cuda")
    for kernel in kernels_on("cuda"):
        check_kernel(kernel, "cuda")


def test_a_relation_can_be_copied_after_its_use() -> None:
    relation, dense = random_relation(3, weighted=True)
    x = torch.randn(relation.num_src, 2, dtype=torch.float64)
    for kernel in ON_CPUS:
        spmm(relation, x, kernel=kernel)
        torch.testing.assert_close(spmm(copy.deepcopy(relation), x, kernel=kernel), dense @ x)


@pytest.mark.parametrize("works", [True, False])
def test_auto_is_tiled_on_cpus_and_triton_on_gpus_where_it_works(works: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spmm_module, "triton_works", lambda device_type: works)
    assert default_kernel("cpu") == "tiled"
    assert default_kernel("cuda") == ("triton" if works else "csr")


def test_triton_is_tried_with_tensors_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spmm_module, "triton_runs_on", lambda device_type: True)
    monkeypatch.setitem(spmm_module.KERNELS, "triton", spmm_module.KERNELS["tiled"])
    with ExplicitDevices():
        assert triton_works.__wrapped__("cpu")
    with torch.inference_mode():
        assert triton_works.__wrapped__("cpu"), "a prediction may be the first to ask"


@pytest.mark.parametrize("fault", [RuntimeError("Failed to find C compiler"), 1.001])
def test_triton_that_fails_its_first_product_is_not_taken(
    fault: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    right = spmm_module.KERNELS["csr"]

    def product(*arguments: Any) -> Any:
        if isinstance(fault, Exception):
            raise fault
        return fault * right(*arguments)

    monkeypatch.setattr(spmm_module, "triton_runs_on", lambda device_type: True)
    monkeypatch.setitem(spmm_module.KERNELS, "triton", product)
    assert not triton_works.__wrapped__("cpu")
    assert "Triton does not work on this machine" in caplog.text
    assert ("C compiler" if isinstance(fault, Exception) else "a sum in float32 differs") in caplog.text


@pytest.mark.parametrize(
    ("kernel", "device", "message"),
    [
        ("tiled", "cuda", r"kernel 'tiled' does not run on cuda\n.*auto, csr\n.*set `kernel: auto`, or run on a CPU"),
        ("triton", "cpu", r"kernel 'triton' does not run on cpu\n.*\n.*set `kernel: auto`, or run on a GPU"),
        ("triton", "cuda", r"kernel 'triton' asked for, but Triton is not installed\n.*install torch's CUDA wheel"),
    ],
)
def test_a_kernel_that_does_not_run_says_what_to_do(
    kernel: str, device: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spmm_module, "triton_runs_on", lambda device_type: False)
    with pytest.raises((ConfigError, MissingDependencyError), match=message):
        check_kernel(kernel, device)


# Blocks, tiles, threads and small integers of the ``tiled`` kernel.


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
    y = spmm(relation, x, kernel="tiled")
    assert (y[-1] == 0).all()
    torch.testing.assert_close(y.detach(), matrix @ x.detach(), atol=1e-11, rtol=1e-12)
    upstream = torch.randn_like(y)
    y.backward(upstream)
    torch.testing.assert_close(x.grad, matrix.T @ upstream, atol=1e-11, rtol=1e-12)


def assert_the_same_bits(results: Callable[[], list[torch.Tensor]]) -> None:
    """For any number of threads."""
    torch.set_num_threads(1)
    first = results()
    for threads in (2, 3, 2, 1):
        torch.set_num_threads(threads)
        assert all(map(torch.equal, first, results()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("columns", [64, 100])
def test_the_bits_do_not_depend_on_the_number_of_threads(dtype: torch.dtype, columns: int) -> None:
    relation = skewed_relation(300, 200, 20_000, weighted=True).to(dtype)
    x = torch.randn(300, columns).to(dtype)
    assert_the_same_bits(lambda: [spmm(relation, x, kernel="tiled")])


def test_more_than_65536_nodes() -> None:
    src, dst = torch.tensor([0, 65_535, 65_536, 69_999]), torch.tensor([65_537, 2, 69_998, 2])
    relation = ResidentRelation(("gene", "wide", "gene"), src, dst, 70_000, 70_001)
    x = torch.randn(70_000, 3, dtype=torch.float64, requires_grad=True)
    y = spmm(relation, x, kernel="tiled")
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


EXACT = {"atol": 1e-12, "rtol": 1e-12}
WIDTHS = st.sampled_from([1, 3, 32, 64, 96])


def listed(index: RowIndex) -> Iterator[tuple[int, int]]:
    return zip(index.nodes.tolist(), index.strains.tolist(), strict=True)


class Case:
    """A random relation with multi-edges and hubs, and pairs at both of its ends."""

    def __init__(self, seed: int, *, weighted: bool) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        rng = np.random.default_rng(seed)
        self.relation, self.B = random_relation(seed, weighted)[0], int(rng.integers(1, 9))
        self.N, self.M = self.relation.num_src, self.relation.num_dst
        share = float(rng.choice([0.0, 0.3, 1.0]))
        self.sources = RowIndex(torch.rand(self.N, self.B, generator=self.generator) < share)
        self.targets = RowIndex(torch.rand(self.M, self.B, generator=self.generator) < 0.6)

    def values(self, *shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=self.generator)

    def positions(self, number: int, count: int) -> Tensor:
        """[number, B] int32 rows below ``count``, some of them negative."""
        return torch.randint(-2, count, (number, self.B), generator=self.generator, dtype=torch.int32)

    def edges(self, reverse: bool) -> Iterator[tuple[int, int, float]]:
        """Own end, other end and weight of every edge."""
        edges = self.relation
        weight = torch.ones(edges.num_edges) if edges.weight is None else edges.weight
        ends = (edges.src, edges.dst) if reverse else (edges.dst, edges.src)
        return zip(ends[0].tolist(), ends[1].tolist(), weight.tolist(), strict=True)


@examples(30)
@given(seed=st.integers(0, 2**32 - 1), weighted=st.booleans())
def test_marks_are_at_the_ends_of_edges_and_where_they_were(seed: int, weighted: bool) -> None:
    case = Case(seed, weighted=weighted)
    mask_MB = torch.rand(case.M, case.B, generator=case.generator) < 0.2
    expected = mask_MB.clone()
    for node, strain in listed(case.sources):
        for own, other, _ in case.edges(reverse=True):
            if own == node:
                expected[other, strain] = True
    mark(case.relation, case.sources, mask_MB)
    assert torch.equal(mask_MB, expected)


@examples(30)
@given(seed=st.integers(0, 2**32 - 1), weighted=st.booleans(), reverse=st.booleans(), width=WIDTHS)
def test_pull_adds_what_is_at_the_other_ends(seed: int, weighted: bool, reverse: bool, width: int) -> None:
    case = Case(seed, weighted=weighted)
    mine, others = (case.sources, case.N), (case.targets, case.M)
    index, number = (mine[0], others[1]) if reverse else (others[0], mine[1])
    source = case.values(11, width)
    table, out = case.positions(number, len(source)), case.values(len(index), width)
    expected = out.clone()
    for i, (node, strain) in enumerate(listed(index)):
        for own, other, weight in case.edges(reverse):
            row = int(table[other, strain])
            if own == node and row >= 0:
                expected[i] += weight * source[row]
    pull(case.relation, index, table, source, out, reverse=reverse)
    torch.testing.assert_close(out, expected, **EXACT)


@examples(30)
@given(seed=st.integers(0, 2**32 - 1), weighted=st.booleans(), share=st.sampled_from([0.0, 0.5, 1.0]), width=WIDTHS)
def test_push_adds_to_what_is_at_the_other_ends(seed: int, weighted: bool, share: float, width: int) -> None:
    case = Case(seed, weighted=weighted)
    index, generator = case.sources, torch.Generator().manual_seed(seed)
    there = RowIndex(torch.rand(case.M, case.B, generator=generator) < share)
    source, out = case.values(len(index) + 1, width), case.values(len(there), width)
    expected = out.clone()
    for i, (node, strain) in enumerate(listed(index)):
        for own, other, weight in case.edges(reverse=True):
            row = int(there.table[other, strain])
            if own == node and row >= 0:
                expected[row] += weight * source[i]
    push(case.relation, index, there.table, source, out)
    torch.testing.assert_close(out, expected, **EXACT)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_are_taken_in_the_precision_of_the_result(dtype: torch.dtype, weighted: bool) -> None:
    """300 ones, of which bfloat16 would lose all beyond 256."""
    E = 300
    many, one = torch.arange(E), torch.zeros(E, dtype=torch.int64)
    weight = torch.ones(E) if weighted else None
    relation = ResidentRelation(("a", "b", "c"), many, one, E, 1, weight)
    source, single = torch.ones(E, 3, dtype=dtype), torch.ones(1, 1, dtype=torch.int32) - 1
    outs = [torch.zeros(1, 3) for _ in range(2)]
    pull(
        relation, RowIndex(torch.ones(1, 1, dtype=torch.bool)), many.int().unsqueeze(1), source, outs[0], reverse=False
    )
    push(relation, RowIndex(torch.ones(E, 1, dtype=torch.bool)), single, source, outs[1])
    assert [out.tolist() for out in (*outs, sum_rows(source, one, 1))] == [[[E] * 3]] * 3


def test_results_are_the_same_for_any_number_of_threads() -> None:
    generator = torch.Generator().manual_seed(0)
    N, B, E, width = 300, 6, 5000, 64
    ends = torch.randint(0, N, (2, E), generator=generator)
    relation = ResidentRelation(("a", "b", "c"), *ends, N, N, torch.randn(E, generator=generator))
    index = RowIndex(torch.rand(N, B, generator=generator) < 0.5)
    every = RowIndex(torch.ones(N, B, dtype=torch.bool))
    source = torch.randn(len(every), width, generator=generator)

    def results() -> list[Tensor]:
        pulled, pushed = torch.zeros(len(index), width), torch.zeros(len(every), width)
        pull(relation, index, every.table, source, pulled, reverse=True)
        push(relation, index, every.table, source, pushed)
        where = torch.randint(0, 11, (5000,), generator=torch.Generator().manual_seed(1))
        return [pulled, pushed, sum_rows(source[where * 100], where, 11)]

    assert_the_same_bits(results)

"""Every kernel against a dense product, forward and backward."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dglcell.errors import ConfigError, MissingDependencyError
from dglcell.graph.resident_graph import ResidentRelation
from dglcell.kernels import spmm as spmm_module
from dglcell.kernels.spmm import KERNELS, check_kernel, default_kernel, kernels_on, spmm, triton_works
from tests.examples import examples
from tests.gpu.devices import ExplicitDevices, needs_gpu

ON_CPUS = kernels_on("cpu")


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
@given(seed=st.integers(0, 2**32 - 1), weighted=st.booleans(), columns=st.integers(1, 33))
def test_a_kernel_equals_the_dense_product(
    device: str, kernel: str, dtype: torch.dtype, seed: int, weighted: bool, columns: int
) -> None:
    """Forward and backward, with multi-edges and isolated nodes; no tensor is made on another device."""
    relation, dense = random_relation(seed, weighted, dtype)
    x, upstream = (torch.randn(len(ends), columns).to(dtype) for ends in (dense.T, dense))
    leaf = x.to(device).requires_grad_()
    relation.to(device)
    with ExplicitDevices():
        y = spmm(relation, leaf, kernel=kernel)
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


@pytest.mark.parametrize("kernel", ON_CPUS)
def test_weights_can_be_left_out(kernel: str) -> None:
    relation = ResidentRelation(
        ("gene", "weighted", "gene"), torch.tensor([0, 1]), torch.tensor([0, 0]), 2, 1, torch.tensor([2.0, -5.0])
    )
    x = torch.tensor([[1.0], [10.0]])
    assert spmm(relation, x, kernel=kernel).item() == 2.0 - 50.0
    assert spmm(relation, x, weighted=False, kernel=kernel).item() == 11.0


def test_a_relation_can_be_copied_after_its_use() -> None:
    relation, dense = random_relation(3, weighted=True)
    x = torch.randn(relation.num_src, 2, dtype=torch.float64)
    for kernel in ON_CPUS:
        spmm(relation, x, kernel=kernel)
        torch.testing.assert_close(spmm(copy.deepcopy(relation), x, kernel=kernel), dense @ x)


@pytest.mark.parametrize("works", [True, False])
def test_auto_takes_tiled_on_a_cpu_and_triton_on_a_gpu_where_it_works(
    works: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kernel", ON_CPUS)
def test_half_precision_under_autocast(kernel: str, weighted: bool) -> None:
    relation, dense = random_relation(3, weighted)
    relation.float()
    x = torch.randn(relation.num_src, 2).bfloat16().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        y = spmm(relation, x, kernel=kernel)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), dense.float() @ x.float(), atol=0.1, rtol=0.02)
    y.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad.float(), dense.float().sum(0)[:, None].expand(-1, 2), atol=0.1, rtol=0.02)

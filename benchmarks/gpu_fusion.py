"""Find what torch's compiler launches on a GPU, and which bytes that moves, on a machine without a GPU.

What ``torch.compile`` traces is lowered and fused as for an H200. It is neither translated nor run there: it runs in
plain torch on the CPU. This reads the compiler's own data and may have to follow it from version to version.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import Tensor, fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor import scheduler
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.graph import GraphLowering
from torch._inductor.runtime.hints import DeviceProperties
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from dglcell.perturbation.curves import allow_compilation

H200 = DeviceProperties(
    type="cuda",
    index=0,
    multi_processor_count=132,
    cc=90,
    major=9,
    regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048,
    warp_size=32,
)
CPU = DeviceProperties(type="cpu", index=0, multi_processor_count=1, cc=0)


@dataclass(frozen=True)
class Fused:
    """These are the costs of one graph, forward or backward.

    Attributes:
        launches: number of kernels, matrix products of a library among them.
        bytes: bytes that they read and write.
    """

    launches: int
    bytes: int


def compiled(function: Callable[..., Any], seen: list[Fused]) -> Callable[..., Any]:
    """Compile the function with ``torch.compile``; every graph, forward and backward, is noted in ``seen``."""

    def noted(graph: fx.GraphModule, inputs: Sequence[Any]) -> Any:
        seen.append(fused(copy.deepcopy(graph), inputs))
        return make_boxed_func(graph.forward)

    partition = functools.partial(min_cut_rematerialization_partition, compiler="inductor")
    decompositions = select_decomp_table()
    allow_compilation()
    return torch.compile(
        function, backend=aot_autograd(fw_compiler=noted, partition_fn=partition, decompositions=decompositions)
    )


def fused(graph: fx.GraphModule, inputs: Sequence[Any]) -> Fused:
    """Return what a graph of torch's operators on a CPU becomes on a GPU.

    Args:
        graph: the graph, which is changed.
        inputs: numbers, and tensors of which shapes and types are read.
    """
    mode = FakeTensorMode()
    with _as_if_there_was_a_gpu(), mode:
        there = [_on_gpu(x) for x in inputs]
        for node in graph.graph.nodes:
            if "device" in node.kwargs:
                node.kwargs = {**node.kwargs, "device": torch.device("cuda", 0)}
        graph.recompile()
        FakeTensorProp(graph, mode).propagate_dont_convert_inputs(*there)
        lowering = GraphLowering(graph, example_inputs=there)
        with V.set_graph_handler(lowering), V.set_fake_mode(mode), V.set_debug_handler(mock.MagicMock()):
            lowering.run(*there)
            lowering._update_scheduler()
            return Fused(len(lowering.scheduler.nodes), lowering.count_bytes()[0])


def _on_gpu(x: Any) -> Any:
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="cuda") if isinstance(x, Tensor) else x


@contextmanager
def _as_if_there_was_a_gpu() -> Iterator[None]:
    def properties(device: torch.device) -> DeviceProperties:
        return H200 if device.type == "cuda" else CPU

    with ExitStack() as stack:
        for owner, name, value in (
            (DeviceProperties, "create", properties),
            (scheduler, "has_triton", lambda: True),
            (torch.cuda, "is_available", lambda: True),
            (torch.cuda, "current_device", lambda: 0),
            (torch.cuda, "get_device_capability", lambda device=None: (9, 0)),
        ):
            stack.enter_context(mock.patch.object(owner, name, value))
        yield

"""One sparse product, several kernels: ``y[v] = Σ over edges (u → v) of w · x[u]``."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import dgl
import torch
from torch import Tensor

from dglcell.errors import ConfigError, MissingDependencyError
from dglcell.graph.resident import ResidentRelation
from dglcell.kernels.csr import spmm_csr
from dglcell.kernels.dense import spmm_dense
from dglcell.kernels.dgl_spmm import spmm_dgl
from dglcell.kernels.reference import spmm_reference
from dglcell.kernels.tiled import spmm_tiled

Kernel = Callable[[ResidentRelation, Tensor, bool], Tensor]

KERNELS: dict[str, Kernel] = {
    "reference": spmm_reference,
    "dgl": spmm_dgl,
    "csr": spmm_csr,
    "tiled": spmm_tiled,
    "dense": spmm_dense,
}


@cache
def dgl_runs_on(device_type: str) -> bool:
    """Whether this DGL build has kernels for ``device_type``."""
    if device_type == "cpu":
        return True
    if not torch.cuda.is_available():
        return False
    try:
        dgl.graph(([0], [0])).to(device_type)
    except dgl.DGLError:
        return False
    return True


def runs_on(kernel: str, device_type: str) -> bool:
    """Whether ``kernel`` can be used on ``device_type``."""
    if kernel == "dgl":
        return dgl_runs_on(device_type)
    return kernel != "tiled" or device_type == "cpu"


def check_kernel(kernel: str, device_type: str) -> None:
    """Refuse a kernel that does not exist or does not run on this device.

    Raises:
        ConfigError: no kernel has this name, or this one is for another device.
        MissingDependencyError: this DGL build lacks the device.
    """
    if kernel != "auto" and kernel not in KERNELS:
        raise ConfigError("unknown kernel", got=kernel, expected=", ".join(["auto", *KERNELS]), do="set `kernel:`")
    if kernel == "auto" or runs_on(kernel, device_type):
        return
    if kernel == "dgl":
        raise MissingDependencyError(
            f"kernel 'dgl' asked for, but DGL {dgl.__version__} was built without {device_type} support",
            do="install DGL's CUDA wheel (https://www.dgl.ai/pages/start.html), or set `kernel: csr` or `kernel: auto`",
        )
    raise ConfigError(
        f"kernel {kernel!r} does not run on {device_type}",
        expected=", ".join(["auto", *(name for name in KERNELS if runs_on(name, device_type))]),
        do="set `kernel: auto`, or run on a CPU",
    )


def choose_kernel(relation: ResidentRelation, device_type: str, columns: int) -> str:
    """The kernel that ``auto`` takes for a product: what was found to be the fastest, where that was looked for.

    Otherwise: on a CPU ``tiled`` is about as fast as DGL's unweighted product for a few hundred columns, twice as fast
    for thousands and five times in float64; of the weighted products it is the fastest by far.
    """
    if relation.preferred:
        nearest = min(relation.preferred, key=lambda known: abs(math.log(known / max(columns, 1))))
        return relation.preferred[nearest]
    return "tiled" if device_type == "cpu" else "csr"


def spmm(relation: ResidentRelation, x_NC: Tensor, *, weighted: bool = True, kernel: str = "auto") -> Tensor:
    """Sum the rows of ``x`` over the in-edges of every destination node; differentiable in ``x``.

    Args:
        relation: E edges from N source to M destination nodes.
        x_NC: [N, C] source rows; C is any number of columns, e.g. strains × width.
        weighted: multiply by the relation's fixed edge weights, where it has them.
        kernel: a key of ``KERNELS``, or ``auto``.

    Returns:
        [M, C]; zero for nodes without in-edges.
    """
    if kernel == "auto":
        kernel = choose_kernel(relation, x_NC.device.type, x_NC.shape[1])
    if relation.num_edges == 0:
        return torch.zeros(relation.num_dst, x_NC.shape[1], dtype=x_NC.dtype, device=x_NC.device)
    return KERNELS[kernel](relation, x_NC, weighted and relation.weight is not None)

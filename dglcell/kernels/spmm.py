"""Compute sparse products over the edges of a relation, in every available way, and choose one."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import cache, partial
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from dglcell.errors import ConfigError, MissingDependencyError
from dglcell.graph.resident_graph import ResidentRelation
from dglcell.kernels import KERNEL_NAMES, triton_products
from dglcell.kernels.rows import run_tasks

log = logging.getLogger("dglcell")


Product = Callable[[ResidentRelation, Tensor, bool, bool], Tensor]
"""A kernel's product of (relation, x, weighted, transposed) is A x, or Aᵀ x where ``transposed``."""


class _ConstantProduct(torch.autograd.Function):
    """Compute A x forward and Aᵀ g backward; A is constant."""

    @staticmethod
    def forward(ctx: Any, x_NC: Tensor, relation: ResidentRelation, weighted: bool, product: Product) -> Tensor:
        ctx.relation, ctx.weighted, ctx.product = relation, weighted, product
        return product(relation, x_NC, weighted, False)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_MC: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.product(ctx.relation, grad_MC, ctx.weighted, True), None, None, None


def _csr(relation: ResidentRelation, x: Tensor, weighted: bool, transposed: bool) -> Tensor:
    """Compute a sparse matrix product by MKL, in float32 at least, or by cuSPARSE."""
    # MKL has no half precisions; cuSPARSE sums their products in float32.
    dtype = torch.promote_types(x.dtype, torch.float32) if x.device.type == "cpu" else x.dtype
    # Autocast would turn both factors into bfloat16.
    with torch.autocast(x.device.type, enabled=False):
        matrix = relation.csr(dtype, weighted=weighted, transposed=transposed)
        return (matrix @ x.to(matrix.dtype).contiguous()).to(x.dtype)


PADDING = 16
"""Columns that fill the widest vector registers."""


def _tiled(relation: ResidentRelation, x: Tensor, weighted: bool, transposed: bool) -> Tensor:
    """Compute sums in the order of the edges: the same bits for any number of threads; in float32 at least.

    Every row of ``x`` is read once per edge. With hundreds of columns ``x`` outgrows the caches and most reads go to
    memory; a block of its columns, copied to a tile of its own, does not. Small edge indices leave more of the cache to
    the tile, hence the small integers of ``ResidentRelation.compact``.
    """
    if x.dtype not in (torch.float32, torch.float64):
        return _tiled(relation, x.float(), weighted, transposed).to(x.dtype)
    x = x.contiguous()
    edges = relation.compact(x.dtype if weighted else None, transposed=transposed)
    y = x.new_empty(len(edges.starts) - 1, x.shape[1])
    outgrows_cache = x.nbytes > 8 << 20 and relation.num_edges >= 32 * len(x)
    pack = outgrows_cache or x.shape[1] % PADDING != 0
    # Bytes of a tile's row, 1.7 MB for the 6,607 genes of yeast. Else only the sums of a row stay in the first cache.
    width = (256 if pack else 8192) // x.dtype.itemsize
    starts, weights = edges.starts.numpy(), None if edges.weights is None else edges.weights.numpy()
    sum_part = partial(_sum_part, x.numpy(), starts, edges.neighbours.numpy(), weights, y.numpy(), pack)
    small = relation.num_edges * x.shape[1] < 1 << 18  # so many additions take less time than waking another thread
    run_tasks(sum_part, _parts(starts, x.shape[1], width, 1 if small else torch.get_num_threads()), alone=small)
    return y


def _parts(starts: NDArray[np.int64], columns: int, width: int, threads: int) -> list[tuple[slice, slice]]:
    """Return blocks of columns and rows, which are cut into ranges of as many edges where the threads need more."""
    blocks = [slice(column, min(column + width, columns)) for column in range(0, columns, width)]
    ranges = -(-2 * threads // max(len(blocks), 1)) if threads > 1 else 1
    # An empty row is work too, because zeros are written.
    work = starts + np.arange(len(starts))
    bounds = np.searchsorted(work, np.linspace(0, work[-1], ranges + 1)).tolist()
    rows = [slice(first, last) for first, last in pairwise(bounds) if first < last]
    return [(block, part) for block in blocks for part in rows]


def _sum_part(
    x: NDArray[np.generic], starts: NDArray[np.int64], neighbours: NDArray[np.generic],
    weights: NDArray[np.generic] | None, y: NDArray[np.generic], pack: bool, columns: slice, rows: slice,
) -> None:  # fmt: skip
    """Write ``y[rows, columns]``."""
    # Imported here: numba is slow to import, and commands that compute nothing should not wait for it.
    from dglcell.kernels import loops_numba as compiled

    column, width = columns.start, columns.stop - columns.start
    offset = column
    if pack:
        tile = np.empty((len(x), -(-width // PADDING) * PADDING), x.dtype)
        tile[:, :width], tile[:, width:] = x[:, columns], 0
        x, width, offset = tile, tile.shape[1], 0
    starts = starts[rows.start : rows.stop + 1]
    compiled.sum_rows(x.reshape(-1), x.shape[1], offset, width, starts, neighbours, weights, y[rows], column)


def _triton(relation: ResidentRelation, x: Tensor, weighted: bool, transposed: bool) -> Tensor:
    """Compute sums in Triton's loops, in the order of the edges: the same bits every time."""
    columns = x.contiguous().unsqueeze(1)
    return triton_products.product(relation, columns, weighted=weighted, transposed=transposed).squeeze(1)


KERNELS: dict[str, Product] = dict(zip(KERNEL_NAMES, (_csr, _tiled, _triton), strict=True))
"""These are the ways to compute a product."""


@cache
def triton_works(device_type: str) -> bool:
    """Return whether a first product in Triton, and its gradient, equal those of torch on this machine.

    Triton needs a C compiler, and compiles for each GPU anew; where a result differs or fails, torch computes.
    """
    if not triton_runs_on(device_type):
        return False
    nodes, what = 300, ""
    number = torch.arange(4096, device=device_type)
    ends = number * 7919 % nodes, number.square() % nodes  # some nodes have many in-edges, some none
    relation = ResidentRelation(("gene", "compared", "gene"), *ends, nodes, nodes, (number % 7 + 1) / 7)
    x = torch.arange(nodes * 80, device=device_type).sin().view(nodes, -1)
    try:
        for dtype, limit in ((torch.float32, 1e-4), (torch.bfloat16, 0.05)):
            for transposed in (False, True):
                products = [KERNELS[name](relation, x.to(dtype), True, transposed) for name in ("triton", "csr")]
                found, right = (product.float() for product in products)
                if not bool(((found - right).abs().max() <= limit * right.abs().max()).cpu()):
                    what = what or f"a sum in {str(dtype)[6:]} differs"
    except Exception as error:  # compilers fail in ways of their own
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
    if what:
        log.warning("Triton does not work on this machine, so that sums use torch's sparse products: %s", what)
    return not what


@cache
def triton_runs_on(device_type: str) -> bool:
    """Return whether Triton is installed and compiles for ``device_type``; its interpreter, if on, works for all."""
    return find_spec("triton") is not None and (device_type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1")


def kernels_on(device_type: str) -> list[str]:
    """Return the kernels that can be used on a device."""
    able = {"csr": True, "tiled": device_type == "cpu", "triton": triton_runs_on(device_type)}
    return [kernel for kernel in KERNELS if able[kernel]]


def check_kernel(kernel: str, device_type: str) -> None:
    """Refuse a kernel that does not exist or does not run on this device."""
    if kernel in ("auto", *kernels_on(device_type)):
        return
    if kernel == "triton" and device_type == "cuda":
        raise MissingDependencyError(
            "kernel 'triton' asked for, but Triton is not installed",
            do="install torch's CUDA wheel, which brings it, or set `kernel: csr` or `kernel: auto`",
        )
    raise ConfigError(
        f"kernel {kernel!r} does not run on {device_type}",
        expected=", ".join(["auto", *kernels_on(device_type)]),
        do=f"set `kernel: auto`, or run on a {'GPU' if kernel == 'triton' else 'CPU'}",
    )


def default_kernel(device_type: str) -> str:
    """Return the kernel that ``auto`` takes on a device.

    On a CPU ``tiled`` is as fast as the unweighted product of DGL for a few hundred columns, and faster for more or
    with weights. On an H100 ``triton`` is about as fast as ``csr`` in float32, and faster in bfloat16.
    """
    if device_type == "cpu":
        return "tiled"
    return "triton" if triton_works(device_type) else "csr"


def spmm(relation: ResidentRelation, x_NC: Tensor, *, weighted: bool = True, kernel: str = "auto") -> Tensor:
    """Sum the rows of ``x`` over the in-edges of every destination node; differentiable in ``x``.

    The result is [M, C], zero for nodes without in-edges.

    Args:
        relation: E edges from N source to M destination nodes.
        x_NC: source rows; C is any number of columns, e.g. strains × width.
        weighted: whether to multiply by the relation's fixed edge weights, where it has them.
        kernel: a key of ``KERNELS``, or ``auto``.
    """
    if kernel == "auto":
        kernel = default_kernel(x_NC.device.type)
    if relation.num_edges == 0:
        return torch.zeros(relation.num_dst, x_NC.shape[1], dtype=x_NC.dtype, device=x_NC.device)
    out: Tensor = _ConstantProduct.apply(x_NC, relation, weighted and relation.weight is not None, KERNELS[kernel])
    return out

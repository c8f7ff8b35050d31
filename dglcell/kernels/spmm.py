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


Kernel = Callable[[ResidentRelation, Tensor, bool], Tensor]
"""A kernel returns sums over in-edges, [M, C], of (relation, x, weighted); it is differentiable in x."""

Product = Callable[[ResidentRelation, Tensor, bool, bool], Tensor]
"""A kernel's plain product of (relation, x, weighted, transposed) is A x, or Aᵀ x where ``transposed``."""


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


def _differentiable(product: Product) -> Kernel:
    """Return the kernel that sums over in-edges by ``product``; its transposed form gives the gradient."""

    def kernel(relation: ResidentRelation, x_NC: Tensor, weighted: bool) -> Tensor:
        out: Tensor = _ConstantProduct.apply(x_NC, relation, weighted, product)
        return out

    return kernel


def _csr(relation: ResidentRelation, x: Tensor, weighted: bool, transposed: bool) -> Tensor:
    """Compute a sparse matrix product (MKL on a CPU, cuSPARSE on a GPU).

    It is in the precision of ``x``; in float32 where half precision would round weights, and on a CPU.
    """
    # MKL has no half precisions; cuSPARSE sums their products in float32.
    dtype = torch.promote_types(x.dtype, torch.float32) if x.device.type == "cpu" else x.dtype
    # Autocast would turn both factors into bfloat16.
    with torch.autocast(x.device.type, enabled=False):
        matrix = relation.csr(dtype, weighted=weighted, transposed=transposed)
        return (matrix @ x.to(matrix.dtype).contiguous()).to(x.dtype)


# Sums over in-edges in blocks of columns that stay in a core's cache; weighted or not, on a CPU.
#
# Every row of ``x`` is read once per edge. With hundreds of columns ``x`` outgrows the caches and most reads go to
# memory; a block of its columns, copied to a tile of its own, does not. Small edge indices leave more of the cache to
# the tile, hence the small integers of ``ResidentRelation.compact``.


# Bytes of a tile's row: 1.7 MB for the 6,607 genes of yeast.
TILE_ROW_BYTES = 256
# Without tiles only the sums of one row have to stay in the first cache.
ROW_BYTES = 8192
# ``x`` is not copied to tiles while it fits in the last cache, or when its rows are read too few times.
CACHED_BYTES = 8 << 20
READS_OF_A_TILE = 32
# Columns that fill the widest vector registers.
PADDING = 16
# This many additions take less time than waking another thread.
SMALL_WORK = 1 << 18


def _tiled(relation: ResidentRelation, x: Tensor, weighted: bool, transposed: bool) -> Tensor:
    """Compute sums in the order of the edges: the same bits for any number of threads.

    float32 and float64 are computed in their own precision, bfloat16 is summed in float32, and others are converted to
    float32.
    """
    if x.dtype not in (torch.float32, torch.float64, torch.bfloat16):
        return _tiled(relation, x.float(), weighted, transposed).to(x.dtype)
    x = x.contiguous()
    accumulator = torch.promote_types(x.dtype, torch.float32)
    edges = relation.compact(accumulator if weighted else None, transposed=transposed)
    y = x.new_empty(len(edges.starts) - 1, x.shape[1])
    outgrows_cache = x.nbytes > CACHED_BYTES and relation.num_edges >= READS_OF_A_TILE * len(x)
    pack = outgrows_cache or x.shape[1] % PADDING != 0 or x.dtype == torch.bfloat16
    width = (TILE_ROW_BYTES if pack else ROW_BYTES) // accumulator.itemsize
    starts, weights = edges.starts.numpy(), None if edges.weights is None else edges.weights.numpy()
    sum_part = partial(_sum_part, _array(x), starts, edges.neighbours.numpy(), weights, _array(y), pack)
    if relation.num_edges * x.shape[1] < SMALL_WORK:
        for part in _parts(starts, x.shape[1], width, threads=1):
            sum_part(*part)
    else:
        run_tasks(sum_part, _parts(starts, x.shape[1], width, torch.get_num_threads()))
    return y


def _array(x: Tensor) -> NDArray[np.generic]:
    """Return the memory of ``x`` in numpy; bfloat16, which numpy lacks, is returned as its bits."""
    array: NDArray[np.generic] = (x.view(torch.uint16) if x.dtype == torch.bfloat16 else x).numpy()
    return array


def _parts(starts: NDArray[np.int64], columns: int, width: int, threads: int) -> list[tuple[slice, slice]]:
    """Return blocks of columns.

    Where they are too few for the threads, rows are divided too, into ranges with about as many edges each.
    """
    blocks = [slice(column, min(column + width, columns)) for column in range(0, columns, width)]
    ranges = -(-2 * threads // max(len(blocks), 1)) if threads > 1 else 1
    # An empty row is work too, because zeros are written.
    work = starts + np.arange(len(starts))
    bounds = np.searchsorted(work, np.linspace(0, work[-1], ranges + 1)).tolist()
    rows = [slice(first, last) for first, last in pairwise(bounds) if first < last]
    return [(block, part) for block in blocks for part in rows]


def _sum_part(
    x: NDArray[np.generic],
    starts: NDArray[np.int64],
    neighbours: NDArray[np.generic],
    weights: NDArray[np.generic] | None,
    y: NDArray[np.generic],
    pack: bool,
    columns: slice,
    rows: slice,
) -> None:
    """Write ``y[rows, columns]``."""
    # Imported here: numba is slow to import, and commands that compute nothing should not wait for it.
    from dglcell.kernels import loops_numba as compiled

    column, width = columns.start, columns.stop - columns.start
    starts, y = starts[rows.start : rows.stop + 1], y[rows]
    if not pack:
        compiled.sum_rows(x.reshape(-1), x.shape[1], column, width, starts, neighbours, weights, y, column)
        return
    padded = -(-width // PADDING) * PADDING
    if x.dtype != np.uint16:
        tile = np.empty((len(x), padded), x.dtype)
        compiled.pack(x, column, tile)
        compiled.sum_rows(tile.reshape(-1), padded, 0, padded, starts, neighbours, weights, y, column)
        return
    tile, sums = np.empty((len(x), padded), np.float32), np.empty((len(y), padded), np.float32)
    compiled.pack_bfloat16(x, column, tile.view(np.uint32))
    compiled.sum_rows(tile.reshape(-1), padded, 0, padded, starts, neighbours, weights, sums, 0)
    compiled.unpack_bfloat16(sums.view(np.uint32), column, y)


def _triton(relation: ResidentRelation, x: Tensor, weighted: bool, transposed: bool) -> Tensor:
    """Compute sums in Triton's loops, in the order of the edges: the same bits every time."""
    columns = x.contiguous().unsqueeze(1)
    return triton_products.product(relation, columns, weighted=weighted, transposed=transposed).squeeze(1)


KERNELS: dict[str, Kernel] = dict(zip(KERNEL_NAMES, map(_differentiable, (_csr, _tiled, _triton)), strict=True))
"""These are the ways to compute a product."""

COMPARED_EDGES, COMPARED_NODES, COMPARED_COLUMNS = 4096, 300, 80
"""Made-up edges on which a first product in Triton is compared with torch's."""

TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 0.05}
"""Errors of this size are allowed, as shares of the largest number, by the type of the rows."""


@cache
def triton_works(device_type: str) -> bool:
    """Return whether a first product in Triton, and its gradient, equal those of torch on this machine.

    Triton needs a C compiler, and compiles for each GPU anew; where a result differs or fails, torch computes.
    """
    if not triton_runs_on(device_type):
        return False
    number = torch.arange(COMPARED_EDGES, device=device_type)
    ends = number * 7919 % COMPARED_NODES, number.square() % COMPARED_NODES  # some nodes have many in-edges, some none
    weight = (number % 7 + 1) / 7
    relation = ResidentRelation(("gene", "compared", "gene"), *ends, COMPARED_NODES, COMPARED_NODES, weight)
    try:
        with torch.inference_mode(False), torch.enable_grad():  # a prediction may be the first to ask
            what = next((str(dtype)[6:] for dtype in TOLERANCES if not _equals_csr(relation, dtype)), None)
        what = None if what is None else f"a sum in {what} differs"
    except Exception as error:  # compilers fail in ways of their own
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
    if what is not None:
        log.warning("Triton does not work on this machine, so that sums use torch's sparse products: %s", what)
    return what is None


def _equals_csr(relation: ResidentRelation, dtype: torch.dtype) -> bool:
    """Return whether a product and its gradient in Triton equal those of torch to rounding."""
    number = torch.arange(COMPARED_NODES * COMPARED_COLUMNS, device=relation.src.device)
    x = number.sin().view(-1, COMPARED_COLUMNS).to(dtype)
    found: list[Tensor] = []
    right: list[Tensor] = []
    for kernel, results in (("triton", found), ("csr", right)):
        leaf = x.clone().requires_grad_()
        y = KERNELS[kernel](relation, leaf, True)
        results += [y.detach().float(), torch.autograd.grad(y, leaf, x)[0].float()]
    limit = TOLERANCES[dtype]
    return all(bool(((a - b).abs().max() <= limit * b.abs().max()).cpu()) for a, b in zip(found, right, strict=True))


@cache
def triton_runs_on(device_type: str) -> bool:
    """Return whether Triton is installed and compiles for ``device_type``.

    Its interpreter, where it is on, works for all.
    """
    return find_spec("triton") is not None and (device_type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1")


def runs_on(kernel: str, device_type: str) -> bool:
    """Return whether ``kernel`` can be used on ``device_type``."""
    if kernel == "triton":
        return triton_runs_on(device_type)
    return kernel != "tiled" or device_type == "cpu"


def kernels_on(device_type: str) -> list[str]:
    """Return the kernels that can be used on ``device_type``."""
    return [kernel for kernel in KERNELS if runs_on(kernel, device_type)]


def check_kernel(kernel: str, device_type: str) -> None:
    """Refuse a kernel that does not exist or does not run on this device.

    Raises:
        ConfigError: no kernel has this name, or this one is for another device.
        MissingDependencyError: Triton is not installed.
    """
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

    On a CPU ``tiled`` is about as fast as the unweighted product of DGL for a few hundred columns, twice as fast for
    thousands and five times in float64; of the weighted products it is the fastest by far. On an H100 ``triton`` adds
    in the order of the edges, and with their gradients its products are about as fast as those of ``csr`` in float32
    and faster in bfloat16.
    """
    if device_type == "cpu":
        return "tiled"
    return "triton" if triton_works(device_type) else "csr"


def spmm(relation: ResidentRelation, x_NC: Tensor, *, weighted: bool = True, kernel: str = "auto") -> Tensor:
    """Sum the rows of ``x`` over the in-edges of every destination node; differentiable in ``x``.

    Args:
        relation: E edges from N source to M destination nodes.
        x_NC: [N, C] source rows; C is any number of columns, e.g. strains × width.
        weighted: whether to multiply by the relation's fixed edge weights, where it has them.
        kernel: a key of ``KERNELS``, or ``auto``.

    Returns:
        The sums, [M, C]; zero for nodes without in-edges.
    """
    if kernel == "auto":
        kernel = default_kernel(x_NC.device.type)
    if relation.num_edges == 0:
        return torch.zeros(relation.num_dst, x_NC.shape[1], dtype=x_NC.dtype, device=x_NC.device)
    return KERNELS[kernel](relation, x_NC, weighted and relation.weight is not None)

"""A dense matrix product, for relations so dense that a GPU multiplies zeros faster than it skips them."""

from __future__ import annotations

import torch
from torch import Tensor

from dglcell.errors import ConfigError
from dglcell.graph.resident import ResidentRelation
from dglcell.kernels.product import constant_product

MAX_BYTES = 2 << 30


def spmm_dense(relation: ResidentRelation, x_NC: Tensor, weighted: bool) -> Tensor:
    """[M, C] sums over in-edges as a matrix product with the dense adjacency.

    float32 products follow ``torch.set_float32_matmul_precision``, as every matrix product does.

    Raises:
        ConfigError: the dense adjacency would exceed ``MAX_BYTES``.
    """
    return constant_product(relation, x_NC, weighted, _product)


def _product(relation: ResidentRelation, x: Tensor, *, weighted: bool, transposed: bool) -> Tensor:
    """In the precision of ``x``; in float32 where half precision would round the adjacency, and on a CPU."""
    # Only some CPUs multiply half precisions fast; a GPU sums their products in float32.
    dtype = torch.promote_types(x.dtype, torch.float32) if x.device.type == "cpu" else x.dtype
    _check_size(relation, dtype, x.device.type)
    # Autocast would round the adjacency.
    with torch.autocast(x.device.type, enabled=False):
        matrix_MN = relation.dense(dtype, weighted=weighted)
        matrix = matrix_MN.T if transposed else matrix_MN
        return (matrix @ x.to(matrix.dtype)).to(x.dtype)


def _check_size(relation: ResidentRelation, dtype: torch.dtype, device_type: str) -> None:
    size = relation.num_dst * relation.num_src * dtype.itemsize
    if size > MAX_BYTES:
        raise ConfigError(
            f"relation {relation.relation} is too large for kernel 'dense'",
            got=f"{relation.num_dst:,} by {relation.num_src:,} numbers, {size / 2**30:.1f} GiB",
            expected=f"at most {MAX_BYTES / 2**30:.0f} GiB",
            do=f"set `kernel: {'tiled' if device_type == 'cpu' else 'csr'}` or `kernel: auto`",
        )

"""Measure how far Triton's kernels are from float64, run by Triton's interpreter on a CPU, and print JSON.

This is a process of its own, because the interpreter is chosen before Triton is imported. bfloat16, which the
interpreter adds wrongly, is left out.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass

os.environ["TRITON_INTERPRET"] = "1"

import torch
from torch import Tensor

from dglcell.graph import resident
from dglcell.graph.resident import ResidentCell
from dglcell.kernels import triton_products
from dglcell.kernels.triton_products import TILES, Sides, product
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import perturb

RELATION = ("gene", "physical", "gene")
GENES, EDGES, PIECE = 5, 16, 4
DTYPES = (torch.float32, torch.float16)
SHAPES = ((1, 19), (2, 6))
STRAINS = ([1], list(range(GENES)))
"""The last strain has lost everything."""


@dataclass(frozen=True)
class Error:
    """This is the error of one case.

    Attributes:
        kernel: name of the kernel.
        dtype: type of the rows, by torch's name.
        case: other properties of the case.
        error: largest error, as a share of the largest number of the result.
    """

    kernel: str
    dtype: str
    case: str
    error: float


def cell(weighted: bool) -> ResidentCell:
    """Make a cell of genes with a hub whose edges are cut, and with some genes that have no edges."""
    generator = torch.Generator().manual_seed(0)
    u, v = torch.randint(0, GENES - 2, (2, EDGES), generator=generator)
    u[:6], v[6:12] = 1, 2
    weight = torch.randn(EDGES, generator=generator) if weighted else None
    return ResidentCell({"gene": GENES}, {RELATION: (u, v, weight)})


def share(found: Tensor, right: Tensor) -> float:
    """Return the largest error as a share of the largest number of the right result."""
    return float((found.double() - right).abs().max() / right.abs().max().clamp(min=1e-30))


def product_errors() -> Iterator[Error]:
    """Yield errors of products of columns, along edges and against them, with a tile narrower than the columns."""
    for dtype, weighted, transposed, (B, H) in itertools.product(DTYPES, (False, True), (False, True), SHAPES):
        edges = cell(weighted)[RELATION]
        x = torch.randn(GENES, B, H, generator=torch.Generator().manual_seed(1)).to(dtype)
        matrix = edges.dense(torch.float64, weighted=weighted)
        right = torch.einsum("mn,nbh->mbh", matrix.T if transposed else matrix, x.double())
        tile = triton_products.Tile(16, 1, 4)
        y = product(edges, x, (B, H), dtype, weighted=weighted, transposed=transposed, tile=tile)
        case = f"{'weighted' if weighted else 'unweighted'} {'transposed' if transposed else 'forward'} {B} x {H}"
        yield Error("product", str(dtype)[6:], case, share(y, right))


def masked_errors() -> Iterator[Error]:
    """Yield errors of masked products through a whole strategy, with gradients, whether states differ before or not."""
    for dtype, weighted, differ in itertools.product(DTYPES, (False, True), (True, False)):
        results = []
        for kernel, of in (("triton", dtype), ("csr", torch.float64)):
            generator = torch.Generator().manual_seed(2)
            base, delta = (torch.randn(GENES, *rest, 5, generator=generator) for rest in ((), (2,)))
            leaves = [base.to(dtype).to(of).requires_grad_(), delta.to(dtype).to(of).requires_grad_()]
            where = cell(weighted).to(torch.float64 if of == torch.float64 else torch.float32)
            perturbed = perturb(where, GenotypeBatch.from_lists(STRAINS), "node_mask", kernel)
            states = perturbed.start(leaves[0])
            states = states.with_difference(*leaves) if differ else states  # type: ignore[attr-defined]
            y = perturbed.aggregate(RELATION, states).dense()
            upstream = torch.randn(y.shape, generator=torch.Generator().manual_seed(3)).to(dtype).to(of)
            results.append([y.detach(), *torch.autograd.grad(y, leaves[: 1 + differ], upstream)])
        worst = max(share(found, right) for found, right in zip(*results, strict=True))
        case = f"{'weighted' if weighted else 'unweighted'} {'states differ' if differ else 'the same states'}"
        yield Error("masked product", str(dtype)[6:], case, worst)


def tile_errors() -> Iterator[Error]:
    """Yield by how much results of other tiles differ; not one bit should differ."""
    edges = cell(True)[RELATION]
    x = torch.randn(GENES, 2, 6, generator=torch.Generator().manual_seed(5))
    sides = Sides(x[:, :, 0] > -1, x[:, 0])
    tiles = (*TILES, triton_products.Tile(4, 1, 3))
    results = [
        product(edges, x, (2, 6), x.dtype, weighted=True, transposed=False, inputs=sides, outputs=sides, tile=tile)
        for tile in tiles
    ]
    for tile, result in zip(tiles[1:], results[1:], strict=True):
        yield Error(
            "product", "float32", f"against another tile: {tile}", 0.0 if torch.equal(result, results[0]) else 1.0
        )


def main() -> None:
    """Print all errors."""
    resident.PIECE_EDGES = PIECE
    found = [*product_errors(), *masked_errors(), *tile_errors()]
    print(json.dumps([asdict(error) for error in found]))


if __name__ == "__main__":
    main()

"""Measure how far Triton's kernels are from float64, run by Triton's interpreter on a CPU, and print JSON.

This is a process of its own, because the interpreter is chosen before Triton is imported. It multiplies and rounds
bfloat16 wrongly, which is set right here for pairs of relations; other kernels are run in other types.
"""

from __future__ import annotations

import copy
import itertools
import json
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import torch
from torch import Tensor, nn

from dglcell.graph import resident_graph
from dglcell.graph.resident import ResidentCell
from dglcell.kernels import pair_mix, row_chain, triton_products
from dglcell.kernels.row_chain import chained, steps_of
from dglcell.kernels.triton_products import TILE, Lost, product
from dglcell.models.cell_model import HeteroCell
from dglcell.nn.config import PAIRWISE
from dglcell.perturbation import perturb as perturb_module
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import perturb
from dglcell.perturbation.rules import PerturbedTensor
from tests.kernels.pairs import CASES, mixtures
from tests.models.test_hetero_cell import small_config
from tests.random_cells import RandomCell, randomise, results

RELATION = ("gene", "physical", "gene")
GENES, EDGES, PIECE = 5, 16, 4
NODES, PROGRAMS = 2, 8
"""As few as that, so that each program of a backward pass goes through several nodes."""

DTYPES = (torch.float32, torch.float16)
SHAPES = ((1, 19), (2, 6))
STRAINS = ([1], list(range(GENES)))
"""The last strain has lost everything."""


class Error(NamedTuple):
    """The largest error of a case, as a share of the largest number of the result."""

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
        matrix = edges.csr(torch.float64, weighted=weighted, transposed=False).to_dense()
        right = torch.einsum("mn,nbh->mbh", matrix.T if transposed else matrix, x.double())
        triton_products.TILE = (16, 1, 4)
        y = product(edges, x, weighted=weighted, transposed=transposed)
        triton_products.TILE = TILE
        case = f"{'weighted' if weighted else 'unweighted'} {'transposed' if transposed else 'forward'} {B} x {H}"
        yield Error("product", str(dtype)[6:], case, share(y, right))


def masked_errors() -> Iterator[Error]:
    """Yield errors of masked products through a whole strategy, with gradients, whether states differ before or not."""
    cases = (("states differ", True, 5), ("the same states", False, 5), ("few lost nodes", False, 11))
    for dtype, weighted, (words, differ, width) in itertools.product(DTYPES, (False, True), cases):
        results = []
        for kernel, of in (("triton", dtype), ("csr", torch.float64)):
            generator = torch.Generator().manual_seed(2)
            base, delta = (torch.randn(GENES, *rest, width, generator=generator) for rest in ((), (2,)))
            leaves = [base.to(dtype).to(of).requires_grad_(), delta.to(dtype).to(of).requires_grad_()]
            where = cell(weighted).to(torch.float64 if of == torch.float64 else torch.float32)
            perturbed = perturb(where, GenotypeBatch.from_lists(STRAINS), "node_mask", kernel)
            states = perturbed.start(leaves[0])
            states = states.with_difference(*leaves) if differ else states  # type: ignore[attr-defined]
            y = perturbed.aggregate(RELATION, states).dense()
            upstream = torch.randn(y.shape, generator=torch.Generator().manual_seed(3)).to(dtype).to(of)
            results.append([y.detach(), *torch.autograd.grad(y, leaves[: 1 + differ], upstream)])
        worst = max(share(found, right) for found, right in zip(*results, strict=True))
        case = f"{'weighted' if weighted else 'unweighted'} {words}"
        yield Error("masked product", str(dtype)[6:], case, worst)


def tile_errors() -> Iterator[Error]:
    """Yield by how much results of other tiles differ; not one bit should differ."""
    edges = cell(True)[RELATION]
    x = torch.randn(GENES, 2, 6, generator=torch.Generator().manual_seed(5))
    keep, lost = x[:, :, 0] > -1, Lost(x[:, :, 0] > -1, x[:, 0])
    tiles, results = ((512, 2, 4), (4, 1, 3), TILE), []
    for triton_products.TILE in tiles:
        results.append(product(edges, x, weighted=True, transposed=False, keep_NB=keep, outputs=lost))
    for tile, result in zip(tiles[:2], results, strict=False):
        yield Error("product of another tile", "float32", f"{tile}", 0.0 if torch.equal(result, results[2]) else 1.0)


CHAINS = {
    "as hetero_080": (nn.Linear, nn.GELU, nn.Linear, nn.LayerNorm, nn.GELU),
    "three layers, ReLU": (nn.Linear, nn.ReLU, nn.Linear, nn.ReLU, nn.Linear, nn.Identity, nn.ReLU),
    "one Linear": (nn.Linear,),
}
"""The modules of a relation, by the words of the case."""


def chain_errors() -> Iterator[Error]:
    """Yield errors of chains of row modules against the rules of differences in float64, with all gradients.

    There are one or two strains' tiles, nodes with rows of their own or without, and differences of either size, for
    which GELU has two formulas.
    """
    for name, kinds in CHAINS.items():
        for B, own, size in ((3, True, 1.0), (20, False, 0.1), (40, True, 0.01)):
            found, right = _chain(kinds, B, own, size, summed=size != 0.1)
            case = f"{name}: {B} strains, {'' if own else 'no '}own rows, {size}"
            yield Error("chain", "float32", case, max(map(share, found[:2], right[:2])))
            worst = max(_by_norm(mine, of) for mine, of in zip(found[2:], right[2:], strict=True))
            # Gradients of the base are differences of two sums, right to rounding of either.
            yield Error("chain", "float32", f"gradients, {name}: {B}, {size}", worst * size)


def with_bfloat16() -> None:
    """Let the interpreter multiply bfloat16 by its numbers, not its bits, and round to the nearest."""
    import triton.language as tl
    from triton.runtime import interpreter

    def wide(x: Any) -> Any:
        return (x.data.astype(np.uint32) << 16).view(np.float32) if x.dtype.scalar == tl.bfloat16 else x.data

    def dot(self: Any, a: Any, b: Any, total: Any, *_: object) -> Any:
        product = np.matmul(wide(a), wide(b), dtype=total.data.dtype)
        return interpreter.TensorHandle(product + total.data, total.dtype.scalar)

    def cast(self: Any, x: Any, dtype: Any) -> Any:
        if (x.dtype.scalar, dtype.scalar) != (tl.float32, tl.bfloat16):
            return plain(self, x, dtype)
        rounded = torch.from_numpy(np.ascontiguousarray(x.data)).bfloat16().view(torch.uint16)
        return interpreter.TensorHandle(rounded.numpy(), tl.bfloat16)

    builder, plain = interpreter.InterpreterBuilder, interpreter.InterpreterBuilder.cast_impl
    builder.create_dot, builder.cast_impl = dot, cast


def half_pair_errors() -> Iterator[Error]:
    """Yield errors of the same in bfloat16, as multiples of those of operations one by one.

    Where one option has nearly all of the shares, gradients of logits are what two large sums leave of each other.
    """
    with_bfloat16()
    for case in CASES[:3]:
        for number, (mine, of, plain) in enumerate(zip(*mixtures(*case, torch.bfloat16), strict=True)):
            more = _by_norm(mine, of) / (_by_norm(plain, of) + 1e-5)
            yield Error("pairs", "bfloat16", f"number {number}, {case}", more)


def pair_errors() -> Iterator[Error]:
    """Yield errors of pairwise mixtures of relations against the rules of differences in float64, and of gradients."""
    for case in CASES:
        found, right, _ = mixtures(*case)
        yield Error("pairs", "float32", f"{case}", max(map(share, found[:2], right[:2])))
        worst = max(_by_norm(mine, of) for mine, of in zip(found[2:], right[2:], strict=True))
        yield Error("pairs", "float32", f"gradients, {case}", worst * min(1.0, case[-1]))


def model_errors() -> Iterator[Error]:
    """Yield errors of a whole model with pairs of relations, whose rows kernels compute.

    Two relations into genes are computed together, and one alone.
    """
    sizes, v = {"gene": 4, "reaction": 3}, np.arange(3)
    names = ("gene physical gene", "gene empty gene", "gene catalyses reaction", "reaction catalysed_by gene")
    edges = {tuple(name.split()): (v, v + (name == names[0])) for name in names}
    row_chain.DEVICES, perturb_module.LISTING_DEVICES = ("cpu",), ()
    options = {"cross_relation": PAIRWISE, "cross_relation_hidden": 16, "cross_relation_norm": "layer"}
    config = small_config(hidden=16, gin_layers=2, strategy="node_mask", local_head=False, dropout=0.0, **options)
    torch.manual_seed(0)
    model = randomise(HeteroCell(RandomCell(sizes, edges, {}).resident, config, outputs=2))
    batch, started = GenotypeBatch.from_lists([[3], [0, 2]]), []
    right, mixed = results(copy.deepcopy(model).double(), batch), pair_mix.mixed  # no kernel takes float64
    pair_mix.mixed = lambda *args, **how: started.append(args) or mixed(*args, **how)
    found = results(model, batch)
    assert model.encoder.chained(torch.float32, torch.device("cpu"))
    assert started
    for name, mine, of in zip(("prediction", "gradients"), (found[:1], found[1:]), (right[:1], right[1:]), strict=True):
        apart, whole = (torch.cat([x.double().flatten() for x in one]) for one in (mine, of))
        yield Error("model", "float32", name, float((apart - whole).norm() / whole.norm()))


def _by_norm(found: Tensor, right: Tensor) -> float:
    return float((found.double() - right).norm() / right.norm().clamp(min=1e-9))


def _chain(
    kinds: tuple[type[nn.Module], ...], B: int, own: bool, size: float, summed: bool
) -> tuple[list[Tensor], list[Tensor]]:
    """Return rows and gradients by the kernels in float32, and by the rules of differences in float64."""
    R, N, H = 2, NODES + 1, 16  # two blocks of the base's nodes
    torch.manual_seed(0)
    modules = [nn.Sequential(*(_module(kind, H) for kind in kinds)).double() for _ in range(R)]
    names = [name for name, _ in modules[0].named_parameters()]
    inputs = [
        torch.randn(N, H),
        torch.randn(R, N, H),
        size * torch.randn(N * B, H),
        size * torch.randn(R, N * B, H),
        torch.rand(R) + 0.5,
    ]
    stacked = [torch.stack([dict(m.named_parameters())[name].detach() for m in modules]) for name in names]
    upstream, results = [torch.randn(R, rows, H, dtype=torch.float64) for rows in (N, N * B)], []
    for by_kernel in (True, False):
        leaves = [x.to(torch.float32 if by_kernel else torch.float64).requires_grad_() for x in (*inputs, *stacked)]
        x, received, x_delta, delta, scale, *weights = leaves
        if by_kernel:
            steps = steps_of(modules[0].named_children(), H)
            outs = chained(steps, (x, received), (x_delta if own else None, delta), scale, weights, B, summed)
        else:
            factor, mine = scale.view(-1, 1, 1), dict(zip(names, weights, strict=True))
            before, change = received + factor * x, delta + factor * x_delta if own else delta
            parts = [PerturbedTensor(before[r], change[r], B) for r in range(R)]
            rows = [
                torch.func.functional_call(modules[0], {n: w[r] for n, w in mine.items()}, (part,))
                for r, part in enumerate(parts)
            ]
            outs = tuple(torch.stack(one) for one in ([x.base for x in rows], [x.delta for x in rows]))
            outs = tuple(out.sum(0) for out in outs) if summed else outs
        ups = [up[0] if summed else up for up in upstream]
        gradients = torch.autograd.grad(
            outs, leaves, [up.to(out.dtype) for up, out in zip(ups, outs, strict=True)],
            allow_unused=True, materialize_grads=True,
        )  # fmt: skip
        results.append([*(out.detach() for out in outs), *gradients])
    return results[0], results[1]


def _module(kind: type[nn.Module], width: int) -> nn.Module:
    module = kind(width, width) if kind is nn.Linear else kind(width) if kind is nn.LayerNorm else kind()
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    return module


def main() -> None:
    """Print all errors."""
    resident_graph.PIECE_EDGES, row_chain.NODES = PIECE, NODES
    row_chain.PROGRAMS = pair_mix.PROGRAMS = PROGRAMS
    found = [*product_errors(), *masked_errors(), *tile_errors(), *chain_errors(), *pair_errors(), *model_errors()]
    found += half_pair_errors()
    print(json.dumps([error._asdict() for error in found]))


if __name__ == "__main__":
    main()

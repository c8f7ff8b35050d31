"""Compare kernels with the reference on real relations before `auto` times them, and remember the outcome.

A kernel that was only ever compiled is not trusted on a user's GPU. A kernel that differs or fails is dropped with a
warning, for all relations and for later runs on the same machine with the same versions.
"""

from __future__ import annotations

import importlib.metadata
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

import dglcell
from dglcell.errors import DglcellError
from dglcell.files.atomic import canonical_hash, user_cache, write_json
from dglcell.files.untrusted import UnreadableError, read_json
from dglcell.graph.resident import ResidentRelation
from dglcell.kernels.masked_spmm import masked_spmm
from dglcell.kernels.spmm import spmm
from dglcell.machine.memory import is_out_of_memory
from dglcell.perturbation.sent import Kept, received, sent

log = logging.getLogger("dglcell")

MUST_PROVE = ("cuda",)
"""Kernels have to prove themselves on these devices; those for CPUs are compared by tests on many CPUs."""

COLUMNS, SAMPLES = 64, 8
"""The reference computes so many columns at once, because it needs memory for edges × columns, and so many times."""

LOST = 0.02
"""Strains of a comparison have lost this share of nodes."""

TOLERANCES = {torch.float64: 1e-12, torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}
"""Errors of this size are allowed, as shares of the largest number of a row, by the type of the rows."""

REDUCED = 4e-3
"""This error is allowed for float32 where `torch.set_float32_matmul_precision` allows products in fewer digits."""


@dataclass(frozen=True)
class Proof:
    """Record how a kernel's results on a machine compared with the reference.

    Attributes:
        ok: whether all results were right.
        seen: the largest error, or what failed and where.
    """

    ok: bool
    seen: str


def this_machine(device: torch.device | str) -> dict[str, str]:
    """Return what a proof holds for: the device's name, and the versions of the libraries that compute there."""
    device = torch.device(device)
    try:
        triton = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        triton = "none"
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return {"device": name, "dglcell": dglcell.__version__, "torch": torch.__version__, "triton": triton}


class Proofs:
    """Keep all proofs of a machine in a file of the user's cache.

    Args:
        device: the device that the kernels run on.

    Attributes:
        known: kernel → its proof.
    """

    def __init__(self, device: torch.device | str) -> None:
        self.machine = this_machine(device)
        self.path: Path = user_cache("autotuned") / f"kernels-{canonical_hash(self.machine)[:16]}.json"
        self.known = self._read()

    def _read(self) -> dict[str, Proof]:
        if not self.path.is_file():
            return {}
        try:
            kernels = read_json(self.path)["kernels"]
            return {str(name): Proof(bool(proof["ok"]), str(proof["seen"])) for name, proof in kernels.items()}
        except (UnreadableError, KeyError, TypeError, AttributeError) as error:
            log.warning("kernels prove themselves anew: '%s' cannot be read (%s)", self.path, error)
            return {}

    def add(self, kernel: str, proof: Proof) -> None:
        """Record a proof and write it at once, as nothing can be done with a GPU after some failures."""
        self.known[kernel] = proof
        content = {"machine": self.machine, "kernels": {name: asdict(known) for name, known in self.known.items()}}
        try:
            write_json(self.path, content)
        except OSError as error:
            log.warning("what was seen of kernel '%s' is not kept for other runs: %s", kernel, error)

    def holds(
        self,
        kernel: str,
        relation: ResidentRelation,
        columns: tuple[int, int],
        dtype: torch.dtype,
        device: torch.device,
    ) -> bool:
        """Return whether a kernel is right on a relation; warn if it is not.

        It is tested now unless it was dropped before.

        Args:
            kernel: one of ``KERNELS``.
            relation: the relation, on the device.
            columns: number of strains, and number of columns of each, as in a step.
            dtype: type of the rows.
            device: the device of the relation.
        """
        before = self.known.get(kernel)
        if before is not None and not before.ok:
            return False
        where = f"{'/'.join(relation.relation)}, {columns[0]} x {columns[1]} columns in {str(dtype)[6:]}"
        try:
            error = largest_error(kernel, relation, columns, dtype, device)
        except Exception as failure:  # compilers and drivers fail in ways of their own
            if isinstance(failure, DglcellError) or is_out_of_memory(failure):
                return False  # too large here; it says nothing about other relations
            return self._drop(
                kernel, f"failed on {where}: {type(failure).__name__}: {str(failure).partition(chr(10))[0]}"
            )
        limit = TOLERANCES[dtype]
        if dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest":
            limit = REDUCED
        if not error <= limit:  # also where it is no number
            return self._drop(kernel, f"differs from the reference by {error:.1e} on {where}; {limit:.0e} is allowed")
        if before is None:
            self.add(kernel, Proof(True, f"equals the reference to {error:.0e} on {where}"))
        return True

    def _drop(self, kernel: str, seen: str) -> bool:
        log.warning("kernel '%s' is not used on this machine: it %s", kernel, seen)
        self.add(kernel, Proof(False, seen))
        return False


def largest_error(
    kernel: str, relation: ResidentRelation, columns: tuple[int, int], dtype: torch.dtype, device: torch.device
) -> float:
    """Return the largest error of a kernel's products and gradients, or NaN where a result is NaN.

    Errors are shares of the largest number of a row.
    """
    errors = [_of_product(kernel, relation, columns[0] * columns[1], dtype, device)]
    if kernel == "triton":
        errors.append(_of_masked(relation, columns, dtype, device))
    return float(torch.stack(errors).max())


def _of_product(
    kernel: str, relation: ResidentRelation, columns: int, dtype: torch.dtype, device: torch.device
) -> Tensor:
    x, upstream = (_random((n, columns), dtype, device) for n in (relation.num_src, relation.num_dst))

    def product(x: Tensor, name: str) -> Tensor:
        return spmm(relation, x, kernel=name)

    return _error(lambda x: product(x, kernel), lambda x: product(x, "reference"), [x], upstream)


def _of_masked(
    relation: ResidentRelation, columns: tuple[int, int], dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Compute the products of what strains send, with lost nodes."""
    strains, width = columns
    sizes = relation.num_src, relation.num_dst
    source, target = (_random((n, strains), torch.float32, device) > LOST * 2 - 1 for n in sizes)
    kept, kept_there = (Kept(torch.ones_like(mask[:, :1]), mask) for mask in (source, target))
    delta, upstream = (_random((n, strains, width), dtype, device) for n in sizes)
    base, base_received = (_random((n, width), torch.promote_types(dtype, torch.float32), device) for n in sizes)

    def fast(delta: Tensor, base: Tensor, there: Tensor) -> Tensor:
        return masked_spmm(relation, delta, base, source, there, target, dtype)

    def plain(delta: Tensor, base: Tensor, there: Tensor) -> Tensor:
        sums = spmm(relation, sent(kept, base, delta, delta.dtype).flatten(1), kernel="reference")
        return received(kept_there, there, sums.view(-1, strains, delta.shape[2]))

    return _error(fast, plain, [delta, base, base_received], upstream)


def _random(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return numbers between -1 and 1, without a generator, whose state a calibration must not change."""
    numbers = torch.arange(torch.Size(shape).numel(), device=device, dtype=torch.float64)
    return (torch.sin(numbers * 12.9898) * 43758.5453).frac().to(dtype).view(shape)


def _error(fast: Callable[..., Tensor], plain: Callable[..., Tensor], inputs: list[Tensor], upstream: Tensor) -> Tensor:
    """Return the largest error of results and gradients, in float64.

    Samples of columns are compared, the first and the last among them.
    """
    found, width = _with_gradients(fast, inputs, upstream), upstream.shape[-1]
    step = max(1, COLUMNS * width // upstream[0].numel())
    worst = found[0].new_zeros((), dtype=torch.float64)
    for first in sorted({round(i * max(0, width - step) / (SAMPLES - 1)) for i in range(SAMPLES)}):
        columns = slice(first, first + step)
        expected = _with_gradients(plain, [x[..., columns].double() for x in inputs], upstream[..., columns].double())
        for mine, right in zip(found, expected, strict=True):
            worst = torch.maximum(worst, _row_error(mine[..., columns], right))
    return worst


def _row_error(found: Tensor, right: Tensor) -> Tensor:
    """Return the largest error, as a share of the largest number of its row."""
    if right.dim() == 1:
        found, right = found.unsqueeze(0), right.unsqueeze(0)
    scale = right.abs().flatten(1).amax(1)
    # All numbers of a row may happen to be small.
    scale = torch.maximum(scale, 0.1 * scale.mean()).view(-1, *(1,) * (right.dim() - 1))
    return ((found.double() - right).abs() / scale.clamp(min=torch.finfo(torch.float64).tiny)).max()


def _with_gradients(function: Callable[..., Tensor], inputs: list[Tensor], upstream: Tensor) -> list[Tensor]:
    leaves = [x.detach().requires_grad_() for x in inputs]
    y = function(*leaves)
    if not y.requires_grad:  # a relation without edges
        return [y, *(torch.zeros_like(leaf) for leaf in leaves)]
    return [y.detach(), *torch.autograd.grad(y, leaves, upstream.to(y.dtype))]

"""Choose how strains' graphs are computed, compute functions of rows, and keep what evaluation computed of the base."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from dglcell.files.atomic import user_cache
from dglcell.machine import multiplies_bfloat16
from dglcell.perturbation.attribution import active
from dglcell.perturbation.curves import allow_compilation
from dglcell.perturbation.rules import PerturbedTensor

logger = logging.getLogger(__name__)

T = TypeVar("T")

ROWS_WORTH_COMPILING = 5e9
"""Rows of a run, summed over strains and relations, from which compiled layers pay on a GPU. On an H100 they saved
about 40 ms of a step with 28 strains of yeast's size, 5 million rows, and compiling took about 40 s."""

COMPILED_DENSE_SHARE = 0.25  # of pairs: from here on, compiled layers compute all sooner than plain torch the list


@dataclass(frozen=True)
class Choices:
    """Describe how the strains' graphs of a cell are computed; no choice changes a result beyond rounding."""

    strategy: str = "node_mask"  #: the strategy that ``auto`` stands for
    half: bool = False  #: whether differences are in bfloat16; they have the type of the base otherwise
    recompute: bool = True  #: whether only the inputs of each block are kept for the backward pass
    compiled: bool = False  #: whether ``torch.compile`` joins the operations on rows
    dense_share: float = 0.5  #: share of listed pairs among all N · B from which all pairs are computed
    #: whether relations with layers of the same structure are computed together, so that launches are few
    stack: bool = False

    @classmethod
    def default(cls, device_type: str, *, of_edges: str | None = None) -> Choices:
        """Return the choices for a device, or for a model that asks for strains' single edges, as attention does."""
        return cls(of_edges or ("difference" if device_type == "cpu" else "node_mask"))

    def for_run(
        self, device_type: str, rows: float, *, precision: str = "auto", compiled: str = "auto",
        one_kernel: bool = False,
    ) -> Choices:  # fmt: skip
        """Return the same choices with the form of layers for a run of so many rows, over all strains and relations.

        Layers are compiled where a GPU has enough to compute; a CPU gains less from it than compiling costs. Compiled
        layers, and those whose rows ``one_kernel`` computes, then have differences in bfloat16 where the device
        multiplies them fast. ``precision`` and ``compiled`` are `trainer.precision` and `model.compile`.
        """
        pays = device_type != "cpu" and rows >= ROWS_WORTH_COMPILING
        asked = pays and not one_kernel if compiled == "auto" else compiled == "true"
        compiles = asked and compiler_works(device_type)
        half = (compiles or (pays and one_kernel)) and multiplies_bfloat16_fast(device_type)
        half = half if precision == "auto" else precision == "bf16"
        # On a CPU lists, which run uncompiled, pay less often beside compiled layers.
        share = min(self.dense_share, COMPILED_DENSE_SHARE) if compiles else self.dense_share
        return replace(self, compiled=compiles, half=half, dense_share=share)


def multiplies_bfloat16_fast(device_type: str) -> bool:
    """Return whether a device has instructions for products of bfloat16."""
    if device_type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return multiplies_bfloat16()


COMPILED_ROWS = 1 << 13  # of the smallest block that is compiled: half of a block on a CPU
UNCOMPILED_EVALUATION = ("cpu",)  # a CPU would gain 0 to 20 % in predictions of all triples
VARIANTS = 64  # of a compiled function: by device, precision, arguments that differ, structure of a layer


def apply_to_rows(
    function: Callable[..., Tensor], rows: int | Tensor, bases: Sequence[Tensor], deltas: Sequence[Tensor | None],
    compiled: bool,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Return base and difference of a function of tensors [rows, H], from those of its arguments.

    ``rows`` has their owners, see ``PerturbedTensor``. The function's method ``in_one_kernel`` may compute both by a
    kernel of its own. Where it is ``compiled``, ``torch.compile`` joins its operations, if that works here.
    """
    if active() is not None:
        return _run(function, rows, bases, deltas)
    in_one_kernel = getattr(function, "in_one_kernel", None) if isinstance(rows, int) else None
    found = None if in_one_kernel is None else in_one_kernel(rows, bases, deltas)
    if found is not None:
        return found
    # Listed rows differ in number from batch to batch and are few, so that compiling them does not pay. The same holds
    # for the last block of a batch and the last batch of an epoch.
    whole = isinstance(rows, int) and rows * len(bases[0]) >= COMPILED_ROWS
    device = bases[0].device.type
    worth = compiled and whole and (torch.is_grad_enabled() or device not in UNCOMPILED_EVALUATION)
    return (_compiled_run() if worth and compiler_works(device) else _run)(function, rows, bases, deltas)


def _run(
    function: Callable[..., Tensor], rows: int | Tensor, bases: Sequence[Tensor], deltas: Sequence[Tensor | None]
) -> tuple[Tensor, Tensor | None]:
    arguments = [PerturbedTensor(base, delta, rows) for base, delta in zip(bases, deltas, strict=True)]
    out = function(*arguments)
    if not isinstance(out, PerturbedTensor) or out.base.shape[:-1] != bases[0].shape[:-1]:
        got = tuple(out.shape) if isinstance(out, PerturbedTensor) else f"{type(out).__name__}, without differences"
        raise TypeError(f"a function of rows {tuple(bases[0].shape)} returned {got}; rows [..., H] become [..., H']")
    return out.base, out.delta


@cache
def _compiled_run() -> Callable[..., tuple[Tensor, Tensor | None]]:
    # Compiled code is kept for later processes beside the user's other caches, not in a folder that is emptied.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(user_cache("compiled")))
    allow_compilation()
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, VARIANTS)
    return torch.compile(_run)


@cache
def compiler_works(device_type: str) -> bool:
    """Return whether ``torch.compile`` gives code that runs; a CPU needs a C++ compiler, a GPU Triton."""
    try:
        torch.compile(lambda x: (x * 2).exp())(torch.ones(8, device=device_type))
    except Exception as error:  # compilers fail in ways of their own
        reason = str(error).partition("\n")[0] or type(error).__name__
        logger.warning("torch.compile does not work here; layers run uncompiled, about half as fast: %s", reason)
        return False
    return True


class BasePass:
    """Hand out the base's tensors during one pass over a batch, in the order in which they are asked for.

    The base is computed by the same operations in the same order for every batch. The first pass therefore numbers what
    it makes, and later passes read it from its start. Several threads may do both at once: what they make is equal.
    """

    def __init__(self, tensors: dict[int, Any]) -> None:
        self._tensors, self._next = tensors, 0

    def once(self, make: Callable[[], T]) -> T:
        """Return the next tensor or tuple of tensors, and make it if no earlier pass has come this far."""
        number, self._next = self._next, self._next + 1
        if number not in self._tensors:
            self._tensors[number] = make()
        found: T = self._tensors[number]
        return found


class BaseCache:
    """Keep the base's tensors of a module as long as its weights do not change.

    They are dropped when a weight is written to or replaced, when the precision changes, and on ``forget``.
    """

    def __init__(self) -> None:
        self.forget()

    def __reduce__(self) -> Any:
        return BaseCache, ()  # a copy has other weights, and this may be written to meanwhile

    def forget(self) -> None:
        """Drop all tensors that are kept."""
        self._tables: dict[tuple[int, ...], dict[int, Any]] = {}
        self._weights: list[Tensor] = []
        self._marks: list[object] = []

    def replay(self, module: nn.Module, shared: tuple[int, ...] = ()) -> BasePass | None:
        """Start a pass of a module; return None in training and where gradients are wanted: nothing can be kept then.

        Besides the wild type, only the last base that lacks ``shared`` genes is kept.
        """
        if module.training or torch.is_grad_enabled():
            return None
        weights = [parameter.detach() for parameter in module.parameters()]
        # Writing to a tensor raises its version, which one of inference mode lacks. A replaced weight has another
        # address, because the old one is held here.
        versions = [-1 if weight.is_inference() else weight._version for weight in weights]
        marks = [*versions, *((weight.data_ptr(), weight.dtype) for weight in weights)]
        device = weights[0].device.type
        marks.append((torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)))
        if self._marks != marks:
            self.forget()
            self._marks, self._weights = marks, weights
        if shared not in self._tables:
            self._tables = {genes: tensors for genes, tensors in [*self._tables.items()] if not genes}
        return BasePass(self._tables.setdefault(shared, {}))

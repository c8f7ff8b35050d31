"""``torch.compile`` around functions of rows, where a compiler works on this machine."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor

from dglcell.files import user_cache
from dglcell.perturbation.differences import PerturbedTensor

logger = logging.getLogger(__name__)

RowFunction = Callable[[int | Tensor, Sequence[Tensor], Sequence[Tensor | None]], tuple[Tensor, Tensor | None]]
"""Owners of the rows, bases and differences of the arguments → those of the result; see ``PerturbedTensor``."""

COMPILED_ROWS = 1 << 13
"""Rows of the smallest block that is compiled: half of a block on a CPU."""

VARIANTS = 64
"""Compiled forms of one function: by device, precision, which arguments differ, and structure of the layer."""


def row_function(function: Callable[..., Tensor], compiled: bool) -> RowFunction:
    """A function of rows as one of bases and differences.

    Args:
        function: of tensors [rows, H] or ``PerturbedTensor``.
        compiled: let ``torch.compile`` join its operations; plain torch where that does not work on this machine.
    """
    run = _compiled_run() if compiled and compiler_works() else _run

    def apply(
        rows: int | Tensor, bases: Sequence[Tensor], deltas: Sequence[Tensor | None]
    ) -> tuple[Tensor, Tensor | None]:
        # Rows that are listed differ in number from batch to batch, and are few: they would be compiled in vain. So
        # would the last block of a batch and the last batch of an epoch be; and what is not trained on is soon over.
        whole = isinstance(rows, int) and rows * len(bases[0]) >= COMPILED_ROWS and torch.is_grad_enabled()
        return (run if whole else _run)(function, rows, bases, deltas)

    return apply


def _run(
    function: Callable[..., Tensor], rows: int | Tensor, bases: Sequence[Tensor], deltas: Sequence[Tensor | None]
) -> tuple[Tensor, Tensor | None]:
    arguments = [PerturbedTensor(base, delta, rows) for base, delta in zip(bases, deltas, strict=True)]
    out = function(*arguments)
    assert isinstance(out, PerturbedTensor)
    return out.base, out.delta


@cache
def _compiled_run() -> Callable[..., tuple[Tensor, Tensor | None]]:
    # Compiled code is kept for later processes where the user's other caches are, not in a folder that is emptied.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(user_cache("compiled")))
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, VARIANTS)
    return torch.compile(_run)


@cache
def compiler_works() -> bool:
    """Whether ``torch.compile`` gives code that runs here; it needs a C++ compiler for a CPU, Triton for a GPU."""
    try:
        torch.compile(lambda x: (x * 2).exp())(torch.ones(8))
    except Exception as error:  # compilers fail in ways of their own
        logger.warning(
            "torch.compile does not work on this machine, so that layers run uncompiled, about half as fast: %s",
            str(error).splitlines()[0] if str(error) else type(error).__name__,
        )
        return False
    return True

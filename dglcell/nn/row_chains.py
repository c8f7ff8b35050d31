"""Compute new rows of all relations of a layer by one kernel, where their modules form a chain that it knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dglcell.kernels import row_chain

TYPES = (torch.float32, torch.bfloat16)
"""The kernel computes differences of these types, from a base in single precision."""


def chained_sum(
    modules: Mapping[str, nn.Module],
    parameters: Mapping[str, Tensor],
    scale_R: Tensor,
    num_strains: int,
    bases: Sequence[Tensor],
    deltas: Sequence[Tensor | None],
) -> tuple[Tensor, Tensor] | None:
    """Return the sum over R relations of a chain of modules, applied to what nodes receive plus ``scale`` times theirs.

    Args:
        modules: the chain, by name; all relations have the same.
        parameters: those of the modules, by name, [R, ...] each.
        scale_R: the factors of the nodes' own rows.
        num_strains: B.
        bases: the base's own rows [N, H], and what they receive, [R, N, H].
        deltas: the differences of the strains, [N · B, H] and [R, N · B, H]; None where there are none.

    Returns:
        The base's rows [N, H] and the differences [N · B, H]; None where the kernel does not compute this.
    """
    (x_NH, received_RNH), (own, received) = bases, deltas
    if received is None or received.dtype not in TYPES or x_NH.dtype != torch.float32:
        return None
    steps = row_chain.steps_of(modules.items(), x_NH.shape[-1]) if row_chain.runs_on(x_NH.device) else None
    if steps is None:
        return None
    base_NH, weights, before = _base(steps, modules, parameters, received_RNH + scale_R.view(-1, 1, 1) * x_NH)
    return base_NH, row_chain.chained(steps, own, received, scale_R, weights, before, num_strains)


PART = 512
"""So many rows of the base are one product: the gradient of a weight then has many blocks, each a sum over few rows."""


def _base(
    steps: Sequence[row_chain.Step],
    modules: Mapping[str, nn.Module],
    parameters: Mapping[str, Tensor],
    rows_RNH: Tensor,
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Return the base's rows [N, H], the weights of the chain, and the rows before each module that is not linear.

    Rows are padded to whole parts, so that those before a module are [R, N + padding, H].
    """
    R, N, H = rows_RNH.shape
    parts = -(-N // PART)
    rows = F.pad(rows_RNH, (0, 0, 0, parts * PART - N)).view(R * parts, PART, H)
    weights, before = [], []
    for step in steps:
        module = modules[step.name]
        mine = {name: parameters[f"{step.name}.{name}"] for name, _ in module.named_parameters()}
        if step.kind in row_chain.CURVED:
            before.append(rows.view(R, parts * PART, H))
        if mine:
            weights.append(mine["weight"])
            each = {name: own.repeat_interleave(parts, 0) for name, own in mine.items()}
            rows = torch.vmap(lambda own, x, module=module: torch.func.functional_call(module, own, (x,)))(each, rows)
        else:
            rows = module(rows)
    return rows.view(R, parts * PART, H)[:, :N].sum(0), weights, before

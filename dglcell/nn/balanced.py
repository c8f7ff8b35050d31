"""Project changes of fluxes onto the nearest ones that make as much of every metabolite as they use."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

MOST_BALANCED = 4096
"""Fluxes of at most so many reactions are balanced; the projection is a dense matrix of 64 MiB then."""

ROUNDING = 100
"""Balanced changes that move given values by less than so many units of rounding do not move them at all."""

STEPS = 16
"""So many steps bring given values into balance with the others; as many as there are given values would be exact."""


def projection_onto_balance(amounts_KM: Tensor) -> Tensor:
    """Return the projection onto changes x with A x = 0, which is 1 − A⁺A, [M, M] in float64.

    Args:
        amounts_KM: A, amount of each metabolite that a change of 1 makes, negative where it is used.
    """
    _, sizes, directions = torch.linalg.svd(amounts_KM.double(), full_matrices=False)
    least = sizes.max() * max(amounts_KM.shape) * torch.finfo(sizes.dtype).eps
    used = directions[sizes > least]
    return torch.eye(amounts_KM.shape[1]).to(used) - used.T @ used


def nearest_balanced(x_BM: Tensor, given_BM: Tensor, value_M: Tensor, projection_MM: Tensor) -> Tensor:
    """Return the balanced changes with some given values that are nearest to x, [B, M].

    Where no balanced change has the given values, those nearest to the given values are taken. The result is in the
    dtype of the projection, whatever autocast says, because half precision has too few digits for a balance.

    Args:
        x_BM: changes of B strains.
        given_BM: which of them are given, bool.
        value_M: the given values.
        projection_MM: what `projection_onto_balance` returned.
    """
    with torch.autocast(x_BM.device.type, enabled=False):
        found_BM: Tensor = _NearestBalanced.apply(
            x_BM.to(projection_MM), given_BM, value_M.to(projection_MM), projection_MM
        )
    return found_BM


class _NearestBalanced(torch.autograd.Function):
    """A projection onto a plane; its derivative is the projection onto the parallel plane through 0."""

    @staticmethod
    def forward(ctx: Any, x_BM: Tensor, given_BM: Tensor, value_M: Tensor, projection_MM: Tensor) -> Tensor:
        ctx.save_for_backward(given_BM, projection_MM)
        return _solve(x_BM, given_BM, value_M, projection_MM)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        given_BM, projection_MM = ctx.saved_tensors
        return _solve(gradients[0], given_BM, torch.zeros_like(gradients[0][0]), projection_MM), None, None, None


def _solve(x_BM: Tensor, given_BM: Tensor, value_M: Tensor, projection_MM: Tensor) -> Tensor:
    """Find the projection by conjugate gradients for least squares (Hestenes and Stiefel 1952), of each strain alone.

    Every step is a balanced change, so that the balance holds whatever number of steps there are.
    """
    found_BM = x_BM @ projection_MM
    rest_BM = (value_M - found_BM) * given_BM
    slope_BM = rest_BM @ projection_MM
    step_BM, square_B1 = slope_BM, slope_BM.square().sum(1, keepdim=True)
    tiny = torch.finfo(x_BM.dtype).tiny
    noise_B1 = rest_BM.square().sum(1, keepdim=True) * (ROUNDING * torch.finfo(x_BM.dtype).eps) ** 2
    for _ in range(STEPS):
        moved_BM = step_BM * given_BM
        goes_on_B1 = square_B1 > noise_B1
        length_B1 = square_B1 / moved_BM.square().sum(1, keepdim=True).clamp_min(tiny) * goes_on_B1
        found_BM = found_BM + length_B1 * step_BM
        rest_BM = rest_BM - length_B1 * moved_BM
        slope_BM = rest_BM @ projection_MM
        before_B1, square_B1 = square_B1, slope_BM.square().sum(1, keepdim=True)
        step_BM = slope_BM + square_B1 / before_B1.clamp_min(tiny) * step_BM
    return found_BM @ projection_MM  # rounding errors of all steps add up

"""Pairwise mixtures of relations by kernels, and by the rules of differences in float64."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from dglcell.nn.config import PAIRWISE, CrossRelation
from dglcell.nn.cross_relation import RelationMixer, make_mixer
from dglcell.perturbation.rules import PerturbedTensor

CASES = (
    (2, 3, "gelu", 1.0), (3, 20, "relu", 0.1), (2, 40, "gelu", 1e-3), (2, 5, "gelu", 10.0), (2, 17, "relu", 1e-6),
)  # fmt: skip
"""Relations, strains, activation and size of differences. The largest move all shares."""


def mixtures(
    R: int, B: int, activation: str, size: float, dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Return the base, differences and all gradients by the kernels, in float64, and of the same type without kernels.

    One strain differs nowhere.
    """
    N, H = 3, 16
    torch.manual_seed(0)
    mixer = make_mixer(CrossRelation(PAIRWISE, hidden=16, norm="layer", activation=activation), R, H)
    assert mixer is not None
    for parameter in mixer.parameters():
        nn.init.normal_(parameter, std=0.5)
    base, rows = torch.randn(R, N, H), size * torch.randn(R, N, B, H)
    rows[:, :, 1] = 0
    rows, upstream = rows.flatten(1, 2).to(dtype), torch.randn(N * (1 + B), H).to(dtype)
    right = _results(copy.deepcopy(mixer).double(), [base.double(), rows.double()], upstream.double(), B, False)
    leaves, upstream, mixer = [base.to(device), rows.to(device)], upstream.to(device), mixer.to(device)
    found, plain = (_results(mixer, leaves, upstream, B, by_kernels) for by_kernels in (True, False))
    return found, right, plain


def _results(mixer: RelationMixer, inputs: list[Tensor], upstream: Tensor, B: int, by_kernels: bool) -> list[Tensor]:
    leaves = [x.detach().requires_grad_() for x in inputs]
    if not by_kernels:
        out = mixer(*(PerturbedTensor(*one, B) for one in zip(*leaves, strict=True)))
        parts = [out.base, out.delta]
    else:
        parts = list(mixer.by_kernels(*leaves, B))
    of_parts = upstream.split([len(parts[0]), len(parts[1])])
    # Shares do not depend on the last bias.
    weights = [*leaves, *(weight for weight in mixer.parameters() if weight is not mixer.mix.score_last.bias)]
    gradients = torch.autograd.grad(parts, weights, [g.to(y.dtype) for g, y in zip(of_parts, parts, strict=True)])
    return [x.detach().double().cpu() for x in (*parts, *gradients)]

"""Learned combinations of relations that hold every option of every row at once: slow, and plain to see."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from dglcell.nn.cross_relation import PairwiseInteraction

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": nn.functional.gelu, "relu": torch.relu}


def naive_pairwise(mix: PairwiseInteraction, h: Sequence[Tensor], activation: str) -> tuple[Tensor, Tensor]:
    """Return the mixture and its weights, from a stack of all options."""
    act, options, pair = ACTIVATIONS[activation], [], 0
    for i in range(len(h)):
        for j in range(i, len(h)):
            x = torch.cat([h[i], h[j]], dim=-1)
            for layer in (mix.first, *mix.middle):
                x = act(x @ layer.weight[pair] + layer.bias[pair])
            options.append(x @ mix.last.weight[pair] + mix.last.bias[pair])
            pair += 1
    options.append(sum(h) / len(h))
    stacked = torch.stack(options, dim=1)
    score = mix.score_last(act(mix.score_first(stacked)))
    share = score.softmax(dim=1)
    return (share * stacked).sum(1), share.squeeze(-1)


NAIVE = {"pairwise_interaction": naive_pairwise}

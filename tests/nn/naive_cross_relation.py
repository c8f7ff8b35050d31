"""Learned combinations of relations that hold every option of every row at once: slow, and plain to see."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from dglcell.nn.cross_relation import PairwiseInteraction, RelationAttention

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": nn.functional.gelu,
    "relu": torch.relu,
    "tanh": torch.tanh,
}


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


def naive_attention(mix: RelationAttention, h: Sequence[Tensor], activation: str) -> tuple[Tensor, Tensor]:
    """Return the mixture and its weights, by torch's own attention."""
    stacked = torch.stack(list(h), dim=1) + mix.embedding
    parameters = mix.project.weight, mix.project.bias, None, None, False, 0.0, mix.out.weight, mix.out.bias
    out, share = nn.functional.multi_head_attention_forward(
        *[stacked.transpose(0, 1)] * 3, mix.width, mix.heads, *parameters, training=False, average_attn_weights=True
    )
    return out.mean(0), share


NAIVE = {"pairwise_interaction": naive_pairwise, "cross_attention": naive_attention}

"""Set attention against a literal loop over sets, genes and heads."""

from __future__ import annotations

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from dglcell.nn.heads import HyperSAGNN, SetAttention
from tests.examples import examples

WIDTH, HEADS = 6, 2


def attend_one_set(layer: SetAttention, x_KH: torch.Tensor) -> torch.Tensor:
    """Return one round for one set without padding."""
    if len(x_KH) < 2:
        return x_KH
    query, key, value = layer.project(x_KH).split(WIDTH, dim=1)
    head_width = WIDTH // HEADS
    mixed = torch.zeros_like(x_KH)
    for head in range(HEADS):
        part = slice(head * head_width, (head + 1) * head_width)
        for i in range(len(x_KH)):
            others = [j for j in range(len(x_KH)) if j != i]
            logits = torch.stack([query[i, part] @ key[j, part] / math.sqrt(head_width) for j in others])
            share = torch.softmax(logits, 0)
            mixed[i, part] = sum(s * value[j, part] for s, j in zip(share, others, strict=True))
    return x_KH + layer.beta * layer.out(mixed)


@examples(15)
@given(sizes=st.lists(st.integers(0, 5), min_size=1, max_size=5), seed=st.integers(0, 1000))
def test_scores_equal_a_loop_over_sets(sizes: list[int], seed: int) -> None:
    torch.manual_seed(seed)
    model = HyperSAGNN(WIDTH, 2, layers=2, heads=HEADS, gain=0.7, activation="gelu", dropout=0.0).double()
    largest = max(max(sizes), 1)
    x = torch.randn(len(sizes), largest, WIDTH, dtype=torch.float64)
    present = torch.arange(largest) < torch.tensor(sizes).unsqueeze(1)
    got = model(x, present)
    for b, size in enumerate(sizes):
        dynamic = x[b, :size]
        for layer in model.attention:
            dynamic = attend_one_set(layer, dynamic)
        scores = model.score((dynamic - model.static(x[b, :size])).square())
        expected = scores.mean(0) if size else torch.zeros(2, dtype=torch.float64)
        torch.testing.assert_close(got[b], expected, atol=1e-12, rtol=1e-12)


def test_padding_and_lonely_genes_give_finite_gradients() -> None:
    model = HyperSAGNN(WIDTH, 1, layers=2, heads=HEADS, gain=1.0, activation="gelu", dropout=0.0)
    x = torch.randn(3, 4, WIDTH, requires_grad=True)
    present = torch.tensor([[False] * 4, [True] + [False] * 3, [True] * 4])
    model(x, present).sum().backward()
    assert x.grad.isfinite().all()
    assert not x.grad[~present].any()

"""Attention to deleted genes against a literal loop over strains, genes and heads."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dglcell.nn import deletion_attention
from dglcell.nn.deletion_attention import DeletionAttention

WIDTH, HEADS = 6, 2


def attention(seed: int = 0) -> DeletionAttention:
    torch.manual_seed(seed)
    return DeletionAttention(WIDTH, HEADS).double()


def updates(layer: DeletionAttention, x_NH: torch.Tensor, deleted_KH: torch.Tensor) -> torch.Tensor:
    """[N, H] what every gene's state changes by, gene by gene."""
    query, key, value = layer.query(x_NH), layer.key(deleted_KH), layer.value(deleted_KH)
    wide = WIDTH // HEADS
    mixed = torch.zeros_like(x_NH)
    for n in range(len(x_NH)):
        for head in range(HEADS):
            part = slice(head * wide, (head + 1) * wide)
            weights = [math.exp(float(query[n, part] @ k[part]) / math.sqrt(wide)) for k in key]
            for weight, v in zip(weights, value, strict=True):
                mixed[n, part] += weight / (1 + sum(weights)) * v[part]
    return layer.out(mixed)


@settings(max_examples=25)
@given(
    sizes=st.lists(st.integers(0, 4), min_size=1, max_size=5),
    genes=st.integers(1, 7),
    seed=st.integers(0, 1000),
    block=st.sampled_from([1, 40, 1 << 20]),
)
def test_pooled_updates_equal_a_loop_over_genes(sizes: list[int], genes: int, seed: int, block: int) -> None:
    layer, largest = attention(seed), max(sizes)
    x, weight = torch.randn(genes, WIDTH).double(), torch.rand(genes, len(sizes)).double()
    deleted = torch.randn(len(sizes), largest, WIDTH).double()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deletion_attention, "BLOCK_LOGITS", block)
        got = layer(x, weight, deleted, torch.arange(largest) < torch.tensor(sizes).unsqueeze(1))
    for b, size in enumerate(sizes):
        expected = weight[:, b] @ updates(layer, x, deleted[b, :size])
        torch.testing.assert_close(got[b], expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("block", [1, 1 << 20])
def test_gradients_are_those_of_finite_differences(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(deletion_attention, "BLOCK_LOGITS", block)
    layer, present = attention(), torch.tensor([[True, True], [True, False], [False, False]])
    tensors = [torch.randn(4, WIDTH), torch.rand(4, 3), torch.randn(3, 2, WIDTH)]
    inputs = [x.double().requires_grad_() for x in tensors]
    torch.autograd.gradcheck(lambda *x: layer(*x[:3], present), (*inputs, *layer.parameters()))


def test_no_tensor_has_a_state_for_every_gene_and_strain() -> None:
    genes, strains = 50, 40
    sizes: list[int] = []

    class Sizes(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            sizes.extend(x.numel() for x in torch.utils._pytree.tree_leaves(out) if isinstance(x, torch.Tensor))
            return out

    layer = DeletionAttention(64, 2)
    deleted = torch.randn(strains, 2, 64, requires_grad=True)
    with Sizes():
        layer(
            torch.randn(genes, 64), torch.rand(genes, strains), deleted, torch.ones(strains, 2).bool()
        ).sum().backward()
    # Two heads, two deleted genes and the key of no deletion.
    assert max(sizes) <= genes * strains * 2 * 3

"""Attention to deleted genes against a literal loop over strains, genes and heads."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dglcell.models.terms import scores
from dglcell.models.terms.scores import DeletionAttention
from dglcell.perturbation.genotype import GenotypeBatch
from tests.examples import examples
from tests.perturbation.states_of import LargestResult

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
            weights = [math.exp((query[n, part] @ k[part]).item() / math.sqrt(wide)) for k in key]
            for weight, v in zip(weights, value, strict=True):
                mixed[n, part] += weight / (1 + sum(weights)) * v[part]
    return layer.out(mixed)


@examples(25)
@given(
    strains=st.lists(st.lists(st.integers(0, 6), max_size=4, unique=True), min_size=1, max_size=5),
    seed=st.integers(0, 1000),
    scale=st.sampled_from([1.0, 5.0]),
    block=st.sampled_from([1, 40, 1 << 20]),
)
def test_pooled_updates_equal_a_loop_over_genes(strains: list[list[int]], seed: int, scale: float, block: int) -> None:
    layer = attention(seed)
    x, weight = scale * torch.randn(7, WIDTH).double(), torch.rand(7, len(strains)).double()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scores, "BLOCK_LOGITS", block)
        got = layer(x, weight, *GenotypeBatch.from_lists(strains).padded())
    for b, strain in enumerate(strains):
        expected = weight[:, b] @ updates(layer, x, x[strain])
        torch.testing.assert_close(got[b], expected, atol=1e-10, rtol=1e-10)


def test_logits_beyond_what_exponentials_can_hold() -> None:
    query, key = torch.ones(1, 2, 1), torch.tensor([[[400.0], [399.0], [-400.0]]])
    slot, present = torch.tensor([[0, 1], [2, 0], [2, 2]]), torch.tensor([[True, True], [True, True], [True, False]])
    got = scores.pooled_shares(query, key[:, slot], present, torch.ones(2, 3))
    share = 1 / (1 + math.exp(-1))
    expected = 2 * torch.tensor([[[share, 1 - share]], [[0, 1]], [[0, 0]]])
    torch.testing.assert_close(got, expected, atol=1e-6, rtol=1e-6)


def test_half_precision_is_summed_in_single(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "BLOCK_LOGITS", 100)
    torch.manual_seed(0)
    layer, x, weight = DeletionAttention(8, 2), torch.randn(20, 8), torch.rand(20, 6)
    batch = GenotypeBatch.from_lists(torch.randint(0, 20, (6, 2)).tolist()).padded()

    def both(half: bool) -> list[torch.Tensor]:
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            out = layer(x, weight, *batch).float()
            return [out.detach(), *torch.autograd.grad(out.square().sum(), list(layer.parameters()))]

    for got, expected in zip(both(half=True), both(half=False), strict=True):
        assert (got - expected).abs().max() <= 0.05 * expected.abs().max()


def test_no_tensor_has_a_state_for_every_gene_and_strain() -> None:
    genes, strains = 50, 40
    layer = DeletionAttention(64, 2)
    batch = GenotypeBatch.from_lists(torch.randint(0, genes, (strains, 2)).tolist()).padded()
    with LargestResult() as results:
        layer(torch.randn(genes, 64, requires_grad=True), torch.rand(genes, strains), *batch).sum().backward()
    # Two heads, two deleted genes and the key of no deletion.
    assert results.largest <= genes * strains * 2 * 3

"""The factorisation machine against a literal loop over sets and pairs."""

from __future__ import annotations

from itertools import combinations

import torch
from hypothesis import given
from hypothesis import strategies as st

from dglcell.nn.heads import FactorisationMachine
from tests.examples import examples

WIDTH, FACTORS, GENES = 5, 3, 7


def machine(genes: int | None, outputs: int = 2) -> FactorisationMachine:
    model = FactorisationMachine(WIDTH, outputs, factors=FACTORS, dropout=0.0, genes=genes).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    return model


def score_one_set(model: FactorisationMachine, x_KH: torch.Tensor, genes: list[int]) -> torch.Tensor:
    """Return the definition, pair by pair."""
    effects = [model.effect.weight @ x + model.effect.bias for x in x_KH]
    vectors = [model.vector.weight @ x for x in x_KH]
    if model.own_effects is not None:
        effects = [e + model.own_effects[g] for e, g in zip(effects, genes, strict=True)]
        vectors = [v + model.own_vectors[g] for v, g in zip(vectors, genes, strict=True)]
    score = torch.zeros(2, dtype=torch.float64)
    for effect in effects:
        score = score + effect
    for i, j in combinations(range(len(vectors)), 2):
        score = score + model.score.weight @ (vectors[i] * vectors[j])
    return score


@examples(15)
@given(sizes=st.lists(st.integers(0, 5), min_size=1, max_size=5), seed=st.integers(0, 1000), own=st.booleans())
def test_scores_equal_a_loop_over_pairs(sizes: list[int], seed: int, own: bool) -> None:
    torch.manual_seed(seed)
    model = machine(GENES if own else None)
    largest = max(sizes)
    x, genes = torch.randn(len(sizes), largest, WIDTH).double(), torch.randint(0, GENES, (len(sizes), largest))
    got = model(x, genes, torch.arange(largest) < torch.tensor(sizes).unsqueeze(1))
    for b, size in enumerate(sizes):
        expected = score_one_set(model, x[b, :size], genes[b, :size].tolist())
        torch.testing.assert_close(got[b], expected, atol=1e-12, rtol=1e-12)


def test_a_gene_of_its_own_starts_without_deviation_and_untrained_ones_keep_none() -> None:
    model = FactorisationMachine(WIDTH, 1, factors=FACTORS, dropout=0.0, genes=GENES)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
    genes, present = torch.tensor([[0, 1], [2, 4]]), torch.ones(2, 2, dtype=torch.bool)
    for _ in range(3):
        optimizer.zero_grad()
        (model(torch.ones(2, 2, WIDTH), genes, present) - 1).square().sum().backward()
        optimizer.step()
    trained = (model.own_vectors.abs().sum(1) > 0) & (model.own_effects.abs().sum(1) > 0)
    assert trained.tolist() == [True, True, True, False, True, False, False]

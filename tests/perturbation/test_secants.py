"""Differences as fixed factors times differences: the same numbers as by the rules, and parts that sum to them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dglcell.perturbation import secants
from tests.examples import examples
from tests.perturbation.test_rules import CASES, Case, rows_of

SMOOTH = ("a quotient", "gelu by a tanh")
EXACT = {name: case for name, case in CASES.items() if "without a rule" not in name and name not in SMOOTH}
"""All but functions that are followed along a path, which is exact only as far as they are smooth."""


@pytest.mark.parametrize("name", EXACT)
@examples(5)
@given(data=st.data())
def test_parts_sum_to_the_difference_that_the_rule_gives(name: str, data: st.DataObject) -> None:
    case: Case = EXACT[name]
    rows = data.draw(rows_of(case))
    expected = rows.by_rule(case.function)[1]
    with secants.secants():
        found = rows.by_rule(case.function)[1]
        if expected is None:
            assert found is None
            return
        assert found is not None
        scale = max(1.0, float(expected.abs().max()) if expected.numel() else 1.0)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11 * scale)
        differences = [delta for delta in rows.deltas if delta is not None]
        grads = torch.autograd.grad(found.sum(), differences, allow_unused=True)
    parts = sum(float((g * d).sum()) for g, d in zip(grads, differences, strict=True) if g is not None)
    assert parts == pytest.approx(float(found.sum()), rel=1e-9, abs=1e-9 * scale * max(1, found.numel()))


def test_a_softmax_may_lose_and_weaken_entries() -> None:
    logits = torch.tensor([[0.3], [-800.0], [2.0], [1.0]], dtype=torch.float64)
    delta = torch.tensor([[0.1], [900.0], [0.0], [-0.5]], dtype=torch.float64, requires_grad=True)
    alive = torch.tensor([[True], [True], [False], [True]])
    strength = torch.tensor([[1.0], [1.0], [0.0], [0.3]], dtype=torch.float64)
    removed = (1 - strength).requires_grad_()
    added = strength.masked_fill(~alive, 1).log()
    change, before, after = secants.share_changes(logits, delta, 0, torch.ones_like(alive), alive, added, removed)
    weights = torch.exp(logits + delta - 100) * strength
    torch.testing.assert_close(after, weights / weights.sum())
    torch.testing.assert_close(change, after - before)
    value = torch.tensor([[1.0], [2.0], [3.0], [4.0]], dtype=torch.float64)
    total = (change * value).sum()
    of_delta, of_removed = torch.autograd.grad(total, [delta, removed])
    torch.testing.assert_close((of_delta * delta).sum() + (of_removed * removed).sum(), total)


def test_rules_are_as_before_behind_the_block_and_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), secants.secants():
        raise ZeroDivisionError
    assert not secants.on()

"""Metrics from sums over batches, against those of all predictions together."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dglcell.metrics import regression_metrics
from dglcell.training.task import FIELDS, add_sums, metrics_of, pair_sums


def of_batches(p_ST: torch.Tensor, t_ST: torch.Tensor, batch: int) -> torch.Tensor:
    """Sums of all batches together."""
    parts = zip(p_ST.split(batch), t_ST.split(batch), strict=True)
    return reduce(add_sums, [pair_sums(p, t) for p, t in parts])


def assert_same(sums_TK: torch.Tensor, p_ST: torch.Tensor, t_ST: torch.Tensor) -> None:
    """The metrics of every phenotype, but for ranks."""
    for sums, p, t in zip(sums_TK, p_ST.T, t_ST.T, strict=True):
        expected = regression_metrics(p, t)
        del expected["spearman"]
        assert metrics_of(sums) == pytest.approx(expected, rel=1e-10, abs=1e-10, nan_ok=True)


@settings(max_examples=80)
@given(st.integers(0, 10_000), st.integers(1, 30), st.integers(1, 9), st.sampled_from([0.0, 0.5, 1.0]))
def test_batches_add_up_to_all_strains(seed: int, n: int, batch: int, missing: float) -> None:
    rng = np.random.default_rng(seed)
    t_ST = rng.normal(size=(n, 2)) * 10.0 ** rng.integers(-3, 4) + 10.0 ** rng.integers(-3, 3)
    p_ST = rng.random() * t_ST + rng.normal(size=(n, 2))
    t_ST[rng.random((n, 2)) < missing] = np.nan
    p_ST[np.isnan(t_ST) & (rng.random((n, 2)) < 0.5)] = np.nan
    p, t = torch.as_tensor(p_ST), torch.as_tensor(t_ST)
    assert_same(of_batches(p, t, batch), p, t)


def test_a_mean_far_from_zero_costs_few_digits() -> None:
    rng = np.random.default_rng(0)
    t = torch.as_tensor(1e6 + rng.normal(size=(5000, 1)))
    p = t + torch.as_tensor(rng.normal(size=(5000, 1)))
    assert_same(of_batches(p, t, 7), p, t)


@pytest.mark.parametrize("constant", ["p", "t", "both"])
def test_what_is_constant_has_no_correlation(constant: str) -> None:
    varying, same = torch.arange(9.0).view(-1, 1), torch.full((9, 1), 0.1)
    p, t = (same if constant in (name, "both") else varying for name in ("p", "t"))
    assert_same(of_batches(p, t, 2), p, t)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_prediction_that_is_not_finite_is_not_hidden(bad: float) -> None:
    t = torch.arange(6.0).view(-1, 1)
    p = t.clone()
    p[3] = bad
    assert_same(of_batches(p, t, 2), p, t)


def test_single_precision_is_added_in_double() -> None:
    sums = pair_sums(torch.full((4096, 1), 0.1), torch.zeros(4096, 1))
    assert sums.shape == (1, FIELDS)
    assert metrics_of(sums[0])["mae"] == pytest.approx(float(torch.tensor(0.1).double()), rel=1e-12)


def test_no_strain_is_no_number() -> None:
    sums = pair_sums(torch.zeros(0, 3), torch.zeros(0, 3))
    assert [metrics_of(row)["n"] for row in sums] == [0, 0, 0]

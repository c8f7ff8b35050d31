"""Losses label by label."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import gaussian_kde

from dglcell.losses.config import BceConfig, GaussianConfig, MaskedConfig, MleWassSupcrConfig
from dglcell.losses.coupled import distribution_matching, label_quantiles, transport_cost
from dglcell.losses.loss import make_loss
from dglcell.models.model import Prediction
from tests.config_files import refusal, write
from tests.examples import examples

# Losses against their definitions, with missing labels.


DEFINITIONS = {"mse": lambda e: e * e, "huber": lambda e: 0.5 * e * e if abs(e) <= 1 else abs(e) - 0.5}


@pytest.mark.parametrize("name", DEFINITIONS)
@given(errors=st.lists(st.floats(-50, 50), max_size=8), missing=st.integers(0, 2))
def test_element_wise_losses_are_the_mean_of_their_definitions(name: str, errors: list[float], missing: int) -> None:
    prediction = torch.tensor([*errors, *[9.0] * missing], dtype=torch.float64).unsqueeze(1).requires_grad_()
    target = torch.zeros_like(prediction).index_fill(0, torch.arange(len(errors), len(prediction)), math.nan)
    loss = make_loss(MaskedConfig(name), epochs=1)(Prediction(prediction), target, epoch=0).total
    loss.backward()
    expected = sum(map(DEFINITIONS[name], errors)) / max(1, len(errors))
    assert loss.item() == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert not prediction.grad[len(errors) :].any()


def test_every_label_counts_alike() -> None:
    nan = torch.nan
    target = torch.tensor([[1.0, 2.0, nan], [3.0, nan, nan], [5.0, nan, nan]], dtype=torch.float64)
    prediction = Prediction(torch.zeros(3, 3, dtype=torch.float64))
    assert make_loss(MaskedConfig("mse"), 1)(prediction, target, 0).total.item() == pytest.approx((1 + 9 + 25 + 4) / 4)


# Binary cross-entropy: its definition, its labels, and a run that learns them.


def test_it_is_its_definition_over_the_labels_that_are_there() -> None:
    logits = torch.tensor([[0.3, -2.0], [1.5, 9.0]], dtype=torch.float64, requires_grad=True)
    target = torch.tensor([[1.0, 0.0], [0.25, math.nan]], dtype=torch.float64)
    loss = make_loss(BceConfig(), epochs=1)(Prediction(logits), target, 0).total
    loss.backward()
    pairs = [(0.3, 1.0), (-2.0, 0.0), (1.5, 0.25)]
    chances = [1 / (1 + math.exp(-x)) for x, _ in pairs]
    costs = [-y * math.log(q) - (1 - y) * math.log(1 - q) for q, (_, y) in zip(chances, pairs, strict=True)]
    assert loss.item() == pytest.approx(sum(costs) / 3)
    expected = [(q - y) / 3 for q, (_, y) in zip(chances, pairs, strict=True)]
    assert logits.grad.flatten().tolist() == pytest.approx([*expected, 0.0])


# Gaussian likelihood: a noise level for each phenotype.


def test_the_gaussian_loss_is_the_negative_log_likelihood() -> None:
    loss = make_loss(GaussianConfig(), epochs=1).eval()
    loss.load_state_dict({"variance_T": torch.tensor([0.25, 4.0])})
    target = torch.tensor([[1.0, 2.0], [3.0, torch.nan]])
    normal = torch.distributions.Normal(0.0, torch.tensor([0.5, 2.0]))
    expected = -normal.log_prob(target.nan_to_num()).flatten()[:3].mean() - math.log(2 * math.pi) / 2
    torch.testing.assert_close(loss(Prediction(torch.zeros(2, 2)), target, 0).total, expected)
    assert not loss(Prediction(torch.zeros(2, 2)), torch.full((2, 2), torch.nan), 0).total


# What the section `loss` can say: every wrong value is named by its key.

MINIMAL = "cell: {model: textbook}\n"


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("{name: rmse}", "`loss.name` is unknown\n  got:      rmse\n  expected: mse, huber, bce, gaussian, mse_dist_"),
        ("{name: mse, supcr: 0.1}", "unknown key `loss.supcr`\n  expected: among name"),
        ("{name: mse_dist_supcr, buffer_size: 9}", "unknown key `loss.buffer_size`"),
        ("{name: mse_dist_supcr, mse: -1}", "`loss.mse` is no weight\n  got:      -1.0\n  expected: 0 or more"),
        ("{name: mle_wass_supcr, mse: 0, wasserstein: 0, supcr: 1}", "`loss` leaves the predictions without any term"),
        ("{name: gaussian, smallest_sd: 0}", "`loss.smallest_sd` is no noise level"),
        ("{name: gaussian, memory: 0}", "`loss.memory` is too small\n  got:      0\n  expected: 1 or more steps"),
        ("{name: dango, schedule: linear}", "`loss.schedule` is unknown"),
        ("dango", "`loss.name: dango` needs what the model does not give: reconstruction\n  got:      `model.name: he"),
    ],
)
def test_wrong_values_are_refused_by_key(tmp_path: Path, override: str, expected: str) -> None:
    assert expected in refusal(write(tmp_path, "minimal.yaml", MINIMAL), f"loss={override}")


def test_a_reconstruction_that_no_loss_reads_is_refused(tmp_path: Path) -> None:
    dango = "cell: {model: textbook, derived: [isoenzyme]}\nmodel: {name: dango, zero_weights: {isoenzyme: 0.5}}\n"
    message = refusal(write(tmp_path, "dango.yaml", dango), "loss=mse")
    assert message.startswith("`loss.name: mse` does not read the model's reconstruction, which nothing else would")
    assert "do:       set `loss.name: dango`, or `model.reconstruction: false`" in message
    message = refusal(tmp_path / "dango.yaml", "loss=dango", "model.reconstruction=false")
    assert "needs what the model does not give" in message


def test_contrast_needs_embeddings_and_says_so() -> None:
    assert MleWassSupcrConfig().needs() == frozenset()
    assert MleWassSupcrConfig(supcr=0.1).needs() == {"embedding"}


# Distribution matching against scipy's density, inverted by root finding.


def quantiles_by_scipy(labels: np.ndarray) -> np.ndarray:
    """(i − ½)/n of the density between the smallest and the largest label."""
    density = gaussian_kde(labels, bw_method=0.5)
    low, high = labels.min(), labels.max()
    whole = density.integrate_box_1d(low, high)
    levels = (np.arange(len(labels)) + 0.5) / len(labels)
    return np.array([brentq(lambda x, q=q: density.integrate_box_1d(low, x) / whole - q, low, high) for q in levels])


@examples(15)
@given(
    labels=st.lists(st.floats(-5, 5), min_size=2, max_size=12).filter(lambda x: max(x) - min(x) > 0.1),
    missing=st.integers(0, 3),
)
def test_quantiles_are_those_of_scipys_density(labels: list[float], missing: int) -> None:
    target = torch.tensor([math.nan] * missing + labels, dtype=torch.float64)
    got = label_quantiles(target.unsqueeze(0))[0, : len(labels)].numpy()
    reach = max(labels) - min(labels)
    np.testing.assert_allclose(got, quantiles_by_scipy(np.array(labels)), atol=2e-3 * reach)
    assert (np.diff(got) >= 0).all()
    assert got.min() >= min(labels)
    assert got.max() <= max(labels)


def test_the_cost_is_the_mean_square_of_sorted_differences() -> None:
    generator = torch.Generator().manual_seed(0)
    prediction, target = torch.randn(2, 9, generator=generator), torch.randn(2, 9, generator=generator)
    target[1, [0, 4, 5]] = math.nan
    got = distribution_matching(prediction, target)
    for t in range(2):
        there = ~target[t].isnan()
        quantiles = label_quantiles(target[t][there].unsqueeze(0))[0]
        expected = (prediction[t][there].sort().values - quantiles).square().mean()
        torch.testing.assert_close(got[t], expected)


# Transport on a line against sorted values.


VALUES = st.lists(st.tuples(*[st.sampled_from([-2.0, 0.0, 0.25, 40.0]) | st.floats(-9, 9)] * 2), min_size=1, max_size=8)


@examples(50)
@given(pairs=VALUES, missing=st.integers(0, 3))
def test_transport_is_between_sorted_values_of_what_has_labels(pairs: list[tuple[float, float]], missing: int) -> None:
    x, y = np.array(pairs).T
    prediction = torch.tensor([[*x, *[1e3] * missing]], dtype=torch.float64, requires_grad=True)
    target = torch.tensor([[*y, *[math.nan] * missing]], dtype=torch.float64)
    cost = transport_cost(prediction, target)
    assert cost.item() == pytest.approx(0.5 * np.square(np.sort(x) - np.sort(y)).mean(), rel=1e-12, abs=1e-12)
    (slope,) = torch.autograd.grad(cost, prediction)
    assert slope[0, : len(x)].sort().values.tolist() == pytest.approx(
        sorted((np.sort(x) - np.sort(y)) / len(x)), rel=1e-9, abs=1e-12
    )
    assert not slope[0, len(x) :].any()


@pytest.mark.parametrize("cost", [distribution_matching, transport_cost])
def test_no_labels_cost_nothing(cost: Callable[..., torch.Tensor]) -> None:
    x = torch.randn(1, 4, requires_grad=True)
    got = cost(x, torch.full((1, 4), math.nan))
    assert got == 0
    assert not torch.autograd.grad(got, x)[0].any()

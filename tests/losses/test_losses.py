"""Losses label by label, and losses that compare strains with each other."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import gaussian_kde
from torch import Tensor

from dglcell.losses.config import LOSSES, BceConfig, GaussianConfig, MaskedConfig, MleWassSupcrConfig
from dglcell.losses.coupled import buffer_share, distribution_matching, label_quantiles, supcr, transport_cost
from dglcell.losses.loss import Loss, make_loss
from dglcell.models.model import Prediction
from tests.config_files import refusal, write
from tests.examples import examples

# Losses against their definitions, with missing labels.


DEFINITIONS = {"mse": lambda e: e * e, "huber": lambda e: 0.5 * e * e if abs(e) <= 1 else abs(e) - 0.5}


@pytest.mark.parametrize("name", DEFINITIONS)
@given(errors=st.lists(st.floats(-50, 50), max_size=8), missing=st.integers(0, 2), phenotypes=st.integers(1, 3))
def test_element_wise_losses_are_the_mean_of_their_definitions_over_all_labels(
    name: str, errors: list[float], missing: int, phenotypes: int
) -> None:
    missing += -(len(errors) + missing) % phenotypes
    prediction = torch.tensor([*errors, *[9.0] * missing], dtype=torch.float64).view(-1, phenotypes).requires_grad_()
    target = torch.tensor([0.0] * len(errors) + [math.nan] * missing, dtype=torch.float64).view_as(prediction)
    loss = make_loss(MaskedConfig(name), epochs=1)(Prediction(prediction), target, epoch=0).total
    loss.backward()
    expected = sum(map(DEFINITIONS[name], errors)) / max(1, len(errors))
    assert loss.item() == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert not prediction.grad.flatten()[len(errors) :].any()


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


DISTANCES = {"mse_dist_supcr": "distribution", "mle_wass_supcr": "wasserstein"}
BUFFERED = "mle_wass_supcr"


def make(name: str, epochs: int = 20, **keys: Any) -> Loss:
    """Return a loss by its configuration's keys; embeddings are compared where it is not said otherwise."""
    config = replace(LOSSES[name](), **{"name": name, "supcr": 0.3, **keys})
    config.validate()
    return make_loss(config, epochs).double()


def batch(seed: int, strains: int, phenotypes: int = 2, missing: float = 0.3) -> tuple[Prediction, Tensor]:
    """Return predictions with gradient, and labels of which some are missing."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    target = normal(strains, phenotypes)
    target[torch.rand(strains, phenotypes, generator=generator) < missing] = math.nan
    prediction = normal(strains, phenotypes).requires_grad_()
    return Prediction(prediction, embedding=normal(strains, 3).requires_grad_()), target


def gradients(total: Tensor, prediction: Prediction) -> list[Tensor]:
    inputs = (prediction.phenotypes, prediction.embedding)
    return list(torch.autograd.grad(total, inputs, allow_unused=True, materialize_grads=True))


def mean_where_two(values: list[Tensor], target: Tensor) -> Tensor:
    """Mean over the phenotypes with at least two labels."""
    kept = [value for value, label in zip(values, target.T, strict=True) if (~label.isnan()).sum() >= 2]
    return torch.stack(kept).mean() if kept else torch.zeros((), dtype=target.dtype)


def transport(prediction: Tensor, target: Tensor) -> Tensor:
    """The distance, phenotype by phenotype without what is missing."""
    there = [~label.isnan() for label in target.T]
    values = [transport_cost(prediction[None, mask, t], target[None, mask, t])[0] for t, mask in enumerate(there)]
    return mean_where_two(values, target)


class Expected:
    """The same in plain Python: a list of earlier strains, and every rule of the docstring."""

    def __init__(self, *, size: int, adaptive: bool, epochs: int) -> None:
        self.size, self.adaptive, self.epochs = size, adaptive, epochs
        self.kept: list[tuple[Tensor, Tensor, Tensor]] = []
        self.seen = 0

    def __call__(self, prediction: Prediction, target: Tensor, epoch: int) -> tuple[Tensor, dict[str, Tensor]]:
        x, e = prediction.phenotypes, prediction.embedding
        labelled = [i for i in range(len(target)) if not target[i].isnan().all()]
        share = buffer_share(epoch, self.epochs)
        number = int(len(labelled) * (share / (1 - share)) + 1e-9) if self.adaptive else self.size
        few = self.kept[-number:] if number else []
        mixed_x, mixed_y = (torch.cat([z, *(row[k][None] for row in few)]) for k, z in enumerate((x, target)))
        all_e, all_y = (torch.cat([z, *(row[k][None] for row in self.kept)]) for k, z in ((2, e), (1, target)))
        self.kept = (self.kept + [(x[i].detach(), target[i], e[i].detach()) for i in labelled])[-self.size :]
        self.kept = self.kept if self.size else []
        self.seen += len(labelled)
        there = ~target.isnan()
        terms = {
            "mse": (x[there] - target[there]).square().mean(),
            "wasserstein": transport(mixed_x, mixed_y),
            "supcr": mean_where_two(list(supcr(all_e, all_y.T.contiguous(), 0.2)), all_y),
        }
        if self.seen < self.size:
            terms |= {key: torch.zeros((), dtype=x.dtype) for key in ("wasserstein", "supcr")}
        factor = 1 - share / 2 if self.adaptive and self.size else 1.0
        return 2.0 * terms["mse"] + 0.5 * terms["wasserstein"] + 0.3 * factor * terms["supcr"], terms


@pytest.mark.parametrize("adaptive", [True, False])
@pytest.mark.parametrize("size", [0, 7, 12, 64])
def test_terms_over_several_steps_are_those_of_the_docstring(size: int, adaptive: bool) -> None:
    keys: dict[str, Any] = {"mse": 2.0, "wasserstein": 0.5, "temperature": 0.2, "temperature_final": None}
    loss = make(BUFFERED, buffer_size=size, adaptive=adaptive, **keys)
    expected = Expected(size=size, adaptive=adaptive, epochs=20)
    for step, strains in enumerate([5, 1, 8, 8, 3, 6, 8, 8]):
        prediction, target = batch(step, strains, missing=0.9 if step == 4 else 0.3)
        epoch = 2 * step
        got = loss(prediction, target, epoch)
        total, terms = expected(prediction, target, epoch)
        torch.testing.assert_close(got.total, total, rtol=1e-10, atol=1e-10)
        schedules = {"temperature": 0.2}
        if adaptive and size:
            schedules["buffer_share"] = buffer_share(epoch, 20)
        assert list(got.terms) == ["mse", "wasserstein", "supcr", *schedules]
        terms |= {name: torch.tensor(value, dtype=total.dtype) for name, value in schedules.items()}
        for term, value in got.terms.items():
            torch.testing.assert_close(value, terms[term].detach(), rtol=1e-10, atol=1e-10)
            assert not value.requires_grad
        for one, other in zip(gradients(got.total, prediction), gradients(total, prediction), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", DISTANCES)
def test_evaluation_changes_nothing_and_sees_no_training_label(name: str) -> None:
    loss = make(name, temperature=1.0, temperature_final=0.2)
    fresh = batch(9, 6)

    def look(after: Loss, epoch: int) -> Tensor:
        with torch.no_grad():
            return after(*fresh, epoch).total

    before = look(loss.eval(), 0)
    for seed in range(5):
        loss.train()(*batch(seed, 6), 3)
    state = {key: value.clone() for key, value in loss.state_dict().items()}
    # The same function in every epoch: the last temperature, all that is there compared, full weights.
    assert look(loss.eval(), 0) == look(loss.eval(), 19) == before
    same = make(name, temperature=0.2, temperature_final=None)
    torch.testing.assert_close(look(same.eval(), 0), before)
    for key, value in loss.state_dict().items():
        torch.testing.assert_close(value, state[key], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(("name", "key"), DISTANCES.items())
def test_a_term_without_weight_is_left_out(name: str, key: str) -> None:
    prediction, target = batch(0, 6)
    assert set(make(name, supcr=0.0).eval()(Prediction(prediction.phenotypes), target, 0).terms) == {"mse", key}
    assert set(make(name, mse=0.0).eval()(prediction, target, 0).terms) == {key, "supcr"}
    without = make(name, supcr=0.0, **{key: 0.0}).eval()(Prediction(prediction.phenotypes), target, 0)
    assert list(without.terms) == ["mse"]
    there = ~target.isnan()
    torch.testing.assert_close(without.total, (prediction.phenotypes - target)[there].square().mean())
    prediction, target = batch(0, 6, 1, 0.0)
    found = make(name, supcr=0.0).eval()(Prediction(prediction.phenotypes), target, 0).terms[key]
    distance = {"distribution": distribution_matching, "wasserstein": transport_cost}[key]
    torch.testing.assert_close(found, distance(prediction.phenotypes.T.detach(), target.T)[0])


def test_a_saved_loss_goes_on_as_if_it_had_never_stopped() -> None:
    one, other = make(BUFFERED, buffer_size=8), make(BUFFERED, buffer_size=8)
    for seed in range(3):
        one(*batch(seed, 6), 0)
    assert {"buffer.seen", "buffer.prediction", "buffer.target", "buffer.embedding"} == {*one.state_dict()}
    other.load_state_dict(one.state_dict())
    for seed in range(3, 6):
        assert torch.equal(one(*batch(seed, 6), 1).total, other(*batch(seed, 6), 1).total)

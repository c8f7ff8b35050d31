"""Losses that compare strains with each other."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from dglcell.losses.config import LOSSES
from dglcell.losses.coupled import buffer_share, distribution_matching, supcr, transport_cost
from dglcell.losses.loss import Loss, make_loss
from dglcell.models.model import Prediction

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

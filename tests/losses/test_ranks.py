"""Two real processes have the gradient, the terms and the buffers of one process with both batches."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from dglcell.losses.config import LOSSES, DangoLossConfig
from dglcell.losses.coupled import CoupledLoss, buffer_share, supcr
from dglcell.losses.loss import DangoLoss, Loss, make_loss
from dglcell.models.model import Prediction
from dglcell.training.callbacks import leave_group
from tests.examples import examples
from tests.forked import FORKS
from tests.losses.test_losses import make

RANKS = 2
# Strains of every rank, step by step; some batches are short, one is empty.
SIZES = ((6, 6), (6, 2), (0, 5), (6, 6), (3, 6))
LARGEST = 6

CASES: dict[str, dict[str, Any]] = {
    "mse": {"name": "mse"},
    "huber": {"name": "huber"},
    "bce": {"name": "bce"},
    "gaussian": {"name": "gaussian", "memory": 3},
    "mse_dist_supcr": {"name": "mse_dist_supcr"},
    "distribution": {"name": "mse_dist_supcr", "mse": 0.0, "supcr": 0.0},
    "wasserstein": {"name": "mle_wass_supcr", "mse": 0.0, "buffer_size": 0},
    "wasserstein, buffered": {"name": "mle_wass_supcr", "mse": 0.0, "supcr": 0.0, "buffer_size": 9},
    "supcr": {"name": "mse_dist_supcr", "distribution": 0.0, "mse": 1e-9, "supcr": 1.0},
    "supcr, buffered": {"name": "mle_wass_supcr", "mse": 1e-9, "wasserstein": 0.0, "supcr": 1.0, "buffer_size": 9},
    "all": {"name": "mle_wass_supcr", "supcr": 0.3, "buffer_size": 9, "adaptive": False},
}


class Model(nn.Module):
    """Features → two phenotypes and an embedding."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(7)
        self.embed, self.predict = nn.Linear(4, 3).double(), nn.Linear(3, 2).double()
        for parameter in self.parameters():
            nn.init.normal_(parameter, generator=generator)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        embedding = self.embed(features).tanh()
        return self.predict(embedding), embedding


def loss_of(case: str) -> Loss:
    keys = dict(CASES[case])
    if keys["name"] in ("mse", "huber", "bce", "gaussian"):
        return make_loss(LOSSES[keys["name"]](**keys), epochs=8).double()
    return make(keys.pop("name"), epochs=8, **keys)


def batch_of(rank: int, case: str, step: int) -> tuple[Tensor, Tensor]:
    """Features and labels; the second rank lacks most labels of the first phenotype."""
    generator, strains = torch.Generator().manual_seed(10 * step + rank), SIZES[step][rank]
    features = torch.randn(strains, 4, generator=generator, dtype=torch.float64)
    target = torch.randn(strains, 2, generator=generator, dtype=torch.float64)
    target[torch.rand(strains, 2, generator=generator) < 0.2] = math.nan
    if rank == 1:
        target[torch.rand(strains, generator=generator) < 0.7, 0] = math.nan
    return features, target.sigmoid() if CASES[case]["name"] == "bce" else target


def batch_of_all(case: str, step: int) -> tuple[Tensor, Tensor]:
    """Return what both ranks see, dealt in turn."""
    features, target = zip(*(batch_of(rank, case, step) for rank in range(RANKS)), strict=True)
    turns = torch.cat([torch.arange(size) for size in SIZES[step]]).argsort(stable=True)
    return torch.cat(features)[turns], torch.cat(target)[turns]


def steps(case: str, model: nn.Module, loss: Loss, rank: int | None) -> dict[str, Any]:
    """Gradients, terms and buffers after every step; of the strains of one rank, or of all."""
    seen: dict[str, Any] = {"gradients": [], "terms": [], "states": []}
    for step in range(len(SIZES)):
        features, target = batch_of_all(case, step) if rank is None else batch_of(rank, case, step)
        model.zero_grad()
        phenotypes, embedding = model(features)
        terms = loss(Prediction(phenotypes, embedding=embedding), target, epoch=step)
        terms.total.backward()
        seen["gradients"].append([p.grad.clone() for p in model.parameters()])
        seen["terms"].append({"total": terms.total.detach(), **terms.terms})
        seen["states"].append({key: value.clone() for key, value in loss.state_dict().items()})
    with torch.no_grad():
        loss.eval()
        phenotypes, embedding = model(features)
        seen["evaluation"] = loss(Prediction(phenotypes, embedding=embedding), target, epoch=0).total
    return seen


def one_rank(rank: int, folder: str) -> None:
    """What a process sees, saved for the test."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS)
    found: dict[str, Any] = {}
    for case in CASES:
        loss = loss_of(case)
        loss.batch_size = LARGEST
        found[case] = steps(case, DistributedDataParallel(Model()), loss, rank)
    torch.save(found, f"{folder}/{rank}.pt")
    leave_group()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return what each of the processes saw."""
    folder = tmp_path_factory.mktemp("ranks")
    mp.start_processes(one_rank, (str(folder),), nprocs=RANKS, start_method=FORKS.get_start_method())
    return [torch.load(folder / f"{rank}.pt") for rank in range(RANKS)]


@pytest.mark.parametrize("case", CASES)
def test_ranks_have_what_one_process_has(found: list[dict[str, Any]], case: str) -> None:
    alone = steps(case, Model(), loss_of(case), None)
    close = {"rtol": 0, "atol": 1e-12}
    for rank in range(RANKS):
        seen = found[rank][case]
        for step in range(len(SIZES)):
            for got, expected in zip(seen["gradients"][step], alone["gradients"][step], strict=True):
                torch.testing.assert_close(got, expected, **close)
            for term, value in alone["terms"][step].items():
                torch.testing.assert_close(seen["terms"][step][term], value, **close)
            for key, value in alone["states"][step].items():
                torch.testing.assert_close(seen["states"][step][key], value, **close, equal_nan=True)
                # Bit by bit between the ranks.
                torch.testing.assert_close(
                    seen["states"][step][key], found[0][case]["states"][step][key],
                    rtol=0, atol=0, equal_nan=True,
                )  # fmt: skip
        torch.testing.assert_close(seen["evaluation"], alone["evaluation"], **close)
    assert any(g.abs().max() > 1e-3 for gradients in alone["gradients"] for g in gradients)


# Supervised contrast against a triple loop over its definition.


def by_definition(embedding: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """Return one phenotype: for every i and j ≠ i, over all k ≠ i at least as far."""
    there = [i for i in range(len(labels)) if not labels[i].isnan()]
    costs = []
    for i in there:
        for j in there:
            if i == j:
                continue
            distance = abs(labels[i] - labels[j])
            far = [k for k in there if k != i and abs(labels[i] - labels[k]) >= distance]
            similarity = {k: torch.cosine_similarity(embedding[i], embedding[k], dim=0) / temperature for k in far}
            costs.append(-torch.log(torch.exp(similarity[j]) / sum(torch.exp(s) for s in similarity.values())))
    return torch.stack(costs).mean() if costs else embedding.sum() * 0


# Few values, so that distances are often equal; halves, so that they are exact.
LABELS = st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0, 2.0, math.nan]), min_size=0, max_size=7)


@examples(30)
@given(labels=LABELS, temperature=st.sampled_from([0.05, 0.1, 1.0]), seed=st.integers(0, 99))
@example(labels=[math.nan, 1.0, math.nan], temperature=0.1, seed=0)
def test_it_is_its_definition_with_ties_and_missing_labels(labels: list[float], temperature: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    target = torch.tensor(labels, dtype=torch.float64)
    embedding = torch.randn(len(labels), 3, generator=generator, dtype=torch.float64, requires_grad=True)
    (got,) = supcr(embedding, target.unsqueeze(0), temperature)
    expected = by_definition(embedding, target, temperature)
    torch.testing.assert_close(got, expected, rtol=1e-11, atol=1e-12)
    for one, other in zip(torch.autograd.grad(got, embedding), torch.autograd.grad(expected, embedding), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("temperature", [1e-4, 1e4])
def test_no_temperature_overflows(temperature: float) -> None:
    generator = torch.Generator().manual_seed(0)
    embedding = torch.randn(40, 4, generator=generator, requires_grad=True)
    cost = supcr(embedding, torch.randn(1, 40, generator=generator), temperature)
    cost.sum().backward()
    assert cost.isfinite().all()
    assert embedding.grad.isfinite().all()
    if temperature > 1:
        # Nothing is told from anything: −log(1/k) over the k = 1 … 39 that remain.
        assert float(cost.detach()) == pytest.approx(sum(math.log(k) for k in range(1, 40)) / 39, rel=1e-3)


def test_embeddings_of_zeros_are_as_far_from_all() -> None:
    embedding = torch.eye(3, dtype=torch.float64)
    embedding[0] = 0
    embedding.requires_grad_()
    cost = supcr(embedding, torch.tensor([[0.0, 1.0, 3.0]], dtype=torch.float64), 0.1)
    cost.sum().backward()
    assert float(cost.detach()) == pytest.approx(math.log(2) / 2)
    assert not embedding.grad[0].any()
    assert embedding.grad.isfinite().all()


# Temperatures and shares of the buffer by epoch.


def test_temperatures_fall_exponentially_or_not_at_all() -> None:
    for final, expected in ((0.1, [1.0, 10**-0.25, 10**-0.5, 10**-0.75, 0.1, 0.1]), (None, [1.0] * 6)):
        loss = make("mle_wass_supcr", 4, temperature=1.0, temperature_final=final)
        assert isinstance(loss, CoupledLoss)
        assert [loss.temperature(epoch) for epoch in (0, 1, 2, 3, 4, 9)] == pytest.approx(expected)


def test_the_share_of_the_buffer_rises() -> None:
    # In a line, then a sigmoid, half way between epochs 10 and 50 at 30, then constant.
    shares = {0: 0.1, 5: 0.2, 9: 0.28, 10: 0.3 + 0.6 / (1 + math.exp(5)), 30: 0.6, 50: 0.9, 1000: 0.9}
    assert {epoch: buffer_share(epoch, 100) for epoch in shares} == pytest.approx(shares)


ALPHAS = {
    "pre_then_post": {0: 1, 3: 1, 4: 0, 100: 0},
    "linear_until_uniform": {0: 1, 1: 0.875, 3: 0.625, 4: 0.5, 100: 0.5},
    "linear_until_flipped": {0: 1, 1: 0.75, 3: 0.25, 4: 0, 100: 0},
}


@pytest.mark.parametrize(("schedule", "alphas"), ALPHAS.items())
def test_schedules_weigh_epochs_as_published(schedule: str, alphas: dict[int, float]) -> None:
    config = DangoLossConfig(schedule=schedule, transition_epoch=4)
    assert {epoch: config.alpha(epoch) for epoch in alphas} == pytest.approx(alphas)
    assert [DangoLossConfig().alpha(epoch) for epoch in (0, 5, 10, 11)] == [1, 0.75, 0.5, 0.5], "as the original has it"


def make_prediction() -> tuple[Prediction, torch.Tensor, torch.Tensor, list[int]]:
    """Return a prediction, its leaves, and a list that grows when the reconstruction is read."""
    phenotypes = torch.tensor([[1.0], [3.0], [0.0]], requires_grad=True)
    error, reads = torch.tensor(2.0, requires_grad=True), []

    def read() -> torch.Tensor:
        reads.append(1)
        return error.square()

    return Prediction(phenotypes, auxiliary={"reconstruction": read}), phenotypes, error, reads


TARGET = torch.tensor([[0.5], [torch.nan], [2.0]])


@pytest.mark.parametrize("epoch", [0, 2, 7])
def test_the_total_is_the_weighted_sum_of_its_terms(epoch: int) -> None:
    prediction, phenotypes, error, _ = make_prediction()
    config = DangoLossConfig(transition_epoch=4)
    loss = make_loss(config, epochs=10)
    assert isinstance(loss, DangoLoss)
    result = loss(prediction, TARGET, epoch)
    result.total.backward()
    alpha = config.alpha(epoch)
    interaction = (math.log(math.cosh(0.5)) + math.log(math.cosh(2))) / 2
    expected = {
        "reconstruction": 4.0,
        "interaction": interaction,
        "weighted_reconstruction": alpha * 4,
        "weighted_interaction": (1 - alpha) * interaction,
        "alpha": alpha,
    }
    assert {name: float(term) for name, term in result.terms.items()} == pytest.approx(expected, rel=1e-5, abs=1e-7)
    assert result.total.item() == pytest.approx(alpha * 4 + (1 - alpha) * interaction, rel=1e-6)
    assert not any(term.requires_grad for term in result.terms.values())
    assert error.grad.item() == pytest.approx(alpha * 4)
    slopes = [(1 - alpha) * math.tanh(e) / 2 for e in (0.5, 0, -2)]
    assert phenotypes.grad.flatten().tolist() == pytest.approx(slopes, rel=1e-5)


def test_a_reconstruction_of_no_weight_is_not_computed() -> None:
    prediction, _, _, reads = make_prediction()
    result = DangoLoss(DangoLossConfig(schedule="pre_then_post", transition_epoch=4), 10)(prediction, TARGET, 4)
    assert not reads
    assert set(result.terms) == {"interaction", "weighted_interaction", "alpha"}
    evaluated = DangoLoss(DangoLossConfig(), 10).eval()(prediction, TARGET, 0)
    assert not reads
    assert evaluated.total == evaluated.terms["interaction"]
    assert set(evaluated.terms) == {"interaction"}


def test_a_batch_without_labels_still_reconstructs() -> None:
    prediction, phenotypes, error, _ = make_prediction()
    DangoLoss(DangoLossConfig(), 10)(prediction, torch.full((3, 1), torch.nan), 20).total.backward()
    assert not phenotypes.grad.any()
    assert error.grad.item() == pytest.approx(0.5 * 4)

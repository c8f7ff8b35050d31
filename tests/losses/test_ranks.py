"""Two real processes have the gradient, the terms and the buffers of one process with both batches."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from dglcell.losses.config import LOSSES
from dglcell.losses.loss import Loss, largest_over_ranks, make_loss, sum_over_ranks
from dglcell.models.model import Prediction
from dglcell.training.distributed import leave_group
from tests.forked import FORKS
from tests.losses.coupled_losses import make

RANKS = 2
# Strains of every rank, step by step; some batches are short, one is empty.
SIZES = ((6, 6), (6, 2), (0, 5), (6, 6), (3, 6))
LARGEST = 6

CASES: dict[str, dict[str, Any]] = {
    "mse": {"name": "mse"},
    "huber": {"name": "huber"},
    "huber, weighted": {"name": "huber", "phenotype_weights": [1.0, 3.0]},
    "bce": {"name": "bce"},
    "gaussian": {"name": "gaussian", "memory": 3},
    "mse_dist_supcr": {"name": "mse_dist_supcr"},
    "distribution": {"name": "mse_dist_supcr", "mse": 0.0, "supcr": 0.0},
    "distribution, buffered": {"name": "mle_dist_supcr", "mse": 0.0, "supcr": 0.0, "buffer_size": 9, "min_samples": 7},
    "wasserstein of order 1": {"name": "mle_wass_supcr", "mse": 0.0, "p": 1, "buffer_size": 0},
    "wasserstein, buffered": {"name": "mle_wass_supcr", "mse": 0.0, "supcr": 0.0, "buffer_size": 9, "min_samples": 7},
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
        for capacity in (LARGEST, None):
            loss = loss_of(case)
            loss.batch_size = capacity
            model = DistributedDataParallel(Model())
            found[f"{case}, {capacity}"] = steps(case, model, loss, rank)
    found["largest"] = largest_over_ranks(3 + rank, torch.device("cpu"))
    found["sum"] = sum_over_ranks(torch.tensor([1.0, float(rank)]))
    torch.save(found, f"{folder}/{rank}.pt")
    leave_group()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return what each of the processes saw."""
    folder = tmp_path_factory.mktemp("ranks")
    mp.start_processes(one_rank, (str(folder),), nprocs=RANKS, start_method=FORKS.get_start_method())
    return [torch.load(folder / f"{rank}.pt") for rank in range(RANKS)]


@pytest.mark.parametrize("capacity", [LARGEST, None])
@pytest.mark.parametrize("case", CASES)
def test_ranks_have_what_one_process_has(found: list[dict[str, Any]], case: str, capacity: int | None) -> None:
    alone = steps(case, Model(), loss_of(case), None)
    close = {"rtol": 0, "atol": 1e-12}
    for rank in range(RANKS):
        seen = found[rank][f"{case}, {capacity}"]
        for step in range(len(SIZES)):
            for got, expected in zip(seen["gradients"][step], alone["gradients"][step], strict=True):
                torch.testing.assert_close(got, expected, **close)
            for term, value in alone["terms"][step].items():
                torch.testing.assert_close(seen["terms"][step][term], value, **close)
            for key, value in alone["states"][step].items():
                torch.testing.assert_close(seen["states"][step][key], value, **close, equal_nan=True)
                # Bit by bit between the ranks.
                torch.testing.assert_close(
                    seen["states"][step][key], found[0][f"{case}, {capacity}"]["states"][step][key],
                    rtol=0, atol=0, equal_nan=True,
                )  # fmt: skip
        torch.testing.assert_close(seen["evaluation"], alone["evaluation"], **close)
    assert any(g.abs().max() > 1e-3 for gradients in alone["gradients"] for g in gradients)


def test_numbers_of_ranks_are_summed_and_compared(found: list[dict[str, Any]]) -> None:
    for seen in found:
        assert seen["largest"] == 4
        assert seen["sum"].tolist() == [2.0, 1.0]

"""Training steps of the whole model: equal to those on a CPU, without waiting, without leaks, the same every time."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from dglcell.graph.resident import ResidentCell
from dglcell.models.cell_model import HeteroCell, SetOperator
from dglcell.models.config import OPERATORS, SetOperatorConfig
from dglcell.models.model import StrainModel
from dglcell.optimizers import OptimizerConfig, make_optimizer
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.training.task import StrainTask
from tests.gpu.devices import ExplicitDevices, needs_gpu
from tests.models.test_hetero_cell import small_config
from tests.perturbation.states_of import agree
from tests.perturbation.test_no_sync import make_dataset, make_task, step
from tests.random_cells import STRAINS, SUMMING, make_cell, randomise, results, textbook_cell


@pytest.fixture(scope="module")
def resident() -> ResidentCell:
    """Return the E. coli core cell with metabolism and two gene-gene relations."""
    return textbook_cell("shares_complex", "metabolic_neighbour")


def results_on(device: str, model: StrainModel) -> list[Tensor]:
    """Return predictions and all gradients of a copy of the model, on the host."""
    model, genotypes = copy.deepcopy(model).to(device), GenotypeBatch.from_lists(STRAINS).to(device)
    with ExplicitDevices():
        return [x.cpu() for x in results(model, genotypes)]


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_step_of_the_set_operator_equals_that_of_a_cpu(device: str, operator: str) -> None:
    torch.manual_seed(0)
    config = SetOperatorConfig(hidden=8, layers=1, local_heads=2, operator=operator)
    model = randomise(SetOperator(make_cell().resident, config, outputs=2).double())
    agree(results_on(device, model), results_on("cpu", model))


@pytest.mark.parametrize("conv", SUMMING)
@torch.inference_mode()
def test_deletions_in_common_are_computed_as_on_a_cpu(device: str, conv: str) -> None:
    torch.manual_seed(0)
    config = small_config(strategy="difference", conv=conv)
    model = randomise(HeteroCell(make_cell().resident, config, outputs=2).double()).eval()
    batch = GenotypeBatch.from_lists([[1, 2, gene] for gene in range(3, 6)])
    expected = copy.deepcopy(model)(batch).phenotypes
    shared = dataclasses.replace(batch, shared=(1, 2)).to(device)
    with ExplicitDevices():
        got = copy.deepcopy(model).to(device)(shared).phenotypes
    torch.testing.assert_close(got.cpu(), expected, rtol=1e-10, atol=1e-10)


class Training:
    """A task on a device and its strains there."""

    def __init__(self, resident: ResidentCell, device: str, strains: int = 12, **config: Any) -> None:
        torch.manual_seed(0)
        self.task: StrainTask = make_task(copy.deepcopy(resident), **config).to(device)
        self.optimizer = make_optimizer(OptimizerConfig(), self.task.model.parameters())
        dataset = make_dataset(strains)
        self.num_genes, self.dataset = len(dataset.targets), dataset.to(device)
        self.numbers = torch.arange(strains, device=device)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            step(self.task, self.optimizer, self.dataset.take(self.numbers, self.num_genes))


@contextmanager
def deterministic(on: bool) -> Iterator[None]:
    """As Lightning sets it for a run."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(on, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


@contextmanager
def waiting_is_an_error() -> Iterator[None]:
    """Let CUDA operations that make the host wait fail."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@needs_gpu
@pytest.mark.parametrize("exact", [False, True], ids=["", "deterministic"])
@pytest.mark.parametrize("conv", SUMMING)
def test_a_step_under_node_mask_never_waits(resident: ResidentCell, conv: str, exact: bool) -> None:
    training = Training(resident, "cuda", conv=conv, dropout=0.1)
    with deterministic(exact):
        training.run(2)
        with waiting_is_an_error():
            training.run(1)


@needs_gpu
@pytest.mark.parametrize("conv", SUMMING)
def test_memory_does_not_grow(resident: ResidentCell, conv: str) -> None:
    training = Training(resident, "cuda", conv=conv)

    def allocated() -> int:
        training.task.on_train_epoch_start()  # forgets the epoch's predictions
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated()

    training.run(5)
    before = allocated()
    training.run(100)
    assert allocated() == before


@pytest.mark.filterwarnings("ignore:.*deterministic:UserWarning")
@pytest.mark.parametrize("conv", SUMMING)
def test_the_same_seed_gives_the_same_weights(
    device: str, resident: ResidentCell, conv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    config = {"conv": conv, "dropout": 0.1, "layers": 1, "strains": 4}
    with deterministic(True):
        first, second = (Training(resident, device, **config) for _ in range(2))
        for training in (first, second):
            torch.manual_seed(1)
            training.run(2)
    weights = second.task.state_dict()
    assert all(torch.equal(x, weights[name]) for name, x in first.task.state_dict().items())


@pytest.mark.parametrize("maker", [lambda: torch.arange(3), lambda: torch.tensor([1]), lambda: torch.zeros(2, 2)])
def test_a_tensor_on_no_device_in_particular_is_found(maker: Callable[[], torch.Tensor]) -> None:
    with pytest.raises(AssertionError, match="without a device"), ExplicitDevices():
        maker()

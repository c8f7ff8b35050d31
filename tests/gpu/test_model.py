"""Steps of whole models and whole runs: equal to those on a CPU, without waiting or leaks, the same every time."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dglcell.graph.resident import ResidentCell
from dglcell.kernels import row_chain
from dglcell.losses.config import DangoLossConfig
from dglcell.losses.loss import DangoLoss
from dglcell.models import dango
from dglcell.models.cell_model import HeteroCell, SetOperator
from dglcell.models.config import OPERATORS, DangoConfig, SetOperatorConfig
from dglcell.models.dango import Dango
from dglcell.models.model import StrainModel
from dglcell.optimizers import OptimizerConfig, make_optimizer
from dglcell.perturbation.execution import Choices
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.runs import RunDirectory
from dglcell.training import task as task_module
from dglcell.training.evaluate import evaluate_run
from dglcell.training.task import StrainTask
from tests.gpu.devices import ExplicitDevices, as_on_a_gpu, needs_gpu
from tests.kernels.pairs import CASES, mixtures
from tests.models.test_dango import make_cell as network_cell
from tests.models.test_dango import random_networks
from tests.models.test_hetero_cell import small_config
from tests.perturbation.test_no_sync import make_dataset, make_task, step
from tests.random_cells import STRAINS, SUMMING, agree, make_cell, randomise, results, textbook_cell
from tests.tiny import Tiny, history


@pytest.fixture(params=[pytest.param("cuda", marks=needs_gpu), "cpu"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Provide a GPU, and a CPU that takes a GPU's paths: so mistakes show where there is no GPU."""
    if request.param == "cpu":
        as_on_a_gpu(monkeypatch)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield request.param
    torch.set_float32_matmul_precision(before)


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


ACCELERATORS = {"cuda": "gpu", "cpu": "cpu"}


@pytest.mark.filterwarnings("ignore:.*deterministic:UserWarning")
def test_a_run_learns_what_one_on_a_cpu_does(tiny_run: RunDirectory, tiny: Tiny, tmp_path: Path, device: str) -> None:
    options = [f"trainer.accelerator={ACCELERATORS[device]}", "model.strategy=node_mask"]
    result = tiny.train(tmp_path, *options)
    for row, expected in zip(history(result.directory), history(tiny_run), strict=True):
        for key in ("train/loss", "validation/loss"):
            assert row[key] == pytest.approx(expected[key], rel=0.02)
    again = evaluate_run(result.directory.path)
    assert again[0].metrics["mse"] == pytest.approx(result.rows[0].metrics["mse"], rel=1e-3)


@needs_gpu
@pytest.mark.filterwarnings("ignore:.*deterministic:UserWarning")
@pytest.mark.parametrize("schedule", ["scheduler.name=none", "scheduler={name: cosine_restarts, interval: step}"])
def test_a_recorded_step_is_a_step(tiny: Tiny, tmp_path: Path, schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose steps are CUDA graphs ends with the same weights; its checkpoints have plain numbers."""
    ends = []
    for worth in (2, 10**9):
        monkeypatch.setattr(task_module, "WORTH", worth)
        options = ["trainer.accelerator=gpu", "model.strategy=node_mask", "model.dropout=0.1", "data.batch_size=20"]
        directory = tiny.train(tmp_path / str(worth), *options, schedule).directory
        ends.append(torch.load(directory.last, weights_only=True, map_location="cpu"))
    recorded, plain = (end["state_dict"] for end in ends)
    assert all(torch.equal(recorded[name], weight) for name, weight in plain.items())
    (group,) = ends[0]["optimizer_states"][0]["param_groups"]
    assert isinstance(group["lr"], float)


TARGETS = torch.linspace(-1, 1, len(STRAINS), dtype=torch.float64).unsqueeze(1)


def loss_and_gradients(model: Dango, device: str) -> dict[str, Tensor]:
    """Loss, its terms and all gradients of a copy of the model, on the host."""
    model, genotypes = copy.deepcopy(model).to(device), GenotypeBatch.from_lists(STRAINS).to(device)
    target_BT = TARGETS.to(device)
    with ExplicitDevices():
        loss = DangoLoss(DangoLossConfig(), 20)(model(genotypes), target_BT, 5)
        loss.total.backward()
    gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    return {name: x.detach().cpu() for name, x in ({"total": loss.total, **loss.terms} | gradients).items()}


def test_a_step_equals_that_of_a_cpu(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    networks = random_networks(np.random.default_rng(0), 60, ["a", "b", "c"])
    config = DangoConfig(hidden=8, heads=2, gain=0.5, kernel="csr", zero_weights={"a": 0.1, "b": 1.0, "c": 0.5})
    torch.manual_seed(0)
    model = randomise(Dango(network_cell(networks, 60), config).double())
    monkeypatch.setattr(dango, "BLOCK_EDGES", 50)
    got = loss_and_gradients(model, device)
    expected = loss_and_gradients(model, "cpu")
    assert set(got) == set(expected)
    for name, value in expected.items():
        torch.testing.assert_close(got[name], value, atol=1e-10, rtol=1e-10, msg=name)


PAIRS = {"hidden": 32, "gin_layers": 4, "cross_relation": "pairwise_interaction"}
OPTIONS = ({"gin_layers": 2}, {"gin_layers": 3, "activation": "relu"}, PAIRS)


def results_of(model: HeteroCell, half: bool, one_kernel: bool, monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    monkeypatch.setattr(row_chain, "DEVICES", ("cuda",) if one_kernel else ())
    model = copy.deepcopy(model).cuda()
    assert model.encoder.chained(torch.bfloat16 if half else torch.float32, torch.device("cuda")) == one_kernel
    model.choose(Choices("node_mask", half=half))
    return [x.double().cpu() for x in results(model, GenotypeBatch.from_lists(STRAINS).to("cuda"))]


@needs_gpu
@pytest.mark.parametrize(("half", "most"), [(False, 1e-4), (True, 0.05)], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("options", OPTIONS, ids=["gelu", "relu", "pairs"])
@pytest.mark.parametrize("norm", ["layer", "none"])
def test_rows_of_one_kernel_equal_float64(
    half: bool, most: float, options: dict[str, Any], norm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    options = {"hidden": 16, "cross_relation_norm": norm, **options}
    config = small_config(norm=norm, strategy="node_mask", conv="gin", dropout=0.0, **options)
    model = randomise(HeteroCell(make_cell().resident, config, outputs=2))
    right = [x.double() for x in results(copy.deepcopy(model).double(), GenotypeBatch.from_lists(STRAINS))]
    found, again = (results_of(model, half, True, monkeypatch) for _ in range(2))
    plain = results_of(model, half, False, monkeypatch)
    assert all(torch.equal(one, other) for one, other in zip(found, again, strict=True)), "the same bits every time"

    error, of_plain = (_apart(got, right) for got in (found, plain))
    assert error < most
    rounding = 2**-7 if half else 1e-5  # without a norm the base's gradients dwarf those of the differences
    assert error < 5 * of_plain + rounding, "about as exact as operations one by one"


def _apart(found: list[Tensor], right: list[Tensor]) -> float:
    difference = torch.cat([(x - y).flatten() for x, y in zip(found, right, strict=True)])
    return float(difference.norm() / torch.cat([x.flatten() for x in right]).norm())


@needs_gpu
@pytest.mark.parametrize(
    ("dtype", "most"), [(torch.float32, 1e-4), (torch.bfloat16, 0.01)], ids=["float32", "bfloat16"]
)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_mixtures_of_pairs_are_about_as_exact_as_operations_one_by_one(
    case: tuple[int, int, str, float], dtype: torch.dtype, most: float
) -> None:
    found, right, plain = mixtures(*case, dtype, "cuda")
    again, *_ = mixtures(*case, dtype, "cuda")
    assert all(torch.equal(one, other) for one, other in zip(found, again, strict=True)), "the same bits every time"
    for one, other, of in zip(found, plain, right, strict=True):
        error, of_plain = (float((x - of).norm() / of.norm().clamp(min=1e-9)) for x in (one, other))
        assert error < 3 * of_plain + most

"""A step under ``node_mask`` never waits for the device and never loops over strains.

On a GPU a value that the host reads (``item``, ``bool``, ``nonzero``, an index by a boolean mask, …) makes it wait
until all work is done. These tests need no GPU: they refuse every operation that would wait, wherever it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from dglcell.config.experiment import Config, TrainerConfig
from dglcell.data.columns import ROW, Column, columns_of
from dglcell.data.dataset import Normaliser
from dglcell.data.strains import Strains
from dglcell.graph.resident import ResidentCell
from dglcell.losses.config import (
    BceConfig,
    DangoLossConfig,
    LossConfig,
    MaskedConfig,
    MleWassSupcrConfig,
    MseDistSupcrConfig,
)
from dglcell.models.cell_model import HeteroCell, SetOperator
from dglcell.models.config import OPERATORS as SET_OPERATORS
from dglcell.models.config import DangoConfig, HeteroCellConfig, SetOperatorConfig
from dglcell.models.dango import Dango
from dglcell.models.model import StrainModel
from dglcell.nn.blocks import mlp
from dglcell.optimizers import OptimizerConfig, make_optimizer
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.runs import EpochLog
from dglcell.training.task import StrainTask
from tests.gpu import devices
from tests.random_cells import textbook_cell

SPECIAL = ("__bool__", "__int__", "__float__", "__index__", "__array__", "__contains__")
METHODS = ("item", "tolist", "numpy", "cpu", *SPECIAL)
UNIQUE = ("unique", "_unique2", "unique_dim", "unique_consecutive")
OPERATORS = ("_local_scalar_dense", "nonzero", "masked_select", *UNIQUE)
COPIES = (torch.tensor, torch.as_tensor, torch.from_numpy)
INDEXING = ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index")


class SyncError(AssertionError):
    """The host would have waited for the device."""


class RefuseMethods(TorchFunctionMode):
    """Refuse what brings values to the host, or from it; methods of ``exempt`` tensors, which live there, are not."""

    def __init__(self, exempt: set[int]) -> None:
        super().__init__()
        self.exempt = exempt

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in METHODS and id(args[0]) not in self.exempt:
            raise SyncError(f"Tensor.{name}")
        if func in COPIES:
            raise SyncError(f"torch.{name} copies from the host")
        return func(*args, **(kwargs or {}))


class RefuseOperators(TorchDispatchMode):
    """Refuse operators whose result's shape or value the host must know; count all others."""

    def __init__(self, exempt: set[int]) -> None:
        super().__init__()
        self.exempt, self.count = exempt, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        self.count += 1
        if name in OPERATORS and id(args[0]) not in self.exempt:
            raise SyncError(f"aten::{name}")
        if name in INDEXING and any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1]):
            raise SyncError(f"aten::{name} by a mask")
        if name in ("_to_copy", "copy_") and _moves(args, kwargs):
            raise SyncError(f"aten::{name} from one device to another")
        if name == "repeat_interleave" and kwargs.get("output_size") is None:
            raise SyncError("aten::repeat_interleave without output_size")
        return func(*args, **kwargs)


def _moves(args: Any, kwargs: Any) -> bool:
    """Return whether a copy is from one device to another."""
    devices = {x.device for x in args if isinstance(x, torch.Tensor)}
    return len(devices | {kwargs.get("device") or args[0].device}) > 1


@contextmanager
def no_sync(exempt: set[int] | None = None) -> Iterator[RefuseOperators]:
    """Refuse whatever would wait for the device."""
    operators = RefuseOperators(exempt or set())
    with operators, RefuseMethods(exempt or set()):
        yield operators


CONFIG = {"hidden": 8, "layers": 2, "local_heads": 2, "pool": ["gene", "reaction"], "strategy": "node_mask"}


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain torch, the kernel and the blocks of a GPU: what only a CPU runs is off."""
    devices.as_on_a_gpu(monkeypatch)


@pytest.fixture(scope="module")
def resident() -> ResidentCell:
    """Return the E. coli core cell with metabolism and two gene-gene relations."""
    return textbook_cell("shares_complex", "metabolic_neighbour")


def make_dataset(strains: int, *, weak: bool = False) -> Strains:
    """Return strains of one to three deleted or weakened genes, two phenotypes, some labels missing."""
    generator = torch.Generator().manual_seed(0)
    counts = torch.arange(strains) % 3 + 1
    labels = torch.randn(strains, 2, generator=generator)
    labels[1::4, 0] = torch.nan
    genes = torch.randint(0, 137, (int(counts.sum()),), generator=generator, dtype=torch.int32)
    columns = columns_of(phenotype={"a": labels[:, 0], "b": labels[:, 1]}) | {Column(ROW): torch.arange(strains)}
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    left = torch.rand(len(genes), generator=generator) if weak else None
    return Strains.from_indices((), []).with_(targets=genes, offsets=offsets, activities=left, columns=columns)


def make_task(resident: ResidentCell, loss: LossConfig | None = None, **config: Any) -> StrainTask:
    """Return a task on the cell."""
    model = HeteroCell(resident, HeteroCellConfig(**{**CONFIG, **config}), outputs=2)
    return task_of(model, loss)


def task_of(model: StrainModel, loss: LossConfig | None = None) -> StrainTask:
    """Return a task for a model; squared error where no loss is given."""
    normaliser = Normaliser("standard", torch.zeros(2), torch.ones(2))
    return StrainTask(
        model,
        Config(loss=loss or MaskedConfig(), trainer=TrainerConfig(epochs=1)),
        normaliser,
        dict.fromkeys("ab", "regression"),
        steps=1,
        record=EpochLog.__new__(EpochLog),
        about={},
    )


def step(task: StrainTask, optimizer: torch.optim.Optimizer, batch: Strains) -> None:
    """What an optimiser step consists of."""
    optimizer.zero_grad()
    loss = task.training_step(batch, 0)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(task.model.parameters(), 10.0)
    optimizer.step()


def checked_step(task: StrainTask, strains: int, *, weak: bool = False) -> int:
    """Return a step after a first one that fills caches; the number of operators.

    Raises:
        SyncError: it would wait for the device.
    """
    dataset, optimizer = make_dataset(strains, weak=weak), make_optimizer(OptimizerConfig(), task.model.parameters())
    numbers, num_genes = torch.arange(strains), len(dataset.targets)
    step(task, optimizer, dataset.take(numbers, num_genes))
    # Optimisers count their steps on the host.
    counters = {id(state["step"]) for state in optimizer.state.values()}
    with no_sync(counters) as operators:
        step(task, optimizer, dataset.take(numbers, num_genes))
    return operators.count


MODELS: list[dict[str, Any]] = [
    {"conv": "gin", "combination": "mean", "dropout": 0.1},
    {"conv": "sage", "cross_relation": "mean"},
    {"conv": "sage", "activity_curves": True},
    {"cross_relation": "pairwise_interaction", "cross_relation_norm": "layer", "dropout": 0.1},
    {"kernel": "csr", "recompute": "false", "strategy": "difference"},
    {"local_head": False, "combination": "none", "metabolism": False, "pool": ["gene"]},
    *({"operator": name, "local_kind": "hyper_sagnn", "layers": 1} for name in SET_OPERATORS),
    *({"operator": name, "local_kind": "both", "local_deviations": True, "layers": 1} for name in SET_OPERATORS),
]
LOSSES: list[LossConfig] = [
    MaskedConfig("huber"), BceConfig(), MseDistSupcrConfig(), MleWassSupcrConfig(supcr=0.1, buffer_size=8),
    MleWassSupcrConfig(adaptive=False),
]  # fmt: skip


def task_with(resident: ResidentCell, keys: dict[str, Any] | LossConfig) -> StrainTask:
    """Return a task of a model with these keys, or with this loss."""
    if isinstance(keys, DangoLossConfig):
        config = DangoConfig(hidden=8, heads=2, zero_weights={"shares_complex": 0.1, "metabolic_neighbour": 1.0})
        return task_of(Dango(resident, config, outputs=2), keys)
    if isinstance(keys, LossConfig):
        return make_task(resident, keys, layers=1)
    if "operator" in keys:
        return task_of(SetOperator(resident, SetOperatorConfig(hidden=8, local_heads=2, **keys), outputs=2))
    return make_task(resident, **keys)


@pytest.mark.parametrize("keys", [*MODELS, *LOSSES, DangoLossConfig()], ids=str)
def test_a_step_waits_for_nothing_and_takes_as_many_operators_for_any_batch(
    resident: ResidentCell, keys: dict[str, Any] | LossConfig
) -> None:
    weak = isinstance(keys, dict) and "activity_curves" in keys
    counts = {strains: checked_step(task_with(resident, keys), strains, weak=weak) for strains in (3, 16)}
    assert counts[3] == counts[16] > 100


def test_a_validation_step_waits_for_nothing(resident: ResidentCell) -> None:
    task, dataset = make_task(resident, layers=1), make_dataset(7)
    batch = dataset.take(torch.arange(7), len(dataset.targets))
    with torch.inference_mode():
        task.validation_step(batch, 0)
        with no_sync():
            task.validation_step(batch, 1)


SINNERS: dict[str, Callable[[GenotypeBatch], object]] = {
    "a value is read": lambda batch: batch.genes.sum().item(),
    "a branch": lambda batch: 1 if batch.genes.sum() > 3 else 2,
    "an index by a mask": lambda batch: batch.genes[batch.genes > 3],
    "an assignment by a mask": lambda batch: torch.zeros(2).__setitem__(batch.genes[:2] > 3, torch.ones(())),
    "places that are not zero": lambda batch: torch.where(batch.genes > 3),
    "unique values": lambda batch: batch.genes.unique(),
    "repeated by counts": lambda batch: batch.offsets[:-1].repeat_interleave(batch.offsets.diff()),
    "a move to the host": lambda batch: batch.genes.cpu(),
    "a list": lambda batch: batch.offsets.tolist(),
    "an index of a list": lambda batch: [0, 1, 2, 3][batch.offsets[0]],
    "a whole number": lambda batch: int(batch.offsets[-1]),
    "a shape": lambda batch: torch.zeros(1).expand(batch.offsets[-1]),
    "a copy from the host": lambda batch: torch.tensor([0, 1], device=batch.genes.device),
}


@pytest.mark.parametrize("sinner", SINNERS)
def test_a_synchronisation_is_found(sinner: str) -> None:
    batch = GenotypeBatch.from_lists([[0, 5], [7, 9]])
    with no_sync(), pytest.raises(SyncError):
        SINNERS[sinner](batch)


def test_a_synchronisation_in_the_backward_pass_is_found(resident: ResidentCell) -> None:
    task = make_task(resident, layers=1)

    def look(gradient: Tensor) -> None:
        gradient.sum().item()

    next(iter(task.model.terms["graph"].parameters())).register_hook(look)
    with pytest.raises(SyncError):
        checked_step(task, 4)


def test_a_loop_over_strains_that_is_put_in_is_found(resident: ResidentCell) -> None:
    task = make_task(resident, layers=1)
    head = mlp([2, 4, 2], "gelu")
    task.model.register_forward_hook(
        lambda module, arguments, out: [head(out.phenotypes[b]) for b in range(arguments[0].num_strains)] and None
    )
    assert checked_step(task, 3) < checked_step(task, 16)

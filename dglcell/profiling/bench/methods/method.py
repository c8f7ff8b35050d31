"""What a method is: a module that predicts, and a training step of it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dglcell.errors import DglcellError
from dglcell.models.hetero_cell import HeteroCell
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.profiling.bench.workload import Workload


class UnsupportedError(DglcellError):
    """A method cannot compute this workload."""


class Method(nn.Module):
    """One way to compute a step.

    Attributes:
        weights: the model whose parameters it trains; None for another model.
    """

    weights: HeteroCell | None

    @abstractmethod
    def forward(self, genotypes: GenotypeBatch) -> Tensor:
        """[B, T] predictions."""

    def loss(self, genotypes: GenotypeBatch, targets: Tensor) -> Tensor:
        """What is minimised."""
        return F.mse_loss(self(genotypes).to(targets.dtype), targets)


@dataclass(frozen=True)
class MethodSpec:
    """A method by name.

    Attributes:
        name: as given to ``--methods``.
        build: makes it from a workload on a device, with all that it keeps between steps.
        strategy: of this package's methods.
        kernel: of this package's methods.
        same_predictions: it computes what the others compute; DANGO is another model.
        compiled: its first step compiles.
        stock_memory: run with the C library's own ways of giving memory back, as a user would who does not know
            ``dglcell.memory``; only in a fork.
    """

    name: str
    build: Callable[[Workload, str], Method]
    strategy: str | None = None
    kernel: str | None = None
    same_predictions: bool = True
    compiled: bool = False
    stock_memory: bool = False


def training_step(method: Method, workload: Workload, dtype: str) -> Callable[[], None]:
    """A full step: gradients to none, forward, loss, backward, AdamW.

    Args:
        method: on the device of ``workload``.
        workload: whose strains are the batch.
        dtype: ``bfloat16`` runs forward under autocast.
    """
    optimizer = torch.optim.AdamW(method.parameters(), lr=1e-4)
    device = workload.targets.device.type

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device, dtype=torch.bfloat16, enabled=dtype == "bfloat16"):
            loss = method.loss(workload.genotypes, workload.targets)
        loss.backward()
        optimizer.step()

    return step

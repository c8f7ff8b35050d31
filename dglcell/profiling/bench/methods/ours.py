"""This package's model under each of its strategies and kernels."""

from __future__ import annotations

from torch import Tensor

from dglcell.kernels.spmm import check_kernel
from dglcell.models.hetero_cell import HeteroCell
from dglcell.perturbation.choices import Choices
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.profiling.bench.methods.method import Method
from dglcell.profiling.bench.workload import Workload
from dglcell.training.autotune import choose


class Ours(Method):
    """``HeteroCell`` as it is trained."""

    weights: HeteroCell

    def __init__(self, weights: HeteroCell) -> None:
        super().__init__()
        self.weights = weights

    def forward(self, genotypes: GenotypeBatch) -> Tensor:
        """[B, T] predictions."""
        out: Tensor = self.weights(genotypes).phenotypes
        return out


def build_ours(
    workload: Workload, device: str, *, strategy: str, kernel: str, compiled: bool = False, half: bool = False
) -> Ours:
    """The model on ``device``; for ``auto`` after the calibration that a run makes before its first step.

    Args:
        workload: what is computed.
        device: where.
        strategy, kernel: of the model.
        compiled: let ``torch.compile`` join the operations of layers.
        half: differences in bfloat16.

    Raises:
        MissingDependencyError: the kernel does not run on this device.
    """
    check_kernel(kernel, device)
    model = workload.weights(strategy, kernel).to(device)
    choices = Choices.default(device)
    if strategy == "auto":
        choices = choose(model, workload.genotypes.to(device)).choices
    model.choose(choices.for_layers(compiled=compiled, half=half))
    return Ours(model)

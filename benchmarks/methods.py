"""List the methods that are compared, by name: this package's strategies and kernels, PyTorch Geometric, DGL."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.workload import Workload
from dglcell.errors import ConfigError, DglcellError, MissingDependencyError
from dglcell.kernels.spmm import KERNELS, check_kernel, kernels_on
from dglcell.models.cell_model import HeteroCell
from dglcell.models.config import HeteroCellConfig
from dglcell.perturbation import STRATEGIES
from dglcell.perturbation.execution import Choices
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import lists_on

# A method is a module that predicts and has a training step.


class UnsupportedError(DglcellError):
    """A method cannot compute this workload."""


class Method(nn.Module):
    """A method is one way to compute a step.

    Attributes:
        weights: ``HeteroCell`` whose parameters it trains.
    """

    weights: HeteroCell

    @abstractmethod
    def forward(self, genotypes: GenotypeBatch) -> Tensor:
        """Return predictions [B, T]."""

    def loss(self, genotypes: GenotypeBatch, targets: Tensor) -> Tensor:
        """Return the loss, which is minimised."""
        return F.mse_loss(self(genotypes).to(targets.dtype), targets)


@dataclass(frozen=True)
class MethodSpec:
    """This describes a method by name."""

    name: str  #: as given to ``--methods``
    #: makes the method from a workload on a device, with all that it keeps between steps
    build: Callable[[Workload, str], Method]
    same_predictions: bool = True  #: whether it is compared with the others; half precision rounds
    compiled: bool = False  #: whether its first step compiles


def training_step(method: Method, workload: Workload, dtype: str) -> Callable[[], None]:
    """Make a full training step: set gradients to none, forward, loss, backward, AdamW.

    Args:
        method: method on the device of ``workload``.
        workload: workload whose strains are the batch.
        dtype: precision; ``bfloat16`` runs forward under autocast.
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


# This class is this package's model under each of its strategies and kernels.


class Ours(Method):
    """This method is ``HeteroCell`` as it is trained."""

    weights: HeteroCell

    def __init__(self, weights: HeteroCell) -> None:
        super().__init__()
        self.weights = weights

    def forward(self, genotypes: GenotypeBatch) -> Tensor:
        """Return predictions [B, T]."""
        out: Tensor = self.weights(genotypes).phenotypes
        return out


def build_ours(
    workload: Workload,
    device: str,
    *,
    strategy: str,
    kernel: str,
    compiled: bool = False,
    half: bool = False,
    recompute: bool = False,
) -> Ours:
    """Build the model on ``device``, maybe with ``torch.compile`` for layers, and differences in bfloat16 (``half``).

    With ``recompute`` layers are computed once more in the backward pass, however much memory there is.

    Raises:
        MissingDependencyError: DGL does not run on this device.
        UnsupportedError: the kernel is for another device.
    """
    if strategy == "difference" and not lists_on(torch.device(device).type):
        raise UnsupportedError("`difference` is `node_mask` on this device")
    if kernel != "auto" and kernel not in kernels_on(device):
        raise UnsupportedError(f"kernel '{kernel}' is not for this device")
    check_kernel(kernel, device)
    if recompute:
        workload = replace(workload, config=replace(workload.config, recompute="true"))
    model = workload.weights(strategy, kernel).to(device)
    model.choose(replace(Choices.default(device), compiled=compiled, half=half))
    return Ours(model)


# These functions list the methods that are compared, by name.


WITHOUT_KERNEL = ("edge_subgraph", "edge_mask", "auto")


def methods() -> dict[str, MethodSpec]:
    """Return all methods, the peers first.

    - ``pyg_spmm``: one edge list with ``EdgeIndex``, the best that PyG offers: a sparse product on [N, B · H].
    - ``pyg_replicated``: B copies of the graph, a Boolean mask per copied edge, PyG's ``MessagePassing``.
    - ``dgl_loop``: ``dgl.edge_subgraph`` for every strain, one after the other.
    - ``edge_subgraph``: the same graphs batched by ``dgl.batch``.
    - ``edge_mask``, ``node_mask:KERNEL``, ``difference:KERNEL``, and ``auto`` where there is such a strategy.
    - ``node_mask_compiled`` and ``difference_compiled``, with ``torch.compile`` for layers, and the same with
      ``_bfloat16``, with differences in half precision.
    """
    peers = {"pyg_spmm": "spmm", "pyg_replicated": "replicated", "dgl_loop": "loop"}
    specs = [MethodSpec(name, partial(_build_pyg, form=form)) for name, form in peers.items()]
    for strategy in dict.fromkeys([*STRATEGIES, "auto"]):
        if not _is_strategy(strategy):
            continue
        for kernel in ("auto",) if strategy in WITHOUT_KERNEL else ("auto", *KERNELS):
            name = strategy if strategy in WITHOUT_KERNEL else f"{strategy}:{kernel}"
            specs.append(MethodSpec(name, partial(build_ours, strategy=strategy, kernel=kernel)))
    for strategy in ("node_mask", "difference"):
        for half in (False, True):
            build = partial(build_ours, strategy=strategy, kernel="auto", compiled=True, half=half)
            name = f"{strategy}_compiled{'_bfloat16' if half else ''}"
            specs.append(MethodSpec(name, build, same_predictions=not half, compiled=True))
    return {spec.name: spec for spec in specs}


def choose_methods(names: Sequence[str]) -> list[MethodSpec]:
    """Return methods by name, each once; ``all`` stands for all, and a bare strategy for its kernel ``auto``.

    Raises:
        ConfigError: there is no such method.
    """
    known = methods()
    chosen: dict[str, MethodSpec] = {}
    for name in names:
        full = name if name in known else f"{name}:auto"
        if name != "all" and full not in known:
            raise ConfigError("unknown method", got=name, expected=", ".join(["all", *known]), do="name one of these")
        chosen |= known if name == "all" else {full: known[full]}
    return list(chosen.values())


def _is_strategy(name: str) -> bool:
    try:
        HeteroCellConfig(strategy=name).validate()
    except ConfigError:
        return False
    return True


def _build_pyg(workload: Workload, device: str, *, form: str) -> Method:
    try:
        from benchmarks.pyg import build_pyg
    except ImportError as error:
        raise MissingDependencyError("install dglcell[bench]") from error
    return build_pyg(workload, device, form=form)

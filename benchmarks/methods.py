"""List the methods that are compared, by name: this package's strategies and kernels, PyTorch Geometric, DANGO."""

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
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.resident import ResidentCell
from dglcell.graph.schema import GENE, Relation, gene_relation
from dglcell.kernels.spmm import KERNELS, check_kernel, runs_on
from dglcell.losses.config import DangoLossConfig
from dglcell.losses.dango import DangoLoss
from dglcell.losses.elementwise import log_cosh
from dglcell.models.config import DangoConfig, HeteroCellConfig
from dglcell.models.dango import CHANNEL_ZERO_WEIGHTS, UNCERTAIN, Dango, channel_of, zero_weight
from dglcell.models.hetero_cell import HeteroCell
from dglcell.nn.dango import Reconstruction
from dglcell.perturbation import STRATEGIES
from dglcell.perturbation.choose.autotuned import Autotuned
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.training.autotune import autotuned_for

# A method is a module that predicts and has a training step.


class UnsupportedError(DglcellError):
    """A method cannot compute this workload."""


class Method(nn.Module):
    """A method is one way to compute a step.

    Attributes:
        weights: ``HeteroCell`` whose parameters it trains; None where it is another model.
    """

    weights: HeteroCell | None

    @abstractmethod
    def forward(self, genotypes: GenotypeBatch) -> Tensor:
        """Return predictions [B, T]."""

    def loss(self, genotypes: GenotypeBatch, targets: Tensor) -> Tensor:
        """Return the loss, which is minimised."""
        return F.mse_loss(self(genotypes).to(targets.dtype), targets)


@dataclass(frozen=True)
class MethodSpec:
    """This describes a method by name.

    Attributes:
        name: as given to ``--methods``.
        build: makes the method from a workload on a device, with all that it keeps between steps.
        strategy: strategy, for this package's methods.
        kernel: kernel, for this package's methods.
        same_predictions: whether it computes what the others do; DANGO is another model, and half precision rounds.
        compiled: whether its first step compiles.
        stock_memory: whether it runs with the C library's own ways of giving memory back, as for a user who does not
            know ``dglcell.machine.memory``; only in a fork.
    """

    name: str
    build: Callable[[Workload, str], Method]
    strategy: str | None = None
    kernel: str | None = None
    same_predictions: bool = True
    compiled: bool = False
    stock_memory: bool = False


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
    """Build the model on ``device``; for ``auto``, after the calibration that a run makes before its first step.

    Args:
        workload: what is computed.
        device: device of the model.
        strategy, kernel: strategy and kernel of the model.
        compiled: whether ``torch.compile`` joins the operations of layers.
        half: whether differences are in bfloat16.
        recompute: whether layers are computed once more in the backward pass, however much memory there is.

    Raises:
        MissingDependencyError: DGL does not run on this device.
        UnsupportedError: the kernel is for another device.
    """
    if kernel not in ("auto", "dgl") and not runs_on(kernel, device):
        raise UnsupportedError(f"kernel '{kernel}' is not for this device")
    check_kernel(kernel, device)
    if recompute:
        workload = replace(workload, config=replace(workload.config, recompute="true"))
    model = workload.weights(strategy, kernel).to(device)
    autotuned = Autotuned.default(device)
    if strategy == "auto":
        autotuned = autotuned_for(model, workload.genotypes.to(device)).autotuned
    model.choose(autotuned.for_layers(compiled=compiled, half=half))
    return Ours(model)


# DANGO's training step never looks at a strain's graph. It is a yardstick, not a competitor in accuracy.


class DangoMethod(Method):
    """This method is ``Dango`` as it is trained, with both parts of its loss weighted by one half."""

    def __init__(self, model: Dango) -> None:
        super().__init__()
        self.weights, self.model = None, model
        self.criterion = DangoLoss(DangoLossConfig(transition_epoch=0), epochs=1)

    def forward(self, genotypes: GenotypeBatch) -> Tensor:
        """Return predictions [B, T]."""
        out: Tensor = self.model(genotypes).phenotypes
        return out

    def loss(self, genotypes: GenotypeBatch, targets: Tensor) -> Tensor:
        """Return half log cosh of the error plus half the mean reconstruction loss of the networks."""
        total: Tensor = self.criterion(self.model(genotypes), targets, epoch=0).total
        return total


class DenseDango(DangoMethod):
    """This method computes the numbers of ``DangoMethod`` as the torchcell project computes them.

    In every step all adjacencies are made dense, reconstructions are matrices of all pairs, and the whole model runs
    twice: once for the predictions, once for the reconstructions.
    """

    def loss(self, genotypes: GenotypeBatch, targets: Tensor) -> Tensor:
        """Return half log cosh of the error plus half the mean reconstruction loss of the networks."""
        predicted, _ = self.run(genotypes)
        _, guesses = self.run(genotypes)
        errors = [self.error(r, guess) for r, guess in zip(self.model.networks, guesses, strict=True)]
        interaction = log_cosh(predicted.to(targets.dtype) - targets).mean()
        return 0.5 * interaction + 0.5 * torch.stack(errors).mean()

    def run(self, genotypes: GenotypeBatch) -> tuple[Tensor, list[Tensor]]:
        """Return predictions [B, T], and reconstructions [N, N] of every network."""
        states = self.model.encode()
        guesses = []
        for head, x_NH in zip(self.model.heads, states, strict=True):
            assert isinstance(head, Reconstruction)
            guesses.append(head.out(x_NH))
        genes_BK, present_BK = genotypes.padded()
        return self.model.score(self.model.meta(torch.stack(states, dim=1))[genes_BK], present_BK), guesses

    def error(self, relation: Relation, guess_NN: Tensor) -> Tensor:
        """Return the weighted squared error of one network over all pairs."""
        # Half precisions cannot hold sums over all pairs.
        guess_NN = guess_NN.to(torch.promote_types(guess_NN.dtype, torch.float32))
        edges, weight = self.model.cell[relation], zero_weight(relation[1], self.model.config.zero_weights)
        ends, ones = torch.stack([edges.src, edges.dst]), torch.ones_like(edges.src, dtype=guess_NN.dtype)
        target_NN = torch.sparse_coo_tensor(ends, ones, guess_NN.shape, check_invariants=False).to_dense()
        squares_NN = (guess_NN - target_NN).square()
        of_edges = (squares_NN * (target_NN != 0).to(guess_NN.dtype)).sum()
        of_zeros = (squares_NN * (target_NN == 0).to(guess_NN.dtype)).sum()
        return (of_edges + weight * of_zeros) / guess_NN.numel()


def build_dango(workload: Workload, device: str, *, dense: bool = False) -> DangoMethod:
    """Build DANGO on six of the cell's networks, on ``device``.

    Raises:
        UnsupportedError: there is no gene–gene relation.
    """
    names = [relation[1] for relation in six_networks(workload.cell)]
    config = DangoConfig(
        hidden=workload.config.hidden,
        relations=names,
        zero_weights={name: UNCERTAIN for name in names if channel_of(name) is None},
    )
    torch.manual_seed(workload.seed)
    model = Dango(ResidentCell.of(workload.cell), config, workload.targets.shape[1])
    return (DenseDango if dense else DangoMethod)(model).to(device)


def six_networks(cell: CellGraph) -> list[Relation]:
    """Return STRING's six channels where the cell has them, else its six largest gene–gene relations."""
    channels = [gene_relation(name) for name in CHANNEL_ZERO_WEIGHTS]
    if set(channels) <= set(cell.relations):
        return channels
    between_genes = [r for r in cell.relations if r[0] == r[2] == GENE]
    if not between_genes:
        raise UnsupportedError("DANGO needs networks of genes")
    return sorted(between_genes, key=lambda r: -len(cell.edges(r)))[:6]


# These functions list the methods that are compared, by name.


BASE = "pyg_replicated"
"""This is the method that came before; all ratios are to it."""

WITHOUT_KERNEL = {"edge_subgraph": "dgl_edge_subgraph", "edge_mask": "edge_mask"}


def methods() -> dict[str, MethodSpec]:
    """Return all methods, those that came before first.

    - ``pyg_replicated``: B copies of the graph, a Boolean mask per copied edge, PyG's ``MessagePassing``, as its
      users ran it; with ``_kept_memory`` under the memory advice that all other methods get too
      (``dglcell.machine.memory``: faster, and twice the memory); with ``_compiled`` its convolutions
      under torch.compile.
    - ``pyg_node_dim``: one edge list, states [N, B, H]; PyG gathers B · E · H messages.
    - ``pyg_spmm``: the same with ``EdgeIndex``, the best that PyG offers: a sparse product on [N, B · H].
    - ``dgl_edge_subgraph``: DGL, every strain's graph by itself.
    - ``edge_mask``, ``node_mask:KERNEL``, ``difference:KERNEL``, and ``auto`` where there is such a strategy.
    - ``node_mask_compiled`` and ``difference_compiled``, with ``torch.compile`` for layers, and the same with
      ``_bfloat16``, with differences in half precision, and with ``_recomputed``, which takes less memory.
    - ``dango``: another model, see `Dango`; with ``_dense`` as the project before computed it.
    """
    specs = [
        MethodSpec(BASE, partial(_build_pyg, form="replicated"), stock_memory=True),
        MethodSpec(f"{BASE}_kept_memory", partial(_build_pyg, form="replicated")),
        MethodSpec(f"{BASE}_compiled", partial(_build_pyg, form="replicated", compiled=True), compiled=True),
        MethodSpec("pyg_node_dim", partial(_build_pyg, form="node_dim")),
        MethodSpec("pyg_spmm", partial(_build_pyg, form="spmm")),
    ]
    for strategy in dict.fromkeys([*STRATEGIES, "auto"]):
        if not _is_strategy(strategy):
            continue
        for kernel in ("auto",) if strategy in (*WITHOUT_KERNEL, "auto") else ("auto", *KERNELS):
            name = WITHOUT_KERNEL.get(strategy) or ("auto" if strategy == "auto" else f"{strategy}:{kernel}")
            build = partial(build_ours, strategy=strategy, kernel=kernel)
            specs.append(MethodSpec(name, build, strategy=strategy, kernel=kernel))
    for strategy in ("node_mask", "difference"):
        for half, recompute in ((False, False), (True, False), (True, True)):
            build = partial(build_ours, strategy=strategy, kernel="auto", compiled=True, half=half, recompute=recompute)
            name = f"{strategy}_compiled{'_bfloat16' if half else ''}{'_recomputed' if recompute else ''}"
            # Half precision is not compared in float64: it is meant to differ.
            specs.append(MethodSpec(name, build, strategy, "auto", same_predictions=not half, compiled=True))
    specs.append(MethodSpec("dango", build_dango, same_predictions=False))
    specs.append(MethodSpec("dango_dense", partial(build_dango, dense=True), same_predictions=False))
    return {spec.name: spec for spec in specs}


def choose_methods(names: Sequence[str]) -> list[MethodSpec]:
    """Return methods by name, each once; ``all`` stands for all, and a bare strategy for its kernel ``auto``.

    Raises:
        ConfigError: there is no such method.
    """
    known = methods()
    chosen: dict[str, MethodSpec] = {}
    for name in names:
        full = {"edge_subgraph": "dgl_edge_subgraph"}.get(name, name)
        full = full if full in known else f"{full}:auto"
        if name != "all" and full not in known:
            raise ConfigError("unknown method", got=name, expected=", ".join(["all", *known]), do="see `--methods`")
        chosen |= known if name == "all" else {full: known[full]}
    return list(chosen.values())


def _is_strategy(name: str) -> bool:
    try:
        HeteroCellConfig(strategy=name).validate()
    except ConfigError:
        return False
    return True


def _build_pyg(workload: Workload, device: str, *, form: str, compiled: bool = False) -> Method:
    try:
        from benchmarks.pyg import build_pyg
    except ImportError as error:
        raise MissingDependencyError("install dglcell[bench]") from error
    return build_pyg(workload, device, form=form, compiled=compiled)

"""Count the operators of a training step on a GPU without computing anything: launches, bytes and products.

The model lies on torch's ``meta`` device, whose tensors have shapes and no values. Whatever asks for the device's type
takes the branch of a GPU there, and whatever would read a value fails. So a step of any size is counted in seconds, and
a step that is counted to its end waits for nothing.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from dglcell.data.columns import PHENOTYPE, Column
from dglcell.data.strains import Strains
from dglcell.data.transform import Normaliser
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.resident import ResidentCell, ResidentRelation
from dglcell.kernels import spmm
from dglcell.losses.config import MaskedConfig
from dglcell.losses.loss import make_loss
from dglcell.models.config import HeteroCellConfig
from dglcell.models.hetero_cell import HeteroCell
from dglcell.optimizers import OptimizerConfig, SchedulerConfig
from dglcell.perturbation.choose.autotuned import Autotuned
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.runs.directory import EpochLog
from dglcell.training.task import StrainTask

# These functions say what one operator costs a GPU.


ALLOCATE = frozenset(
    ["empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "promote_types", "_unsafe_view"]
)
"""These operators launch nothing."""
FILL = frozenset(["zeros", "ones", "full", "zero_", "fill_", "arange", "scalar_tensor", "eye", "bernoulli_"])
"""These operators write and do not read; so do those that end in ``_like`` or begin with ``new_``."""
GATHER = frozenset(["index_select", "embedding", "index", "gather"])
"""These operators read only those rows of their first argument that they write."""

TENSORS_AT_ONCE = 36
"""One launch of an operator on lists takes so many tensors, with as many lists as Adam's (``MultiTensorApply.cuh``)."""


def tensor_bytes(x: Tensor) -> int:
    """Return the bytes of the different elements of a tensor; elements that expansion repeats count once."""
    return x.element_size() * math.prod(n for n, step in zip(x.shape, x.stride(), strict=True) if step)


def launches_of(func: Any, args: Any) -> int:
    """Return the number of kernels that an operator launches: none for views, one for tensors, a few for lists."""
    returns, name = func._schema.returns, func.overloadpacket.__name__
    is_view = returns and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)
    if is_view or name in ALLOCATE:
        return 0
    if name.startswith(("_foreach", "_fused")):
        return math.ceil(len(args[0]) / TENSORS_AT_ONCE)
    return 1


def bytes_of(func: Any, args: Any, kwargs: Any, out: Any) -> int:
    """Return the bytes that an operator reads and writes if every one of its tensors is touched once."""
    name = func.overloadpacket.__name__
    read = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
    written = sum(tensor_bytes(x) for x in tree_leaves(out) if isinstance(x, Tensor))
    if name.startswith("_fused"):
        return 2 * sum(map(tensor_bytes, read))  # gives nothing back: what it writes is what it reads
    if name in FILL or name.endswith("_like") or name.startswith("new_"):
        return written
    if name in GATHER:
        return sum(map(tensor_bytes, read[1:])) + 2 * written
    return sum(map(tensor_bytes, read)) + written


@dataclass
class Counts:
    """These counts say what operators cost.

    Attributes:
        launches: name of the operator → number of launches.
        bytes: name of the operator → bytes that it reads and writes.
        flops: operations of dense matrix products.
        products: (relation, columns, bytes of an element, transposed) of every sparse product, which are launched once
            each and whose bytes are not among ``bytes``.
    """

    launches: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    flops: int = 0
    products: list[Product] = field(default_factory=list)

    @property
    def all_launches(self) -> int:
        """Return the launches of all operators."""
        return self.launches.total()

    @property
    def all_bytes(self) -> int:
        """Return the bytes of all operators but sparse products."""
        return self.bytes.total()

    @property
    def gathered_bytes(self) -> int:
        """Return the bytes that sparse products read if no part of a row stays in registers between edges."""
        return sum(product.gathered_bytes for product in self.products)


@dataclass(frozen=True)
class Product:
    """This describes a sparse product.

    Attributes:
        relation: relation whose edges are multiplied along.
        edges, rows: number of edges, and of rows of sources and destinations together.
        columns: C.
        itemsize: bytes of an element.
        transposed: along the edges backwards.
    """

    relation: str
    edges: int
    rows: int
    columns: int
    itemsize: int
    transposed: bool

    @property
    def gathered_bytes(self) -> int:
        """Return the bytes of one row of ``columns`` for each edge."""
        return self.edges * self.columns * self.itemsize


class OperatorCounter(TorchDispatchMode):
    """This mode counts whatever is computed within it, forward and backward."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = Counts()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        launches = launches_of(func, args)
        if launches:
            name = func.overloadpacket.__name__
            self.counts.launches[name] += launches
            self.counts.bytes[name] += bytes_of(func, args, kwargs or {}, out)
            if func.overloadpacket in flop_registry:
                self.counts.flops += flop_registry[func.overloadpacket](*args, **(kwargs or {}), out_val=out)
        return out

    def product(self, relation: ResidentRelation, x: Tensor, *, weighted: bool, transposed: bool) -> Tensor:
        """Note a sparse product instead of computing it; the signature is that of ``dglcell.kernels.spmm.Product``."""
        rows = relation.num_src if transposed else relation.num_dst
        noted = "/".join(relation.relation), relation.num_edges, relation.num_src + relation.num_dst
        self.counts.products.append(Product(*noted, x.shape[1], x.element_size(), transposed))
        self.counts.launches["sparse product"] += 1
        return x.new_empty(rows, x.shape[1])

    def kernel(self, relation: ResidentRelation, x_NC: Tensor, weighted: bool) -> Tensor:
        """Compute ``product`` with its gradient."""
        return spmm.constant_product(relation, x_NC, weighted, self.product)


# These functions count a whole training step.


COUNTED = "counted"


@contextmanager
def counting(cell: ResidentCell) -> Iterator[OperatorCounter]:
    """Count what is computed within; products over the cell's edges are only noted."""
    counter = OperatorCounter()
    spmm.KERNELS[COUNTED] = counter.kernel
    for relation in cell.relations:
        cell[relation].preferred = {1: COUNTED}
    try:
        with counter:
            yield counter
    finally:
        del spmm.KERNELS[COUNTED]


def task_on_meta(cell: CellGraph, config: HeteroCellConfig, half: bool) -> StrainTask:
    """Make a task whose model predicts one phenotype and has no values."""
    model = HeteroCell(ResidentCell.of(cell), config)
    model.choose(Autotuned("node_mask").for_layers(compiled=False, half=half))
    task = StrainTask(
        model,
        Normaliser("standard", torch.zeros(1), torch.ones(1)),
        ("phenotype",),
        kinds=("regression",),
        loss=make_loss(MaskedConfig(), epochs=1),
        optimizer=OptimizerConfig(),
        scheduler=SchedulerConfig(),
        epochs=1,
        steps=1,
        record=EpochLog(Path(os.devnull), 1),
        about={},
    )
    return task.to("meta")


def batch_on_meta(genotypes: GenotypeBatch) -> Strains:
    """Make the strains with labels, without values."""
    labels = {Column(PHENOTYPE, "y"): torch.empty(genotypes.num_strains)}
    batch = Strains.from_indices((), []).with_(targets=genotypes.genes, offsets=genotypes.offsets, columns=labels)
    return batch.to("meta")


def count_step(cell: CellGraph, config: HeteroCellConfig, genotypes: GenotypeBatch, *, half: bool) -> Counts:
    """Count forward, loss, backward, clipping and AdamW of the second step of a training, in plain torch.

    Args:
        cell: the cell graph.
        config: configuration of the model; ``strategy`` and ``kernel`` are ``auto``.
        genotypes: B strains.
        half: whether differences are in bfloat16.
    """
    task, batch = task_on_meta(cell, config, half), batch_on_meta(genotypes)
    with counting(task.model.cell) as counter:
        step(task, batch)
        counter.counts = Counts()  # tables that the first step prepares are not made again
        step(task, batch)
    return counter.counts


def step(task: StrainTask, batch: Strains) -> None:
    """Compute a training step without Lightning."""
    task.model.zero_grad()
    task.training_step(batch, 0).backward()
    _optimise(task.model)


def _optimise(model: nn.Module) -> None:
    """Launch what ``clip_grad_norm_`` and a fused AdamW do on a GPU; torch does not choose these forms on ``meta``."""
    weights: list[Tensor] = [weight for weight in model.parameters() if weight.grad is not None]
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    with torch.no_grad():
        norm = torch.stack(torch._foreach_norm(gradients)).norm()
        torch._foreach_mul_(gradients, (10.0 / (norm + 1e-6)).clamp(max=1.0))
        first, second = ([torch.empty_like(weight) for weight in weights] for _ in range(2))
        torch._fused_adamw_(
            weights, gradients, first, second, [], [weight.new_empty(()) for weight in weights],
            lr=1e-3, beta1=0.9, beta2=0.999, weight_decay=0.0, eps=1e-8, amsgrad=False, maximize=False,
        )  # fmt: skip

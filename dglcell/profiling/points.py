"""Where spans are put: around methods of a task's modules, and functions that models call.

The package's own code knows nothing of it. Each point is replaced by one that opens a span, and put back afterwards.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, cast

import torch.distributed as dist
from torch import nn

from dglcell.losses.loss import Loss
from dglcell.models import hetero_cell, set_operator
from dglcell.models.encoder import CellEncoder
from dglcell.models.model import StrainModel
from dglcell.models.set_operator import DeletionAttention
from dglcell.nn import dango
from dglcell.nn.dango import MetaEmbedding, NetworkEncoder, Reconstruction, ReleasedSAGNN
from dglcell.nn.heads import AttentionPooling, Combination, HyperSAGNN, LocalHead
from dglcell.nn.hetero_layer import Conv, RelationConv
from dglcell.profiling.spans import Recorder

MODULES: tuple[tuple[type[nn.Module], str], ...] = (
    (StrainModel, "other/model"),
    (CellEncoder, "updates"),
    (NetworkEncoder, "updates"),
    (MetaEmbedding, "updates"),
    (AttentionPooling, "pooling"),
    (DeletionAttention, "heads"),
    (LocalHead, "heads"),
    (HyperSAGNN, "heads"),
    (ReleasedSAGNN, "heads"),
    (Combination, "heads"),
    (Reconstruction, "loss/reconstruction"),
    (Loss, "loss"),
)
"""What the forward pass of a module is, less the modules in it."""

MEMBERS: tuple[tuple[type[nn.Module], str, str], ...] = (
    (StrainModel, "global_head", "heads"),
    (AttentionPooling, "gate", "pooling"),
    (AttentionPooling, "value", "pooling"),
)
"""Modules of general types, by the name that their owners give them."""

FUNCTIONS: tuple[tuple[Any, str, str], ...] = (
    (hetero_cell, "perturb", "perturbation"),
    (set_operator, "perturb", "perturbation"),
    (set_operator, "keep_genes", "perturbation"),
    (set_operator, "pooling_shares", "pooling"),
)
"""Functions, in the modules that call them."""

COLLECTIVES = ("all_reduce", "all_gather")

Name = str | Callable[..., str]


@contextmanager
def spans_in(task: nn.Module, recorder: Recorder) -> Iterator[None]:
    """Open spans while ``task`` runs."""
    with ExitStack() as stack:

        def put(owner: Any, attribute: str, name: Name, *, anywhere: bool = False) -> None:
            stack.enter_context(spanned(recorder, owner, attribute, name, anywhere=anywhere))

        for module in task.modules():
            for kind, name in MODULES:
                if isinstance(module, kind):
                    put(module, "forward", name)
            for kind, member, name in MEMBERS:
                if isinstance(module, kind) and isinstance(getattr(module, member, None), nn.Module):
                    put(getattr(module, member), "forward", name)
            if isinstance(module, RelationConv):
                put(module.conv, "receive", f"aggregation/{_relation_of(cast(Conv, module.conv))}")
        for owner, function, name in FUNCTIONS:
            put(owner, function, name)
        put(dango, "spmm", lambda edges, *_, **__: f"aggregation/{edges.relation[1]}")
        for collective in COLLECTIVES:
            put(dist, collective, "communication", anywhere=True)
        yield


@contextmanager
def spanned(recorder: Recorder, owner: Any, attribute: str, name: Name, *, anywhere: bool = False) -> Iterator[None]:
    """Let a method of one object, or a function of one module, open a span.

    Args:
        recorder: of the span.
        owner: object or module.
        attribute: of the owner.
        name: of the span, or what it is for given arguments.
        anywhere: see ``Recorder.open``.
    """
    function, own = getattr(owner, attribute), vars(owner).get(attribute)

    @functools.wraps(function)
    def inside(*args: Any, **kwargs: Any) -> Any:
        with recorder.span(name if isinstance(name, str) else name(*args, **kwargs), anywhere=anywhere):
            return function(*args, **kwargs)

    setattr(owner, attribute, inside)
    try:
        yield
    finally:
        # A method was the class's, not the object's own.
        if own is None:
            delattr(owner, attribute)
        else:
            setattr(owner, attribute, own)


def _relation_of(conv: Any) -> str:
    name: str = conv.relation[1]
    return name

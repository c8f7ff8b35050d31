"""Compute one layer of message passing over all relations of the cell graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _NormBase

from dglcell.errors import ConfigError, GraphError, listing
from dglcell.graph.schema import Relation
from dglcell.kernels import row_chain
from dglcell.nn.blocks import make_activation, make_norm
from dglcell.nn.config import CrossRelation
from dglcell.nn.convolutions import Convolution
from dglcell.nn.cross_relation import RelationMixer, make_mixer
from dglcell.perturbation.perturb import PerturbedCell
from dglcell.perturbation.states import DifferenceStates, States, stacked


class RelationConv(nn.Module):
    """Convolve over one relation, then apply norm, activation and dropout.

    Rows [K, H] of the destination nodes, and what these receive [K, H], become new rows [K, H].
    """

    def __init__(self, conv: Convolution, width: int, norm: str, activation: str, dropout: float) -> None:
        super().__init__()
        if not isinstance(conv, Convolution):
            what, do = "a layer is made of convolutions", "make modules of DGL by `dglcell.nn.as_convolution`"
            raise ConfigError(what, got=type(conv).__name__, expected="a `dglcell.nn.Convolution`", do=do)
        if mixing := [type(one).__name__ for one in conv.modules() if isinstance(one, _NormBase)]:
            what = f"`{type(conv).__name__}` takes statistics over nodes or strains: batch mates would change a result"
            raise ConfigError(what, got=mixing[0], expected="norms of single rows, such as LayerNorm")
        self.conv = conv
        self.after = nn.Sequential(make_norm(norm, width), make_activation(activation), nn.Dropout(dropout))

    def receive(self, perturbed: PerturbedCell, source: States, destination: States) -> States:
        return self.conv.receive(perturbed, source, destination)

    def forward(self, x: Tensor, received: Tensor) -> Tensor:
        out: Tensor = self.after(self.conv.update(x, received))
        return out

    def chain(self) -> tuple[dict[str, nn.Module], str] | None:
        """Return the modules that ``forward`` applies to received + (1 + ε) x, and the name of ε; see `Convolution`."""
        named = self.conv.chain()
        if named is None:
            return None
        parts = {f"conv.{named[0]}": self.conv.get_submodule(named[0]), "after": self.after}
        modules = {f"{part}.{name}": own for part, whole in parts.items() for name, own in whole.named_children()}
        return modules, f"conv.{named[1]}"


def structure_of(conv: Convolution) -> Hashable | None:
    """Return what convolutions that are computed at once have in common; None for one that stays alone.

    Only a class that defines the method ``structure`` itself is stacked, because one convolution then computes for all:
    an inherited ``structure`` does not take the class's other methods into account.
    """
    if "structure" not in vars(type(conv)):
        return None
    shapes = tuple((name, parameter.shape) for name, parameter in conv.named_parameters())
    return type(conv), conv.structure(), conv.reduce, shapes


class StackedConvs(nn.Module):
    """Compute convolutions of the same structure over R relations between the same node types at once.

    They stay modules of their own, whose parameters are stacked for one pass. Rows [K, H] of the destination nodes, and
    what these receive [R, K, H], become new rows [R, K, H].
    """

    convs: Any

    def __init__(self, relations: list[Relation], convs: list[RelationConv]) -> None:
        super().__init__()
        self.relations, self.convs = relations, nn.ModuleList(convs)
        # This is done here, because a call may be repeated for blocks and backward, and compiled.
        each = [dict(conv.named_parameters()) for conv in convs]
        self.stacked = {name: _Stack.apply(*(mine[name] for mine in each)) for name in each[0]}

    def receive(self, perturbed: PerturbedCell, source: States, destination: States) -> States:
        reduce = self.convs[0].conv.reduce
        if reduce is not None:
            return perturbed.aggregate_along(self.relations, source, reduce)
        received = [conv.receive(perturbed, source, destination) for conv in self.convs]
        return stacked([one for one in received if isinstance(one, DifferenceStates)])

    def forward(self, x: Tensor, received: Tensor) -> Tensor:
        def call(parameters: dict[str, Tensor], received: Tensor) -> Any:
            return torch.func.functional_call(self.convs[0], parameters, (x, received))

        return torch.vmap(call, randomness="different")(self.stacked, received)


class _Stack(torch.autograd.Function):
    """Stack parameters as ``torch.stack``, with gradients laid out as the parameters are, and not copied one by one."""

    @staticmethod
    def forward(ctx: Any, *parameters: Tensor) -> Tensor:
        return torch.stack(parameters)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        return grad.contiguous().unbind()


def module_name(node_type: str) -> str:
    """Return the name of a node type's module: itself, with ``·`` where modules of torch cannot be called so."""
    name = node_type.replace(".", "·")
    return f"{name}·" if not name or hasattr(nn.ModuleDict(), name) else name


class HeteroLayer(nn.Module):
    """Convolve per relation, combine per destination type, and optionally add a residual.

    Node types that no relation of the layer ends in keep their states.

    Args:
        relations: relations that this layer computes.
        make_conv: relation → convolution module, e.g. ``lambda relation: SAGEConv(relation, width)``.
        width: H.
        cross_relation: how relations are combined, or its name, a sum where None; each destination type learns its own.
        norm, activation, dropout: norm, activation and dropout after every convolution.
        residual: whether the layer's input is added.
    """

    convs: Any
    mixers: Any

    def __init__(
        self, relations: Sequence[Relation], make_conv: Callable[[Relation], Convolution], *, width: int,
        cross_relation: CrossRelation | str | None = None, norm: str = "layer", activation: str = "gelu",
        dropout: float = 0.0, residual: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        if not isinstance(cross_relation, CrossRelation):
            cross_relation = CrossRelation(cross_relation or "sum")
        self.relations = relations = list(relations)
        self.how, self.residual, self.width = cross_relation.how, residual, width
        self.convs = nn.ModuleList(RelationConv(make_conv(r), width, norm, activation, dropout) for r in relations)
        self.structures = [structure_of(conv.conv) for conv in self.convs]
        numbers = Counter(r[2] for r in relations)
        mixers = {t: make_mixer(cross_relation, number, width) for t, number in numbers.items()}
        self.mixers = nn.ModuleDict({module_name(t): mixer for t, mixer in mixers.items() if mixer is not None})

    def chained(self, dtype: torch.dtype, device: torch.device) -> bool:
        """Return whether kernels compute differences of a type on a device, of all relations and what combines them."""
        chains = [conv.chain() for conv in self.convs]
        known = [chain is not None and _steps(chain[0], self.width, dtype, device) is not None for chain in chains]
        return all(known) and all(mixer.in_kernels for mixer in self.mixers.values())

    def freeze_all_but(self, relations: list[Relation]) -> None:
        """Take the gradient from the parameters of all other relations."""
        for relation, conv in zip(self.relations, self.convs, strict=True):
            if relation not in relations:
                conv.requires_grad_(False)
        ends = {module_name(relation[2]) for relation in relations}
        for node_type, mixer in self.mixers.items():
            if node_type not in ends:
                mixer.requires_grad_(False)

    def forward(self, perturbed: PerturbedCell, states: Mapping[str, States | Tensor]) -> dict[str, States]:
        """Return new states by node type; rows [N, H] are those that all strains have in common."""
        if missing := {t for r in self.relations for t in (r[0], r[2])} - {*states}:
            what, expected = "a layer needs states of both ends of its relations", listing(self.relations, limit=30)
            raise GraphError(what, got=f"none of {listing(sorted(missing))}", expected=expected)
        new = {t: x if isinstance(x, States) else perturbed.start(x) for t, x in states.items()}
        combined = self._messages(perturbed, new).items()
        return new | {t: self._combined(t, new[t], messages) for t, messages in combined}

    def _combined(self, node_type: str, x: States, messages: Sequence[Message]) -> States:
        residual, name = [(None, [x])] if self.residual else [], module_name(node_type)
        if name in self.mixers:
            received = [message.received for message in messages]
            return x.sum([(_Mixture(messages, self.mixers[name]), [x, *received]), *residual])
        updates = [(RowSum(message.conv), [x, message.received]) for message in messages]
        if self.how == "mean":
            number = sum(len(message.positions) for message in messages)
            return x.sum([(lambda total: total / number, [x.sum(updates)]), *residual])
        return x.sum([*updates, *residual])

    def _messages(self, perturbed: PerturbedCell, states: Mapping[str, States]) -> dict[str, list[Message]]:
        """Return the messages of the relations, by destination type."""
        messages: dict[str, list[Message]] = {}
        for positions in self._groups(states):
            convs = [self.convs[i] for i in positions]
            relations = [self.relations[i] for i in positions]
            conv = convs[0] if len(convs) == 1 else StackedConvs(relations, convs)
            source, _, destination = relations[0]
            received = conv.receive(perturbed, states[source], states[destination])
            messages.setdefault(destination, []).append(Message(positions, conv, received))
        return messages

    def _groups(self, states: Mapping[str, States]) -> list[list[int]]:
        """Return the positions of relations that are computed together."""
        groups: dict[object, list[int]] = {}
        for i, (source, _, destination) in enumerate(self.relations):
            alone = None if states[source].stacks and self.structures[i] is not None else i
            groups.setdefault((alone, source, destination, self.structures[i]), []).append(i)
        return list(groups.values())


class Message(NamedTuple):
    """Hold the messages of one relation, or of several that are computed together."""

    positions: list[int]  #: positions of the relations in the layer
    conv: RelationConv | StackedConvs  #: convolution of these relations
    received: States  #: messages that the nodes receive along the relations' edges


@dataclass(frozen=True)
class RowSum:
    """Sum the new rows of one relation, or of several that are computed together."""

    conv: RelationConv | StackedConvs

    def __call__(self, x: Tensor, received: Tensor) -> Tensor:
        out: Tensor = self.conv(x, received)
        return out.sum(0) if isinstance(self.conv, StackedConvs) else out

    def in_one_kernel(
        self, num_strains: int, bases: Sequence[Tensor], deltas: Sequence[Tensor | None], summed: bool = True
    ) -> tuple[Tensor, Tensor] | None:
        """Return rows of the base and differences by one kernel; None where it does not know the modules.

        They are those of each relation if not ``summed``, [R, ...].
        """
        conv, (x_NH, received), (own, delta) = self.conv, bases, deltas
        chain = (conv.convs[0] if isinstance(conv, StackedConvs) else conv).chain()
        if chain is None or delta is None or x_NH.dtype != torch.float32:
            return None
        modules, epsilon = chain
        steps = _steps(modules, x_NH.shape[-1], delta.dtype, x_NH.device)
        if steps is None:
            return None
        if isinstance(conv, StackedConvs):
            parameters = conv.stacked
        else:
            parameters = {name: mine.unsqueeze(0) for name, mine in conv.named_parameters()}
            received, delta = received.unsqueeze(0), delta.unsqueeze(0)
        names = [f"{step.name}.{name}" for step in steps for name, _ in modules[step.name].named_parameters()]
        weights, scale_R = [parameters[name] for name in names], 1 + parameters[epsilon].flatten()
        return row_chain.chained(steps, (x_NH, received), (own, delta), scale_R, weights, num_strains, summed)


class _Mixture(nn.Module):
    """Apply a learned combination to rows and to what they received along several relations."""

    convs: Any

    def __init__(self, messages: Sequence[Message], mixer: RelationMixer) -> None:
        super().__init__()
        self.positions = [message.positions for message in messages]
        self.convs, self.mixer = nn.ModuleList(message.conv for message in messages), mixer

    def rows(self, x: Tensor, *received: Tensor) -> list[Tensor]:
        """Return new rows of every relation, in the order of the layer."""
        found: dict[int, Tensor] = {}
        for positions, conv, mine in zip(self.positions, self.convs, received, strict=True):
            out = conv(x, mine)
            found.update(zip(positions, [out] if isinstance(conv, RelationConv) else out.unbind(), strict=True))
        return [found[position] for position in sorted(found)]

    def forward(self, x: Tensor, *received: Tensor) -> Tensor:
        out: Tensor = self.mixer(*self.rows(x, *received))
        return out

    def in_one_kernel(
        self, num_strains: int, bases: Sequence[Tensor], deltas: Sequence[Tensor | None]
    ) -> tuple[Tensor, Tensor] | None:
        """Return rows of the base and differences by kernels; None where they do not know the modules."""
        if not self.mixer.in_kernels:
            return None
        found: dict[int, tuple[Tensor, Tensor]] = {}
        for positions, conv, base, delta in zip(self.positions, self.convs, bases[1:], deltas[1:], strict=True):
            parts = RowSum(conv).in_one_kernel(num_strains, [bases[0], base], [deltas[0], delta], summed=False)
            if parts is None:
                return None
            if len(self.convs) == 1:
                return self.mixer.by_kernels(*parts, num_strains)
            found.update(zip(positions, zip(*parts, strict=True), strict=True))
        bases, deltas = zip(*(found[position] for position in sorted(found)), strict=True)
        return self.mixer.by_kernels(torch.stack(bases), torch.stack(deltas), num_strains)


def live_relations(relations: list[Relation], layers: int, read: set[str]) -> list[list[Relation]]:
    """Return the relations whose results are read, layer by layer, where ``read`` node types are read at last."""
    needed, plan = set(read), []
    for _ in range(layers):
        live = [r for r in relations if r[2] in needed]
        plan.append(live)
        needed = needed | {r[0] for r in live}
    return plan[::-1]


def _steps(
    modules: Mapping[str, nn.Module], width: int, dtype: torch.dtype, device: torch.device
) -> list[row_chain.Step] | None:
    """Return the steps of a chain that the kernel computes for differences of a type on a device; None for others."""
    steps = row_chain.steps_of(modules.items(), width)
    return None if steps is None or not row_chain.fits(steps, width, dtype, device) else steps

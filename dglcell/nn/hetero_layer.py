"""One layer of message passing over all relations of the cell graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from dglcell.graph.schema import Relation
from dglcell.nn.blocks import make_activation, make_norm
from dglcell.nn.config import CrossRelation
from dglcell.nn.cross_relation import RelationMixer, RelationWeights, make_mixer
from dglcell.perturbation.perturb import PerturbedCell
from dglcell.perturbation.states import States


class Conv(Protocol):
    """What a convolution over one relation offers: all that looks at edges apart from all that looks at rows."""

    def receive(self, perturbed: PerturbedCell, source: States, destination: States) -> States:
        """What the destination nodes receive along the surviving edges."""

    def update(self, x: Tensor, received: Tensor) -> Tensor:
        """New rows [K, H] from those of the destination nodes and what they receive."""


class RelationConv(nn.Module):
    """A convolution over one relation followed by norm, activation and dropout.

    Shapes:
        rows [K, H] of the destination nodes, and what these receive [K, H] → [K, H].
    """

    def __init__(self, conv: nn.Module, width: int, norm: str, activation: str, dropout: float) -> None:
        super().__init__()
        self.conv = conv
        self.after = nn.Sequential(make_norm(norm, width), make_activation(activation), nn.Dropout(dropout))

    def receive(self, perturbed: PerturbedCell, source: States, destination: States) -> States:
        """What the destination nodes receive along the surviving edges."""
        return cast(Conv, self.conv).receive(perturbed, source, destination)

    def forward(self, x: Tensor, received: Tensor) -> Tensor:
        """New rows."""
        out: Tensor = self.after(cast(Conv, self.conv).update(x, received))
        return out


class HeteroLayer(nn.Module):
    """Per relation a convolution; per destination type their combination, and optionally a residual.

    Node types that no relation of the layer ends in keep their states.

    Args:
        relations: what this layer computes.
        make_conv: relation → convolution module.
        width: H.
        cross_relation: how relations are combined; every destination type learns its own combination.
        norm, activation, dropout: after every convolution.
        residual: add the layer's input.
    """

    def __init__(
        self,
        relations: list[Relation],
        make_conv: Callable[[Relation], nn.Module],
        *,
        width: int,
        cross_relation: CrossRelation,
        norm: str,
        activation: str,
        dropout: float,
        residual: bool,
    ) -> None:
        super().__init__()
        self.relations = relations
        self.how, self.residual = cross_relation.how, residual
        self.convs = nn.ModuleList(RelationConv(make_conv(r), width, norm, activation, dropout) for r in relations)
        numbers = Counter(r[2] for r in relations)
        mixers = {t: make_mixer(cross_relation, number, width) for t, number in numbers.items()}
        self.mixers = nn.ModuleDict({t: mixer for t, mixer in mixers.items() if mixer is not None})

    def forward(self, perturbed: PerturbedCell, states: Mapping[str, States]) -> dict[str, States]:
        """New states by node type."""
        new = dict(states)
        for node_type, messages in self._messages(perturbed, states).items():
            new[node_type] = self._combined(states[node_type], messages, self.mixer(node_type))
        return new

    def _combined(self, x: States, messages: Sequence[Message], mixer: RelationMixer | None) -> States:
        residual = [(None, [x])] if self.residual else []
        if mixer is not None:
            convs = nn.ModuleList(conv for conv, _ in messages)
            return x.sum([(_Mixture(convs, mixer), [x, *(received for _, received in messages)]), *residual])
        updates = [(conv, [x, received]) for conv, received in messages]
        if self.how == "mean":
            number = len(updates)
            return x.sum([(lambda total: total / number, [x.sum(updates)]), *residual])
        return x.sum([*updates, *residual])

    @torch.no_grad()
    def relation_weights(
        self, perturbed: PerturbedCell, states: Mapping[str, States], number: int
    ) -> list[RelationWeights]:
        """What the learned combinations of this layer, which has a number, give to their options."""
        found = []
        for node_type, messages in self._messages(perturbed, states).items():
            mixer = self.mixer(node_type)
            if mixer is not None:
                options = mixer.options([name for _, name, end in self.relations if end == node_type])
                x_NH = states[node_type].base_NH
                rows = [conv(x_NH, received.base_NH) for conv, received in messages]
                found.append(RelationWeights(number, node_type, options, mixer.mean_weights(*rows)))
        return found

    def mixer(self, node_type: str) -> RelationMixer | None:
        """The learned combination of the relations that end in a node type, where there is one."""
        return cast(RelationMixer, self.mixers[node_type]) if node_type in self.mixers else None

    def _messages(self, perturbed: PerturbedCell, states: Mapping[str, States]) -> dict[str, list[Message]]:
        """What every relation brings, by destination type."""
        messages: dict[str, list[Message]] = {}
        for relation, module in zip(self.relations, self.convs, strict=True):
            conv = cast(RelationConv, module)
            received = conv.receive(perturbed, states[relation[0]], states[relation[2]])
            messages.setdefault(relation[2], []).append((conv, received))
        return messages


Message = tuple[RelationConv, States]
"""A relation's convolution, and what the nodes received along its edges."""


class _Mixture(nn.Module):
    """What a learned combination makes of rows, and of what they received along several relations."""

    def __init__(self, convs: nn.ModuleList, mixer: RelationMixer) -> None:
        super().__init__()
        self.convs, self.mixer = convs, mixer

    def forward(self, x: Tensor, *received: Tensor) -> Tensor:
        out: Tensor = self.mixer(*(conv(x, y) for conv, y in zip(self.convs, received, strict=True)))
        return out


def live_relations(relations: list[Relation], layers: int, read: set[str]) -> list[list[Relation]]:
    """The relations that each layer must compute so that ``read`` node types come out right.

    A relation whose result nothing reads would be wasted work and leave parameters without gradient.

    Args:
        relations: all relations in use.
        layers: L.
        read: node types read after the last layer.

    Returns:
        L lists, first layer first.
    """
    needed, plan = set(read), []
    for _ in range(layers):
        live = [r for r in relations if r[2] in needed]
        plan.append(live)
        needed = needed | {r[0] for r in live}
    return plan[::-1]

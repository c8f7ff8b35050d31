"""One layer of message passing over all relations of the cell graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Protocol, cast

from torch import Tensor, nn

from dglcell.graph.schema import Relation
from dglcell.kernels.update import Network, Update
from dglcell.nn.cross_relation import CrossRelation, combine_relations
from dglcell.nn.registry import make_activation, make_norm
from dglcell.nn.relation_mixer import RelationMixer, RelationWeights
from dglcell.perturbation.perturb import PerturbedCell
from dglcell.perturbation.row_wise import RowWise
from dglcell.perturbation.state_sums import Addend
from dglcell.perturbation.states import States


class Conv(Protocol):
    """What a convolution over one relation offers: all that looks at edges apart from all that looks at rows."""

    def receive(self, perturbed: PerturbedCell, source: States, destination: States) -> States:
        """What the destination nodes receive along the surviving edges."""

    def update(self, x: Tensor, received: Tensor) -> Tensor:
        """New rows [K, H] from those of the destination nodes and what they receive."""

    def network(self) -> Network | None:
        """What ``update`` computes, for compiled code; None where that would save nothing."""


class RelationConv(nn.Module):
    """A convolution over one relation followed by norm, activation and dropout."""

    def __init__(
        self, conv: nn.Module, width: int, norm: str, activation: str, dropout: float, recompute: bool
    ) -> None:
        super().__init__()
        self.conv = conv
        self.after = nn.Sequential(make_norm(norm, width), make_activation(activation), nn.Dropout(dropout))
        self.recompute = recompute

    def addend(self, perturbed: PerturbedCell, source: States, destination: States) -> Addend:
        """The new states of the destination nodes, as a row-wise function of theirs and of what they receive."""
        received = cast(Conv, self.conv).receive(perturbed, source, destination)
        return self.row_wise(), [destination, received]

    def row_wise(self) -> RowWise:
        """New rows from those of the destination nodes and what they receive."""

        def update(x: Tensor, received: Tensor) -> Tensor:
            out: Tensor = self.after(cast(Conv, self.conv).update(x, received))
            return out

        network = cast(Conv, self.conv).network()
        compiled = None if network is None else Update.of(network, self.after[0], self.after[1])
        return RowWise(update, self, self.recompute, compiled)


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
        recompute: keep little for the backward pass, see ``RowWise``.
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
        recompute: bool = True,
    ) -> None:
        super().__init__()
        self.relations = relations
        self.how, self.residual = cross_relation.how, residual
        self.convs = nn.ModuleList(
            RelationConv(make_conv(r), width, norm, activation, dropout, recompute) for r in relations
        )
        numbers = Counter(r[2] for r in relations)
        mixers = {t: cross_relation.mixer(number, width) for t, number in numbers.items()}
        self.mixers = nn.ModuleDict({t: mixer for t, mixer in mixers.items() if mixer is not None})

    def forward(self, perturbed: PerturbedCell, states: Mapping[str, States]) -> dict[str, States]:
        """New states by node type."""
        new = dict(states)
        for node_type, updates in self._updates(perturbed, states).items():
            residual = [states[node_type]] if self.residual else []
            new[node_type] = combine_relations(updates, self.how, residual, self.mixer(node_type))
        return new

    def relation_weights(
        self, perturbed: PerturbedCell, states: Mapping[str, States], number: int
    ) -> list[RelationWeights]:
        """What the learned combinations of this layer, which has a number, give to their options."""
        found = []
        for node_type, updates in self._updates(perturbed, states).items():
            mixer = self.mixer(node_type)
            if mixer is not None:
                options = mixer.options([name for _, name, end in self.relations if end == node_type])
                found.append(RelationWeights(number, node_type, options, mixer.mean_weights(updates)))
        return found

    def mixer(self, node_type: str) -> RelationMixer | None:
        """The learned combination of the relations that end in a node type, where there is one."""
        return cast(RelationMixer, self.mixers[node_type]) if node_type in self.mixers else None

    def _updates(self, perturbed: PerturbedCell, states: Mapping[str, States]) -> dict[str, list[Addend]]:
        """What every relation says, by destination type."""
        updates: dict[str, list[Addend]] = {}
        for relation, conv in zip(self.relations, self.convs, strict=True):
            source, destination = states[relation[0]], states[relation[2]]
            updates.setdefault(relation[2], []).append(cast(RelationConv, conv).addend(perturbed, source, destination))
        return updates


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

"""One layer of message passing over all relations of the cell graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, cast

from torch import Tensor, nn

from dglcell.graph.schema import Relation
from dglcell.kernels.update import Network, Update
from dglcell.nn.cross_relation import combine_relations
from dglcell.nn.registry import make_activation, make_norm
from dglcell.perturbation.perturb import PerturbedCell
from dglcell.perturbation.row_wise import RowWise
from dglcell.perturbation.states import Addend, States


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
    """Per relation a convolution; per destination type their sum or mean, and optionally a residual.

    Node types that no relation of the layer ends in keep their states.

    Args:
        relations: what this layer computes.
        make_conv: relation → convolution module.
        width: H.
        aggregation: cross-relation ``sum`` or ``mean``.
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
        aggregation: str,
        norm: str,
        activation: str,
        dropout: float,
        residual: bool,
        recompute: bool = True,
    ) -> None:
        super().__init__()
        self.relations = relations
        self.aggregation, self.residual = aggregation, residual
        self.convs = nn.ModuleList(
            RelationConv(make_conv(r), width, norm, activation, dropout, recompute) for r in relations
        )

    def forward(self, perturbed: PerturbedCell, states: Mapping[str, States]) -> dict[str, States]:
        """New states by node type."""
        addends: dict[str, list[Addend]] = {}
        for relation, conv in zip(self.relations, self.convs, strict=True):
            source_type, _, destination_type = relation
            assert isinstance(conv, RelationConv)
            addend = conv.addend(perturbed, states[source_type], states[destination_type])
            addends.setdefault(destination_type, []).append(addend)
        new = dict(states)
        for node_type, parts in addends.items():
            residual = [states[node_type]] if self.residual else []
            new[node_type] = combine_relations(parts, self.aggregation, residual)
        return new


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

"""One layer of message passing over all relations of the cell graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import nn

from dglcell.graph.schema import Relation
from dglcell.nn.cross_relation import combine_relations
from dglcell.nn.registry import make_activation, make_norm
from dglcell.perturbation.perturb import PerturbedCell
from dglcell.perturbation.states import States, sum_states


class RelationConv(nn.Module):
    """A convolution over one relation followed by norm, activation and dropout."""

    def __init__(self, conv: nn.Module, width: int, norm: str, activation: str, dropout: float) -> None:
        super().__init__()
        self.conv = conv
        self.after = nn.Sequential(make_norm(norm, width), make_activation(activation), nn.Dropout(dropout))

    def forward(self, perturbed: PerturbedCell, source: States, destination: States) -> States:
        """New states of the destination nodes."""
        out: States = self.conv(perturbed, source, destination)
        return out.map(self.after)


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
    ) -> None:
        super().__init__()
        self.relations = relations
        self.aggregation, self.residual = aggregation, residual
        self.convs = nn.ModuleList(RelationConv(make_conv(r), width, norm, activation, dropout) for r in relations)

    def forward(self, perturbed: PerturbedCell, states: Mapping[str, States]) -> dict[str, States]:
        """New states by node type."""
        received: dict[str, list[States]] = {}
        for relation, conv in zip(self.relations, self.convs, strict=True):
            source_type, _, destination_type = relation
            out = conv(perturbed, states[source_type], states[destination_type])
            received.setdefault(destination_type, []).append(out)
        new = dict(states)
        for node_type, outputs in received.items():
            combined = combine_relations(outputs, self.aggregation)
            if self.residual:
                combined = sum_states([states[node_type], combined])
            new[node_type] = combined
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

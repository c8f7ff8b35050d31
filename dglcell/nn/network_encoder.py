"""Rounds of GraphSAGE on the wild type of one network."""

from __future__ import annotations

from torch import Tensor, nn

from dglcell.graph.resident import ResidentRelation
from dglcell.graph.schema import Relation
from dglcell.kernels.spmm import spmm
from dglcell.nn.registry import make_activation
from dglcell.nn.sage import SAGEConv


class NetworkEncoder(nn.Module):
    """States of the wild type's genes after some rounds of ``SAGEConv`` and activation on one network.

    There is one state per gene, whatever the batch: no strain's graph is looked at. Fixed edge weights are not used.

    Args:
        relation: the network.
        width: H.
        activation: after every round, the last too.
        rounds: of message passing.

    Shapes:
        [N, H] → [N, H].
    """

    def __init__(self, relation: Relation, width: int, activation: str, rounds: int = 2) -> None:
        super().__init__()
        self.rounds = nn.ModuleList(SAGEConv(relation, width) for _ in range(rounds))
        self.activation = make_activation(activation)

    def forward(self, edges: ResidentRelation, x_NH: Tensor, kernel: str = "auto") -> Tensor:
        """New states; the mean over no in-edge is 0."""
        degree_N1 = edges.in_degrees.clamp(min=1).unsqueeze(1)
        for conv in self.rounds:
            assert isinstance(conv, SAGEConv)
            mean_NH = spmm(edges, x_NH, weighted=False, kernel=kernel) / degree_N1
            x_NH = self.activation(conv.update(x_NH, mean_NH))
        return x_NH

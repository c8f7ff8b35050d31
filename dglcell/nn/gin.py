"""Graph isomorphism convolution over the surviving edges of one relation."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dglcell.graph.schema import Relation
from dglcell.nn.mlp import mlp
from dglcell.perturbation.perturb import PerturbedCell
from dglcell.perturbation.states import States


class GINConv(nn.Module):
    r"""GIN (Xu et al. 2019, *How powerful are graph neural networks?*, eq. 4.1).

    .. math:: h'_v = \mathrm{MLP}\Big((1+\epsilon)\,h_v + \sum_{u \to v \text{ survives}} w_{uv}\,h_u\Big)

    Args:
        relation: whose edges are used; source and destination types may differ.
        width: H of input and output.
        hidden: width inside the MLP.
        layers: number of Linear layers of the MLP; the output is H wide for every number. With 0 there is no MLP.
            Sums are then all there is, as in He et al. 2020, *LightGCN*.
        activation: inside the MLP.
        dropout: inside the MLP.

    Shapes:
        source states [N, B, H], destination states [M, B, H] → [M, B, H].
    """

    def __init__(
        self, relation: Relation, width: int, *, hidden: int, layers: int, activation: str, dropout: float
    ) -> None:
        super().__init__()
        self.relation = relation
        self.epsilon = nn.Parameter(torch.zeros(1))
        widths = [width] + [hidden] * (layers - 1) + [width]
        self.mlp = mlp(widths, activation, dropout) if layers else nn.Sequential()

    def receive(self, perturbed: PerturbedCell, source: States, destination: States) -> States:
        """Sums over surviving in-edges."""
        return perturbed.aggregate(self.relation, source, "sum")

    def update(self, x: Tensor, received: Tensor) -> Tensor:
        """New rows from those of the destination nodes and what they receive."""
        out: Tensor = self.mlp(torch.addcmul(received, x, 1 + self.epsilon))
        return out

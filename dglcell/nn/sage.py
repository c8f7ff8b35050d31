"""GraphSAGE convolution with the mean over surviving in-edges of one relation."""

from __future__ import annotations

from torch import Tensor, nn

from dglcell.graph.schema import Relation
from dglcell.perturbation.perturb import PerturbedCell
from dglcell.perturbation.states import States


class SAGEConv(nn.Module):
    r"""GraphSAGE, mean aggregator (Hamilton et al. 2017, *Inductive representation learning on large graphs*).

    .. math:: h'_v = W_1 h_v + W_2 \frac{1}{|\mathcal{N}(v)|}\sum_{u \in \mathcal{N}(v)} w_{uv}\,h_u + b

    where :math:`\mathcal{N}(v)` are the sources of the edges into v that survive in the strain.

    Args:
        relation: whose edges are used.
        width: H of input and output.

    Shapes:
        source states [N, B, H], destination states [M, B, H] → [M, B, H].
    """

    def __init__(self, relation: Relation, width: int) -> None:
        super().__init__()
        self.relation = relation
        self.neighbours = nn.Linear(width, width)
        self.itself = nn.Linear(width, width, bias=False)

    def receive(self, perturbed: PerturbedCell, source: States, destination: States) -> States:
        """Means over surviving in-edges."""
        return perturbed.aggregate(self.relation, source, "mean")

    def update(self, x: Tensor, received: Tensor) -> Tensor:
        """New rows from those of the destination nodes and what they receive."""
        out: Tensor = self.itself(x) + self.neighbours(received)
        return out

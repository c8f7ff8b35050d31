"""Pass messages along one relation: the base class of convolutions, and GIN, GraphSAGE and GATv2."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dglcell.graph.resident_graph import ResidentGraph
from dglcell.graph.schema import Relation
from dglcell.nn.blocks import mlp
from dglcell.nn.config import ConvOptions, GATv2Options, GINOptions, check_heads
from dglcell.perturbation.perturb import PerturbedCell
from dglcell.perturbation.states import States


class Convolution(nn.Module):
    """Convolve over one relation: ``receive`` looks at edges, and ``update`` at rows.

    Source states [N, B, H] and destination states [M, B, H] become new ones, [M, B, H].

    A convolution of your own, `model.conv: MODULE:CLASS`, is made with three arguments: ``relation``, ``width`` (H) and
    ``config``, a ``Config`` with the values of `model.conv_options`.

    Attributes:
        Config: class of the keys of `model.conv_options`.
        reduce: whether nodes receive sums or means, see ``PerturbedCell.aggregate``; None where it is something else.
        relation: relation whose edges are used; source and destination types may differ.
    """

    Config: ClassVar[type[ConvOptions]] = ConvOptions
    reduce: ClassVar[str | None] = None

    def __init__(self, relation: Relation) -> None:
        super().__init__()
        self.relation = relation

    @classmethod
    def of(cls, relation: Relation, width: int, config: Any, cell: ResidentGraph) -> Self:
        """Make a convolution for a relation of a cell graph, of which some read more."""
        return cls(relation, width, config)  # type: ignore[call-arg]

    @abstractmethod
    def receive(self, perturbed: PerturbedCell, source: States, destination: States) -> States:
        """Return the messages that the destination nodes receive along the surviving edges."""

    @abstractmethod
    def update(self, x: Tensor, received: Tensor) -> Tensor:
        """Return new rows [K, H] from those of the destination nodes and what they receive."""

    def chain(self) -> tuple[str, str] | None:
        """Return the names of a Sequential and of ε, where ``update`` applies the former to received + (1 + ε) x.

        A GPU then computes new rows by one kernel, as far as it knows the modules; None where ``update`` is another.
        """
        return None

    def structure(self) -> Hashable:
        """Return all settings that ``update`` depends on beside weights.

        If a class defines this method itself, a GPU computes those of its convolutions that return the same, and have
        weights of the same shapes, by one of them. Convolutions of other classes are computed one by one.
        """
        return None


class GINConv(Convolution):
    r"""Convolve by GIN (Xu et al. 2019, *How powerful are graph neural networks?*, eq. 4.1).

    .. math:: h'_v = \mathrm{MLP}\Big((1+\epsilon)\,h_v + \sum_{u \to v \text{ survives}} w_{uv}\,h_u\Big)

    Args:
        relation, width: relation whose edges are used, and H of input and output.
        config: options of the MLP (two Linear layers with GELU where None), whose output is H wide for every number of
            layers. With 0 layers there is no MLP and states are only summed, as in He et al. 2020, *LightGCN*.
        weighs: whether the sum has a learned weight, which starts at 1.
    """

    reduce = "sum"

    def __init__(
        self, relation: Relation, width: int, config: GINOptions | None = None, *, weighs: bool = False
    ) -> None:
        super().__init__(relation)
        config = config or GINOptions(hidden=width)
        self.settings = config.activation, config.dropout
        self.epsilon = nn.Parameter(torch.zeros(1))
        self.weight = nn.Parameter(torch.ones(1)) if weighs else None
        widths = [width] + [config.hidden] * (config.layers - 1) + [width]
        self.mlp = mlp(widths, config.activation, config.dropout) if config.layers else nn.Sequential()

    @classmethod
    def of(cls, relation: Relation, width: int, config: GINOptions, cell: ResidentGraph) -> Self:
        return cls(relation, width, config, weighs=relation in cell.weighed)

    def receive(self, perturbed: PerturbedCell, source: States, destination: States) -> States:
        return perturbed.aggregate(self.relation, source, self.reduce)

    def update(self, x: Tensor, received: Tensor) -> Tensor:
        if self.weight is not None:
            received = received * self.weight
        out: Tensor = self.mlp(torch.addcmul(received, x, 1 + self.epsilon))
        return out

    def chain(self) -> tuple[str, str] | None:
        return ("mlp", "epsilon") if self.weight is None else None

    def structure(self) -> Hashable:
        return self.settings


class SAGEConv(Convolution):
    r"""Convolve by GraphSAGE with the mean aggregator (Hamilton et al. 2017).

    .. math:: h'_v = W_1 h_v + W_2 \frac{1}{|\mathcal{N}(v)|}\sum_{u \in \mathcal{N}(v)} w_{uv}\,h_u + b

    where :math:`\mathcal{N}(v)` are the sources of the edges into v that survive in the strain.
    """

    reduce = "mean"

    def __init__(self, relation: Relation, width: int, config: ConvOptions | None = None) -> None:
        super().__init__(relation)
        self.neighbours = nn.Linear(width, width)
        self.itself = nn.Linear(width, width, bias=False)

    def receive(self, perturbed: PerturbedCell, source: States, destination: States) -> States:
        return perturbed.aggregate(self.relation, source, self.reduce)

    def update(self, x: Tensor, received: Tensor) -> Tensor:
        out: Tensor = self.itself(x) + self.neighbours(received)
        return out

    def structure(self) -> Hashable:
        return ()


class GATv2Conv(Convolution):
    r"""Convolve by GATv2, with heads side by side (Brody, Alon & Yahav 2022, *How attentive are graph attention
    networks?*, eq. 7).

    .. math::
        e_{uv} = a^\top \mathrm{LeakyReLU}(W_l h_u + W_r h_v + w_{uv}\,c), \quad
        h'_v = \sum_{u \to v \text{ survives}} \operatorname{softmax}_u(e_{uv})\; W_l h_u + b

    A node attends to itself only where the relation has a self-loop; otherwise its own state gets into the result by
    the residual of the layer.

    Args:
        relation, width: relation whose edges are used, and H of input and output.
        config: options; the number of heads, 4 where None, must divide H.
        weighted: whether the fixed weights w of the relation take part in the score.
    """

    def __init__(
        self, relation: Relation, width: int, config: GATv2Options | None = None, *, weighted: bool = False
    ) -> None:
        super().__init__(relation)
        config = config or GATv2Options()
        heads, self.slope = config.heads, config.slope
        check_heads(width, heads)
        self.keys = nn.Linear(width, width)
        self.queries = nn.Linear(width, width)
        self.vector = nn.Parameter(torch.empty(heads, width // heads))
        self.edge_vector = nn.Parameter(torch.empty(width)) if weighted else None
        self.bias = nn.Parameter(torch.zeros(width))
        nn.init.normal_(self.vector, std=(width // heads) ** -0.5)
        if self.edge_vector is not None:
            nn.init.normal_(self.edge_vector, std=width**-0.5)

    @classmethod
    def of(cls, relation: Relation, width: int, config: GATv2Options, cell: ResidentGraph) -> Self:
        return cls(relation, width, config, weighted=cell[relation].weight is not None)

    def receive(self, perturbed: PerturbedCell, source: States, destination: States) -> States:
        return perturbed.attend(self.relation, source.map(self.keys), destination.map(self.queries), self.score)

    def score(self, keys: Tensor, queries: Tensor, weights: Tensor | None) -> Tensor:
        """Return the logits e of pairs for every head separately, [rows, A]."""
        both = keys + queries
        if self.edge_vector is not None and weights is not None:
            both = both + weights.unsqueeze(-1) * self.edge_vector
        hidden = F.leaky_relu(both, self.slope).unflatten(-1, self.vector.shape)
        return (hidden * self.vector).sum(-1)

    def update(self, x: Tensor, received: Tensor) -> Tensor:
        return received + self.bias  # a node's own state has taken part in the scores

    def structure(self) -> Hashable:
        return self.slope

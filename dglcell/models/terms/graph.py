"""Score strains by how much the pooled states of their own graphs differ from the wild type's."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from dglcell.errors import ConfigError
from dglcell.models.terms.config import GraphConfig
from dglcell.models.terms.term import Seen, Surroundings, Term
from dglcell.nn.blocks import mlp, start_at_the_mean
from dglcell.nn.pooling import AttentionPooling
from dglcell.perturbation.sent import Kept
from dglcell.perturbation.states import States


class Graph(Term):
    r"""Pool the kept nodes: :math:`z_w` of the wild type, :math:`z_i` of strain i; score :math:`z_p = z_w - z_i`.

    Pooling takes a mean, which a few changed nodes move by about 1/N; :math:`z_p` is multiplied by N, so that it is of
    order one. The score is an MLP on it.

    Raises:
        ConfigError: a node type is not in the cell graph.
    """

    Config = GraphConfig
    config: GraphConfig

    def __init__(self, config: GraphConfig, surroundings: Surroundings) -> None:
        super().__init__(config, surroundings)
        hidden, activation, dropout = surroundings.hidden, surroundings.activation, surroundings.dropout
        self.nodes, self.width = surroundings.cell.num_nodes, hidden * len(config.pool)
        if missing := sorted(set(config.pool) - set(self.nodes)):
            raise ConfigError(
                "`model.pool` names node types that the cell graph does not have",
                got=missing,
                expected=", ".join(self.nodes),
                do="set `cell.metabolism: true` or `model.pool: [gene]`",
            )
        self.pools = nn.ModuleDict({t: AttentionPooling(hidden, activation, dropout) for t in config.pool})
        self.head = mlp([self.width, hidden, surroundings.outputs], activation, dropout)

    @classmethod
    def reads(cls, config: GraphConfig) -> list[str]:
        return config.pool

    def start(self) -> None:
        start_at_the_mean(self.head[-1])

    def pool(self, states: Mapping[str, States], kept: Mapping[str, Kept]) -> Tensor:
        pooled = [self.pools[t](states[t], kept[t]).difference_BH * self.nodes[t] for t in self.config.pool]
        return torch.cat(pooled, dim=-1)

    def forward(self, seen: Seen) -> Tensor:
        score_BT: Tensor = self.head(seen.vectors[self.name])
        return score_BT

    def of_wild_type(self, like_BT: Tensor) -> Tensor:
        score_1T: Tensor = self.head(like_BT.new_zeros(1, self.width))
        return score_1T

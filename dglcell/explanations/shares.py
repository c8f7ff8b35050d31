"""Sum up the shares of a batch of strains by what they are of, and add up those of subsets and of several models."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dglcell.explanations.interactions import Subsets
from dglcell.explanations.reactions import Reactions
from dglcell.explanations.split import Explainer, Split
from dglcell.graph.resident import ResidentCell

OWN_STATE, LATER, READ = "own state", "later", "readout"
"""In place of a relation: what a node keeps of itself in a layer, what is only lost behind the layer, and that removed
nodes are missing where states are read."""


@dataclass
class Shares:
    """Hold shares of one phenotype in a batch of strains, by what they are of.

    Each is [B], or [N, B] of nodes, or [E, B] of edges.
    """

    wild_type: NDArray[Any]
    predicted: NDArray[Any]
    change: NDArray[Any]
    parts: dict[Any, NDArray[Any]]
    layers: dict[Any, NDArray[Any]]
    removed: dict[Any, NDArray[Any]]
    nodes: dict[Any, NDArray[Any]]
    balance: dict[Any, NDArray[Any]]
    edges: dict[Any, NDArray[Any]]

    @classmethod
    def of(cls, split: Split, explainer: Explainer, reactions: Reactions) -> Shares:
        """Sum up the shares of a split."""
        cell, num_layers = explainer.model.cell, explainer.num_layers
        B = len(split.predicted_B)
        parts = {name: share.cpu().numpy() for name, share in split.parts.items()}
        removed: dict[Any, Any] = defaultdict(float)
        for at, share_NB in split.removed:
            removed[at.layer, READ if at.relation is None else at.relation[1], at.node_type] += share_NB.cpu().numpy()
        states: dict[Any, Any] = {}
        received: dict[Any, Any] = defaultdict(float)
        for rows, share_K in split.rows:
            share, keys = share_K.cpu().numpy(), rows.index
            strains = keys.strains.cpu().numpy() % B  # behind the strains there may be the wild type of each
            if rows.relation is None:
                of_nodes = np.zeros((keys.num_nodes, B))
                np.add.at(of_nodes, (keys.nodes.cpu().numpy(), strains), share)
                states[rows.layer, rows.node_type] = of_nodes
            else:
                received[rows.layer, rows.relation[1]] += np.bincount(strains, share, B)
        nodes, layers = cls._cuts(states, removed, num_layers), cls._layers(states, received, removed, num_layers, B)
        wild_type, predicted, change = (
            one.cpu().numpy() for one in (split.wild_type_B, split.predicted_B, split.change_B)
        )
        balance, edges = reactions.balance(split), cls._edges(split, cell, B)
        return cls(wild_type, predicted, change, parts, layers, dict(removed), nodes, balance, edges)

    def interactions(self, subsets: Subsets) -> Shares:
        """Return the shares in the interactions of strains, of these shares of all subsets of their changes."""

        def added(by_key: Mapping[Any, NDArray[Any]]) -> dict[Any, NDArray[Any]]:
            return {key: subsets.sums(share) for key, share in by_key.items()}

        return Shares(
            self.wild_type[subsets.whole],
            self.predicted[subsets.whole],
            subsets.sums(self.change),
            *(
                added(by_key)
                for by_key in (self.parts, self.layers, self.removed, self.nodes, self.balance, self.edges)
            ),
        )

    @staticmethod
    def _cuts(states: Mapping[Any, Any], removed: Mapping[Any, Any], num_layers: int) -> dict[Any, NDArray[Any]]:
        """Return the shares of nodes behind each layer: of their states, and of what is missing later."""
        nodes: dict[Any, Any] = defaultdict(float)
        for (layer, node_type), share in states.items():
            nodes[layer, node_type] += share
        for (layer, _, node_type), share in removed.items():
            for cut in range(min(layer, num_layers + 1)):
                nodes[cut, node_type] += share
        return dict(nodes)

    @staticmethod
    def _edges(split: Split, cell: ResidentCell, B: int) -> dict[Any, NDArray[Any]]:
        """Return the shares of all edges of the relations of each layer."""
        found: dict[Any, Any] = defaultdict(float)
        for edges, share_P in split.edges:
            E = cell[edges.relation].num_edges
            place = (edges.edge_P * B + edges.strain_P % B).cpu().numpy()
            found[edges.layer, edges.relation] += np.bincount(place, share_P.cpu().numpy(), E * B).reshape(E, B)
        return dict(found)

    @staticmethod
    def _layers(
        states: Mapping[Any, Any], received: Mapping[Any, Any], removed: Mapping[Any, Any], num_layers: int, B: int
    ) -> dict[Any, NDArray[Any]]:
        """Return what each layer brings in by relations, keeps of its input, and leaves for later."""
        layers: dict[Any, NDArray[Any]] = {}
        for layer in range(1, num_layers + 1):
            behind = sum((share.sum(0) for (at, _), share in states.items() if at == layer), np.zeros(B))
            mine = {key: share for key, share in received.items() if key[0] == layer}
            layers |= mine
            layers[layer, OWN_STATE] = behind - sum(mine.values(), np.zeros(B))
            layers[layer, LATER] = sum(
                (share.sum(0) for (at, _, _), share in removed.items() if at > layer), np.zeros(B)
            )
        return layers


def mean_of(shares: Sequence[Shares]) -> Shares:
    """Return the mean of shares of the same strains by several models."""

    def mean(name: str) -> Any:
        of_each = [getattr(one, name) for one in shares]
        if not isinstance(of_each[0], dict):
            return sum(of_each) / len(of_each)
        keys = dict.fromkeys(key for one in of_each for key in one)
        return {key: sum(one.get(key, 0.0) for one in of_each) / len(of_each) for key in keys}

    return Shares(**{name: mean(name) for name in Shares.__dataclass_fields__})

"""Hold the cell graph on the device, with what models of cells read beside its edges."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.gene_space import relations_of_sources
from dglcell.graph.resident_graph import Derive, ResidentGraph
from dglcell.graph.schema import CATALYSES, REACTION, Relation
from dglcell.graph.steady_state import SteadyState
from dglcell.graph.vocabulary import Vocabulary


class ResidentCell(ResidentGraph):
    """Hold the cell graph as models need it: relations, node counts, growth media and reactions.

    A reaction node stands for one enzyme complex (one AND-term of the rule) in one direction, so it is lost if any of
    its genes is. ``media``, medium → reaction node → activity, has the same nodes in every medium.

    Attributes:
        media: names of M growth media.
        media_nodes: [K] int64, the reaction nodes that differ between media.
        media_activities: [M, K] float32, their activities.
    """

    media_nodes: Tensor
    media_activities: Tensor

    def __init__(
        self,
        num_nodes: Mapping[str, int],
        edges: Mapping[Relation, tuple[Tensor, Tensor, Tensor | None]],
        *,
        derive: Derive | None = None,
        names: Mapping[str, Vocabulary] | None = None,
        weighed: frozenset[Relation] = frozenset(),
        media: Mapping[str, Mapping[int, float]] | None = None,
    ) -> None:
        """Copy edges into buffers; see ``ResidentGraph``. Reactions are lost by gene rules where ``derive`` is None."""
        by_rules: Derive = [CATALYSES] if CATALYSES in edges else []
        super().__init__(num_nodes, edges, derive=by_rules if derive is None else derive, names=names, weighed=weighed)
        self.media = tuple(media or ())
        nodes = next(iter(media.values())) if media else {}
        activities = torch.tensor([list(of.values()) for of in (media or {}).values()], dtype=torch.float32)
        self.register_buffer("media_nodes", torch.tensor(list(nodes), dtype=torch.int64), persistent=False)
        self.register_buffer("media_activities", activities.reshape(len(self.media), len(nodes)), persistent=False)

    @property
    def steady_state(self) -> SteadyState | None:
        """Return what finds reactions that are blocked once others are lost; None where strains do not lose these."""
        return next((rule for rule in self.derive if isinstance(rule, SteadyState)), None)

    @classmethod
    def of(cls, cell: CellGraph) -> ResidentCell:
        """Make the resident edges of a cell graph."""
        media = {
            name: {cell.vocabularies[REACTION].index(node): activity for node, activity in of.items()}
            for name, of in cell.media.items()
        }
        return cls(
            cell.num_nodes,
            cell.edge_tensors(),
            derive=[rule if isinstance(rule, tuple) else rule(cell) for rule in cell.derive] or None,
            names=cell.vocabularies,
            weighed=relations_of_sources(cell),
            media=media,
        )

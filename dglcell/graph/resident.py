"""Hold the cell graph on the device, with what models of cells read beside its edges."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.gene_space import relations_of_sources
from dglcell.graph.metabolism import whole_reactions
from dglcell.graph.resident_graph import Derivation, ResidentGraph
from dglcell.graph.schema import CATALYSES, REACTION, Relation
from dglcell.graph.steady_state import SteadyState
from dglcell.graph.vocabulary import Vocabulary


class ResidentCell(ResidentGraph):
    """Hold the cell graph as models need it: relations, node counts, growth media and reactions.

    A reaction node stands for one enzyme complex (one AND-term of the rule) in one direction, so it is lost if any of
    its genes is.

    Attributes:
        steady_state: finds reactions that are blocked once others are lost, where strains lose these too; else None.
        media: names of M growth media.
        media_nodes: [K] int64, the reaction nodes that differ between media.
        media_strengths: [M, K] float32, their strengths.
        reaction_of: [N] int64, the reaction of the metabolic model that each reaction node belongs to.
        reaction_signs: [N] float32, −1 for reaction nodes of the backward direction, 1 for all others.
    """

    media_nodes: Tensor
    reaction_of: Tensor
    reaction_signs: Tensor
    media_strengths: Tensor

    def __init__(
        self,
        num_nodes: Mapping[str, int],
        edges: Mapping[Relation, tuple[Tensor, Tensor, Tensor | None]],
        steady_state: SteadyState | None = None,
        of_sources: frozenset[Relation] = frozenset(),
        media: Mapping[str, Mapping[int, float]] | None = None,
        reaction_of: Tensor | None = None,
        reaction_signs: Tensor | None = None,
        names: Mapping[str, Vocabulary] | None = None,
    ) -> None:
        """Copy edges into buffers.

        Args:
            num_nodes: node type → N.
            edges: relation → [E] int64 sources, [E] int64 destinations, and [E] fixed weights or None.
            steady_state: finds blocked reactions of the same cell; optional.
            of_sources: relations that sources of similarity gave the cell graph.
            media: medium → reaction node → strength, the same nodes in every medium; optional.
            reaction_of: as for the class; each node is a reaction where None.
            reaction_signs: as for the class; all are 1 where None.
            names: node type → names of its nodes; optional.
        """
        by_rules: list[Relation | Derivation] = [CATALYSES] if CATALYSES in edges else []
        derive = by_rules if steady_state is None else [*by_rules, steady_state]
        super().__init__(num_nodes, edges, derive=derive, names=names, weighed=of_sources)
        self.media = tuple(media or ())
        nodes = next(iter(media.values())) if media else {}
        strengths = torch.tensor([list(of.values()) for of in (media or {}).values()], dtype=torch.float32)
        self.register_buffer("media_nodes", torch.tensor(list(nodes), dtype=torch.int64), persistent=False)
        self.register_buffer("media_strengths", strengths.reshape(len(self.media), len(nodes)), persistent=False)
        by_itself = torch.arange(num_nodes.get(REACTION, 0))
        self.register_buffer("reaction_of", by_itself if reaction_of is None else reaction_of, persistent=False)
        forward = torch.ones(len(by_itself))
        self.register_buffer("reaction_signs", forward if reaction_signs is None else reaction_signs, persistent=False)

    @property
    def steady_state(self) -> SteadyState | None:
        return next((rule for rule in self.derive if isinstance(rule, SteadyState)), None)

    @classmethod
    def of(cls, cell: CellGraph) -> ResidentCell:
        """Make the resident edges of a cell graph."""
        steady_state = SteadyState.of(cell) if cell.lose_blocked else None
        media = {
            name: {cell.vocabularies[REACTION].index(node): strength for node, strength in of.items()}
            for name, of in cell.media.items()
        }
        reactions = cell.vocabularies[REACTION].names if REACTION in cell.vocabularies else ()
        reaction_of = torch.from_numpy(whole_reactions(reactions)[1]) if reactions else None
        signs = torch.tensor([-1.0 if name.endswith("-") else 1.0 for name in reactions])
        return cls(
            cell.num_nodes,
            cell.edge_tensors(),
            steady_state,
            relations_of_sources(cell),
            media,
            reaction_of,
            signs,
            cell.vocabularies,
        )

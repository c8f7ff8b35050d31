"""Hold the cell graph on the device, and find which of its reactions carry flux once others are lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.networks import relations_of_sources
from dglcell.graph.resident_graph import Derivation, Derive, ResidentGraph, ranges
from dglcell.graph.schema import CATALYSES, CONVERTS, METABOLITE, REACTION, Relation
from dglcell.graph.vocabulary import Vocabulary


class ResidentCell(ResidentGraph):
    """Hold the cell graph as models need it: relations, node counts, growth media and reactions.

    A reaction node stands for one enzyme complex (one AND-term of the rule) in one direction, so it is lost if any of
    its genes is. ``media``, medium → reaction node → activity, has the same nodes in every medium.
    """

    media: tuple[str, ...]  #: names of M growth media
    media_nodes: Tensor  #: [K] int64, the reaction nodes that differ between media
    media_activities: Tensor  #: [M, K] float32, their activities

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


class _Lists(nn.Module):
    """Hold R int64 lists, ``values[starts[r]:starts[r + 1]]``, as buffers that are not part of checkpoints."""

    starts: Tensor
    values: Tensor

    def __init__(self, rows: NDArray[np.int64], values: NDArray[np.int64], count: int) -> None:
        super().__init__()
        starts = np.concatenate([[0], np.bincount(rows, minlength=count).cumsum()])
        self.register_buffer("starts", torch.from_numpy(starts), persistent=False)
        self.register_buffer("values", torch.from_numpy(values[np.argsort(rows, kind="stable")]), persistent=False)

    def of(self, rows_K: Tensor) -> tuple[Tensor, Tensor]:
        """Return the values of K lists joined, and for each the number (0 … K − 1) of its list."""
        first_K = self.starts[rows_K]
        place, which = ranges(first_K, self.starts[rows_K + 1] - first_K)
        return self.values[place], which


class SteadyState(Derivation):
    """Find reactions that carry no flux at steady state, because one of their metabolites is no longer made or used.

    At steady state a metabolite is used as fast as it is made. So a reaction is *blocked* if no other reaction that is
    left uses one of its products, or makes one of its substrates. That blocks further reactions, and so on until
    nothing changes: messages of one bit between reactions and metabolites of the strain's own graph (see flux coupling,
    Burgard et al. 2004, *Genome Research* 14:301). Only what differs from the wild type is followed.

    A blocked reaction carries no flux in any steady state, so that taking it away as well changes no growth that flux
    balance analysis computes. Not every reaction that carries none is found: cycles that nothing leaves are not.

    Nodes that convert the same metabolites in the same amounts, such as the enzyme complexes of one reaction, count as
    one, which is lost when all of them are. The reverse of a reaction neither makes nor uses anything for it.

    Args:
        nodes, metabolites: [E] both ends of every edge between reaction nodes and metabolites.
        amounts: [E] negative where a metabolite is used, positive where it is made.
        num_nodes, num_metabolites: N and M.
    """

    node_type = REACTION

    group_of: Tensor  #: [N] the group of nodes with the same metabolites
    size: Tensor  #: [G] number of nodes of each group
    reverse: Tensor  #: [G] the group that does the opposite, or −1
    can_flow: Tensor  #: [G] bool, which groups carry flux in the wild type
    #: [2M] int32 number of groups that can flow in the wild type, on each side of a metabolite: 0 … M − 1 those that
    #: make it, M … 2M − 1 those that use it
    counts: Tensor

    def __init__(
        self,
        nodes: NDArray[np.int64],
        metabolites: NDArray[np.int64],
        amounts: NDArray[np.float32],
        num_nodes: int,
        num_metabolites: int,
    ) -> None:
        super().__init__()
        # The last question of ``lost``, and the answer: strategy and link ask for the same batch in turn.
        self.last: tuple[Sequence[object], Tensor] | None = None
        group_of, reverse = _groups(nodes, metabolites, amounts, num_nodes)
        one = np.unique(group_of, return_index=True)[1]  # a node of each group
        of_one = np.isin(nodes, one) & (amounts != 0)
        group, metabolite, made = group_of[nodes[of_one]], metabolites[of_one], amounts[of_one] > 0
        sides = np.stack([metabolite, metabolite + num_metabolites])
        side, other = np.where(made, sides, sides[::-1])
        self.sides = _Lists(group, side, len(one))  # of each group, the sides that it is on
        self.depend = _Lists(other, group, 2 * num_metabolites)  # of each side, the groups that need one there
        for name, value in (
            ("group_of", group_of),
            ("size", np.bincount(group_of, minlength=len(one))),
            ("reverse", reverse),
            ("can_flow", np.ones(len(one), dtype=bool)),
            ("counts", np.bincount(side, minlength=2 * num_metabolites).astype(np.int32)),
        ):
            self.register_buffer(name, torch.from_numpy(value), persistent=False)
        flows, counts = self.can_flow[:, None].clone(), self.counts[:, None].clone()
        # A metabolite that nothing makes, or nothing uses, blocks reactions of the wild type too.
        self._follow(flows, counts, torch.arange(2 * num_metabolites))
        self.can_flow, self.counts = flows[:, 0], counts[:, 0]

    @classmethod
    def of(cls, cell: CellGraph) -> SteadyState:
        """Make a steady state from the reactions of a cell graph, whose edges to metabolites have amounts."""
        edges = cell.edges(CONVERTS)
        assert edges.weight is not None
        return cls(edges.src, edges.dst, edges.weight, cell.num_nodes[REACTION], cell.num_nodes[METABOLITE])

    def lost(self, keep: Mapping[str, Tensor], asked: Sequence[object]) -> Tensor:
        last = self.last  # once, as another thread may ask about other strains
        if last is None or [*map(id, last[0])] != [*map(id, asked)]:
            last = self.last = asked, self.blocked(~keep[REACTION])
        return last[1]

    @torch.no_grad()
    def blocked(self, lost_NB: Tensor) -> Tensor:
        """Return the nodes that can carry flux in the wild type and cannot in strains that lose some, [N, B] bool.

        Lost nodes are in the result if they could carry flux. The host waits for the device once for every round.
        """
        strains = lost_NB.shape[1]
        node, strain = lost_NB.nonzero().unbind(1)
        lost_GB = torch.zeros(len(self.size), strains, dtype=torch.int32, device=lost_NB.device)
        lost_GB.index_put_((self.group_of[node], strain), lost_GB.new_ones(()), accumulate=True)
        gone_GB = (lost_GB == self.size[:, None]) & self.can_flow[:, None]
        flows_GB = self.can_flow[:, None] & ~gone_GB
        counts_SB = self.counts[:, None].repeat(1, strains)
        self._follow(flows_GB, counts_SB, self._leave(counts_SB, gone_GB.flatten().nonzero().squeeze(1)))
        return (self.can_flow[:, None] & ~flows_GB)[self.group_of]

    def _leave(self, counts_SB: Tensor, gone_K: Tensor) -> Tensor:
        """Subtract pairs of group and strain from the counts; return each pair of side and strain that changed."""
        strains = counts_SB.shape[1]
        side, which = self.sides.of(gone_K // strains)
        changed = side * strains + (gone_K % strains)[which]
        counts_SB.view(-1).index_add_(0, changed, counts_SB.new_full((len(changed),), -1))
        return changed.unique()

    def _follow(self, flows_GB: Tensor, counts_SB: Tensor, changed_K: Tensor) -> None:
        """Block, in place, all reactions that need a metabolite which nothing makes or nothing uses any more."""
        strains = counts_SB.shape[1]
        while len(changed_K):
            few_K = changed_K[counts_SB.view(-1)[changed_K] <= 1]
            group, which = self.depend.of(few_K // strains)
            pair, left = group * strains + (few_K % strains)[which], counts_SB.view(-1)[few_K][which]
            reverse = self.reverse[group]
            # The only group that is left may be the reverse of the one that needs it.
            own = (reverse >= 0) & flows_GB.view(-1)[reverse.clamp(min=0) * strains + pair % strains]
            gone_K = pair[flows_GB.view(-1)[pair] & ((left == 0) | own)].unique()
            flows_GB.view(-1)[gone_K] = False
            changed_K = self._leave(counts_SB, gone_K)


def _groups(
    nodes: NDArray[np.int64], metabolites: NDArray[np.int64], amounts: NDArray[np.float32], num_nodes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the group of each reaction node, [N], and for each group the one of its reverse reaction, [G], or −1."""
    order = np.lexsort((metabolites, nodes))
    ends = np.bincount(nodes, minlength=num_nodes).cumsum()[:-1]
    parts = zip(np.split(metabolites[order], ends), np.split(amounts[order], ends), strict=True)
    known: dict[tuple[bytes, bytes], int] = {}
    opposite: list[tuple[bytes, bytes]] = []
    group_of = np.empty(num_nodes, dtype=np.int64)
    for node, (of_node, amount) in enumerate(parts):
        what = of_node.tobytes()
        group_of[node] = known.setdefault((what, amount.tobytes()), len(known))
        if group_of[node] == len(opposite):
            opposite.append((what, (-amount).tobytes()))
    return group_of, np.array([known.get(key, -1) for key in opposite], dtype=np.int64)

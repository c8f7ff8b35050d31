"""Describe activities of single edges: how much strains leave of them, beside what they do to nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dglcell.checks import AN_ACTIVITY, no_activities
from dglcell.errors import GenotypeError, did_you_mean, listing
from dglcell.graph.resident_graph import ResidentGraph, ranges
from dglcell.graph.schema import EdgeTarget, Relation, read_edge_targets


@dataclass(frozen=True, eq=False)
class EdgeChanges:
    """Hold what strains leave of edges of one relation; every (edge, strain) pair occurs at most once.

    An edge is named by its position among the resident edges, which are sorted by destination.
    """

    edges: Tensor  #: [Q] int64 changed edges, strain by strain
    strains: Tensor  #: [Q] int64 strain that changes each of them, ascending
    activities: Tensor  #: [Q] float, 0 where an edge is removed; may require gradients

    def put_into(self, activity_EB: Tensor) -> Tensor:
        """Return ``activity_EB``, [E, B], with the activities of changed edges multiplied in."""
        changed = activity_EB[self.edges, self.strains] * self.activities.to(activity_EB.dtype)
        return activity_EB.index_put((self.edges, self.strains), changed)

    def left(self, strain: int, number: int) -> Tensor:
        """Return what a strain leaves of each of ``number`` edges, [E]."""
        mine = self.strains == strain
        return self.activities.new_ones(number).index_put((self.edges[mine],), self.activities[mine])

    def take(self, rows: Tensor) -> EdgeChanges:
        """Return the changes of the strains ``rows``, [B] int64, in that order; strains may be repeated."""
        starts = torch.searchsorted(self.strains, torch.stack([rows, rows + 1]).contiguous())
        place, strains = ranges(starts[0], starts[1] - starts[0])
        return EdgeChanges(self.edges[place], strains, self.activities[place])

    def to(self, device: torch.device | str, non_blocking: bool = False) -> EdgeChanges:
        """Return the same changes on ``device``."""
        parts = self.edges, self.strains, self.activities
        return EdgeChanges(*(x.to(device, non_blocking=non_blocking) for x in parts))


@dataclass(frozen=True, eq=False)
class EdgePerturbations:
    """Hold the changed edges of B strains.

    A message along an edge of activity s is multiplied by s, beside the activity of its source and the fixed weight of
    the edge; means and softmaxes count it by s. So 0 is no edge: it is left out of degrees, means and softmaxes. Only a
    strain's genes decide which nodes it loses: removing the edge between a gene and its reaction does not remove the
    reaction. Edges at a lost node are removed, whatever is said about them here.
    """

    relations: Mapping[Relation, EdgeChanges]  #: relation → its changed edges
    num_strains: int  #: B

    @classmethod
    def build(
        cls, cell: ResidentGraph, strains: Sequence[str | Sequence[EdgeTarget]], *, spelled: bool = False
    ) -> EdgePerturbations:
        """Look edges up by their ends, and check them.

        Edges are directed: both directions of an undirected network are two edges, unless a target says ``both``.
        Parallel edges are changed together. The result is on the device of ``cell``.

        Args:
            cell: the wild-type cell; it knows names of nodes if it was made from a cell graph.
            strains: the changed edges of each strain, or a text that `read_edge_targets` reads.
            spelled: whether names of nodes may differ in case and blanks, as in tables that people write.

        Raises:
            GenotypeError: a text cannot be read, a relation, node or edge does not exist, an activity is no amount, or
                a strain names an edge twice.
        """
        found: dict[Relation, list[tuple[int, EdgeTarget]]] = {}
        for strain, written in enumerate(strains):
            for target in read_edge_targets(written) if isinstance(written, str) else written:
                for one in _directions(target):
                    found.setdefault(relation_of(cell, one.relation, f": '{target}'"), []).append((strain, one))
        return cls({r: _changes(cell, r, entries, spelled) for r, entries in found.items()}, len(strains))

    def take(self, rows: Tensor) -> EdgePerturbations:
        """Return what the strains ``rows``, [B] int64, do, in that order; strains may be repeated."""
        return EdgePerturbations({r: changes.take(rows) for r, changes in self.relations.items()}, len(rows))

    def with_wild_type(self) -> EdgePerturbations:
        """Return the same changes with the wild type, unchanged, in front as strain 0."""
        shifted = {r: replace(changes, strains=changes.strains + 1) for r, changes in self.relations.items()}
        return EdgePerturbations(shifted, self.num_strains + 1)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> EdgePerturbations:
        """Return the same changes on ``device``."""
        return replace(self, relations={r: changes.to(device, non_blocking) for r, changes in self.relations.items()})


def _directions(target: EdgeTarget) -> Iterator[EdgeTarget]:
    yield replace(target, both=False)
    if target.both and target.source != target.destination:
        yield replace(target, source=target.destination, destination=target.source, both=False)


def relation_of(graph: ResidentGraph, asked: str | Relation, where: str = "") -> Relation:
    """Return the relation that is meant by itself or by its name; a ``GenotypeError`` for none, or several."""
    found = [relation for relation in graph.relations if asked in (relation, relation[1])]
    if len(found) != 1:
        names = [relation[1] for relation in graph.relations]
        what = f"a changed edge is of {'several relations' if found else 'no relation'} of the cell graph{where}"
        do = "name both node types, too" if found else did_you_mean(asked, names, "see `dglcell graph describe`")
        raise GenotypeError(what, got=asked, expected=listing(found or names, limit=30), do=do)
    return found[0]


def _changes(
    cell: ResidentGraph, relation: Relation, entries: Sequence[tuple[int, EdgeTarget]], spelled: bool
) -> EdgeChanges:
    edges = cell[relation]
    device = edges.src.device
    sources = [_node(cell, relation[0], target, target.source, spelled) for _, target in entries]
    destinations = [_node(cell, relation[2], target, target.destination, spelled) for _, target in entries]
    source, destination = torch.tensor([sources, destinations], device=device)
    strain = torch.tensor([strain for strain, _ in entries], device=device)
    key = destination * edges.num_src + source
    pairs, order = edges.edges_by_pair
    first = torch.searchsorted(pairs, key)
    parallel = torch.searchsorted(pairs, key, right=True) - first
    _refuse(entries, parallel == 0, "is not in the cell graph", "an edge from its source to its destination",
            "check the direction, or write <> for both; edges that the wild type lacks cannot be added")  # fmt: skip
    numbers = strain * (edges.num_src * edges.num_dst) + key
    _, place, count = torch.unique(numbers, return_inverse=True, return_counts=True)
    _refuse(
        entries, count[place] > 1, "is named twice in a strain", "each edge once, with one activity", "leave one out"
    )
    place, entry = ranges(first, parallel)
    return EdgeChanges(order[place], strain[entry], _activities(entries, device)[entry])


def _node(cell: ResidentGraph, node_type: str, target: EdgeTarget, node: str | int, spelled: bool) -> int:
    names = cell.names.get(node_type)
    if isinstance(node, str) and names is not None:
        found = names.find(node, spelled=spelled)
        if found in names:
            return names.index(found)
        do = "see `dglcell graph describe --names`"
        raise GenotypeError(f"'{target}' names an unknown {node_type} '{node}'{names.suggestion(node)}", do=do)
    if isinstance(node, str) or not 0 <= node < cell.num_nodes[node_type]:
        most = cell.num_nodes[node_type] - 1
        expected = f"0 … {most}; names are known to a cell that was made from a `CellGraph`"
        raise GenotypeError(f"'{target}' names no {node_type} by its index", got=repr(node), expected=expected)
    return node


def _activities(entries: Sequence[tuple[int, EdgeTarget]], device: torch.device) -> Tensor:
    """Return the activities as one tensor through which gradients flow, [n] float64."""
    values: list[Any] = [target.activity for _, target in entries]
    stacked = torch.stack([torch.as_tensor(value, dtype=torch.float64, device=device) for value in values])
    wrong = torch.as_tensor(no_activities(np.atleast_1d(stacked.detach().cpu().numpy())))
    _refuse(entries, wrong, "has an activity that is no amount", AN_ACTIVITY, "use 0 to remove an edge")
    return stacked


def _refuse(entries: Sequence[tuple[int, EdgeTarget]], wrong: Tensor, what: str, expected: str, do: str) -> None:
    places = wrong.nonzero().flatten().tolist()
    if places:
        shown = list(dict.fromkeys(str(entries[place][1]) for place in places))
        raise GenotypeError(f"a changed edge {what}: '{shown[0]}'", got=listing(shown), expected=expected, do=do)

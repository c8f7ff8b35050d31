"""Say what strains change of a heterograph, by ids or names, and get their graphs: to compute on, or as DGL graphs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dglcell.errors import GenotypeError, GraphError, did_you_mean, listing
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.resident_graph import import_dgl
from dglcell.graph.schema import Relation
from dglcell.kernels.spmm import check_kernel
from dglcell.perturbation.perturb import PerturbedCell
from dglcell.perturbation.perturb import perturb as perturb_batch
from dglcell.perturbation.sent import activities as activities_of
from dglcell.perturbation.sent import keep_masks
from dglcell.perturbation.targets import EdgeChanges, Lists, Perturbations, Targets, read_targets

if TYPE_CHECKING:
    from dgl import DGLGraph

Edges = Mapping[str | Relation, Lists]
Activities = Mapping[str | Relation, Lists | Tensor]

ACTIVITY = "activity"  # feature: what is left of nodes and edges of a graph, where some are weakened


def perturb(
    cell: CellGraph,
    targets: Mapping[str, Lists],
    *,
    activities: Activities | None = None,
    edges: Edges | None = None,
    strategy: str = "auto",
    kernel: str = "auto",
) -> PerturbedCell:
    """Return the graphs of B strains, each the cell graph without a few nodes or edges, to pass messages over.

    All strains are computed together, and only what differs from the cell graph itself. Results are those of the
    reduced graphs (`graphs`).

    >>> import dglcell, torch
    >>> likes = ("user", "likes", "item")
    >>> cell = dglcell.CellGraph({likes: (["ann", "bob"], ["tea", "tea"])})
    >>> strains = dglcell.perturb(cell, {"user": [[], ["ann"]]})
    >>> strains.aggregate(likes, torch.tensor([[1.0], [2.0]])).whole().tolist()  # items, strains, columns
    [[[3.0], [2.0]]]

    Args:
        cell: the cell graph; strains are on its device.
        targets: node type → a list for each strain with the ids or names of the nodes that it lacks. A strain without
            any is the cell graph itself.
        activities: node type or relation → what is left of each of its targets, 0 or more, where they are not all
            lost: lists of the same form, or one tensor of all in order, through which gradients flow.
        edges: relation, or its name → a list for each strain with the ids of edges that it lacks. It needs DGL.
        strategy: ``auto``, or one of ``dglcell.perturbation.STRATEGIES``.
        kernel: ``auto``, or how products are computed; see ``dglcell.kernels.spmm``.

    Raises:
        GenotypeError: a node type, node or edge is not in the cell graph or is named twice, or lists do not fit.
        ConfigError: there is no such strategy or kernel, or the strategy cannot change single edges.
        MissingDependencyError: the strategy needs DGL, which cannot be imported or does not know the device.
    """
    changes = perturbations_of(cell, targets, activities, edges)
    check_kernel(kernel, torch.device(cell.device).type)
    return perturb_batch(cell.resident, changes, strategy, kernel)


def graphs(
    cell: CellGraph,
    targets: Mapping[str, Lists],
    *,
    activities: Activities | None = None,
    edges: Edges | None = None,
    batched: bool = False,
) -> list[DGLGraph] | DGLGraph:
    """Return the strains' reduced graphs as graphs of DGL, with features of nodes and edges.

    >>> import dglcell
    >>> cell = dglcell.CellGraph({("user", "likes", "item"): (["ann", "bob"], ["tea", "tea"])})
    >>> [graph.num_nodes("user") for graph in dglcell.graphs(cell, {"user": [[], ["ann"]]})]  # doctest: +SKIP
    [2, 1]

    Args:
        cell, targets, activities, edges: as for `perturb`.
        batched: whether they are one graph, as ``dgl.batch`` makes it.

    Returns:
        A graph for each strain; ``dgl.NID`` and ``dgl.EID`` are the ids in ``cell.graph``. Where strains weaken nodes
        or edges, ``activity`` is what is left of each.

    Raises:
        GenotypeError: as for `perturb`.
        MissingDependencyError: DGL cannot be imported.
    """
    dgl = import_dgl()
    changes = perturbations_of(cell, targets, activities, edges)
    keep = keep_masks(cell.resident, changes)
    left = {} if changes.deletes_only else activities_of(cell.resident, changes, keep)
    found = []
    for strain in range(changes.num_strains):
        graph = dgl.node_subgraph(cell.graph, {node_type: of[:, strain] for node_type, of in keep.items()})
        for relation, of_strains in changes.edges.items():
            whole, data = cell.resident[relation], graph.edges[relation].data
            amount = data[ACTIVITY] = of_strains.left(strain, whole.num_edges)[whole.places[data[dgl.EID]]]
            graph = dgl.remove_edges(graph, (amount == 0).nonzero().squeeze(1), etype=relation)
        for node_type, of in left.items():
            graph.nodes[node_type].data[ACTIVITY] = of[keep[node_type][:, strain], strain]
        found.append(graph)
    return dgl.batch(found) if batched else found


def perturbations_of(
    cell: CellGraph, targets: Mapping[str, Lists], activities: Activities | None = None, edges: Edges | None = None
) -> Perturbations:
    """Look nodes and edges up, check them, and return them as integers on the cell graph's device; see `perturb`."""
    if not isinstance(cell, CellGraph):
        got, do = type(cell).__name__, "make one of it, `dglcell.CellGraph(graph)`"
        raise GraphError("strains are not of a cell graph", got=got, expected="a CellGraph", do=do)
    both = ("edges", edges, "relation"), ("activities", activities, "node type or relation")
    for name, of, what in (("targets", targets, "node type"), *both):
        if not isinstance(of, Mapping) and (of is not None or name == "targets"):
            expected = f'{what} → a list of ids or activities for each strain, e.g. {{"likes": [[0, 7], []]}}'
            raise GenotypeError(f"`{name}` do not say their {what}", got=type(of).__name__, expected=expected)
    left: dict[Any, Any] = dict(activities or {})
    sizes = {repr(name): len(lists) for name, lists in [*targets.items(), *(edges or {}).items()]}
    numbers = set(sizes.values())
    if len(numbers) != 1 or 0 in numbers:
        what = "targets are of different numbers of strains" if sum(numbers) else "there are no strains"
        got = listing(f"{number} for {name}" for name, number in sizes.items()) or "no lists"
        expected = 'a list for each strain, e.g. {"user": [["ann"], ["bob", "eve"]]}; [] for one that lacks none'
        raise GenotypeError(what, got=got, expected=expected)
    (strains,) = numbers
    nodes = {t: _targets(cell, t, lists, left.pop(t, None)) for t, lists in targets.items()}
    if not nodes:
        offsets = torch.zeros(strains + 1, dtype=torch.int64, device=cell.device)
        nodes[next(iter(cell.num_nodes))] = Targets(offsets[:0], offsets, 0)
    number = len(edges or ()) + len(left)
    if edges:
        left = {of if of in cell.num_nodes else _relation(cell, of): x for of, x in left.items()}
    meant = {_relation(cell, name): lists for name, lists in (edges or {}).items()}
    if len(meant) + len(left) < number:
        what, expected = "a relation is named twice", "each once, by its name or with both node types"
        raise GenotypeError(what, got=listing([*(edges or ()), *(activities or ())]), expected=expected)
    changed = {relation: _edges(cell, relation, lists, left.pop(relation, None)) for relation, lists in meant.items()}
    if left:
        what = "`activities` are of nothing that strains change"
        raise GenotypeError(what, got=listing(left), expected=listing(sizes))
    return Perturbations(nodes, changed)


def _targets(cell: CellGraph, node_type: str, lists: Lists, left: Lists | Tensor | None) -> Targets:
    if node_type not in cell.num_nodes:
        what, do = f"the cell graph has no nodes of type '{node_type}'", did_you_mean(node_type, cell.num_nodes)
        raise GenotypeError(what, expected=listing(cell.num_nodes), do=do)
    names = cell.vocabularies[node_type]
    return read_targets(f"{node_type} nodes", lists, len(names), names, left).to(cell.device)


def _relation(cell: CellGraph, asked: str | Relation) -> Relation:
    found = [relation for relation in cell.relations if asked in (relation, relation[1])]
    if len(found) != 1:
        names = [relation[1] for relation in cell.relations]
        what = f"changed edges are of {'several relations' if found else 'no relation'} of the cell graph"
        do = "name both node types, too" if found else did_you_mean(asked, names, "see `dglcell graph describe`")
        raise GenotypeError(what, got=asked, expected=listing(found or names, limit=30), do=do)
    return found[0]


def _edges(cell: CellGraph, relation: Relation, lists: Lists, left: Lists | Tensor | None) -> EdgeChanges:
    edges = cell.resident[relation]
    found = read_targets(f"edges of {relation}", lists, edges.num_edges, activities=left).to(cell.device)
    gone = torch.zeros(len(found.nodes), device=cell.device)
    return EdgeChanges(edges.places[found.nodes], found.strains, gone if found.activities is None else found.activities)

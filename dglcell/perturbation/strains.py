"""Say what strains change of a heterograph, by ids or names, and get their graphs: to compute on, or as DGL graphs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dglcell.checks import AN_ACTIVITY, no_activities
from dglcell.errors import GenotypeError, did_you_mean, listing
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.edge_targets import EdgeTarget
from dglcell.graph.resident_graph import import_dgl
from dglcell.graph.schema import Relation
from dglcell.graph.vocabulary import Vocabulary
from dglcell.perturbation.edge_perturbation import EdgeChanges, EdgePerturbations, relation_of
from dglcell.perturbation.perturb import PerturbedCell
from dglcell.perturbation.perturb import perturb as perturb_batch
from dglcell.perturbation.sent import activities as activities_of
from dglcell.perturbation.sent import keep_masks
from dglcell.perturbation.targets import Perturbations, Targets

if TYPE_CHECKING:
    from dgl import DGLGraph

Lists = Sequence[Iterable[Any]]
"""One list for each strain."""

ACTIVITY = "activity"
"""The feature of this name says how much is left of nodes and edges of a strain's graph, where some are weakened."""


def perturb(
    cell: CellGraph,
    targets: Mapping[str, Lists],
    *,
    activities: Mapping[str | Relation, Lists | Tensor] | None = None,
    edges: Mapping[str | Relation, Lists] | Sequence[str | Sequence[EdgeTarget]] | None = None,
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
        edges: relation, or its name → a list for each strain with the ids of edges that it lacks; or a list for each
            strain of what ``EdgePerturbations.build`` reads. It needs DGL.
        strategy: ``auto``, or one of ``dglcell.perturbation.STRATEGIES``.
        kernel: ``auto``, or how products are computed; see ``dglcell.kernels.spmm``.

    Raises:
        GenotypeError: a node type, node or edge is not in the cell graph or is named twice, or lists do not fit.
        ConfigError: there is no such strategy, or it cannot change single edges.
        MissingDependencyError: the strategy needs DGL, which cannot be imported or does not know the device.
    """
    return perturb_batch(cell.resident, perturbations_of(cell, targets, activities, edges), strategy, kernel)


def graphs(
    cell: CellGraph,
    targets: Mapping[str, Lists],
    *,
    activities: Mapping[str | Relation, Lists | Tensor] | None = None,
    edges: Mapping[str | Relation, Lists] | Sequence[str | Sequence[EdgeTarget]] | None = None,
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
    of_edges = {} if changes.edges is None else changes.edges.relations
    found = []
    for strain in range(changes.num_strains):
        graph = dgl.node_subgraph(cell.graph, {node_type: of[:, strain] for node_type, of in keep.items()})
        for relation, of_strains in of_edges.items():
            whole, data = cell.resident[relation], graph.edges[relation].data
            amount = data[ACTIVITY] = of_strains.left(strain, whole.num_edges)[whole.places[data[dgl.EID]]]
            graph = dgl.remove_edges(graph, (amount == 0).nonzero().squeeze(1), etype=relation)
        for node_type, of in left.items():
            graph.nodes[node_type].data[ACTIVITY] = of[keep[node_type][:, strain], strain]
        found.append(graph)
    return dgl.batch(found) if batched else found


def perturbations_of(
    cell: CellGraph,
    targets: Mapping[str, Lists],
    activities: Mapping[str | Relation, Lists | Tensor] | None = None,
    edges: Mapping[str | Relation, Lists] | Sequence[str | Sequence[EdgeTarget]] | None = None,
) -> Perturbations:
    """Look nodes and edges up, check them, and return them as integers on the cell graph's device; see `perturb`."""
    left: dict[Any, Any] = dict(activities or {})
    sizes = {repr(name): len(lists) for name, lists in targets.items()}
    if isinstance(edges, Mapping):
        sizes |= {repr(name): len(lists) for name, lists in edges.items()}
    elif edges is not None:
        sizes["edges"] = len(edges)
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
    changed = None
    if isinstance(edges, Mapping):
        left = {of if of in cell.num_nodes else relation_of(cell.resident, of): x for of, x in left.items()}
        meant = {relation_of(cell.resident, name): lists for name, lists in edges.items()}
        resolved = {relation: (lists, left.pop(relation, None)) for relation, lists in meant.items()}
        changed = EdgePerturbations({r: _edges(cell, r, *of) for r, of in resolved.items()}, strains)
    elif edges is not None:
        changed = EdgePerturbations.build(cell.resident, edges)
    if left:
        what = "`activities` are of nothing that strains change"
        raise GenotypeError(what, got=listing(left), expected=listing(sizes))
    return Perturbations(nodes, changed)


def _targets(cell: CellGraph, node_type: str, lists: Lists, left: Lists | Tensor | None) -> Targets:
    if node_type not in cell.num_nodes:
        what, do = f"the cell graph has no nodes of type '{node_type}'", did_you_mean(node_type, cell.num_nodes)
        raise GenotypeError(what, expected=listing(cell.num_nodes), do=do)
    what, names = f"{node_type} nodes", cell.vocabularies[node_type]
    ids = [_ids(what, strain, of, len(names), names) for strain, of in enumerate(lists)]
    activities = None if left is None else _activities(what, left, ids, cell.device)
    flat, offsets = (x.to(cell.device) for x in _concatenated(ids))
    return Targets(flat, offsets, max(map(len, ids)), activities)


def _edges(cell: CellGraph, relation: Relation, lists: Lists, left: Lists | Tensor | None) -> EdgeChanges:
    what, edges = f"edges of {relation}", cell.resident[relation]
    ids = [_ids(what, strain, of, edges.num_edges) for strain, of in enumerate(lists)]
    flat, offsets = (x.to(cell.device) for x in _concatenated(ids))
    activities = torch.zeros(len(flat)) if left is None else _activities(what, left, ids, cell.device)
    return EdgeChanges(edges.places[flat], torch.repeat_interleave(offsets.diff()), activities.to(cell.device))


def _ids(
    what: str, strain: int, targets: Iterable[Any], size: int, names: Vocabulary | None = None
) -> NDArray[np.int64]:
    """Return the ids of what a strain lacks, and refuse what is not there, or named twice."""
    if isinstance(targets, (str, Mapping)) or not isinstance(targets, Iterable):
        what = f"strain {strain}: its {what} are no list"
        raise GenotypeError(what, got=repr(targets), expected="a list of ids or names")
    if isinstance(targets, Tensor):
        listed: Any = targets.detach().cpu().numpy()
    elif names is not None and not isinstance(targets, np.ndarray):
        listed = [_named(what, strain, x, names) if isinstance(x, str) else x for x in targets]
    else:
        listed = targets if isinstance(targets, np.ndarray) else list(targets)
    ids = np.asarray(listed)
    ids = ids.astype(np.int64) if not ids.size else ids
    wrong = ids if ids.dtype.kind not in "iu" else ids[(ids < 0) | (ids >= size)]
    if wrong.size or ids.ndim != 1:
        got, expected = listing(np.ravel(wrong if wrong.size else ids)), f"whole numbers, 0 … {size - 1}"
        raise GenotypeError(
            f"strain {strain}: there are no such {what}", got=got, expected=expected if size else "none"
        )
    found, times = np.unique(ids, return_counts=True)
    if (times > 1).any():
        what, got = f"strain {strain} names {what} twice", listing(found[times > 1])
        raise GenotypeError(what, got=got, expected="each once", do="leave one out")
    return ids.astype(np.int64)


def _named(what: str, strain: int, name: str, names: Vocabulary) -> int:
    found = names.find(name, spelled=False)
    if found not in names:
        what = f"strain {strain}: there are no {what} called '{name}'{names.suggestion(name)}"
        raise GenotypeError(what, expected=f"0 … {len(names) - 1}, or a name, e.g. {names.examples(3)}")
    return names.index(found)


def _concatenated(ids: Sequence[NDArray[np.int64]]) -> tuple[Tensor, Tensor]:
    """Return ids strain by strain, [P], and where each strain's begin, [B + 1]."""
    return torch.from_numpy(np.concatenate(ids)), torch.tensor([0, *map(len, ids)]).cumsum(0)


def _activities(
    what: str, left: Lists | Tensor, ids: Sequence[NDArray[np.int64]], device: torch.device | str
) -> Tensor:
    sizes = [*map(len, ids)]
    if isinstance(left, Tensor):
        shape, values = [*left.shape], left.to(device)
        fits = shape == [sum(sizes)]
    else:
        lists = [torch.as_tensor(amounts, dtype=torch.float64) for amounts in left]
        shape = [amounts.numel() for amounts in lists]
        fits, values = shape == sizes, torch.cat(lists).to(device)
    if not fits:
        what, got = (
            f"the activities of {what} do not fit what strains change",
            f"numbers of activities: {listing(shape)}",
        )
        expected = f"for each strain: {listing(sizes)}; or one tensor of {sum(sizes)}"
        raise GenotypeError(what, got=got, expected=expected)
    plain = values.detach().cpu().numpy()
    if no_activities(plain).any():
        wrong = listing(plain[no_activities(plain)])
        raise GenotypeError(f"an activity of {what} is no amount", got=wrong, expected=AN_ACTIVITY)
    return values

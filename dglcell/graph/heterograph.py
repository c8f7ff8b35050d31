"""Read heterographs as other packages hold them: DGL, PyTorch Geometric, pandas, and lists of edges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dglcell.errors import GraphError, listing
from dglcell.graph.schema import WEIGHT, Relation
from dglcell.graph.vocabulary import Vocabulary

ACCEPTED = (
    "a DGL heterograph, a `HeteroData` of PyTorch Geometric, a dictionary of relation → (sources, destinations) or "
    "DataFrame, or a DataFrame as `CellGraph.to_pandas` gives"
)
PYG_WEIGHT = "edge_weight"
Data = dict[str, Tensor]


@dataclass
class Heterograph:
    """Hold what was read of a heterograph."""

    num_nodes: dict[str, int]  #: node type → N
    ends: dict[Relation, tuple[NDArray[np.int64], NDArray[np.int64]]]  #: relation → [E] int64 sources and destinations
    #: node type → names of its nodes; of those types that have names
    names: dict[str, Vocabulary] = field(default_factory=dict)
    #: relation → [E] fixed edge weights; of those relations that have some
    weights: dict[Relation, NDArray[Any]] = field(default_factory=dict)
    ndata: dict[str, Data] = field(default_factory=dict)  #: node type → features of its nodes
    edata: dict[Relation, Data] = field(default_factory=dict)  #: relation → features of its edges beside the weight
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))  #: where the graph is


def read_heterograph(
    graph: Any, names: Mapping[str, Sequence[str]] | None = None, num_nodes: Mapping[str, int] | None = None
) -> Heterograph:
    """Read a heterograph of another package, as ``ACCEPTED`` says; see ``CellGraph``."""
    given = {node_type: _vocabulary(node_type, of) for node_type, of in (names or {}).items()}
    package = type(graph).__module__.partition(".")[0]
    if package == "dgl" and hasattr(graph, "canonical_etypes"):
        found = _of_dgl(graph)
    elif package == "torch_geometric" and hasattr(graph, "edge_types"):
        found = _of_pyg(graph)
    elif hasattr(graph, "columns") or isinstance(graph, Mapping):
        found = _of_edges(_by_relation(graph) if hasattr(graph, "columns") else graph, given, num_nodes or {})
    else:
        got = f"{type(graph).__module__}.{type(graph).__name__}"
        do = 'give the edges of a graph without types as {("node", "edge", "node"): (sources, destinations)}'
        raise GraphError("this is no heterograph", got=got, expected=ACCEPTED, do=do)
    if not found.ends:
        raise GraphError("the heterograph has no relations", got=repr(graph), expected=ACCEPTED)
    for node_type, vocabulary in given.items():
        if len(vocabulary) != found.num_nodes.get(node_type):
            got = f"{len(vocabulary):,} names for {found.num_nodes.get(node_type, 'no')} nodes"
            what, expected = f"`names` does not fit the nodes of type '{node_type}'", listing(found.num_nodes)
            raise GraphError(what, got=got, expected=f"a name for each node of {expected}")
    found.names |= given
    return found


def _vocabulary(node_type: str, names: Iterable[object]) -> Vocabulary:
    vocabulary = Vocabulary(tuple(map(str, names)))
    if len(set(vocabulary.names)) < len(vocabulary):
        twice = listing(sorted({name for name in vocabulary.names if vocabulary.names.count(name) > 1}))
        raise GraphError(f"two nodes of type '{node_type}' have one name", got=twice, expected="distinct names")
    return vocabulary


def _of_dgl(graph: Any) -> Heterograph:
    if graph.is_block:
        do = "give the graph that it was sampled from"
        raise GraphError("a block of sampled neighbours is no whole graph", got="a block of DGL", do=do)
    if graph.batch_size > 1:
        what, do = "a batch of graphs is no single graph", "make a `CellGraph` of each graph of `dgl.unbatch(graph)`"
        raise GraphError(what, got=f"a batch of {graph.batch_size} graphs", do=do)
    found = Heterograph({t: graph.num_nodes(t) for t in graph.ntypes}, {}, device=graph.device)
    found.ndata = {t: dict(graph.nodes[t].data) for t in graph.ntypes}
    for relation in graph.canonical_etypes:
        _add(found, relation, graph.edges(etype=relation), dict(graph.edges[relation].data), WEIGHT)
    return found


def _of_pyg(data: Any) -> Heterograph:
    sizes = {t: data[t].num_nodes for t in data.node_types}
    found = Heterograph(sizes, {})
    for node_type in data.node_types:
        features = {key: x for key, x in data[node_type].items() if _belongs(x, sizes[node_type])}
        found.ndata[node_type] = features
        if "names" in data[node_type]:
            found.names[node_type] = _vocabulary(node_type, data[node_type].names)
    for relation in data.edge_types:
        store = data[relation]
        if "edge_index" not in store:
            raise GraphError(f"relation {relation} has no `edge_index`", got=listing(store), expected="[2, E] int64")
        features = {k: x for k, x in store.items() if k != "edge_index" and _belongs(x, store.edge_index.shape[1])}
        _add(found, relation, tuple(store.edge_index), features, PYG_WEIGHT)
        found.device = store.edge_index.device
    return found


def _belongs(x: object, number: int) -> bool:
    return isinstance(x, Tensor) and x.ndim > 0 and len(x) == number


def _by_relation(frame: Any) -> dict[Relation, Any]:
    missing = [c for c in ("source_type", "source", "relation", "target_type", "target") if c not in frame.columns]
    if missing:
        expected = "source_type, source, relation, target_type, target, and weight where edges have one"
        raise GraphError("a table of edges lacks columns", got=listing(frame.columns), expected=expected)
    groups = frame.groupby(["source_type", "relation", "target_type"], sort=True)
    return {(str(source), str(name), str(target)): part for (source, name, target), part in groups}


def _of_edges(
    relations: Mapping[Any, Any], names: Mapping[str, Vocabulary], num_nodes: Mapping[str, int]
) -> Heterograph:
    """Read lists of edges; ends are numbers, or names, which are numbered in the order of the alphabet."""
    given = {relation: _columns(relation, edges) for relation, edges in relations.items()}
    ends = [pair for relation, (src, dst, _) in given.items() for pair in ((relation[0], src), (relation[2], dst))]
    named: dict[str, set[str]] = {}
    for node_type, end in ends:
        if end.dtype == object and node_type not in names:
            named.setdefault(node_type, set()).update(end)
    known = {**{node_type: Vocabulary.of(of) for node_type, of in named.items()}, **names}
    sizes = {node_type: len(of) for node_type, of in known.items()} | dict(num_nodes)
    for node_type, end in ends:
        if node_type not in known and node_type not in num_nodes:
            sizes[node_type] = max(sizes.get(node_type, 0), int(end.max(initial=-1)) + 1)
    found = Heterograph(sizes, {}, known)
    for relation, (src, dst, weight) in given.items():
        both = [torch.from_numpy(_numbers(*pair, known)) for pair in ((relation[0], src), (relation[2], dst))]
        _add(found, relation, both, {} if weight is None else {WEIGHT: weight}, WEIGHT)
    return found


def _columns(relation: Any, edges: Any) -> tuple[NDArray[Any], NDArray[Any], Tensor | None]:
    """Return sources, destinations and weights of a relation; ends are [E] int64, or names as objects."""
    if not (isinstance(relation, tuple) and len(relation) == 3 and all(isinstance(name, str) for name in relation)):
        expected = '(source type, name, destination type), e.g. ("user", "likes", "item")'
        raise GraphError("a relation is named by three texts", got=repr(relation), expected=expected)
    weight = None
    if hasattr(edges, "columns"):
        if not {"source", "target"} <= {*edges.columns}:
            what = f"the table of relation {relation} lacks columns"
            raise GraphError(what, got=listing(edges.columns), expected="source, target")
        if WEIGHT in edges.columns and not edges[WEIGHT].isna().all():
            weight = torch.as_tensor(edges[WEIGHT].to_numpy(dtype=float))
        edges = edges["source"], edges["target"]
    if len(edges) != 2:
        what = f"the edges of relation {relation} are no pair"
        raise GraphError(what, got=f"{len(edges)} lists", expected="(sources, destinations)")
    return _column(relation, edges[0]), _column(relation, edges[1]), weight


def _column(relation: Relation, ends: Any) -> NDArray[Any]:
    ends = ends.detach().cpu().numpy() if isinstance(ends, Tensor) else list(ends)
    if isinstance(ends, list) and all(isinstance(end, str) for end in ends):
        return np.array(ends, dtype=object if ends else np.int64)
    try:
        numbers = np.asarray(ends)
    except ValueError:  # lists of several lengths
        numbers = np.asarray("")
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        what, got = f"an end of relation {relation} is neither numbers nor names", f"{numbers.dtype}, {numbers.ndim}"
        raise GraphError(what, got=f"{got} dimensions", expected="[E] whole numbers of nodes, or E names")
    return numbers.astype(np.int64)


def _numbers(node_type: str, ends: NDArray[Any], known: Mapping[str, Vocabulary]) -> NDArray[np.int64]:
    if ends.dtype != object:
        return ends
    numbers = known[node_type].indices(ends.tolist())
    if (numbers < 0).any():
        got = listing(sorted({*ends[numbers < 0]}))
        raise GraphError(f"edges name nodes of type '{node_type}' that `names` lacks", got=got)
    return numbers


def _add(found: Heterograph, relation: Relation, ends: Sequence[Tensor], data: Data, weight: str) -> None:
    src, dst = (end.detach().cpu().long().numpy() for end in ends)
    if len(src) != len(dst):
        what = f"relation {relation} has other numbers of sources than of destinations"
        raise GraphError(what, got=f"{len(src):,} and {len(dst):,}")
    found.ends[relation] = src, dst
    if weight in data:
        found.weights[relation] = _weight(relation, data.pop(weight), len(src))
    found.edata[relation] = data


def _weight(relation: Relation, weight: Tensor, edges: int) -> NDArray[Any]:
    one = weight.detach().cpu().squeeze(1) if weight.ndim == 2 and weight.shape[1] == 1 else weight.detach().cpu()
    if one.shape != (edges,) or not one.isfinite().all():
        what, expected = f"the weights of relation {relation} do not fit", f"[E] finite numbers for {edges:,} edges"
        got = f"shape {tuple(weight.shape)}" if one.shape != (edges,) else "a weight that is no finite number"
        do = f"give the feature '{WEIGHT}' another name if it is no weight of sums and means"
        raise GraphError(what, got=got, expected=expected, do=do)
    values: NDArray[Any] = (one if one.dtype == torch.float64 else one.float()).numpy()
    return values

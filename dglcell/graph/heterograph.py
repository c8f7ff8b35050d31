"""Read heterographs as other packages hold them: DGL, PyTorch Geometric, and lists or tables of edges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dglcell.errors import GraphError, listing
from dglcell.graph.schema import WEIGHT, Edges, Relation
from dglcell.graph.vocabulary import Vocabulary

ACCEPTED = (
    "a DGL heterograph, a `HeteroData` of PyTorch Geometric, or a dictionary of relation → (sources, destinations) or "
    "DataFrame"
)
PYG_WEIGHT = "edge_weight"
Data = dict[str, Tensor]


@dataclass
class Heterograph:
    """Hold what was read of a heterograph."""

    num_nodes: dict[str, int]  #: node type → N
    names: dict[str, Vocabulary] = field(default_factory=dict)  #: node type → names; of those types that have names
    edges: dict[Relation, Edges] = field(default_factory=dict)
    ndata: dict[str, Data] = field(default_factory=dict)  #: node type → features of its nodes
    edata: dict[Relation, Data] = field(default_factory=dict)  #: relation → features of its edges beside the weight
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))  #: where the graph is

    def add(self, relation: Relation, ends: Sequence[Tensor], weight: Tensor | None, data: Data) -> None:
        """Add the edges of a relation."""
        src, dst = (end.detach().cpu().long().numpy() for end in ends)
        if len(src) != len(dst):
            what = f"relation {relation} has other numbers of sources than of destinations"
            raise GraphError(what, got=f"{len(src):,} and {len(dst):,}")
        self.edges[relation] = Edges(src, dst, None if weight is None else _weight(relation, weight, len(src)))
        self.edata[relation] = data


def read_heterograph(
    graph: Any, names: Mapping[str, Sequence[str]] | None = None, num_nodes: Mapping[str, int] | None = None
) -> Heterograph:
    """Read a heterograph of another package, as ``ACCEPTED`` says; nodes without names are called by their numbers."""
    given = {node_type: _vocabulary(node_type, of) for node_type, of in (names or {}).items()}
    package = type(graph).__module__.partition(".")[0]
    if package == "dgl" and hasattr(graph, "canonical_etypes"):
        found = _of_dgl(graph)
    elif package == "torch_geometric" and hasattr(graph, "edge_types"):
        found = _of_pyg(graph, num_nodes or {})
    elif isinstance(graph, Mapping):
        found = _of_edges(graph, given, num_nodes or {})
    else:
        got = f"{type(graph).__module__}.{type(graph).__name__}"
        do = 'give the edges of a graph without types as {("node", "edge", "node"): (sources, destinations)}'
        raise GraphError("this is no heterograph", got=got, expected=ACCEPTED, do=do)
    if not found.edges:
        raise GraphError("the heterograph has no relations", got=repr(graph), expected=ACCEPTED)
    for node_type, vocabulary in (found.names | given).items():
        if len(vocabulary) != found.num_nodes.get(node_type):
            got = f"{len(vocabulary):,} names for {found.num_nodes.get(node_type, 'no')} nodes"
            what, expected = f"`names` does not fit the nodes of type '{node_type}'", listing(found.num_nodes)
            raise GraphError(what, got=got, expected=f"a name for each node of {expected}")
    found.names = {t: Vocabulary(tuple(map(str, range(n)))) for t, n in found.num_nodes.items()} | found.names | given
    return found


def _vocabulary(node_type: str, names: Sequence[object]) -> Vocabulary:
    vocabulary = Vocabulary(tuple(map(str, names)))
    if twice := sorted(name for name, nodes in Counter(vocabulary.names).items() if nodes > 1):
        what = f"two nodes of type '{node_type}' have one name"
        raise GraphError(what, got=listing(twice), expected="distinct names")
    return vocabulary


def _of_dgl(graph: Any) -> Heterograph:
    if graph.is_block:
        do = "give the graph that it was sampled from"
        raise GraphError("a block of sampled neighbours is no whole graph", got="a block of DGL", do=do)
    if graph.batch_size > 1:
        what, do = "a batch of graphs is no single graph", "make a `CellGraph` of each graph of `dgl.unbatch(graph)`"
        raise GraphError(what, got=f"a batch of {graph.batch_size} graphs", do=do)
    found = Heterograph({t: graph.num_nodes(t) for t in graph.ntypes}, device=graph.device)
    found.ndata = {t: dict(graph.nodes[t].data) for t in graph.ntypes}
    for relation in graph.canonical_etypes:
        data = dict(graph.edges[relation].data)
        found.add(relation, graph.edges(etype=relation), data.pop(WEIGHT, None), data)
    return found


def _of_pyg(data: Any, num_nodes: Mapping[str, int]) -> Heterograph:
    def features(store: Any, number: int) -> Data:
        return {k: x for k, x in store.items() if isinstance(x, Tensor) and x.ndim > 0 and len(x) == number}

    sizes = {t: number for t in data.node_types if (number := data[t].num_nodes) is not None}
    found = Heterograph({**num_nodes, **sizes})
    found.names = {t: _vocabulary(t, data[t].names) for t in data.node_types if "names" in data[t]}
    found.ndata = {t: features(data[t], n) for t, n in sizes.items()}
    for relation in data.edge_types:
        store = data[relation]
        ends, weight = store.get("edge_index"), store.get(PYG_WEIGHT)
        if not isinstance(ends, Tensor) or ends.shape[:-1] != (2,) or ends.is_sparse or ends.is_floating_point():
            got = f"{ends.dtype} {tuple(ends.shape)}" if isinstance(ends, Tensor) else listing(store)
            raise GraphError(f"relation {relation} has no `edge_index`", got=got, expected="[2, E] int64")
        of_edges = features({k: x for k, x in store.items() if k not in ("edge_index", PYG_WEIGHT)}, ends.shape[1])
        found.add(relation, tuple(ends), None if weight is None else torch.as_tensor(weight), of_edges)
        found.device = ends.device
    return found


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
    found = Heterograph(sizes, known)
    for relation, (src, dst, weight) in given.items():
        both = [torch.from_numpy(_numbers(*pair, known)) for pair in ((relation[0], src), (relation[2], dst))]
        found.add(relation, both, weight, {})
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
            import pandas as pd

            weight = torch.as_tensor(pd.to_numeric(edges[WEIGHT], errors="coerce").to_numpy(dtype=float))
        edges = edges["source"], edges["target"]
    lists = len(edges) if hasattr(edges, "__len__") else "no"
    if lists != 2:
        what = f"the edges of relation {relation} are no pair"
        raise GraphError(what, got=f"{lists} lists", expected="(sources, destinations)")
    return _column(relation, edges[0]), _column(relation, edges[1]), weight


def _column(relation: Relation, ends: Any) -> NDArray[Any]:
    try:
        ends = ends.detach().cpu().numpy() if isinstance(ends, Tensor) else list(ends)
        if isinstance(ends, list) and all(isinstance(end, str) for end in ends):
            return np.array(ends, dtype=object if ends else np.int64)
        numbers = np.asarray(ends)
    except (TypeError, ValueError):  # no list, or lists of several lengths
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


def _weight(relation: Relation, weight: Tensor, edges: int) -> NDArray[Any]:
    one = weight.detach().cpu().squeeze(1) if weight.ndim == 2 and weight.shape[1] == 1 else weight.detach().cpu()
    if one.shape != (edges,) or not one.isfinite().all():
        what, expected = f"the weights of relation {relation} do not fit", f"[E] finite numbers for {edges:,} edges"
        got = f"shape {tuple(weight.shape)}" if one.shape != (edges,) else "a weight that is no finite number"
        do = f"give the feature '{WEIGHT}' another name if it is no weight of sums and means"
        raise GraphError(what, got=got, expected=expected, do=do)
    return np.asarray(one if one.dtype == torch.float64 else one.float())

"""Define the cell graph: one heterograph with the names of its nodes and where its edges came from."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import GraphError
from dglcell.files.atomic import canonical_hash
from dglcell.graph.schema import GENE, WEIGHT, Edges, Relation
from dglcell.graph.vocabulary import Vocabulary

if TYPE_CHECKING:
    import pandas as pd
    import torch
    from dgl import DGLGraph
    from torch import Tensor
    from torch_geometric.data import HeteroData

    from dglcell.graph.resident_graph import Derivation, ResidentGraph

Rule = Relation | Callable[["CellGraph"], "Derivation"]  # what strains lose with other nodes; see ``CellGraph``


SCHEMA_VERSION = 1  # of hashes and files
Media = Mapping[str, Mapping[str, float]]  # medium → reaction node → activity

Titles = Mapping[str, Mapping[str, str]]
"""Names in words have this form: node type → reaction of the metabolic model, or metabolite → e.g. Citrate synthase."""


class CellGraph:
    """Hold a heterograph of which strains change little: nodes and edges of any types.

    It is made of a graph of another package. Nodes that have no names are called by their numbers.

    >>> import dglcell
    >>> likes = ("user", "likes", "item")
    >>> dglcell.CellGraph({likes: (["ann", "bob"], [0, 2])})
    CellGraph(3 item nodes, 2 user nodes, 2 edges)

    The cell graphs of experiments are more: they have rules by which reactions are lost with genes, and media.

    >>> cell = dglcell.load_cell("quickstart")
    >>> cell.genes.names[0], cell.num_nodes["gene"]
    ('b0008', 137)

    Args:
        graph: a heterograph of DGL, a ``HeteroData`` of PyTorch Geometric, or a dictionary of (source type, name,
            destination type) → (sources, destinations) or a DataFrame with ``source``, ``target`` and perhaps
            ``weight``. The feature ``weight`` of edges (``edge_weight`` in PyTorch Geometric) multiplies messages.
        names: node type → names of its nodes, in the order of their numbers; optional.
        num_nodes: node type → N, where edges or PyTorch Geometric do not say it; optional.
        derive: which nodes strains lose with others, in this order. A relation means: a node is lost if any source of
            its edges is. A function of the cell graph makes a ``Derivation`` of one's own.

    Raises:
        GraphError: the graph, its names or its weights are unusable.
    """

    vocabularies: dict[str, Vocabulary]  #: node type → names; the index of a name is its node id
    #: relation → its edges, in the order given, which numbers them; relations are sorted
    content: dict[Relation, Edges]
    ndata: dict[str, dict[str, Tensor]]  #: node type → features of its nodes, as in DGL
    edata: dict[Relation, dict[str, Tensor]]  #: relation → features of its edges beside the weight
    device: torch.device | str  #: where features, and what is computed, are
    derive: tuple[Rule, ...]  #: which nodes strains lose with others
    provenance: dict[str, Any]  #: plain containers: configuration, model, files with hashes, row and name counts
    lose_blocked: bool  #: whether strains also lose reactions that carry no flux once others are lost
    #: medium → reaction node → its activity there; the same nodes for every medium. The graph itself takes up all that
    #: any medium offers.
    media: Media
    #: what the metabolic model calls its reactions and metabolites in words, to be read; no part of the hash
    titles: Titles

    def __init__(
        self,
        graph: DGLGraph | HeteroData | Mapping[Relation, Any],
        *,
        names: Mapping[str, Sequence[str]] | None = None,
        num_nodes: Mapping[str, int] | None = None,
        derive: Sequence[Rule] = (),
    ) -> None:
        from dglcell.graph.heterograph import read_heterograph  # here, because it imports torch

        found = read_heterograph(graph, names, num_nodes)
        self._fill(found.names, found.edges, derive)
        self.ndata, self.edata, self.device = found.ndata, found.edata, found.device

    def _fill(
        self, vocabularies: Mapping[str, Vocabulary], edges: Mapping[Relation, Edges], derive: Sequence[Rule]
    ) -> None:
        self.vocabularies, self.derive = dict(vocabularies), tuple(derive)
        self.content = dict(sorted(edges.items()))
        self.ndata, self.edata, self.device = {}, {}, "cpu"
        self.provenance, self.lose_blocked, self.media, self.titles = {}, False, {}, {}
        for relation, ends in self.content.items():
            for node_type, end in ((relation[0], ends.src), (relation[2], ends.dst)):
                size = len(self.vocabularies.get(node_type, ()))
                if len(end) and not 0 <= end.min() <= end.max() < size:
                    what = f"relation {relation}: an edge ends at a node of type '{node_type}' that there is not"
                    got, do = f"numbers {end.min()} to {end.max()}", "say how many nodes there are in `num_nodes`"
                    raise GraphError(what, got=got, expected=f"0 … {size - 1}", do=do)

    @classmethod
    def assemble(
        cls,
        vocabularies: Mapping[str, Vocabulary],
        relations: Mapping[Relation, Edges],
        provenance: dict[str, Any] | None = None,
        *,
        derive: Sequence[Rule] = (),
        lose_blocked: bool = False,
        media: Media | None = None,
        titles: Titles | None = None,
    ) -> CellGraph:
        """Make the cell graph of a cell from arrays; edges become ordered by (destination, source)."""
        if not relations:
            do = "give a metabolic `model`, `networks`, or both"
            raise GraphError("the cell graph would have no relations", do=do)
        self = cls.__new__(cls)
        self._fill(vocabularies, {relation: edges.sorted() for relation, edges in relations.items()}, derive)
        self.provenance, self.lose_blocked = provenance or {}, lose_blocked
        self.media, self.titles = media or {}, titles or {}
        return self

    def with_genes(self, genes: Vocabulary) -> CellGraph:
        """Return the same cell graph with other names of its genes."""
        other = self._copy()
        other.vocabularies = {**self.vocabularies, GENE: genes}
        return other

    def to(self, device: torch.device | str) -> CellGraph:
        """Return the same cell graph on a device, as graphs of DGL do; this one stays where it is."""
        other = self._copy()
        other.device = device
        for of in ("ndata", "edata"):
            setattr(other, of, {k: {n: x.to(device) for n, x in v.items()} for k, v in getattr(self, of).items()})
        return other

    def _copy(self) -> CellGraph:
        other = copy.copy(self)
        for made in ("sha256", "resident", "graph"):
            other.__dict__.pop(made, None)
        return other

    @cached_property
    def sha256(self) -> str:
        """Return a hash of vocabularies, edges, weights, ``lose_blocked`` and media; the same in every process."""
        digest = hashlib.sha256(f"cell graph {SCHEMA_VERSION}".encode())
        for node_type, names in sorted(self.vocabularies.items()):
            digest.update(f"\n{node_type} {names.sha256}".encode())
        for relation, edges in sorted(self.content.items()):
            digest.update(f"\n{' '.join(relation)} {len(edges)} {edges.weight is not None}\n".encode())
            digest.update(edges.src.astype("<i8").tobytes() + edges.dst.astype("<i8").tobytes())
            if edges.weight is not None:
                digest.update(edges.weight.astype("<f4").tobytes())
        if self.lose_blocked:
            digest.update(b"\nlose_blocked\n")
        if self.media:
            digest.update(f"\nmedia {canonical_hash(self.media)}\n".encode())
        return digest.hexdigest()

    @cached_property
    def resident(self) -> ResidentGraph:
        """Return the edges as buffers on the device, which all strains share."""
        from dglcell.graph.resident_graph import ResidentGraph

        derive, edges = [rule(self) if callable(rule) else rule for rule in self.derive], self.edge_tensors()
        return ResidentGraph(self.num_nodes, edges, derive=derive, names=self.vocabularies).to(self.device)

    @cached_property
    def graph(self) -> DGLGraph:
        """Return the cell graph as a DGL heterograph on its device, with features and the weights of edges."""
        from dglcell.graph.resident_graph import import_dgl

        ends = {relation: (src, dst) for relation, (src, dst, _) in self.edge_tensors().items()}
        graph = import_dgl().heterograph(ends, num_nodes_dict=self.num_nodes).to(self.device)
        for node_type, data in self.ndata.items():
            graph.nodes[node_type].data.update(data)
        for relation, (_, _, weight) in self.edge_tensors().items():
            graph.edges[relation].data.update(self.edata.get(relation, {}))
            if weight is not None:
                graph.edges[relation].data[WEIGHT] = weight.to(self.device)
        return graph

    def __repr__(self) -> str:
        nodes = ", ".join(f"{count:,} {node_type} nodes" for node_type, count in self.num_nodes.items())
        return f"CellGraph({nodes}, {self.num_edges:,} edges)"

    @property
    def genes(self) -> Vocabulary:
        """Return the gene vocabulary."""
        return self.vocabularies[GENE]

    @property
    def relations(self) -> tuple[Relation, ...]:
        """Return the canonical edge types, sorted."""
        return tuple(self.content)

    @property
    def num_nodes(self) -> dict[str, int]:
        """Return node type → number of nodes, N."""
        return {node_type: len(names) for node_type, names in sorted(self.vocabularies.items())}

    @property
    def num_edges(self) -> int:
        """Return the number of edges of all relations."""
        return sum(len(edges) for edges in self.content.values())

    def edges(self, relation: Relation) -> Edges:
        """Return the edges of one relation as arrays, ordered by (destination, source)."""
        if relation not in self.content:
            expected = ", ".join(map(str, self.relations))
            raise GraphError("the cell graph has no such relation", got=relation, expected=expected)
        return self.content[relation]

    def edge_tensors(self) -> dict[Relation, tuple[Tensor, Tensor, Tensor | None]]:
        """Return relation → sources, destinations, and fixed weights or None, [E] each."""
        from torch import from_numpy

        return {
            relation: (from_numpy(of.src), from_numpy(of.dst), None if of.weight is None else from_numpy(of.weight))
            for relation, of in self.content.items()
        }

    def degrees(self, relation: Relation) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the out-degrees of source nodes, [N], and the in-degrees of destination nodes, [M]."""
        edges, sizes = self.edges(relation), self.num_nodes
        out = np.bincount(edges.src, minlength=sizes[relation[0]])
        return out, np.bincount(edges.dst, minlength=sizes[relation[2]])

    def to_pandas(self) -> pd.DataFrame:
        """Return all edges, with the names of their ends.

        >>> import dglcell
        >>> dglcell.load_cell("quickstart").to_pandas().columns.tolist()
        ['source_type', 'source', 'relation', 'target_type', 'target', 'weight']

        Returns:
            A row per edge; the weight is NaN in relations without weights.
        """
        import pandas as pd

        names = {kind: np.array(v.names, dtype=object) for kind, v in self.vocabularies.items()}
        frames = []
        for (source, relation, target), edges in self.content.items():
            columns = {"source_type": source, "source": names[source][edges.src], "relation": relation}
            columns |= {"target_type": target, "target": names[target][edges.dst]}
            weight = np.nan if edges.weight is None else edges.weight.astype(np.float64)
            frames.append(pd.DataFrame({**columns, "weight": weight}))
        return pd.concat(frames, ignore_index=True)

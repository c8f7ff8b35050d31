"""The cell graph on the device: one set of edge tensors, shared by every strain and never replicated."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import dgl
import torch
from torch import Tensor, nn

from dglcell.errors import GraphError, listing
from dglcell.graph.rectangles import Rectangle, rectangles
from dglcell.graph.schema import Relation


class ResidentRelation(nn.Module):
    """Edges of one relation as buffers, so that they follow the module to any device and dtype.

    Attributes:
        src: [E] int64 source node of every edge.
        dst: [E] int64 destination node; edges are sorted by destination.
        weight: [E] float, fixed edge weights, or None.
        num_src: number of source nodes.
        num_dst: number of destination nodes.
    """

    src: Tensor
    dst: Tensor
    weight: Tensor | None

    def __init__(
        self,
        relation: Relation,
        src: Tensor,
        dst: Tensor,
        num_src: int,
        num_dst: int,
        weight: Tensor | None = None,
    ) -> None:
        super().__init__()
        order = torch.argsort(dst, stable=True)
        self.relation = relation
        self.num_src, self.num_dst = num_src, num_dst
        self.register_buffer("src", src[order].long(), persistent=False)
        self.register_buffer("dst", dst[order].long(), persistent=False)
        self.register_buffer("weight", None if weight is None else weight[order], persistent=False)
        self._dgl: dgl.DGLGraph | None = None
        self._csr: dict[tuple[torch.dtype, bool, bool], Tensor] = {}
        self._by_source: tuple[Tensor, Tensor] | None = None
        self._by_pair: tuple[Tensor, Tensor] | None = None
        self._in_degrees: Tensor | None = None
        self._in_starts: Tensor | None = None
        self._by_in_degree: tuple[Tensor, list[Rectangle]] | None = None

    @property
    def num_edges(self) -> int:
        """E."""
        return len(self.src)

    @property
    def dgl_graph(self) -> dgl.DGLGraph:
        """The relation as a bipartite DGL graph on the device of the buffers."""
        if self._dgl is None:
            self._dgl = dgl.heterograph(
                {("source", "edge", "destination"): (self.src, self.dst)},
                num_nodes_dict={"source": self.num_src, "destination": self.num_dst},
            )
        return self._dgl

    @property
    def edges_by_source(self) -> tuple[Tensor, Tensor]:
        """[N + 1] starts and [E] edges: those out of node u are ``edges[starts[u]:starts[u + 1]]``."""
        if self._by_source is None:
            starts = torch.zeros(self.num_src + 1, dtype=torch.int64, device=self.src.device)
            starts[1:] = torch.cumsum(torch.bincount(self.src, minlength=self.num_src), 0)
            self._by_source = starts, torch.argsort(self.src, stable=True)
        return self._by_source

    @property
    def edges_by_pair(self) -> tuple[Tensor, Tensor]:
        """[E] ``destination · N + source`` of all edges, ascending, and [E] the edges in that order."""
        if self._by_pair is None:
            keys, order = torch.sort(self.dst * self.num_src + self.src, stable=True)
            self._by_pair = keys, order
        return self._by_pair

    @property
    def in_degrees(self) -> Tensor:
        """[M] int64 number of in-edges in the wild type."""
        if self._in_degrees is None:
            self._in_degrees = torch.bincount(self.dst, minlength=self.num_dst)
        return self._in_degrees

    @property
    def in_starts(self) -> Tensor:
        """[M + 1] int64: the edges into node v are ``in_starts[v]`` … ``in_starts[v + 1] - 1``."""
        if self._in_starts is None:
            self._in_starts = torch.zeros(self.num_dst + 1, dtype=torch.int64, device=self.dst.device)
            self._in_starts[1:] = self.in_degrees.cumsum(0)
        return self._in_starts

    @property
    def by_in_degree(self) -> tuple[Tensor, list[Rectangle]]:
        """[M] destination nodes by descending in-degree, and how their in-edges fit into rectangles."""
        if self._by_in_degree is None:
            degrees, nodes = torch.sort(self.in_degrees, descending=True, stable=True)
            self._by_in_degree = nodes, rectangles(degrees.cpu().numpy())
        return self._by_in_degree

    def csr(self, dtype: torch.dtype, *, weighted: bool, transposed: bool) -> Tensor:
        """The adjacency [num_dst, num_src] (or its transpose) as a sparse CSR matrix; made once per form.

        Args:
            dtype: of the values.
            weighted: fixed edge weights as values, else ones.
            transposed: rows are sources.
        """
        key = (dtype, weighted, transposed)
        if key not in self._csr:
            self._csr[key] = self._make_csr(dtype, weighted, transposed)
        return self._csr[key]

    def _make_csr(self, dtype: torch.dtype, weighted: bool, transposed: bool) -> Tensor:
        rows, columns = (self.src, self.dst) if transposed else (self.dst, self.src)
        shape = (self.num_src, self.num_dst) if transposed else (self.num_dst, self.num_src)
        order = torch.argsort(rows, stable=True)
        starts = torch.zeros(shape[0] + 1, dtype=torch.int64, device=rows.device)
        starts[1:] = torch.cumsum(torch.bincount(rows, minlength=shape[0]), 0)
        if weighted and self.weight is not None:
            values = self.weight.to(dtype)[order]
        else:
            values = torch.ones(len(rows), dtype=dtype, device=rows.device)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
            return torch.sparse_csr_tensor(starts, columns[order], values, shape, check_invariants=False)

    def _apply(self, fn, recurse: bool = True):  # type: ignore[no-untyped-def]
        # Buffers move or change dtype: what was derived from them is made anew when next asked for.
        self._dgl, self._csr = None, {}
        self._by_source, self._by_pair, self._in_degrees, self._in_starts, self._by_in_degree = (None,) * 5
        return super()._apply(fn, recurse)


class ResidentCell(nn.Module):
    """The cell graph as the model holds it: relations, node counts, nothing else.

    Attributes:
        num_nodes: node type → N.
        relations: canonical edge types, in the cell graph's order.
    """

    def __init__(self, graph: dgl.DGLGraph) -> None:
        """Copy the edges of ``graph`` (weights from ``edata["weight"]``) into buffers."""
        super().__init__()
        self.num_nodes: dict[str, int] = {ntype: graph.num_nodes(ntype) for ntype in graph.ntypes}
        self.relations: tuple[Relation, ...] = tuple(graph.canonical_etypes)
        self._positions = {relation: i for i, relation in enumerate(self.relations)}
        self._resident = nn.ModuleList()
        for relation in self.relations:
            src, dst = graph.edges(etype=relation)
            self._resident.append(
                ResidentRelation(
                    relation,
                    src,
                    dst,
                    graph.num_nodes(relation[0]),
                    graph.num_nodes(relation[2]),
                    graph.edges[relation].data.get("weight"),
                )
            )

    def __getitem__(self, relation: Relation) -> ResidentRelation:
        """The resident edges of ``relation``.

        Raises:
            GraphError: the cell graph has no such relation.
        """
        if relation not in self._positions:
            raise GraphError(
                "the cell graph has no such relation",
                got=relation,
                expected=listing(self.relations, limit=30),
                do="choose among the relations that `dglcell graph describe` lists",
            )
        member = self._resident[self._positions[relation]]
        assert isinstance(member, ResidentRelation)
        return member

    def heterograph(self) -> dgl.DGLGraph:
        """The cell graph as a DGL heterograph on the device of the buffers; weights in ``edata["weight"]``."""
        edges: Mapping[Relation, tuple[Tensor, Tensor]] = {r: (self[r].src, self[r].dst) for r in self.relations}
        graph = dgl.heterograph(edges, num_nodes_dict=self.num_nodes)
        for relation in self.relations:
            weight = self[relation].weight
            if weight is not None:
                graph.edges[relation].data["weight"] = weight
        return graph

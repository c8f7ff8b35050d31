"""Hold a heterograph on the device: one set of edge tensors, shared by every strain and never replicated."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dglcell.errors import GraphError, MissingDependencyError, listing
from dglcell.graph.schema import WEIGHT, Relation
from dglcell.graph.vocabulary import Vocabulary

if TYPE_CHECKING:
    from dgl import DGLGraph


@dataclass(frozen=True)
class CompactEdges:
    """Hold edges ordered by row in the smallest integers that fit, so that loops over them read little memory."""

    starts: Tensor  #: [M + 1] int64; the edges of row v are ``starts[v]:starts[v + 1]``
    neighbours: Tensor  #: [E] the node at the other end, uint16 while there are at most 65,536 of them, else int32
    weights: Tensor | None = None  #: [E] in the same order, or None


PIECE_EDGES = 256  # that one program on a GPU sums; a node with more is cut, so that none waits for it


@dataclass(frozen=True)
class SplitRows:
    """Hold rows of edges in pieces of at most ``PIECE_EDGES``, each cut at the same places every time."""

    pieces: Tensor  #: [P, 4] int32 row, first edge, last edge + 1, and place among the partial sums; -1 for whole rows
    rows: Tensor  #: [R, 3] int32 of the rows that are cut: row, its first partial sum, its last one + 1
    partial: int  #: number of partial sums


def split_rows(starts: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return ``SplitRows.pieces`` and ``SplitRows.rows`` for rows that begin at ``starts`` [M + 1]."""
    degrees = np.diff(starts)
    counts = np.maximum(-(-degrees // PIECE_EDGES), 1)
    row = np.repeat(np.arange(len(degrees)), counts)
    number = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    first = starts[row] + number * PIECE_EDGES
    last = np.minimum(first + PIECE_EDGES, starts[row + 1])
    cut = counts > 1
    place = np.where(cut[row], np.cumsum(cut[row]) - 1, -1)
    ends = np.cumsum(counts[cut])
    rows = np.stack([np.flatnonzero(cut), ends - counts[cut], ends], 1)
    return np.stack([row, first, last, place], 1).astype(np.int32), rows.astype(np.int32)


P = ParamSpec("P")
T = TypeVar("T")


def _made_once(make: Callable[Concatenate[ResidentRelation, P], T]) -> Callable[Concatenate[ResidentRelation, P], T]:
    """Keep what a method returns for its arguments until the buffers move or change dtype."""

    @functools.wraps(make)
    def kept(self: ResidentRelation, /, *args: P.args, **kwargs: P.kwargs) -> T:
        key = (make.__name__, args, *kwargs.items())
        if key not in self.made:
            # Passes with gradients use it too, and they could not save a tensor that was made in inference mode.
            with torch.inference_mode(False):
                self.made[key] = make(self, *args, **kwargs)
        found: T = self.made[key]
        return found

    return kept


class ResidentRelation(nn.Module):
    """Hold the edges of one relation as buffers, so that they follow the module to any device and dtype."""

    src: Tensor  #: [E] int64 source node of every edge
    dst: Tensor  #: [E] int64 destination node; edges are sorted by destination
    weight: Tensor | None  #: [E] float, fixed edge weights, or None
    given: Tensor | None  #: [E] the place that each edge had when it was given; None where it is the same

    def __init__(
        self, relation: Relation, src: Tensor, dst: Tensor, num_src: int, num_dst: int, weight: Tensor | None = None
    ) -> None:
        super().__init__()
        order = torch.argsort(dst, stable=True)
        self.relation = relation
        self.num_src, self.num_dst = num_src, num_dst
        self.register_buffer("src", src[order].long(), persistent=False)
        self.register_buffer("dst", dst[order].long(), persistent=False)
        self.register_buffer("weight", None if weight is None else weight[order], persistent=False)
        in_order = bool((order.diff() > 0).all())
        self.register_buffer("given", None if in_order else order, persistent=False)
        self.made: dict[tuple[object, ...], Any] = {}  # what was made of the buffers, by method and arguments

    @property
    def num_edges(self) -> int:
        """Return the number of edges, E."""
        return len(self.src)

    @property
    @_made_once
    def places(self) -> Tensor:
        """Return where each edge is that was given at this place, [E]."""
        numbers = torch.arange(self.num_edges, device=self.src.device)
        return numbers if self.given is None else torch.empty_like(numbers).index_copy_(0, self.given, numbers)

    @_made_once
    def index_tensors(self, *, transposed: bool) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the in-edges of every destination node, or the out-edges of every source node if ``transposed``.

        They are starts, [M + 1] int64 (node v has the edges ``starts[v]:starts[v + 1]``), nodes at the other end, [E]
        int64, and fixed weights [E] or None, both in that order.
        """
        degrees = self.out_degrees if transposed else self.in_degrees
        starts = torch.cat([degrees.new_zeros(1), degrees.cumsum(0)])
        if not transposed:
            return starts, self.src, self.weight
        return starts, self.dst[self.by_source], None if self.weight is None else self.weight[self.by_source]

    @property
    @_made_once
    def by_source(self) -> Tensor:
        """Return the edges in the order of their sources, [E]."""
        return torch.argsort(self.src, stable=True)

    @property
    @_made_once
    def edges_by_pair(self) -> tuple[Tensor, Tensor]:
        """Return ``destination · N + source`` of all edges, [E], ascending, and the edges in that order, [E]."""
        keys, order = torch.sort(self.dst * self.num_src + self.src, stable=True)
        return keys, order

    @property
    @_made_once
    def in_degrees(self) -> Tensor:
        """Return the number of in-edges of every node in the wild type, [M] int64."""
        return torch.bincount(self.dst, minlength=self.num_dst)

    @property
    @_made_once
    def out_degrees(self) -> Tensor:
        """Return the number of out-edges of every node in the wild type, [N] int64."""
        return torch.bincount(self.src, minlength=self.num_src)

    @_made_once
    def csr(self, dtype: torch.dtype, *, weighted: bool, transposed: bool) -> Tensor:
        """Return the adjacency [num_dst, num_src] (or its transpose) as a sparse CSR matrix of weights, or of ones.

        A half precision that would round weights is replaced by float32.
        """
        starts, columns, weight = self.index_tensors(transposed=transposed)
        shape = (self.num_src, self.num_dst) if transposed else (self.num_dst, self.num_src)
        if not weighted or weight is None:
            values = torch.ones(len(columns), dtype=dtype, device=columns.device)
        else:
            values = weight.to(dtype)
            if dtype.itemsize < 4 and not torch.equal(values.to(weight.dtype), weight):
                values = weight.float()
        if len(columns) <= shape[0] * shape[1]:
            return sparse_matrix(starts, columns, values, shape)
        # cuSPARSE refuses more edges than a matrix has places, so multi-edges are summed.
        rows = torch.repeat_interleave(starts.diff())
        values = values.to(torch.promote_types(dtype, torch.float32))
        return values.new_zeros(shape).index_put_((rows, columns), values, accumulate=True).to_sparse_csr()

    @_made_once
    def compact(self, weights_dtype: torch.dtype | None, *, transposed: bool) -> CompactEdges:
        """Return the edges by destination (or by source) in small types; without weights where their type is None."""
        starts, nodes, weight = self.index_tensors(transposed=transposed)
        if weights_dtype is not None and weight is not None:
            plain = self.compact(None, transposed=transposed)
            return CompactEdges(plain.starts, plain.neighbours, weight.to(weights_dtype))
        number = self.num_dst if transposed else self.num_src
        return CompactEdges(starts, nodes.to(torch.uint16 if number <= 1 << 16 else torch.int32))

    @_made_once
    def pieces(self, *, transposed: bool) -> SplitRows:
        """Return the rows of ``compact`` in pieces."""
        starts = self.index_tensors(transposed=transposed)[0]
        pieces, rows = (torch.from_numpy(x).to(starts.device) for x in split_rows(starts.cpu().numpy()))
        return SplitRows(pieces, rows, int((pieces[:, 3] >= 0).sum()))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self.made.clear()
        return super()._apply(fn, recurse)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out of copies what is made anew, as sparse matrices cannot be copied."""
        return {**self.__dict__, "made": {}}


def ranges(first_K: Tensor, length_K: Tensor) -> tuple[Tensor, Tensor]:
    """Return the numbers of K ranges, one range after the other, and which range (0 … K − 1) each belongs to."""
    which = torch.repeat_interleave(length_K)
    return torch.arange(len(which), device=which.device) + (first_K - length_K.cumsum(0) + length_K)[which], which


def sparse_matrix(starts: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """Make a CSR matrix of indices that are right."""
    if columns.device.type != "cpu":
        # Indices of 32 bits are half as much to read. On a CPU, MKL takes only those of 64 bits.
        starts, columns = starts.int(), columns.int()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        warnings.filterwarnings("ignore", "Sparse invariant checks are implicitly disabled")  # torch 2.11
        return torch.sparse_csr_tensor(starts, columns, values, shape, check_invariants=False)


class Derivation(nn.Module):
    """Find nodes of one type that strains lose because they lose others; a class of one's own derives from this.

    Attributes:
        node_type: type of the nodes that are found.
    """

    node_type: str

    def lost(self, keep: Mapping[str, Tensor], asked: Sequence[object]) -> Tensor:
        """Return which nodes are lost as well, [N, B] bool.

        Args:
            keep: node type → which nodes every strain keeps by what is known so far, [N, B] bool.
            asked: the tensors that say what the strains change; the same objects mean the same strains.
        """
        raise NotImplementedError


Derive = Sequence[Relation | Derivation]
"""What strains lose because of what they change, in this order. A relation means: a node is lost if any source of its
edges is, and has the smallest activity among these."""


class ResidentGraph(nn.Module):
    """Hold a heterograph as layers need it: relations and node counts.

    Attributes:
        num_nodes: node type → N.
        relations: canonical edge types, sorted.
        derive: which nodes are lost with which.
        weighed: relations whose messages get a learned weight in layers that offer one.
        names: node type → names of its nodes; empty where they have none.
    """

    def __init__(
        self,
        num_nodes: Mapping[str, int],
        edges: Mapping[Relation, tuple[Tensor, Tensor, Tensor | None]],
        *,
        derive: Derive = (),
        names: Mapping[str, Vocabulary] | None = None,
        weighed: frozenset[Relation] = frozenset(),
    ) -> None:
        """Copy edges into buffers: relation → [E] int64 sources and destinations, and [E] fixed weights or None."""
        super().__init__()
        self.names, self.weighed, self.derive = names or {}, weighed, tuple(derive)
        self._derivations = nn.ModuleList(rule for rule in derive if isinstance(rule, Derivation))
        self.num_nodes: dict[str, int] = {node_type: num_nodes[node_type] for node_type in sorted(num_nodes)}
        self.relations: tuple[Relation, ...] = tuple(sorted(edges))
        self._united: dict[Relation, ResidentRelation] = {}
        self._heterographs: dict[torch.dtype, DGLGraph] = {}
        self._positions = {relation: i for i, relation in enumerate(self.relations)}
        self._resident = nn.ModuleList()
        for relation in self.relations:
            src, dst, weight = edges[relation]
            sizes = num_nodes[relation[0]], num_nodes[relation[2]]
            self._resident.append(ResidentRelation(relation, src, dst, *sizes, weight))
        for rule in self.derive:
            if not isinstance(rule, Derivation):
                self[rule]  # refuses one that is not there

    @property
    def derived(self) -> set[str]:
        """Return the types of which strains lose nodes because of others."""
        return {rule.node_type if isinstance(rule, Derivation) else rule[2] for rule in self.derive}

    def __getitem__(self, relation: Relation) -> ResidentRelation:
        """Return the resident edges of ``relation``; a ``GraphError`` if there is none."""
        if relation in self._united:
            return self._united[relation]
        if relation not in self._positions:
            what, expected = "the cell graph has no such relation", listing(self.relations, limit=30)
            raise GraphError(what, got=relation, expected=expected, do="choose among these")
        member = self._resident[self._positions[relation]]
        assert isinstance(member, ResidentRelation)
        return member

    def unite(self, relations: Sequence[Relation]) -> Relation:
        """Join R relations between the same node types into one, so that one product sums along all of them.

        The result is the name of edges into R · M nodes: node ``v`` of relation ``r`` is ``r · M + v``.
        """
        parts = [self[relation] for relation in relations]
        source, _, destination = relations[0]
        name = source, " + ".join(r[1] for r in relations), f"{len(parts)} × {destination}"
        if name not in self._united:
            N, M = parts[0].num_src, parts[0].num_dst
            # Passes with gradients use this too, and they could not save a tensor that was made in inference mode.
            with torch.inference_mode(False):
                src, dst = torch.cat([p.src for p in parts]), torch.cat([p.dst + r * M for r, p in enumerate(parts)])
                known = [p.weight for p in parts if p.weight is not None]
                weights = [known[0].new_ones(p.num_edges) if p.weight is None else p.weight for p in parts if known]
                weight = torch.cat(weights) if known else None
                self._united[name] = ResidentRelation(name, src, dst, N, len(parts) * M, weight)
        return name

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self._united.clear()
        self._heterographs.clear()
        return super()._apply(fn, recurse)

    def heterograph(self, idtype: torch.dtype = torch.int64) -> DGLGraph:
        """Return it as a DGL heterograph on the device of the buffers, with weights in ``edata["weight"]``.

        It is made once for a type of numbers, int64 or int32; with int64 it shares the memory of the buffers.
        """
        if idtype in self._heterographs:
            return self._heterographs[idtype]
        edges: Mapping[Relation, tuple[Tensor, Tensor]] = {r: (self[r].src, self[r].dst) for r in self.relations}
        with torch.inference_mode(False):  # Passes with gradients use it, too.
            graph = import_dgl().heterograph(edges, num_nodes_dict=self.num_nodes, idtype=idtype)
            for relation in self.relations:
                if (weight := self[relation].weight) is not None:
                    graph.edges[relation].data[WEIGHT] = weight
        self._heterographs[idtype] = graph
        return graph


def import_dgl() -> ModuleType:
    """Return the module ``dgl``, or raise a ``MissingDependencyError``.

    Only heterograph views and the strategies of whole states need it.
    """
    try:
        import dgl
        import dgl.function
    except (ImportError, OSError) as error:
        got = str(error).partition("\n")[0]
        expected = "dgl 1.1.3, whose wheels are for Python 3.11 and earlier, or a later one from DGL's own page"
        do = "use Python 3.11 on Linux, `pip install dgl==1.1.3`; or do without it: the strategy auto, and no gatv2"
        raise MissingDependencyError("DGL cannot be imported", got=got, expected=expected, do=do) from error
    module: ModuleType = dgl
    return module


@cache
def dgl_runs_on(device_type: str) -> bool:
    """Return whether DGL can be imported and has kernels for ``device_type``."""
    if device_type != "cpu" and not torch.cuda.is_available():
        return False
    try:
        dgl = import_dgl()
    except MissingDependencyError:
        return False
    try:
        dgl.graph(([0], [0])).to(device_type)
    except dgl.DGLError:
        return False
    return True

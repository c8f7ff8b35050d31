"""Define the cell graph: one heterograph with the names of its nodes and where its edges came from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import GraphError, import_optional, listing
from dglcell.files.atomic import atomic_directory, canonical_hash
from dglcell.files.untrusted import (
    MAPPING,
    SHA256,
    TEXT,
    Kind,
    UnreadableError,
    find_wrong,
    list_of,
    mapping_of,
    read_json,
    read_npz,
)
from dglcell.graph.schema import GENE, REACTION, Relation
from dglcell.graph.vocabulary import AliasTable, Vocabulary

if TYPE_CHECKING:
    import networkx
    import pandas as pd
    from torch import Tensor
    from torch_geometric.data import HeteroData


@dataclass(frozen=True)
class Edges:
    """Hold the edges of one relation.

    Attributes:
        src: [E] int64 source nodes.
        dst: [E] int64 destination nodes.
        weight: [E] float32 fixed edge weights, or None.
    """

    src: NDArray[np.int64]
    dst: NDArray[np.int64]
    weight: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.src)

    def select(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> Edges:
        """Return the edges at ``rows`` (a mask or indices)."""
        return Edges(self.src[rows], self.dst[rows], None if self.weight is None else self.weight[rows])

    def reversed(self) -> Edges:
        """Return the edges in the opposite direction, with their weights."""
        return Edges(self.dst, self.src, self.weight)

    def symmetrised(self) -> Edges:
        """Return both directions of every edge, given each pair once; a self-loop stays one edge."""
        return self.joined(self.reversed().select(self.src != self.dst))

    def with_self_loops(self, num_nodes: int) -> Edges:
        """Return the edges with a self-loop of weight 1 added for every node that has none."""
        without = np.setdiff1d(np.arange(num_nodes, dtype=np.int64), self.src[self.src == self.dst])
        weight = None if self.weight is None else np.ones(len(without), dtype=np.float32)
        return self.joined(Edges(without, without, weight))

    def joined(self, other: Edges) -> Edges:
        """Return these edges followed by the others; both must be weighted, or neither."""
        weight = None
        if self.weight is not None and other.weight is not None:
            weight = np.concatenate([self.weight, other.weight])
        return Edges(np.concatenate([self.src, other.src]), np.concatenate([self.dst, other.dst]), weight)

    def sorted(self) -> Edges:
        """Return the edges ordered by (destination, source)."""
        return self.select(np.lexsort((self.src, self.dst)))


def merge_pairs(edges: Edges, *, ordered: bool) -> Edges:
    """Keep each pair once, with its largest weight, in the order and direction in which it first occurs.

    Args:
        edges: edges in which pairs may be repeated.
        ordered: whether (a, b) and (b, a) are different pairs.
    """
    if not len(edges):
        return edges
    ends = np.stack([edges.src, edges.dst])
    if not ordered:
        ends = np.sort(ends, axis=0)
    keys = ends[0] * (ends.max() + 1) + ends[1]
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    merged = Edges(edges.src[first], edges.dst[first])
    if edges.weight is not None:
        weight = np.full(len(first), -np.inf, dtype=np.float32)
        np.maximum.at(weight, inverse, edges.weight)
        merged = Edges(merged.src, merged.dst, weight)
    return merged.select(np.argsort(first))


SCHEMA_VERSION = 1
_META, _EDGES = "cell.json", "edges.npz"

_FIELDS = {
    "sha256": SHA256,
    "relations": list_of(Kind("three names", lambda v: isinstance(v, list) and len(v) == 3 and all(map(TEXT.fits, v)))),
    "vocabularies": mapping_of(Kind("different names", lambda v: list_of(TEXT).fits(v) and len({*v}) == len(v))),
    "provenance": MAPPING,
}
_NAMES = {"other_names": mapping_of(list_of(TEXT)), "standard_names": mapping_of(TEXT)}
_TITLES = {"titles": mapping_of(mapping_of(TEXT))}
_MEDIA = {"media": mapping_of(mapping_of(Kind("a number, 0 to 1", lambda v: isinstance(v, float) and 0 <= v <= 1)))}

Media = Mapping[str, Mapping[str, float]]
"""Growth media have this form: medium → reaction node → strength."""

Titles = Mapping[str, Mapping[str, str]]
"""Names in words have this form: node type → reaction of the metabolic model, or metabolite → e.g. Citrate synthase."""


@dataclass(frozen=True, eq=False, repr=False)
class CellGraph:
    """Hold the wild-type cell as one graph.

    >>> import dglcell
    >>> cell = dglcell.load_cell("quickstart")
    >>> cell.genes.names[0], cell.num_nodes["gene"]
    ('b0008', 137)

    Attributes:
        vocabularies: node type → names; the index of a name is its node id.
        content: relation → its edges, ordered by (destination, source); relations are sorted.
        provenance: plain containers: configuration, model, files with hashes, row and name counts.
        sha256: hash of vocabularies, edges and weights, of ``lose_blocked`` and of media; the same in every process.
        lose_blocked: whether strains also lose reactions that carry no flux once others are lost; see ``CellConfig``.
        media: medium → reaction node → its strength there; the same nodes for every medium. The graph itself takes up
            all that any medium offers.
        titles: what the metabolic model calls its reactions and metabolites in words; those that it names. They are to
            be read, and tell no cell graphs apart.
    """

    vocabularies: dict[str, Vocabulary]
    content: dict[Relation, Edges]
    provenance: dict[str, Any] = field(default_factory=dict)
    sha256: str = ""
    lose_blocked: bool = False
    media: Media = field(default_factory=dict)
    titles: Titles = field(default_factory=dict)

    @classmethod
    def assemble(
        cls,
        vocabularies: Mapping[str, Vocabulary],
        relations: Mapping[Relation, Edges],
        provenance: dict[str, Any] | None = None,
        *,
        lose_blocked: bool = False,
        media: Media | None = None,
        titles: Titles | None = None,
    ) -> CellGraph:
        """Make a cell graph from arrays.

        Args:
            vocabularies: node type → names; every node type of ``relations``.
            relations: canonical edge type → edges, in any order.
            provenance: where the edges came from, as plain containers.
            lose_blocked: as for the class.
            media: as for the class.
            titles: as for the class.

        Raises:
            GraphError: there are no relations, or an edge ends outside its vocabulary.
        """
        if not relations:
            raise GraphError(
                "the cell graph would have no relations",
                do="give a metabolic `model`, `networks`, or both",
            )
        edges = {relation: relations[relation].sorted() for relation in sorted(relations)}
        for relation, ends in edges.items():
            _check_ends(relation, ends, vocabularies)
        _check_media(media or {}, vocabularies)
        sha256 = _content_hash(vocabularies, edges, lose_blocked=lose_blocked, media=media or {})
        return cls(dict(vocabularies), edges, provenance or {}, sha256, lose_blocked, media or {}, titles or {})

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
        """Return the edges of one relation as arrays, ordered by (destination, source).

        Raises:
            GraphError: the cell has no such relation.
        """
        if relation not in self.content:
            raise GraphError(
                "the cell graph has no such relation",
                got=relation,
                expected=", ".join(str(known) for known in self.relations),
            )
        return self.content[relation]

    def edge_tensors(self) -> dict[Relation, tuple[Tensor, Tensor, Tensor | None]]:
        """Return relation → sources, destinations, and fixed weights or None, [E] each."""
        import torch

        return {
            relation: (
                torch.from_numpy(edges.src),
                torch.from_numpy(edges.dst),
                None if edges.weight is None else torch.from_numpy(edges.weight),
            )
            for relation, edges in self.content.items()
        }

    def degrees(self, relation: Relation) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the out-degrees of source nodes, [N], and the in-degrees of destination nodes, [M]."""
        edges, sizes = self.edges(relation), self.num_nodes
        out = np.bincount(edges.src, minlength=sizes[relation[0]])
        return out, np.bincount(edges.dst, minlength=sizes[relation[2]])

    def untouched_genes(self) -> NDArray[np.int64]:
        """Return sorted indices of the genes that no relation joins to another node (self-loops do not count)."""
        touched = np.zeros(len(self.genes), dtype=bool)
        for relation in self.relations:
            edges = self.edges(relation)
            if relation[0] == relation[2]:
                edges = edges.select(edges.src != edges.dst)
            for node_type, ends in ((relation[0], edges.src), (relation[2], edges.dst)):
                if node_type == GENE:
                    touched[ends] = True
        return np.flatnonzero(~touched)

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
        kinds = np.repeat(np.array(self.relations, dtype=object), [len(e) for e in self.content.values()], axis=0)
        weights = [np.full(len(e), np.nan) if e.weight is None else e.weight for e in self.content.values()]
        columns = {
            "source_type": kinds[:, 0],
            "source": np.concatenate([names[source][e.src] for (source, _, _), e in self.content.items()]),
            "relation": kinds[:, 1],
            "target_type": kinds[:, 2],
            "target": np.concatenate([names[target][e.dst] for (_, _, target), e in self.content.items()]),
            "weight": np.concatenate(weights),
        }
        return pd.DataFrame(columns)

    def to_networkx(self) -> networkx.MultiDiGraph:
        """Return the cell as a directed graph of names.

        >>> import dglcell
        >>> graph = dglcell.load_cell("quickstart").to_networkx()
        >>> graph.nodes["b0008"]["node_type"]
        'gene'

        Returns:
            A graph whose nodes are names with a ``node_type``; the key of an edge is the name of its relation, and
            edges of relations with weights have a ``weight``.

        Raises:
            GraphError: nodes of two types have one name.
            MissingDependencyError: networkx is not installed.
        """
        networkx = import_optional("networkx", "`to_networkx`", "pip install networkx")
        graph = networkx.MultiDiGraph()
        for node_type, vocabulary in self.vocabularies.items():
            twice = [name for name in vocabulary.names if name in graph]
            if twice:
                raise GraphError("nodes of two types have one name", got=listing(twice), do="use `to_pandas`")
            graph.add_nodes_from(vocabulary.names, node_type=node_type)
        for (source, relation, target), edges in self.content.items():
            ends = self.vocabularies[source].names, self.vocabularies[target].names
            about = [{}] * len(edges) if edges.weight is None else [{"weight": w} for w in edges.weight.tolist()]
            graph.add_edges_from(
                (ends[0][u], ends[1][v], relation, more)
                for u, v, more in zip(edges.src.tolist(), edges.dst.tolist(), about, strict=True)
            )
        return graph

    def to_pyg(self) -> HeteroData:
        """Return the cell as a graph of PyTorch Geometric.

        >>> import dglcell
        >>> graph = dglcell.load_cell("quickstart").to_pyg()
        >>> graph["gene"].names[0]
        'b0008'

        Returns:
            A graph whose node types have ``num_nodes`` and ``names``; relations have an ``edge_index`` [2, E], and an
            ``edge_weight`` [E] where they have weights.

        Raises:
            MissingDependencyError: PyTorch Geometric is not installed.
        """
        pyg = import_optional("torch_geometric.data", "`to_pyg`", "pip install torch_geometric")
        import torch

        graph = pyg.HeteroData()
        for node_type, vocabulary in self.vocabularies.items():
            graph[node_type].num_nodes = len(vocabulary)
            graph[node_type].names = list(vocabulary.names)
        for relation, edges in self.content.items():
            graph[relation].edge_index = torch.from_numpy(np.stack([edges.src, edges.dst]))
            if edges.weight is not None:
                graph[relation].edge_weight = torch.from_numpy(edges.weight.copy())
        return graph

    def save(self, directory: Path, *, overwrite: bool = False) -> None:
        """Write ``cell.json`` (names, provenance, hash) and ``edges.npz``; the directory appears whole or not at all.

        Raises:
            DataError: ``directory`` exists and ``overwrite`` is false.
        """
        arrays: dict[str, NDArray[Any]] = {}
        for i, relation in enumerate(self.relations):
            edges = self.edges(relation)
            arrays |= {f"{i}_src": edges.src, f"{i}_dst": edges.dst}
            if edges.weight is not None:
                arrays[f"{i}_weight"] = edges.weight
        meta = {
            "schema_version": SCHEMA_VERSION,
            "sha256": self.sha256,
            "relations": [list(relation) for relation in self.relations],
            "vocabularies": {node_type: list(v.names) for node_type, v in sorted(self.vocabularies.items())},
            "provenance": self.provenance,
            "lose_blocked": self.lose_blocked,
            **({"media": self.media} if self.media else {}),
            **({"titles": self.titles} if self.titles else {}),
            **self._names(),
        }
        with atomic_directory(Path(directory), overwrite=overwrite) as partial:
            np.savez_compressed(partial / _EDGES, allow_pickle=False, **arrays)
            (partial / _META).write_text(json.dumps(meta, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    def _names(self) -> dict[str, Any]:
        """Return the other names of genes; empty in a cell without genes."""
        others = self.vocabularies[GENE].others if GENE in self.vocabularies else AliasTable.empty()
        other = {alias: list(genes) for alias, genes in others.systematic.items()}
        return {"other_names": other, "standard_names": dict(others.standard)}

    @classmethod
    def load(cls, directory: Path) -> CellGraph:
        """Read what `save` wrote, and check it against its hash.

        Raises:
            GraphError: files are missing, damaged, of another schema version, or do not match the hash.
        """
        directory = Path(directory)
        meta = _read_meta(directory)
        relations = _read_edges(directory, [(s, name, d) for s, name, d in meta["relations"]])
        vocabularies = {node_type: Vocabulary(tuple(names)) for node_type, names in meta["vocabularies"].items()}
        if GENE in vocabularies:
            other = {alias: tuple(genes) for alias, genes in meta.get("other_names", {}).items()}
            names = AliasTable(other, meta.get("standard_names", {}))
            vocabularies[GENE] = Vocabulary(vocabularies[GENE].names, names)
        blocked = meta.get("lose_blocked", False) is True  # cell graphs of earlier versions do not say it
        more = {name: meta.get(name, {}) for name in (*_MEDIA, *_TITLES)}
        cell = cls.assemble(vocabularies, relations, meta["provenance"], lose_blocked=blocked, **more)
        if cell.sha256 != meta["sha256"]:
            raise _damaged(directory, f"content hash {cell.sha256}", f"content hash {meta['sha256']}")
        return cell


def _check_ends(relation: Relation, edges: Edges, vocabularies: Mapping[str, Vocabulary]) -> None:
    for node_type, ends in ((relation[0], edges.src), (relation[2], edges.dst)):
        size = len(vocabularies.get(node_type, ()))
        if len(ends) and not 0 <= ends.min() <= ends.max() < size:
            raise GraphError(
                f"relation {relation}: an edge ends outside the {node_type} vocabulary",
                got=f"indices {ends.min()} to {ends.max()}",
                expected=f"0 to {size - 1}",
            )


def _check_media(media: Media, vocabularies: Mapping[str, Vocabulary]) -> None:
    nodes = {tuple(strengths) for strengths in media.values()}
    stray = [name for names in nodes for name in names if name not in vocabularies.get(REACTION, Vocabulary(()))]
    if stray or len(nodes) > 1:
        raise GraphError(
            "media of the cell graph do not fit its reactions",
            got=listing(stray) or "media that name different reaction nodes",
            expected="a strength of the same reaction nodes in every medium",
        )


def _content_hash(
    vocabularies: Mapping[str, Vocabulary], relations: Mapping[Relation, Edges], *, lose_blocked: bool, media: Media
) -> str:
    digest = hashlib.sha256(f"cell graph {SCHEMA_VERSION}".encode())
    for node_type in sorted(vocabularies):
        digest.update(f"\n{node_type} {vocabularies[node_type].sha256}".encode())
    for relation in sorted(relations):
        edges = relations[relation]
        weighted = edges.weight is not None
        digest.update(f"\n{' '.join(relation)} {len(edges)} {weighted}\n".encode())
        digest.update(edges.src.astype("<i8").tobytes() + edges.dst.astype("<i8").tobytes())
        if edges.weight is not None:
            digest.update(edges.weight.astype("<f4").tobytes())
    if lose_blocked:
        digest.update(b"\nlose_blocked\n")
    if media:
        digest.update(f"\nmedia {canonical_hash(media)}\n".encode())
    return digest.hexdigest()


def _damaged(directory: Path, got: str, expected: str) -> GraphError:
    return GraphError(
        f"cell graph '{directory}' is damaged", got=got, expected=expected, do="build the cell graph again"
    )


def _read_meta(directory: Path) -> dict[str, Any]:
    path = directory / _META
    if not path.is_file():
        raise GraphError(
            f"no cell graph at '{directory}'",
            got="an existing directory without cell.json" if directory.is_dir() else "no such directory",
            expected=f"a directory with {_META} and {_EDGES}",
            do="build and save a cell graph there first",
        )
    try:
        meta = read_json(path)
    except UnreadableError as error:
        raise _damaged(directory, f"{_META}: {error}", "whole JSON") from error
    version = meta.get("schema_version") if isinstance(meta, dict) else None
    if version != SCHEMA_VERSION:
        raise GraphError(
            f"cell graph '{directory}' was written by another version of dglcell",
            got=f"schema version {version}",
            expected=f"schema version {SCHEMA_VERSION}",
            do="build the cell graph again, or use the version that wrote it",
        )
    missing = sorted(set(_FIELDS) - set(meta))
    if missing:
        raise _damaged(directory, f"{_META} without {', '.join(missing)}", "all keys")
    # A cell graph of an earlier version has neither other names of its nodes nor media.
    later = _NAMES | _TITLES | _MEDIA
    wrong = find_wrong(meta, _FIELDS | {key: kind for key, kind in later.items() if key in meta})
    if wrong is not None:
        raise _damaged(directory, f"{_META}: {wrong.what}", wrong.expected)
    content: dict[str, Any] = meta
    return content


def _read_edges(directory: Path, relations: list[Relation]) -> dict[Relation, Edges]:
    try:
        arrays = read_npz(directory / _EDGES)
    except UnreadableError as error:
        raise _damaged(directory, f"{_EDGES}: {error}", "whole arrays for every relation") from error
    nothing = np.empty(())
    found = {
        relation: Edges(arrays.get(f"{i}_src", nothing), arrays.get(f"{i}_dst", nothing), arrays.get(f"{i}_weight"))
        for i, relation in enumerate(relations)
    }
    torn = [relation for relation, edges in found.items() if not _are_edges(edges)]
    if torn:
        raise _damaged(directory, f"{_EDGES}: relation {torn[0]}", "whole arrays for every relation")
    return found


def _are_edges(edges: Edges) -> bool:
    """Return whether both ends are numbers of nodes, and weights, if there are any, as many."""
    ends = all(end.dtype == np.int64 and end.shape == (edges.src.size,) for end in (edges.src, edges.dst))
    weight = edges.src.astype(np.float32) if edges.weight is None else edges.weight
    return ends and weight.dtype == np.float32 and weight.shape == edges.src.shape

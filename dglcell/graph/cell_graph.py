"""The cell graph: one heterograph with the names of its nodes and where its edges came from."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import GraphError
from dglcell.files import atomic_directory, parse_json
from dglcell.graph.schema import GENE, Relation
from dglcell.graph.vocabulary import Vocabulary

# Edge lists of one relation as arrays, and the few operations that turn tables into relations.


@dataclass(frozen=True)
class Edges:
    """Edges of one relation.

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
        """The edges at ``rows`` (a mask or indices)."""
        return Edges(self.src[rows], self.dst[rows], None if self.weight is None else self.weight[rows])

    def reversed(self) -> Edges:
        """Every edge turned round, weights kept."""
        return Edges(self.dst, self.src, self.weight)

    def symmetrised(self) -> Edges:
        """Both directions of every edge, given each pair once; a self-loop stays one edge."""
        return self.joined(self.reversed().select(self.src != self.dst))

    def with_self_loops(self, num_nodes: int) -> Edges:
        """One self-loop of weight 1 more for every node that has none."""
        without = np.setdiff1d(np.arange(num_nodes, dtype=np.int64), self.src[self.src == self.dst])
        weight = None if self.weight is None else np.ones(len(without), dtype=np.float32)
        return self.joined(Edges(without, without, weight))

    def joined(self, other: Edges) -> Edges:
        """These edges, then the others; both weighted or neither."""
        weight = None
        if self.weight is not None and other.weight is not None:
            weight = np.concatenate([self.weight, other.weight])
        return Edges(np.concatenate([self.src, other.src]), np.concatenate([self.dst, other.dst]), weight)

    def sorted(self) -> Edges:
        """Ordered by (destination, source)."""
        return self.select(np.lexsort((self.src, self.dst)))


def merge_pairs(edges: Edges, *, ordered: bool) -> Edges:
    """Each pair once, with its largest weight, in the order and direction in which it first occurs.

    Args:
        edges: with repeated pairs.
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


# The cell graph: one heterograph with the names of its nodes and where its edges came from.


SCHEMA_VERSION = 1
_META, _EDGES = "cell.json", "edges.npz"


@dataclass(frozen=True, eq=False)
class CellGraph:
    """The wild-type cell.

    Attributes:
        vocabularies: node type → names; the index of a name is its node id.
        content: relation → its edges, ordered by (destination, source); relations are sorted.
        provenance: plain containers: configuration, model, files with hashes, row and name counts.
        sha256: hash of vocabularies, edges and weights, the same in every process.
    """

    vocabularies: dict[str, Vocabulary]
    content: dict[Relation, Edges]
    provenance: dict[str, Any] = field(default_factory=dict)
    sha256: str = ""

    @classmethod
    def assemble(
        cls,
        vocabularies: Mapping[str, Vocabulary],
        relations: Mapping[Relation, Edges],
        provenance: dict[str, Any] | None = None,
    ) -> CellGraph:
        """Make a cell graph from arrays.

        Args:
            vocabularies: node type → names; every node type of ``relations``.
            relations: canonical edge type → edges, in any order.
            provenance: where they came from.

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
        return cls(dict(vocabularies), edges, provenance or {}, _content_hash(vocabularies, edges))

    @property
    def genes(self) -> Vocabulary:
        """The gene vocabulary."""
        return self.vocabularies[GENE]

    @property
    def relations(self) -> tuple[Relation, ...]:
        """Canonical edge types, sorted."""
        return tuple(self.content)

    @property
    def num_nodes(self) -> dict[str, int]:
        """Node type → N."""
        return {node_type: len(names) for node_type, names in sorted(self.vocabularies.items())}

    @property
    def num_edges(self) -> int:
        """Of all relations."""
        return sum(len(edges) for edges in self.content.values())

    def edges(self, relation: Relation) -> Edges:
        """The edges of one relation as arrays, ordered by (destination, source).

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

    def degrees(self, relation: Relation) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """[N] out-degrees of source nodes, and [M] in-degrees of destination nodes."""
        edges, sizes = self.edges(relation), self.num_nodes
        out = np.bincount(edges.src, minlength=sizes[relation[0]])
        return out, np.bincount(edges.dst, minlength=sizes[relation[2]])

    def untouched_genes(self) -> NDArray[np.int64]:
        """Sorted indices of the genes that no relation joins to another node (self-loops do not count)."""
        touched = np.zeros(len(self.genes), dtype=bool)
        for relation in self.relations:
            edges = self.edges(relation)
            if relation[0] == relation[2]:
                edges = edges.select(edges.src != edges.dst)
            for node_type, ends in ((relation[0], edges.src), (relation[2], edges.dst)):
                if node_type == GENE:
                    touched[ends] = True
        return np.flatnonzero(~touched)

    def save(self, directory: Path, *, overwrite: bool = False) -> None:
        """Write ``cell.json`` (names, provenance, hash) and ``edges.npz``; the directory appears whole or not.

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
        }
        with atomic_directory(Path(directory), overwrite=overwrite) as partial:
            np.savez_compressed(partial / _EDGES, allow_pickle=False, **arrays)
            (partial / _META).write_text(json.dumps(meta, indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, directory: Path) -> CellGraph:
        """Read what `save` wrote, and check it against its hash.

        Raises:
            GraphError: files are missing, torn, of another schema version, or do not match the hash.
        """
        directory = Path(directory)
        meta = _read_meta(directory)
        relations = _read_edges(directory, [(s, name, d) for s, name, d in meta["relations"]])
        vocabularies = {node_type: Vocabulary(tuple(names)) for node_type, names in meta["vocabularies"].items()}
        cell = cls.assemble(vocabularies, relations, meta["provenance"])
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


def _content_hash(vocabularies: Mapping[str, Vocabulary], relations: Mapping[Relation, Edges]) -> str:
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
        meta = parse_json(path.read_text())
    except ValueError as error:
        raise _damaged(directory, f"{_META}: {error}", "whole JSON") from error
    version = meta.get("schema_version") if isinstance(meta, dict) else None
    if version != SCHEMA_VERSION:
        raise GraphError(
            f"cell graph '{directory}' was written by another version of dglcell",
            got=f"schema version {version}",
            expected=f"schema version {SCHEMA_VERSION}",
            do="build the cell graph again, or use the version that wrote it",
        )
    missing = sorted({"sha256", "relations", "vocabularies", "provenance"} - set(meta))
    if missing:
        raise _damaged(directory, f"{_META} without {', '.join(missing)}", "all keys")
    return meta


def _read_edges(directory: Path, relations: list[Relation]) -> dict[Relation, Edges]:
    try:
        with np.load(directory / _EDGES, allow_pickle=False) as arrays:
            return {
                relation: Edges(arrays[f"{i}_src"], arrays[f"{i}_dst"], arrays.get(f"{i}_weight"))
                for i, relation in enumerate(relations)
            }
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise _damaged(directory, f"{_EDGES}: {error}", "whole arrays for every relation") from error

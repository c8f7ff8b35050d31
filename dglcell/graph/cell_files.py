"""Write cell graphs and read them back, and say what their strains lose with their genes."""

from __future__ import annotations

import json
from collections.abc import Container
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import GraphError
from dglcell.files.atomic import atomic_directory
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
from dglcell.graph.cell_graph import SCHEMA_VERSION, CellGraph, Edges, Rule
from dglcell.graph.schema import CATALYSES, GENE, Relation
from dglcell.graph.vocabulary import AliasTable, Vocabulary

if TYPE_CHECKING:
    from dglcell.graph.resident_graph import Derivation

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


def losses_of_cell(relations: Container[Relation], *, lose_blocked: bool) -> tuple[Rule, ...]:
    """Return what the strains of a cell lose with their genes; see ``CellGraph.derive``.

    A reaction node stands for one enzyme complex (one AND-term of the rule) in one direction, so it is lost if any of
    its genes is. Strains may also lose the reactions that carry no flux then.
    """
    by_rules: tuple[Rule, ...] = (CATALYSES,) if CATALYSES in relations else ()
    return (*by_rules, _blocked) if lose_blocked else by_rules


def _blocked(cell: CellGraph) -> Derivation:
    from dglcell.graph.steady_state import SteadyState  # here, so that a cell graph is read without torch

    return SteadyState.of(cell)


def save_cell(cell: CellGraph, directory: Path, *, overwrite: bool = False) -> None:
    """Write ``cell.json`` (names, provenance, hash) and ``edges.npz``; the directory appears whole or not at all.

    Raises:
        DataError: ``directory`` exists and ``overwrite`` is false.
    """
    arrays: dict[str, NDArray[Any]] = {}
    for i, relation in enumerate(cell.relations):
        edges = cell.edges(relation)
        arrays |= {f"{i}_src": edges.src, f"{i}_dst": edges.dst}
        if edges.weight is not None:
            arrays[f"{i}_weight"] = edges.weight
    meta = {
        "schema_version": SCHEMA_VERSION,
        "sha256": cell.sha256,
        "relations": [list(relation) for relation in cell.relations],
        "vocabularies": {node_type: list(v.names) for node_type, v in sorted(cell.vocabularies.items())},
        "provenance": cell.provenance,
        "lose_blocked": cell.lose_blocked,
        **({"media": cell.media} if cell.media else {}),
        **({"titles": cell.titles} if cell.titles else {}),
        **_names(cell),
    }
    with atomic_directory(Path(directory), overwrite=overwrite) as partial:
        np.savez_compressed(partial / _EDGES, allow_pickle=False, **arrays)
        (partial / _META).write_text(json.dumps(meta, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _names(cell: CellGraph) -> dict[str, Any]:
    """Return the other names of genes; empty in a cell without genes."""
    others = cell.vocabularies[GENE].others if GENE in cell.vocabularies else AliasTable()
    other = {alias: list(genes) for alias, genes in others.systematic.items()}
    return {"other_names": other, "standard_names": dict(others.standard)}


def read_cell(directory: Path) -> CellGraph:
    """Read what `save_cell` wrote, and check it against its hash.

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
    more["derive"] = losses_of_cell(relations, lose_blocked=blocked)
    cell = CellGraph.assemble(vocabularies, relations, meta["provenance"], lose_blocked=blocked, **more)
    if cell.sha256 != meta["sha256"]:
        raise _damaged(directory, f"content hash {cell.sha256}", f"content hash {meta['sha256']}")
    return cell


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

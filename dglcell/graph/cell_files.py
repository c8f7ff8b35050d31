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
    FLAG,
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
    "lose_blocked": FLAG,
    "other_names": mapping_of(list_of(TEXT)),
    "standard_names": mapping_of(TEXT),
    "titles": mapping_of(mapping_of(TEXT)),
    "media": mapping_of(mapping_of(Kind("a number, 0 to 1", lambda v: isinstance(v, float) and 0 <= v <= 1))),
}


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
    """Write ``cell.json`` (names, provenance, hash) and ``edges.npz``; the directory appears whole or not at all."""
    arrays: dict[str, NDArray[Any]] = {}
    for i, relation in enumerate(cell.relations):
        edges = cell.edges(relation)
        arrays |= {f"{i}_src": edges.src, f"{i}_dst": edges.dst}
        if edges.weight is not None:
            arrays[f"{i}_weight"] = edges.weight
    others = cell.vocabularies[GENE].others if GENE in cell.vocabularies else AliasTable()
    meta = {
        "schema_version": SCHEMA_VERSION,
        "sha256": cell.sha256,
        "relations": [list(relation) for relation in cell.relations],
        "vocabularies": {node_type: list(v.names) for node_type, v in sorted(cell.vocabularies.items())},
        "provenance": cell.provenance,
        "lose_blocked": cell.lose_blocked,
        **({"media": cell.media} if cell.media else {}),
        **({"titles": cell.titles} if cell.titles else {}),
        "other_names": {alias: list(genes) for alias, genes in others.systematic.items()},
        "standard_names": dict(others.standard),
    }
    with atomic_directory(Path(directory), overwrite=overwrite) as partial:
        np.savez_compressed(partial / _EDGES, allow_pickle=False, **arrays)
        (partial / _META).write_text(json.dumps(meta, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_cell(directory: Path) -> CellGraph:
    """Read what `save_cell` wrote, and check it against its hash.

    Raises:
        GraphError: files are missing, damaged, of another schema version, or do not match the hash.
    """
    directory = Path(directory)
    meta = _read_meta(directory)
    vocabularies = {node_type: Vocabulary(tuple(names)) for node_type, names in meta["vocabularies"].items()}
    if GENE in vocabularies:
        other = {alias: tuple(genes) for alias, genes in meta["other_names"].items()}
        vocabularies[GENE] = Vocabulary(vocabularies[GENE].names, AliasTable(other, meta["standard_names"]))
    more = {name: meta[name] for name in ("lose_blocked", "media", "titles")}
    try:
        arrays, relations = read_npz(directory / _EDGES), dict[Relation, Edges]()
        for i, (source, name, destination) in enumerate(meta["relations"]):
            src, dst = (arrays[f"{i}_{end}"].astype(np.int64) for end in ("src", "dst"))
            weight = arrays.get(f"{i}_weight")
            edges = Edges(src, dst, None if weight is None else weight.astype(np.float32))
            relations[source, name, destination] = edges
        more["derive"] = losses_of_cell(relations, lose_blocked=more["lose_blocked"])
        cell = CellGraph.assemble(vocabularies, relations, meta["provenance"], **more)
    except (UnreadableError, LookupError, TypeError, ValueError, GraphError) as error:
        raise _damaged(directory, f"{_EDGES}: {error}", "whole arrays for every relation") from error
    if cell.sha256 != meta["sha256"]:
        raise _damaged(directory, f"content hash {cell.sha256}", f"content hash {meta['sha256']}")
    return cell


def _damaged(directory: Path, got: str, expected: str) -> GraphError:
    what, do = f"cell graph '{directory}' is damaged", "build the cell graph again"
    return GraphError(what, got=got, expected=expected, do=do)


def _read_meta(directory: Path) -> dict[str, Any]:
    path = directory / _META
    if not path.is_file():
        got = "an existing directory without cell.json" if directory.is_dir() else "no such directory"
        expected, do = f"a directory with {_META} and {_EDGES}", "build and save a cell graph there first"
        raise GraphError(f"no cell graph at '{directory}'", got=got, expected=expected, do=do)
    try:
        meta = read_json(path)
    except UnreadableError as error:
        raise _damaged(directory, f"{_META}: {error}", "whole JSON") from error
    version = meta.get("schema_version") if isinstance(meta, dict) else None
    if version != SCHEMA_VERSION:
        what, got = f"cell graph '{directory}' was written by another version of dglcell", f"schema version {version}"
        do = "build the cell graph again, or use the version that wrote it"
        raise GraphError(what, got=got, expected=f"schema version {SCHEMA_VERSION}", do=do)
    # Cell graphs of earlier versions do not say these.
    earlier = {"lose_blocked": False, "other_names": {}, "standard_names": {}, "titles": {}, "media": {}}
    content: dict[str, Any] = earlier | meta
    wrong = find_wrong(content, _FIELDS)
    if wrong is not None:
        raise _damaged(directory, f"{_META}: {wrong.what}", wrong.expected)
    return content

"""Define what an experiment says about its cell graph, build it, write it, read it back, and describe it."""

from __future__ import annotations

import functools
import json
import textwrap
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from dglcell.checks import check_values, must
from dglcell.errors import ConfigError, GraphError, aligned, listing
from dglcell.files.atomic import atomic_directory, find_raw, sha256_file
from dglcell.files.untrusted import Sha256, UnreadableError, check_fields, read_json, read_npz
from dglcell.graph.catalogue import GENE_SETS, NetworkConfig, NetworkSource, Unknown, add_names, named_table, read_names
from dglcell.graph.cell_graph import SCHEMA_VERSION, CellGraph, Rule
from dglcell.graph.metabolism import DERIVED, MediaChanges, Metabolism, derived_edges
from dglcell.graph.networks import Network, SimilarityConfig, network_edges, read_network, similar_relations
from dglcell.graph.schema import (
    CATALYSED_BY,
    CATALYSES,
    CONVERTED_BY,
    CONVERTS,
    GENE,
    METABOLITE,
    REACTION,
    Edges,
    Relation,
    check_relation_name,
    gene_relation,
)
from dglcell.graph.tables import read_aliases, read_column, read_gene_list
from dglcell.graph.vocabulary import REFUSE, Vocabulary, refuse_names, warn_of_strangers
from dglcell.published.file import PublishedFile, format_hash

if TYPE_CHECKING:
    from dglcell.graph.resident_graph import Derivation

UNION, MODEL = "union", "model"

Derived = Annotated[list[str], must(lambda of: {*of} <= {*DERIVED}, "names no relation", ", ".join(DERIVED))]


@dataclass
class CellConfig:
    """Configure what the cell graph is made of. `dglcell data list` shows what the catalogue offers."""

    model: str | None = None  # metabolic model: a name of the catalogue or of cobra, or a file that cobra reads
    metabolism: bool = True  # include the model's reaction and metabolite nodes and their relations
    networks: dict[str, NetworkConfig] = field(default_factory=dict)  # network name → edge table
    lose_blocked: bool = False  # strains also lose reactions that carry no flux at steady state once others are lost
    derived: Derived = field(default_factory=list)  # relations that are computed from the model alone
    similarity: SimilarityConfig | None = None  # weighted edges between genes with similar neighbours or sets
    media: MediaChanges = field(default_factory=dict)  # medium → exchange reaction → largest uptake, in mmol/gDW/h
    genes: str = UNION  # union (model, networks) | model | a gene set of the catalogue | path of a list, .gff or .tab
    more_genes: str | None = None  # genes beside these: path of a list, or TABLE:COLUMN of a text table
    unknown: Unknown = "refuse"  # names that are not among the genes, unless a network has its own key: refuse | drop
    aliases: str | None = None  # other names of genes in networks: gene set of the catalogue, or path of a table, .gff
    symmetrise: bool = True  # store both directions of each pair of an undirected network
    self_loops: bool = False  # networks add a self-loop to every gene without one

    def validate(self, key: str = "cell") -> None:
        """Check the keys at ``key`` against each other."""
        check_values(self, key)
        if not self.model and not self.networks:
            raise ConfigError(f"`{key}` is empty", expected=f"`{key}.model`, `{key}.networks`, or both")
        if self.genes == MODEL and not self.model:
            raise ConfigError(f"`{key}.genes: model` needs `{key}.model`", do="name a model or a gene list")
        for name, of in (("lose_blocked", "reactions"), ("media", "exchange reactions"), ("derived", "genes")):
            if getattr(self, name) and not (self.model and (self.metabolism or name == "derived")):
                got = f"`{key}.model: {self.model or 'null'}`, `{key}.metabolism: {str(self.metabolism).lower()}`"
                with_nodes = "" if name == "derived" else f" and set `{key}.metabolism: true`"
                do = f"name a model{with_nodes}, or leave `{key}.{name}` out"
                raise ConfigError(f"`{key}.{name}` needs the {of} of a metabolic model", got=got, do=do)
        if self.similarity is not None:
            self.similarity.validate(f"{key}.similarity")
        if not self.networks and not self.derived and not self.metabolism:
            got, do = "metabolism: false, no networks, nothing derived", "or list networks or derived relations"
            raise ConfigError(f"`{key}` gives no relations", got=got, do=f"set `{key}.metabolism: true`, {do}")
        for name, network in self.tables(key).items():
            where, source = f"{key}.networks.{name}", network.table.source
            network.table.validate(where)
            if network.standard_names and not self.aliases:
                what = f"`{where}.source: {source}` calls genes by their standard names"
                expected = f"`{key}.aliases`, which leads from these to systematic names"
                raise ConfigError(what, expected=expected, do=f"e.g. `{key}.aliases: sgd_r64_4_1`")
            if not network.table.channels:
                check_relation_name(name, where=where)

    def tables(self, key: str = "cell") -> dict[str, NetworkSource]:
        """Return network name → its table, with what the catalogue and these keys say where it says nothing."""
        found = {name: named_table(network, f"{key}.networks.{name}") for name, network in self.networks.items()}
        return {
            name: replace(of, table=replace(of.table, unknown=of.table.unknown or self.unknown))
            for name, of in found.items()
        }


def build_cell(config: CellConfig, raw: str | None = None) -> CellGraph:
    """Read the model and the networks, whose relative paths are in the folder ``raw``, and put them together.

    Raises:
        ConfigError: keys contradict each other.
        DataError: a file is missing.
        GraphError: a file is unusable, names are unknown, or relations are empty or share a name.
    """
    config.validate()
    origin: dict[str, Any] = {"config": asdict(config), "networks": {}}
    metabolism = Metabolism.read(config.model, raw, media=config.media) if config.model else None
    of_model = metabolism.genes.names if metabolism else ()
    read = functools.cache(lambda name, otherwise: read_names(name, otherwise, raw)[:2])
    aliases = Vocabulary()
    if config.aliases:
        aliases, origin["aliases"] = read(config.aliases, read_aliases)
    known = {*aliases, *of_model}  # these names stand for themselves
    if config.genes in GENE_SETS:
        known |= {*read(config.genes, read_gene_list)[0]}
    itself = Vocabulary.of(known)
    networks = {name: read_network(name, of, aliases, itself, raw) for name, of in config.tables().items()}
    if config.genes == UNION:
        genes = _united(of_model, networks)
    elif config.genes == MODEL:
        genes = Vocabulary(of_model)
    else:
        if config.genes not in GENE_SETS and not PublishedFile(config.genes).is_here(raw):
            expected = f"union, model, {', '.join(GENE_SETS)}, or the path of a list with one name per line"
            raise ConfigError("`cell.genes` is neither a choice nor a file", got=config.genes, expected=expected)
        genes, origin["genes"] = read(config.genes, read_gene_list)
    if config.more_genes:
        name, _, column = config.more_genes.rpartition(":")
        path = find_raw(name or column, raw)
        origin["more_genes"] = {"path": config.more_genes, "sha256": sha256_file(path)}
        genes = Vocabulary.of({*genes.names, *(read_column(path, column) if name else read_gene_list(path))})
    vocabularies, parts = {GENE: genes}, list[tuple[Relation, Edges]]()
    more: dict[str, Any] = {}
    if metabolism is not None:
        of_metabolism, parts, counts = _of_metabolism(config, metabolism, genes)
        vocabularies |= of_metabolism
        origin["model"] = metabolism.provenance | counts
        more = {"media": metabolism.media, "titles": metabolism.titles}
    for name, network in networks.items():
        how = {"symmetrise": config.symmetrise, "self_loops": config.self_loops}
        edges, origin["networks"][name] = network_edges(network, genes, f"cell.networks.{name}", **how)
        parts += [(gene_relation(of), ends) for of, ends in edges.items()]
    if config.similarity is not None:
        for name, ends, of_file in similar_relations(config.similarity, dict(parts), genes, aliases, raw):
            parts.append((gene_relation(name), ends))
            if of_file:
                origin.setdefault("similarity", {})[name] = of_file
    vocabularies[GENE], names = add_names(genes, [aliases, *([metabolism.aliases] if metabolism else [])], raw)
    if names:
        origin["names"] = names
    relations = dict(parts)
    if len(relations) < len(parts):
        twice = listing(relation[1] for relation, number in Counter(of for of, _ in parts).items() if number > 1)
        do = "rename a network; its channels are called `network_channel`, and `derived` and `similarity` make others"
        raise GraphError("relations share a name", got=twice, do=do)
    return _assemble(vocabularies, relations, config.lose_blocked, provenance=origin, **more)


def _united(of_model: tuple[str, ...], networks: Mapping[str, Network]) -> Vocabulary:
    """Return the genes of the model and of networks, and warn of a network that shares hardly any with the others."""
    parts = {"": of_model, **{name: network.names for name, network in networks.items()}}
    for name in networks:
        others = Vocabulary.of(gene for other, names in parts.items() if other != name for gene in names)
        warn_of_strangers(f"network '{name}'", parts[name], others, f"cell.networks.{name}.strip_prefix")
    ambiguous = {name for network in networks.values() for name in network.ambiguous}
    return Vocabulary.of({name for network in networks.values() for name in network.names} - ambiguous | {*of_model})


def _of_metabolism(
    config: CellConfig, metabolism: Metabolism, genes: Vocabulary
) -> tuple[dict[str, Vocabulary], list[tuple[Relation, Edges]], dict[str, Any]]:
    index = genes.indices(metabolism.genes.names)
    unknown = [name for name, i in zip(metabolism.genes.names, index, strict=True) if i < 0]
    if config.unknown == REFUSE:
        where = f"metabolic model '{metabolism.name}'"
        refuse_names(unknown, len(metabolism.genes), genes, where=where, key="cell.unknown")
    gene, reaction = metabolism.catalyses
    catalyses = Edges(index[gene], reaction)
    inside = catalyses.select(catalyses.src >= 0)
    nodes, relations = {}, {}
    if config.metabolism:
        nodes = {REACTION: metabolism.reactions, METABOLITE: metabolism.metabolites}
        converts = Edges(metabolism.converts[0], metabolism.converts[1], metabolism.stoichiometry)
        relations = {CATALYSES: inside, CATALYSED_BY: inside.reversed()}
        relations |= {CONVERTS: converts, CONVERTED_BY: converts.reversed()}
    parts = [*relations.items()]
    for name in config.derived:
        src, dst = index[derived_edges(name, metabolism)]
        if not len(src):
            got = f"metabolic model '{metabolism.name}' with {len(metabolism.genes):,} genes"
            raise GraphError(f"derived relation '{name}' has no edges", got=got, do=f"take '{name}' out of `derived`")
        parts.append((gene_relation(name), Edges(src, dst).select((src >= 0) & (dst >= 0))))
    return nodes, parts, {"unknown": unknown, "edges_dropped": len(catalyses) - len(inside)}


def _assemble(
    vocabularies: dict[str, Vocabulary], relations: dict[Relation, Edges], lose_blocked: bool, **more: Any
) -> CellGraph:
    """Make a cell graph whose reactions depend on genes.

    A reaction node stands for one enzyme complex (one AND-term of the rule) in one direction, so it is lost if any of
    its genes is. Strains may also lose the reactions that carry no flux then.
    """
    rules: list[Rule] = [CATALYSES] if CATALYSES in relations else []
    if lose_blocked:
        rules.append(_blocked)
    return CellGraph.assemble(vocabularies, relations, derive=rules, lose_blocked=lose_blocked, **more)


def _blocked(cell: CellGraph) -> Derivation:
    from dglcell.graph.resident import SteadyState  # here, so that a cell graph is read without torch

    return SteadyState.of(cell)


_META, _EDGES = "cell.json", "edges.npz"


def _different(names: list[str]) -> list[str]:
    if len({*names}) < len(names):
        raise ValueError("a name occurs twice")
    return names


_FIELDS = {
    "sha256": Sha256,
    "relations": list[Annotated[list[str], Field(min_length=3, max_length=3)]],
    "vocabularies": dict[str, Annotated[list[str], AfterValidator(_different)]],
    "provenance": dict[str, Any],
    "lose_blocked": bool,
    "other_names": dict[str, list[str]],
    "standard_names": dict[str, str],
    "titles": dict[str, dict[str, str]],
    "media": dict[str, dict[str, Annotated[float, Field(ge=0, le=1)]]],
}


def save_cell(cell: CellGraph, directory: Path, *, overwrite: bool = False) -> None:
    """Write ``cell.json`` (names, provenance, hash) and ``edges.npz``; the directory appears whole or not at all."""
    arrays: dict[str, NDArray[Any]] = {}
    for i, edges in enumerate(cell.content.values()):
        arrays |= {f"{i}_src": edges.src, f"{i}_dst": edges.dst}
        if edges.weight is not None:
            arrays[f"{i}_weight"] = edges.weight
    genes = cell.vocabularies.get(GENE, Vocabulary())
    meta = {
        "schema_version": SCHEMA_VERSION,
        "sha256": cell.sha256,
        "relations": [list(relation) for relation in cell.relations],
        "vocabularies": {node_type: list(v.names) for node_type, v in sorted(cell.vocabularies.items())},
        "provenance": cell.provenance,
        "lose_blocked": cell.lose_blocked,
        **({"media": cell.media} if cell.media else {}),
        **({"titles": cell.titles} if cell.titles else {}),
        "other_names": {alias: list(names) for alias, names in genes.aliases.items()},
        "standard_names": dict(genes.shown),
    }
    with atomic_directory(Path(directory), overwrite=overwrite) as partial:
        np.savez_compressed(partial / _EDGES, allow_pickle=False, **arrays)
        (partial / _META).write_text(json.dumps(meta, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_cell(directory: Path) -> CellGraph:
    """Read what `save_cell` wrote, and check it against its hash.

    Raises:
        GraphError: files are missing, damaged, of another schema version, or do not match the hash.
    """
    directory, file = Path(directory), _META
    meta = _read_meta(directory)
    try:
        check_fields(meta, _FIELDS)
        vocabularies = {node_type: Vocabulary(tuple(names)) for node_type, names in meta["vocabularies"].items()}
        if GENE in vocabularies:
            other = {alias: tuple(genes) for alias, genes in meta["other_names"].items()}
            vocabularies[GENE] = Vocabulary(vocabularies[GENE].names, other, meta["standard_names"])
        file = _EDGES
        arrays, relations = read_npz(directory / _EDGES), dict[Relation, Edges]()
        for i, (source, name, destination) in enumerate(meta["relations"]):
            src, dst = (arrays[f"{i}_{end}"].astype(np.int64) for end in ("src", "dst"))
            weight = arrays.get(f"{i}_weight")
            edges = Edges(src, dst, None if weight is None else weight.astype(np.float32))
            relations[source, name, destination] = edges
        more = {name: meta[name] for name in ("lose_blocked", "provenance", "media", "titles")}
        cell = _assemble(vocabularies, relations, **more)
    except (UnreadableError, LookupError, TypeError, ValueError, GraphError) as error:
        expected = getattr(error, "expected", None) or "whole arrays for every relation"
        raise _damaged(directory, f"{file}: {error}", expected) from error
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
    return {"lose_blocked": False, "other_names": {}, "standard_names": {}, "titles": {}, "media": {}, **meta}


# Cell graphs in words: node and edge counts, degrees, densities, and which genes nothing touches.


WIDTH = 100


def describe(cell: CellGraph) -> str:
    """Return plain text for the terminal, at most `WIDTH` columns wide if relation names are reasonably short.

    For each relation it lists: edges; nodes that are a source or a target; mean edges per target; the largest in- or
    out-degree and the node that has it (self-loops count as edges); density (edges per possible pair of source and
    target); self-loops. The files follow with their sources, licences and hashes.
    """
    parts = (_node_lines, _relation_lines, _source_lines, _dropped_lines, _untouched_lines)
    texts = ["\n".join(line.rstrip() for line in part(cell)) for part in parts]
    return "\n\n".join([f"Cell graph {cell.sha256[:16]}", *filter(None, texts)]) + "\n"


def _node_lines(cell: CellGraph) -> list[str]:
    notes = {}
    if CATALYSES in cell.relations:
        genes, reactions = (np.count_nonzero(degrees) for degrees in cell.degrees(CATALYSES))
        notes = {"gene": f"{genes:,} in a reaction's rule", "reaction": f"{reactions:,} with genes"}
    rows = [(kind, f"{number:,}", notes.get(kind, "")) for kind, number in cell.num_nodes.items()]
    return aligned([("nodes", "count", ""), *rows], left=(0, 2))


def _relation_lines(cell: CellGraph) -> list[str]:
    headings = ("relations", "edges", "sources", "targets", "mean", "max", "busiest", "density", "loops")
    rows: list[tuple[str, ...]] = [headings]
    for source, target in sorted({relation[::2] for relation in cell.relations}):
        rows.append((f"{source} → {target}",) + ("",) * (len(headings) - 1))
        rows += [_row(cell, relation) for relation in cell.relations if relation[::2] == (source, target)]
    weighted = any(edges.weight is not None for edges in cell.content.values())
    return [*aligned(rows, left=(0, 6)), *(["* edges carry fixed weights"] if weighted else [])]


def _row(cell: CellGraph, relation: Relation) -> tuple[str, ...]:
    source, name, target = relation
    edges, (out, into) = cell.edges(relation), cell.degrees(relation)
    kind, degrees = (target, into) if into.max(initial=0) >= out.max(initial=0) else (source, out)
    degree, touched = int(degrees.max(initial=0)), int(np.count_nonzero(into))
    busiest = cell.vocabularies[kind].names[int(degrees.argmax())] if degree else "-"
    return (
        f"  {name}" + ("*" if edges.weight is not None else ""),
        f"{len(edges):,}",
        f"{np.count_nonzero(out):,}",
        f"{touched:,}",
        f"{len(edges) / max(touched, 1):.1f}",
        f"{degree:,}",
        busiest if len(busiest) <= 16 else f"{busiest[:15]}…",
        f"{len(edges) / max(len(out) * len(into), 1):.3%}",
        f"{int((edges.src == edges.dst).sum()) if source == target else 0:,}",
    )


def _source_lines(cell: CellGraph) -> list[str]:
    origin = cell.provenance
    parts = {name: origin[name] for name in ("model", "genes", "aliases", "names") if name in origin}
    parts |= dict(sorted(origin.get("networks", {}).items()))
    width, lines = max(map(len, parts), default=0), list[str]()
    for name, part in parts.items():
        words = [part.get("source") or part.get("name", ""), PurePath(part.get("path", "")).name]
        hashed = format_hash(part["sha256"], part["trust"], 16)
        text = "; ".join(filter(None, [", ".join(filter(None, words)), part.get("licence", ""), hashed]))
        lines += _wrapped(text, f"  {name:{width}}  ", " " * (width + 4))
    return ["made of", *lines] if lines else []


def _dropped_lines(cell: CellGraph) -> list[str]:
    model = cell.provenance.get("model", {})
    dropped = [("metabolic model", model.get("unknown"), model.get("edges_dropped"))]
    for name, network in sorted(cell.provenance.get("networks", {}).items()):
        names = [*network["names"]["unknown"], *network["names"]["ambiguous"]]
        dropped.append((name, names, sum(counts["dropped"] for counts in network["relations"].values())))
    lines = [f"  {of}: names {len(names):,} ({listing(names, 5)}), rows {n:,}" for of, names, n in dropped if names]
    return ["left out by `unknown: drop`", *lines] if lines else []


def _untouched_lines(cell: CellGraph) -> list[str]:
    touched = np.zeros(len(cell.genes), dtype=bool)
    for (source, _, target), edges in cell.content.items():
        others = edges.select(edges.src != edges.dst) if source == target else edges
        for kind, ends in ((source, others.src), (target, others.dst)):
            if kind == GENE:
                touched[ends] = True
    names = [cell.genes.names[i] for i in np.flatnonzero(~touched)]
    if not names:
        return ["every gene is touched by a relation"]
    head = f"{len(names):,} of {len(cell.genes):,} genes are touched by no relation (self-loops aside)"
    return [head, *_wrapped(listing(names, limit=40))]


def _wrapped(text: str, first: str = "  ", others: str = "  ") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=others, break_on_hyphens=False)

"""Explain predicted changes as tables: what each one is made of, down to the nodes of the cell graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dglcell.data.strains import Strains
from dglcell.data.transform import Normaliser
from dglcell.errors import ConfigError
from dglcell.explanations import NODES
from dglcell.explanations.interactions import Subsets, check_changes, subsets_of
from dglcell.explanations.reactions import Reactions
from dglcell.explanations.shares import Shares, mean_of
from dglcell.explanations.split import Explainer
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.metabolism import model_reaction
from dglcell.graph.schema import GENE, REACTION, Relation
from dglcell.models.model import StrainModel

if TYPE_CHECKING:
    import pandas as pd


OTHERS = "others"
"""In place of a node type or a relation: all nodes or edges that a table leaves out."""

PASS_BYTES, ROW_TENSORS, MOST_STRAINS = 2**31, 16, 256
"""A pass takes about so many bytes, and so many strains at most; a strain keeps so many tensors for each row."""

EDGE_BYTES = 64
"""An edge takes about so many bytes in each layer for each strain."""

MOVED = 1e-6
"""A flux that differs by more than this from the wild type's is in the table, whether or not it has a share."""

FLOOR = 1e-12
"""Smaller shares are rounding, and no table has them."""

NUMBERS = ("strain", "phenotype", "layer", "share")
"""The other columns say what a row of ``nodes`` or ``edges`` is of."""


@dataclass(frozen=True)
class Explanations:
    """Hold why a model predicts that strains differ from the wild type, as tables.

    Shares are in the unit of the phenotype, and negative where they lower it. Those of ``parts`` sum to the ``change``
    in ``strains``, but for the ``rest``, and those of a layer in ``layers`` and in ``nodes`` sum to the part ``graph``.

    Attributes:
        strains: strain, genes, phenotype, predicted, wild_type, change, and the rest that the parts leave. Where
            interactions are explained, ``expected`` is what the predictions for fewer of the same changes add up to,
            and ``change`` is by how much the prediction differs from that.
        parts: strain, phenotype, part, share: what the output depends on directly.
        layers: strain, phenotype, layer, relation, share: through which relations a layer brings in the change; from
            layer 1.
        removed: strain, phenotype, layer, relation, node_type, node, name, share: where deleted genes and lost
            reactions are missing; they send nothing along a relation, or are not read (``readout``).
        nodes: strain, phenotype, layer, node_type, node, name, share: through which nodes the change passes; layer 0
            has the nodes that are missing, and the last layer those that the output is read from.
        balance: strain, phenotype, reaction, name, wild_type, flux, share: the part ``flux balance`` by reactions of
            the metabolic model, with their fluxes; what no reaction has is in a row ``others``. Without rounds of flux
            balance, and with growth media, there are no rows.
        cell: the cell graph.
        subsets: where interactions are explained: strain, phenotype, genes, predicted: the predictions for all subsets
            of the strain's changes, the wild type first and the strain last; else None.
        edges: where edges are asked for: strain, phenotype, layer, relation, source_type, source, source_name,
            target_type, target, target_name, share: along which edges a layer brings in the change. Those of a relation
            in a layer sum to its share in ``layers``; else None.
    """

    strains: pd.DataFrame
    parts: pd.DataFrame
    layers: pd.DataFrame
    removed: pd.DataFrame
    nodes: pd.DataFrame
    balance: pd.DataFrame
    cell: CellGraph = field(repr=False)
    subsets: pd.DataFrame | None = None
    edges: pd.DataFrame | None = None

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """Return the tables by name, those that there are."""
        found = {name: getattr(self, name) for name in (*COLUMNS, "subsets", "edges")}
        return {name: table for name, table in found.items() if table is not None}

    def of(self, table: str, strain: int, phenotype: str) -> pd.DataFrame:
        """Return the rows of a table that are of one strain and phenotype."""
        rows = self.tables[table]
        return rows[(rows["strain"] == strain) & (rows["phenotype"] == phenotype)]

    def of_phenotype(self, phenotype: str) -> Explanations:
        """Return the explanations of one phenotype.

        Raises:
            ConfigError: the model predicts no such phenotype.
        """
        known = self.strains["phenotype"].unique().tolist()
        if phenotype not in known:
            raise ConfigError("the model predicts no such phenotype", got=phenotype, expected=" or ".join(known))
        chosen: dict[str, Any] = {
            name: table[table["phenotype"] == phenotype].reset_index(drop=True) for name, table in self.tables.items()
        }
        return replace(self, **chosen)


class Explained(Protocol):
    """Describe what is needed of a trained model to explain it; ``training.checkpoint.Trained`` has it."""

    @property
    def model(self) -> StrainModel: ...
    @property
    def normaliser(self) -> Normaliser: ...
    @property
    def phenotypes(self) -> tuple[str, ...]: ...
    @property
    def cell(self) -> CellGraph: ...
    @property
    def null_models(self) -> Mapping[str, Any]: ...
    @property
    def chosen(self) -> Mapping[str, Any]: ...


def explain(
    members: Sequence[Explained],
    strains: Strains,
    *,
    interaction: bool = False,
    edges: bool = False,
    nodes: int | None = NODES,
    batch_size: int | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> Explanations:
    """Explain why one or several models predict that strains differ from the wild type.

    Of several models the mean prediction is explained, and shares are means.

    Args:
        members: the models, on the device where this runs.
        strains: the strains, with genes of the cell graph and the conditions that the models see.
        interaction: explain what the changes of a strain do together beyond what fewer of them do, in place of all.
        edges: split what each layer brings in over edges, too.
        nodes: how many nodes of each layer, and edges, the tables have for a strain, largest shares first; all where
            None.
        batch_size: strains per pass; as many as fit into memory where None.
        report: function that gets a line of text now and then.

    Raises:
        ConfigError: a model is of another kind than ``hetero_cell``, or a null model predicts in place of one.
        GenotypeError: an interaction is asked for of a strain that changes too few or too many genes.
    """
    if any(member.null_models for member in members):
        name = next(chosen.name for member in members for chosen in member.chosen.values())
        raise ConfigError(
            "null models pass no messages that could be explained",
            got=f"'{name}', which predicts in place of the model",
            do="explain the model itself, loaded without `predict_with`",
        )
    if interaction:
        check_changes(strains)
    explainers = [Explainer(member.model, member.normaliser, edges) for member in members]
    device = next(members[0].model.parameters()).device
    size = batch_size or min(map(fitting_batch, explainers))
    if interaction:
        size = max(1, size >> strains.max_deletions)
    reactions = Reactions.of(members[0].cell)
    collected = _Collected(members[0].phenotypes, members[0].cell, nodes, interaction, edges, reactions)
    arrays = strains.numpy()
    for first in range(0, len(strains), size):
        last = min(first + size, len(strains))
        batch = arrays.slice(first, last)
        subsets = subsets_of(batch) if interaction else None
        genotypes = (batch if subsets is None else subsets.strains).to(device).perturbations
        found = [[Shares.of(split, one, reactions) for split in one(genotypes)] for one in explainers]
        for phenotype, of_members in zip(collected.phenotypes, zip(*found, strict=True), strict=True):
            collected.take(first, phenotype, mean_of(of_members), subsets)
        if last < len(strains) or first:
            report(f"{last:,} of {len(strains):,} strains are explained")
    return collected.explanations([written(changed) for changed in strains.changes])


def written(changed: Sequence[str] | Mapping[str, float]) -> str:
    """Return a strain as text, e.g. ``b0008;b2464:0.3``."""
    if not isinstance(changed, Mapping):
        return ";".join(changed)
    return ";".join(name if left == 0 else f"{name}:{left:.4g}" for name, left in changed.items())


def fitting_batch(explainer: Explainer) -> int:
    """Return how many strains a pass explains, so that what it keeps for the way back fits into ``PASS_BYTES``."""
    encoder = explainer.model.encoder
    rows = encoder.rows_per_strain + sum(encoder.cell.num_nodes.values())
    size = next(encoder.parameters()).element_size()
    needed = rows * encoder.config.hidden * size * ROW_TENSORS
    if explainer.edges:
        every = sum(encoder.cell[relation].num_edges for relation in encoder.cell.relations)
        needed += every * explainer.num_layers * EDGE_BYTES
    return max(1, min(MOST_STRAINS, PASS_BYTES // needed))


class _Collected:
    """Collect the shares of batches, and make tables of them.

    Args:
        most: how many nodes of each layer are kept for a strain; all where None.
    """

    def __init__(
        self,
        phenotypes: Sequence[str],
        cell: CellGraph,
        most: int | None,
        interaction: bool,
        edges: bool,
        reactions: Reactions,
    ) -> None:
        self.phenotypes, self.cell, self.most = phenotypes, cell, most
        self.interaction, self.edges = interaction, edges
        self.reactions = reactions
        self._columns: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._names = {t: (np.array(v.names, object), _names(t, cell)) for t, v in cell.vocabularies.items()}

    def take(self, first: int, phenotype: str, found: Shares, subsets: Subsets | None) -> None:
        """Take in the shares of a batch whose first strain has a number, or of all subsets of its changes."""

        def add(table: str, strain: NDArray[Any], **columns: Any) -> None:
            self._columns[table].append({"strain": first + strain, "phenotype": phenotype, **columns})

        if subsets is not None:
            genes = np.array([written(changed) for changed in subsets.strains.changes], object)
            add("subsets", subsets.owners, genes=genes, predicted=found.predicted)
            found = found.interactions(subsets)
        every = np.arange(len(found.predicted))
        predictions = {"predicted": found.predicted, "wild_type": found.wild_type, "change": found.change}
        rest = found.change - sum(found.parts.values())
        add("strains", every, expected=found.predicted - found.change, rest=rest, **predictions)
        for part, share in found.parts.items():
            add("parts", every, part=part, share=share)
        for (layer, relation), share in found.layers.items():
            add("layers", every, layer=layer, relation=relation, share=share)
        for (layer, relation, node_type), share in found.removed.items():
            node, strain = np.nonzero(np.abs(share) > FLOOR)
            about = self._node(node_type, node)
            add("removed", strain, layer=layer, relation=relation, share=share[node, strain], **about)
        for table, shares in (("nodes", found.nodes), ("edges", found.edges)):
            for strain, columns in self._largest(table, shares):
                add(table, strain, **columns)
        if found.balance:
            for strain, columns in self._of_balance(found.balance):
                add("balance", strain, **columns)

    def _of_balance(self, found: Mapping[str, NDArray[Any]]) -> Iterator[tuple[NDArray[Any], dict[str, Any]]]:
        """Yield the reactions that have a share of the flux balance, or whose flux changes, and what others have."""
        moved = np.abs(found["flux"] - found["wild_type"]) > MOVED
        reaction, strain = np.nonzero((np.abs(found["share"]) > FLOOR) | moved)
        names, titles = self.reactions.names, self.cell.titles.get(REACTION, {})
        about = {
            "reaction": np.array(names, object)[reaction],
            "name": np.array([titles.get(name, "") for name in names], object)[reaction],
        }
        yield strain, about | {name: found[name][reaction, strain] for name in ("wild_type", "flux", "share")}
        none = np.full(len(found["rest"]), np.nan)
        others = {"reaction": OTHERS, "name": "", "wild_type": none, "flux": none, "share": found["rest"]}
        yield np.arange(len(none)), others

    def _largest(self, table: str, shares: Mapping[Any, NDArray[Any]]) -> Iterator[tuple[NDArray[Any], dict[str, Any]]]:
        """Yield the nodes or edges with the largest shares of each layer, and the sum of the others."""
        for layer in sorted({layer for layer, _ in shares}):
            kinds = [kind for at, kind in shares if at == layer]
            every = np.concatenate([shares[layer, kind] for kind in kinds])
            chosen = np.abs(every) > FLOOR
            if self.most is not None and self.most < len(every):
                order = np.argpartition(-np.abs(every), self.most - 1, axis=0)[: self.most]
                largest = np.zeros(every.shape, bool)
                np.put_along_axis(largest, order, True, axis=0)
                others = np.where(largest, 0, every).sum(0)
                chosen &= largest
                left = np.flatnonzero(np.abs(others) > FLOOR)
                texts = [name for name in (EDGES if table == "edges" else COLUMNS[table]) if name not in NUMBERS]
                blank = {texts[0]: OTHERS, **dict.fromkeys(texts[1:], "")}
                yield left, {"layer": layer, "share": others[left], **blank}
            start = 0
            for kind in kinds:
                share = shares[layer, kind]
                place, strain = np.nonzero(chosen[start : start + len(share)])
                start += len(share)
                about = self._node(kind, place) if table == "nodes" else self._edge(kind, place)
                yield strain, {"layer": layer, "share": share[place, strain], **about}

    def _node(self, node_type: str, node: NDArray[Any]) -> dict[str, Any]:
        """Return the columns that say which nodes rows are of."""
        identifiers, names = self._names[node_type]
        return {"node_type": node_type, "node": identifiers[node], "name": names[node]}

    def _edge(self, relation: Relation, edge: NDArray[Any]) -> dict[str, Any]:
        """Return the columns that say which edges of a relation rows are of."""
        known = self.cell.content[relation]
        about: dict[str, Any] = {"relation": relation[1]}
        for end, node_type, node in (("source", relation[0], known.src), ("target", relation[2], known.dst)):
            of_end = self._node(node_type, node[edge])
            about |= {f"{end}_type": node_type, end: of_end["node"], f"{end}_name": of_end["name"]}
        return about

    def explanations(self, genes: Sequence[str]) -> Explanations:
        """Return the tables, with a text for each strain."""
        tables = {name: self._frame(name, columns) for name, columns in COLUMNS.items()}
        strains = tables["strains"]
        strains.insert(1, "genes", np.array(genes, object)[strains["strain"]] if len(strains) else [])
        subsets = self._frame("subsets", SUBSETS) if self.interaction else None
        edges = self._frame("edges", EDGES) if self.edges else None
        if not self.interaction:
            del strains["expected"]
        return Explanations(**tables, cell=self.cell, subsets=subsets, edges=edges)

    def _frame(self, table: str, columns: Sequence[str]) -> pd.DataFrame:
        """Return a table by strain, phenotype and layer, with large shares first."""
        import pandas as pd

        pieces = self._columns[table]
        lengths = [len(piece["strain"]) for piece in pieces]
        found: dict[str, Any] = {}
        for name in columns:
            parts = [
                value if isinstance(value, np.ndarray) else np.full(length, value, object)
                for value, length in ((piece[name], length) for piece, length in zip(pieces, lengths, strict=True))
            ]
            found[name] = np.concatenate(parts) if parts else []
        frame = pd.DataFrame(found).infer_objects()
        order = [name for name in ("strain", "phenotype", "layer") if name in columns]
        if "share" not in columns:
            return frame.sort_values(order, kind="stable", ignore_index=True)
        frame["size"] = -frame["share"].abs()
        frame = frame.sort_values([*order, "size"], kind="stable", ignore_index=True)
        return frame.drop(columns="size")


COLUMNS = {
    "strains": ("strain", "phenotype", "predicted", "wild_type", "expected", "change", "rest"),
    "parts": ("strain", "phenotype", "part", "share"),
    "layers": ("strain", "phenotype", "layer", "relation", "share"),
    "removed": ("strain", "phenotype", "layer", "relation", "node_type", "node", "name", "share"),
    "nodes": ("strain", "phenotype", "layer", "node_type", "node", "name", "share"),
    "balance": ("strain", "phenotype", "reaction", "name", "wild_type", "flux", "share"),
}
"""These are the columns of the tables."""

SUBSETS = ("strain", "phenotype", "genes", "predicted")
"""These are the columns of the table of subsets."""

ENDS = ("source_type", "source", "source_name", "target_type", "target", "target_name")
EDGES = ("strain", "phenotype", "layer", "relation", *ENDS, "share")
"""These are the columns of the table of edges."""


def _names(node_type: str, cell: CellGraph) -> NDArray[Any]:
    """Return the names to show beside identifiers of nodes: standard names of genes, and titles of others."""
    names, titles = cell.vocabularies[node_type].names, cell.titles.get(node_type, {})
    if node_type == GENE:
        found = [cell.genes.standard(name) for name in names]
    else:
        found = [titles.get(model_reaction(name) if node_type == REACTION else name, "") for name in names]
    return np.array(found, object)

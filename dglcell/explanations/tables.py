"""Explain predicted changes as tables: what each one is made of, down to the nodes of the cell graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dglcell.data.strains import Strains
from dglcell.data.transform import Normaliser
from dglcell.errors import ConfigError
from dglcell.explanations.interactions import Subsets, check_changes, subsets_of
from dglcell.explanations.reactions import Reactions
from dglcell.explanations.split import Explainer, Split
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.schema import GENE
from dglcell.graph.vocabulary import Vocabulary
from dglcell.models.model import StrainModel

if TYPE_CHECKING:
    import pandas as pd


OWN_STATE, LATER, READ, OTHERS = "own state", "later", "readout", "others"
"""In place of a relation: what a node keeps of itself in a layer, what is only lost behind the layer, and that removed
nodes are missing where states are read. In place of a node type: all nodes that a table leaves out."""

NODES = 20
"""So many nodes of each layer are in a table for each strain."""

PASS_BYTES, ROW_TENSORS, MOST_STRAINS = 2**31, 16, 256
"""A pass takes about so many bytes, and so many strains at most; a strain keeps so many tensors for each row."""

MOVED = 1e-6
"""A flux that differs by more than this from the wild type's is in the table, whether or not it has a share."""

FLOOR = 1e-12
"""Smaller shares are rounding, and no table has them."""


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
        balance: strain, phenotype, reaction, wild_type, flux, share: the part ``flux balance`` by reactions of the
            metabolic model, with their fluxes; what no reaction has is in a row ``others``. Without rounds of flux
            balance, and with growth media, there are no rows.
        cell: the cell graph.
        subsets: where interactions are explained: strain, phenotype, genes, predicted: the predictions for all subsets
            of the strain's changes, the wild type first and the strain last; else None.
    """

    strains: pd.DataFrame
    parts: pd.DataFrame
    layers: pd.DataFrame
    removed: pd.DataFrame
    nodes: pd.DataFrame
    balance: pd.DataFrame
    cell: CellGraph = field(repr=False)
    subsets: pd.DataFrame | None = None

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """Return the tables by name."""
        return {name: getattr(self, name) for name in COLUMNS}

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
        tables = self.tables if self.subsets is None else {**self.tables, "subsets": self.subsets}
        chosen: dict[str, Any] = {
            name: table[table["phenotype"] == phenotype].reset_index(drop=True) for name, table in tables.items()
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


@dataclass
class _Shares:
    """Hold shares of one phenotype in a batch of strains, by what they are of; each [B] or, of nodes, [N, B]."""

    wild_type: NDArray[Any]
    predicted: NDArray[Any]
    change: NDArray[Any]
    parts: dict[Any, NDArray[Any]]
    layers: dict[Any, NDArray[Any]]
    removed: dict[Any, NDArray[Any]]
    nodes: dict[Any, NDArray[Any]]
    balance: dict[Any, NDArray[Any]]

    @classmethod
    def of(cls, split: Split, num_layers: int, reactions: Reactions) -> _Shares:
        """Sum up the shares of a split."""
        B = len(split.predicted_B)
        parts = {name: share.cpu().numpy() for name, share in split.parts.items()}
        removed: dict[Any, Any] = defaultdict(float)
        for at, share_NB in split.removed:
            removed[at.layer, READ if at.relation is None else at.relation[1], at.node_type] += share_NB.cpu().numpy()
        states: dict[Any, Any] = {}
        received: dict[Any, Any] = defaultdict(float)
        for rows, share_K in split.rows:
            share, keys = share_K.cpu().numpy(), rows.index
            strains = keys.strains.cpu().numpy() % B  # behind the strains there may be the wild type of each
            if rows.relation is None:
                of_nodes = np.zeros((keys.num_nodes, B))
                np.add.at(of_nodes, (keys.nodes.cpu().numpy(), strains), share)
                states[rows.layer, rows.node_type] = of_nodes
            else:
                received[rows.layer, rows.relation[1]] += np.bincount(strains, share, B)
        nodes, layers = cls._cuts(states, removed, num_layers), cls._layers(states, received, removed, num_layers, B)
        wild_type, predicted, change = (
            one.cpu().numpy() for one in (split.wild_type_B, split.predicted_B, split.change_B)
        )
        return cls(wild_type, predicted, change, parts, layers, dict(removed), nodes, reactions.balance(split))

    def interactions(self, subsets: Subsets) -> _Shares:
        """Return the shares in the interactions of strains, of these shares of all subsets of their changes."""

        def added(by_key: Mapping[Any, NDArray[Any]]) -> dict[Any, NDArray[Any]]:
            return {key: subsets.sums(share) for key, share in by_key.items()}

        return _Shares(
            self.wild_type[subsets.whole],
            self.predicted[subsets.whole],
            subsets.sums(self.change),
            *(added(by_key) for by_key in (self.parts, self.layers, self.removed, self.nodes, self.balance)),
        )

    @staticmethod
    def _cuts(states: Mapping[Any, Any], removed: Mapping[Any, Any], num_layers: int) -> dict[Any, NDArray[Any]]:
        """Return the shares of nodes behind each layer: of their states, and of what is missing later."""
        nodes: dict[Any, Any] = defaultdict(float)
        for (layer, node_type), share in states.items():
            nodes[layer, node_type] += share
        for (layer, _, node_type), share in removed.items():
            for cut in range(min(layer, num_layers + 1)):
                nodes[cut, node_type] += share
        return dict(nodes)

    @staticmethod
    def _layers(
        states: Mapping[Any, Any], received: Mapping[Any, Any], removed: Mapping[Any, Any], num_layers: int, B: int
    ) -> dict[Any, NDArray[Any]]:
        """Return what each layer brings in by relations, keeps of its input, and leaves for later."""
        layers: dict[Any, NDArray[Any]] = {}
        for layer in range(1, num_layers + 1):
            behind = sum((share.sum(0) for (at, _), share in states.items() if at == layer), np.zeros(B))
            mine = {key: share for key, share in received.items() if key[0] == layer}
            layers |= mine
            layers[layer, OWN_STATE] = behind - sum(mine.values(), np.zeros(B))
            layers[layer, LATER] = sum(
                (share.sum(0) for (at, _, _), share in removed.items() if at > layer), np.zeros(B)
            )
        return layers


def explain(
    members: Sequence[Explained],
    strains: Strains,
    *,
    interaction: bool = False,
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
        nodes: how many nodes of each layer the tables have for a strain, largest shares first; all where None.
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
    explainers = [Explainer(member.model, member.normaliser) for member in members]
    device = next(members[0].model.parameters()).device
    size = batch_size or min(map(fitting_batch, explainers))
    if interaction:
        size = max(1, size >> strains.max_deletions)
    reactions = Reactions.of(members[0].cell)
    collected = _Collected(members[0].phenotypes, members[0].cell, nodes, interaction, reactions)
    arrays = strains.numpy()
    for first in range(0, len(strains), size):
        last = min(first + size, len(strains))
        batch = arrays.slice(first, last)
        subsets = subsets_of(batch) if interaction else None
        genotypes = (batch if subsets is None else subsets.strains).to(device).perturbations
        found = [[_Shares.of(split, one.num_layers, reactions) for split in one(genotypes)] for one in explainers]
        for phenotype, of_members in zip(collected.phenotypes, zip(*found, strict=True), strict=True):
            collected.take(first, phenotype, _mean(of_members), subsets)
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
    return max(1, min(MOST_STRAINS, PASS_BYTES // (rows * encoder.config.hidden * size * ROW_TENSORS)))


def _mean(shares: Sequence[_Shares]) -> _Shares:
    """Return the mean of shares of the same strains by several models."""

    def mean(name: str) -> Any:
        of_each = [getattr(one, name) for one in shares]
        if not isinstance(of_each[0], dict):
            return sum(of_each) / len(of_each)
        keys = dict.fromkeys(key for one in of_each for key in one)
        return {key: sum(one.get(key, 0.0) for one in of_each) / len(of_each) for key in keys}

    return _Shares(**{name: mean(name) for name in _Shares.__dataclass_fields__})


class _Collected:
    """Collect the shares of batches, and make tables of them.

    Args:
        phenotypes: names of the phenotypes.
        cell: the cell graph.
        most: how many nodes of each layer are kept for a strain; all where None.
        interaction: whether interactions are explained.
        reactions: the reactions of the metabolic model.
    """

    def __init__(
        self,
        phenotypes: Sequence[str],
        cell: CellGraph,
        most: int | None,
        interaction: bool,
        reactions: Reactions,
    ) -> None:
        self.phenotypes, self.cell, self.most, self.interaction = phenotypes, cell, most, interaction
        self.reactions = reactions
        self._columns: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._names = {t: (np.array(v.names, object), _names(t, v)) for t, v in cell.vocabularies.items()}

    def take(self, first: int, phenotype: str, found: _Shares, subsets: Subsets | None) -> None:
        """Take in the shares of a batch whose first strain has a number, or of all subsets of its changes."""
        if subsets is not None:
            self._add(
                "subsets",
                strain=first + subsets.owners,
                phenotype=phenotype,
                genes=np.array([written(changed) for changed in subsets.strains.changes], object),
                predicted=found.predicted,
            )
            found = found.interactions(subsets)
        strain = first + np.arange(len(found.predicted))
        self._add(
            "strains",
            strain=strain,
            phenotype=phenotype,
            predicted=found.predicted,
            wild_type=found.wild_type,
            expected=found.predicted - found.change,
            change=found.change,
            rest=found.change - sum(found.parts.values()),
        )
        for part, share in found.parts.items():
            self._add("parts", strain=strain, phenotype=phenotype, part=part, share=share)
        for (layer, relation), share in found.layers.items():
            self._add("layers", strain=strain, phenotype=phenotype, layer=layer, relation=relation, share=share)
        for (layer, relation, node_type), share in found.removed.items():
            node, column = np.nonzero(np.abs(share) > FLOOR)
            self._add_nodes("removed", first, phenotype, layer, node_type, node, column, share, relation=relation)
        self._take_largest(first, phenotype, found.nodes)
        if found.balance:
            self._take_balance(strain, phenotype, found.balance)

    def _take_balance(self, strain: NDArray[Any], phenotype: str, found: Mapping[str, NDArray[Any]]) -> None:
        """Take in the reactions that have a share of the flux balance, or whose flux changes."""
        moved = np.abs(found["flux"] - found["wild_type"]) > MOVED
        reaction, column = np.nonzero((np.abs(found["share"]) > FLOOR) | moved)
        values = {name: found[name][reaction, column] for name in ("wild_type", "flux", "share")}
        names = np.array(self.reactions.names, object)[reaction]
        self._add("balance", strain=strain[column], phenotype=phenotype, reaction=names, **values)
        none = np.full(len(strain), np.nan)
        self._add(
            "balance",
            strain=strain,
            phenotype=phenotype,
            reaction=OTHERS,
            wild_type=none,
            flux=none,
            share=found["rest"],
        )

    def _take_largest(self, first: int, phenotype: str, nodes: Mapping[Any, NDArray[Any]]) -> None:
        """Take in the nodes with the largest shares of each layer, and the sum of the others."""
        for layer in sorted({layer for layer, _ in nodes}):
            types = [node_type for at, node_type in nodes if at == layer]
            every = np.concatenate([nodes[layer, node_type] for node_type in types])
            chosen = np.abs(every) > FLOOR
            if self.most is not None and self.most < len(every):
                order = np.argpartition(-np.abs(every), self.most - 1, axis=0)[: self.most]
                largest = np.zeros(every.shape, bool)
                np.put_along_axis(largest, order, True, axis=0)
                others = np.where(largest, 0, every).sum(0)
                chosen &= largest
                left = np.flatnonzero(np.abs(others) > FLOOR)
                self._add(
                    "nodes",
                    strain=first + left,
                    phenotype=phenotype,
                    layer=layer,
                    node_type=OTHERS,
                    node="",
                    name="",
                    share=others[left],
                )
            start = 0
            for node_type in types:
                share = nodes[layer, node_type]
                node, column = np.nonzero(chosen[start : start + len(share)])
                start += len(share)
                self._add_nodes("nodes", first, phenotype, layer, node_type, node, column, share)

    def _add_nodes(
        self,
        table: str,
        first: int,
        phenotype: str,
        layer: int,
        node_type: str,
        node: NDArray[Any],
        column: NDArray[Any],
        share: NDArray[Any],
        **more: Any,
    ) -> None:
        identifiers, names = self._names[node_type]
        self._add(
            table,
            strain=first + column,
            phenotype=phenotype,
            layer=layer,
            **more,
            node_type=node_type,
            node=identifiers[node],
            name=names[node],
            share=share[node, column],
        )

    def _add(self, table: str, **columns: Any) -> None:
        self._columns[table].append(columns)

    def explanations(self, genes: Sequence[str]) -> Explanations:
        """Return the tables, with a text for each strain."""
        tables = {name: self._frame(name, columns) for name, columns in COLUMNS.items()}
        strains = tables["strains"]
        strains.insert(1, "genes", np.array(genes, object)[strains["strain"]] if len(strains) else [])
        if not self.interaction:
            del strains["expected"]
            return Explanations(**tables, cell=self.cell)
        return Explanations(**tables, cell=self.cell, subsets=self._frame("subsets", SUBSETS))

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
    "balance": ("strain", "phenotype", "reaction", "wild_type", "flux", "share"),
}
"""These are the columns of the tables."""

SUBSETS = ("strain", "phenotype", "genes", "predicted")
"""These are the columns of the table of subsets."""


def _names(node_type: str, vocabulary: Vocabulary) -> NDArray[Any]:
    """Return the names to show beside identifiers of nodes: the standard names of genes, and nothing for others."""
    return np.array([vocabulary.standard(name) if node_type == GENE else "" for name in vocabulary.names], object)

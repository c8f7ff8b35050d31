"""Define what a baseline is and is fitted to, and what it knows of strains: covariates, reactions, similar genes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from dglcell.data.columns import COVARIATE
from dglcell.data.strains import Strains
from dglcell.errors import DataError
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.metabolism import model_reaction
from dglcell.graph.networks import SIMILAR, relations_of_sources
from dglcell.graph.resident import SteadyState
from dglcell.graph.schema import CATALYSES, CONVERTS, GENE, METABOLITE, REACTION, gene_relation

FOLDS = 5
"""A fifth of the training part chooses hyperparameters where there is no validation part."""
MOST_STRAINS = 20_000
"""Training strains at most; of more, a sample is taken, which is always the same."""


class Baseline:
    """Predict one phenotype of strains.

    A subclass is a dataclass. Its fields are what `save_models` keeps: numbers, texts, arrays, sparse
    matrices, `Reactions`, other dataclasses and tuples of them, each with its type as the annotation.
    """

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        """Return predictions in the units of the labels, [S]."""
        raise NotImplementedError


@dataclass(frozen=True)
class Problem:
    """Hold one phenotype of the strains of a split."""

    train: Strains
    validation: Strains
    y_train: NDArray[np.float64]  #: [S] labels, NaN where missing; of a problem that is `labelled` none is missing
    y_validation: NDArray[np.floating]  #: [S] labels of the validation strains, NaN where missing
    #: returns how similar all genes are to those of the training part; called if it is needed
    similarity: Callable[[], GeneSimilarity]
    reactions: Reactions | None = None  #: tells which reactions a strain loses; None where the cell graph has none

    @property
    def beyond_deletions(self) -> str | None:
        """Return words for what strains have beyond deleted genes: activities, covariates or both; None if nothing.

        Covariates that a simulator has computed of the strains themselves do not count.
        """
        words = [] if self.train.activities is self.validation.activities is None else ["activities"]
        if self.train.covariates.keys() - {*self.train.computed}:
            words.append("covariates")
        return " and ".join(words) or None

    def of(self, rows: NDArray[np.int64]) -> Problem:
        """Return the problem with some of the training strains."""
        return replace(self, train=self.train.take(rows), y_train=self.y_train[rows])

    def labelled(self) -> Problem:
        """Return the problem without training strains that have no label; that none has one is refused."""
        y = np.asarray(self.y_train, dtype=np.float64)
        rows = np.flatnonzero(~np.isnan(y))
        if len(rows) == 0:
            what = "baselines: no training strain has a label"
            raise DataError(what, got=f"{len(y):,} missing labels", do="choose another phenotype or another split")
        same = replace(self, y_train=y)
        return same if len(rows) == len(y) else same.of(rows)

    def with_validation(self) -> Problem:
        """Return the problem with a validation part: a fold of the training part where nothing is measured there."""
        count = len(self.y_train)
        if count < 2 or not np.isnan(self.y_validation).all():
            return self
        order = np.random.default_rng(0).permutation(count)
        held_out, rest = (np.sort(rows) for rows in np.split(order, [max(1, count // FOLDS)]))
        fold = self.of(held_out)
        return replace(self.of(rest), validation=fold.train, y_validation=fold.y_train)

    def sampled(self, most: int) -> tuple[Problem, str]:
        """Return the problem with at most ``most`` training strains, drawn always alike, and words for that."""
        count = len(self.y_train)
        if count <= most:
            return self, ""
        rows = np.sort(np.random.default_rng(0).permutation(count)[:most])
        return self.of(rows), f"a sample of {most:,} of {count:,} strains"

    def error(self, model: Baseline) -> float:
        """Return the mean squared error on the validation part; NaN where nothing is measured there."""
        measured = ~np.isnan(self.y_validation)
        missed = model.predict(self.validation) - self.y_validation
        return float(np.square(missed[measured]).mean()) if measured.any() else float("nan")


DELETIONS, ANY, MORE, SIMULATED = "deletions", "any", "more", "simulated"


@dataclass(frozen=True)
class Family:
    """Hold baselines of one form, of which the validation part chooses one."""

    #: yields them, fitted to the training part, with different hyperparameters
    fitted: Callable[[Problem], Iterator[Baseline]]
    #: what a problem lacks for them, or why they do not apply; None if they do
    lacks: Callable[[Problem], str | None] = lambda problem: None
    #: ``DELETIONS`` where they know nothing of strains but the deleted genes, ``MORE`` where they say nothing new of
    #: strains that only delete genes, ``SIMULATED`` where they are about a column that a simulator has computed, else
    #: ``ANY``
    about: str = DELETIONS

    def why_not(self, problem: Problem) -> str | None:
        """Say why they do not apply; None if they do."""
        if self.about == DELETIONS and problem.beyond_deletions:
            return f"knows deletions only, and the strains have {problem.beyond_deletions}"
        return self.lacks(problem)


def each(kind: Callable[[float], Any], *values: float) -> Callable[[Problem], Iterator[Baseline]]:
    """Return a function that fits a baseline for each value of its only hyperparameter."""
    return lambda problem: (kind(value).fit(problem.train, problem.y_train) for value in values)


def in_words(name: str, model: Baseline) -> str:
    """Describe a baseline, and what was chosen and learned for it, in a line of text."""
    shown = {part.name.replace("_", " "): getattr(model, part.name) for part in fields(model) if part.repr}  # type: ignore[arg-type]
    known = {key: of for key, of in shown.items() if of != "" and of == of}  # NaN is of what these strains do not have
    said = [of if isinstance(of, str) else f"{key} {of:.4g}" for key, of in known.items()]
    return f"{name} ({', '.join(said)})" if said else name


def refuse_activities(strains: Strains, name: str) -> Strains:
    """Return strains that only delete genes, and refuse others; ``name`` is that of the baseline that asks."""
    if strains.activities is not None:
        do = "leave activities such as `:0.3` out, or predict with the network: `--with network`"
        raise DataError(f"{name}: this baseline cannot express activities", do=do)
    return strains


def adding(owner: NDArray[np.int64], strains: int) -> sparse.csr_array:
    """Return a matrix that adds up what belongs to each strain, [S, P]; ``owner``, [P], says to which it belongs."""
    return _ones(owner, np.arange(len(owner)), (strains, len(owner)))


def _ones(rows: NDArray[Any], columns: NDArray[Any], shape: tuple[int, int]) -> sparse.csr_array:
    """Return a matrix with 1 at every given pair of a row and a column, even if it is given several times."""
    matrix = sparse.csr_array((np.ones(len(rows), np.float32), (rows, columns)), shape=shape)
    matrix.data[:] = 1
    return matrix


MOST_COMPARED = 2**24
"""Most pairs of strains that are compared at a time."""


def blocks(size: int, others: int) -> Iterator[slice]:
    """Yield slices of ``size`` strains that are compared with ``others`` together."""
    rows = max(1, MOST_COMPARED // max(others, 1))
    for start in range(0, size, rows):
        yield slice(start, min(start + rows, size))


@dataclass(frozen=True)
class Covariate:
    """Hold a covariate as the training strains have it."""

    name: str  #: name of the covariate, by which it is found in other tables
    categories: tuple[str, ...]  #: the categories that training strains have; none where values are numbers
    #: [K] the share of training strains in each of the categories; or [1] the mean of the numbers
    mean: NDArray[np.float64]
    scale: float = 1.0  #: standard deviation of the numbers; 1 where they are all the same, and for categories

    @classmethod
    def of(cls, name: str, categories: tuple[str, ...], values: NDArray[np.floating]) -> Self:
        """Return a covariate from its ``values``, [S], of which ``categories`` are the names."""
        if not categories:
            numbers = values.astype(np.float64)
            return cls(name, (), np.array([numbers.mean()]), float(numbers.std()) or 1.0)
        # A category that no training strain has is as unknown as one of another table.
        found, counts = np.unique(values.astype(np.int64), return_counts=True)
        return cls(name, tuple(categories[code] for code in found), counts / len(values))

    def values(self, strains: Strains) -> NDArray[np.float64]:
        """Return indices of categories, or numbers, [S]: NaN where one is unknown, or the strains do not have it."""
        for column, values in strains.columns.items():
            if (column.kind, column.name, bool(column.categories)) == (COVARIATE, self.name, bool(self.categories)):
                if not self.categories:
                    return values.astype(np.float64)
                place = {category: float(code) for code, category in enumerate(self.categories)}
                codes = np.array([*(place.get(category, np.nan) for category in column.categories), np.nan])
                return codes[values.astype(np.int64)]
        return np.full(len(strains), np.nan)

    def columns(self, strains: Strains) -> sparse.csr_array:
        """Return a column for each category, [S, K], or the standardised numbers, [S, 1].

        A strain has 1 in the column of its category, and the training strains' share in each if that is unknown. A
        number that is unknown is 0.
        """
        values = self.values(strains)
        if not self.categories:
            return sparse.csr_array(np.nan_to_num((values - self.mean) / self.scale)[:, None])
        known, unknown = np.flatnonzero(~np.isnan(values)), np.isnan(values).astype(np.float64)
        found = _ones(known, values[known].astype(np.int64), (len(strains), len(self.categories)))
        return found + sparse.csr_array(unknown[:, None]) @ sparse.csr_array(self.mean[None])


@dataclass(frozen=True)
class Covariates:
    """Read the covariates of strains, matched by the names of covariates and of their categories."""

    known: tuple[Covariate, ...]  #: the covariates of the training strains, in the order of their names

    @classmethod
    def of(cls, strains: Strains) -> Self:
        """Return the covariates of the training strains."""
        columns = sorted((item for item in strains.columns.items() if item[0].kind == COVARIATE), key=lambda x: x[0])
        return cls(tuple(Covariate.of(column.name, column.categories, values) for column, values in columns))

    def columns(self, strains: Strains) -> sparse.csr_array:
        """Return the columns of all covariates side by side, [S, K]."""
        none = sparse.csr_array((len(strains), 0))
        return sparse.csr_array(sparse.hstack([none, *(one.columns(strains) for one in self.known)]))

    @property
    def mean(self) -> NDArray[np.float64]:
        """Return the means of these columns over the training strains, [K]."""
        return np.concatenate([one.mean if one.categories else np.zeros(1) for one in self.known])

    def codes(self, strains: Strains) -> NDArray[np.float64]:
        """Return the index of each strain's category, [S, covariates with categories], NaN where it is unknown."""
        found = [one.values(strains) for one in self.known if one.categories]
        return np.array(found).reshape(len(found), len(strains)).T

    def numbers(self, strains: Strains) -> NDArray[np.float64]:
        """Return the standardised numbers, [S, covariates with numbers], 0 where they are unknown."""
        return Covariates(tuple(one for one in self.known if not one.categories)).columns(strains).toarray()


STEPS = 3
MOST_EXACT = 2048
"""Genes up to which profiles are compared in all their entries."""
AXES = 512


@dataclass(frozen=True)
class GeneSimilarity:
    """Hold a kernel between all genes of the cell graph and those that training strains delete."""

    genes: NDArray[np.int64]  #: [G] gene indices of the cell graph, ascending
    #: [N, G] float32, whose rows ``genes`` are positive semidefinite; at most 1, and 0 for a gene that no network knows
    matrix: NDArray[np.float32]


def gene_similarity(cell: CellGraph, genes: NDArray[np.integer]) -> GeneSimilarity:
    """Compare all genes with some by the squared cosines of random-walk profiles, summed over the networks.

    The profile of a gene in one network is where a walk of one to three steps from it ends, each further step being
    taken with probability 0.8. Genes of a metabolic model are linked where they catalyse the same reaction. `similar`
    and what else follows from other relations is no network of its own; sets and vectors of `cell.similarity.sources`
    are. Cosines with more than 2,048 genes are estimated, the same way every time, which takes a tenth of the time.
    """
    columns = np.unique(genes).astype(np.int64)
    total = np.zeros((len(cell.genes), len(columns)), np.float32)
    known = np.zeros(len(cell.genes), np.float32)
    for network in _networks(cell):
        inside = np.flatnonzero(network.sum(axis=1))
        known[inside] += 1
        of_columns = np.flatnonzero(np.isin(columns, inside))
        among = np.searchsorted(inside, columns[of_columns])
        cosines = _cosines(network[inside][:, inside], among, inside, exact=len(columns) <= MOST_EXACT)
        total[np.ix_(inside, of_columns)] += np.square(cosines)
    # A gene that several networks know stays at 1; one that is known to none stays at 0.
    scale = np.sqrt(np.maximum(known, 1))
    return GeneSimilarity(columns, (total / scale[:, None] / scale[columns]).astype(np.float32))


def _networks(cell: CellGraph) -> list[sparse.csr_array]:
    """Return the symmetric [N, N] adjacency, without self-loops, of every network between genes."""
    size, follow = len(cell.genes), {gene_relation(SIMILAR), *relations_of_sources(cell, from_relations=True)}
    between = [r for r in cell.relations if r[0] == r[2] == GENE and r not in follow]
    found = [_ones(cell.edges(relation).src, cell.edges(relation).dst, (size, size)) for relation in between]
    if CATALYSES in cell.relations:
        edges = cell.edges(CATALYSES)
        catalyses = _ones(edges.src, edges.dst, (size, cell.num_nodes[REACTION]))
        found.append(catalyses @ catalyses.T)
    symmetric = [sparse.csr_array(network + network.T) for network in found]
    for network in symmetric:
        network.setdiag(0)
        network.eliminate_zeros()
        network.data[:] = 1
    return symmetric


def _cosines(
    network: sparse.csr_array, columns: NDArray[np.int64], genes: NDArray[np.int64], exact: bool
) -> NDArray[np.float32]:
    """Return cosines of the profiles of all genes of a network and some, [n, G]; ``genes``, [n], are their numbers."""
    degree = network.sum(axis=1).astype(np.float32)
    walk = sparse.csr_array(network / degree[:, None])
    products, squares = np.zeros((len(genes), len(columns)), np.float32), np.zeros(len(genes), np.float32)
    for profile in _profiles(walk, genes, exact):
        products += profile @ profile[columns].T
        squares += np.square(profile).sum(axis=1)
    length = np.sqrt(np.maximum(squares, np.finfo(np.float32).tiny))
    return (products / length[:, None] / length[columns]).astype(np.float32)


def _profiles(walk: sparse.csr_array, genes: NDArray[np.int64], exact: bool) -> Iterator[NDArray[np.float32]]:
    """Yield where walks from all genes end, [N, K], in pieces of columns; or estimated on random axes.

    These keep cosines to about 1/√K (Achlioptas 2003).
    """
    size, by_column = walk.shape[0], walk.tocsc()
    if exact:
        pieces = [by_column[:, start : start + MOST_EXACT] for start in range(0, size, MOST_EXACT)]
    else:
        bits = np.random.default_rng(0).integers(2, size=(genes.max(initial=0) + 1, AXES), dtype=np.int8)[genes]
        pieces = [walk @ (2 * bits - 1).astype(np.float32)]
    for piece in pieces:
        ends = piece.toarray() if exact else piece
        profile = ends.copy()
        for _ in range(STEPS - 1):
            ends = 0.8 * (walk @ ends)
            profile += ends
        yield profile


class Reactions:
    """Find the reactions of a cell graph, and which of them a strain loses.

    A reaction node is one enzyme complex in one direction. A reaction is lost when all its nodes are. Where the cell
    graph says so, reactions that carry no flux once others are lost are lost, too.
    """

    def __init__(self, cell: CellGraph) -> None:
        catalyses, converts = cell.edges(CATALYSES), cell.edges(CONVERTS)
        nodes = cell.num_nodes[REACTION]
        reactions = [model_reaction(node) for node in cell.vocabularies[REACTION].names]
        reaction_of = np.unique(reactions, return_inverse=True)[1]
        self._steady_state = SteadyState.of(cell) if cell.lose_blocked else None
        self._known: dict[bytes, sparse.csr_array] = {}
        self.nodes_of = np.bincount(reaction_of)
        self._needs = _ones(catalyses.src, catalyses.dst, (len(cell.genes), nodes))
        self._belongs = _ones(np.arange(nodes), reaction_of, (nodes, len(self.nodes_of)))
        shape = (len(self.nodes_of), cell.num_nodes[METABOLITE])
        self._metabolites = _ones(reaction_of[converts.src], converts.dst, shape)

    def lost_nodes(self, strains: Strains) -> sparse.csr_array:
        """Return a matrix that is 1 where a strain loses a reaction node, [S, nodes]."""
        lost = self._by_rules(strains)
        if self._steady_state is not None:
            lost = sparse.csr_array(lost + self.of_bounds(strains))
            lost.data[:] = 1
        return lost

    def of_bounds(self, strains: Strains) -> sparse.csr_array:
        """Return a matrix that is 1 where a strain loses what bounds its growth, [S, nodes], as ``MeasuredStrains`` has
        it: all nodes that it loses, or those alone that could carry flux and no longer can.
        """
        lost = self._by_rules(strains)
        if self._steady_state is None:
            return lost
        key = lost.indices.tobytes() + lost.indptr.tobytes()
        if key not in self._known:
            parts = [sparse.csr_array((0, lost.shape[1]), dtype=np.float32)]
            for rows in blocks(*lost.shape):
                lost_NB = torch.from_numpy(lost[rows].toarray().T.astype(bool))
                parts.append(sparse.csr_array(self._steady_state.blocked(lost_NB).numpy().T, dtype=np.float32))
            self._known = dict([*self._known.items()][-3:])  # four sets of strains are remembered
            self._known[key] = sparse.csr_array(sparse.vstack(parts))
        return self._known[key]

    def _by_rules(self, strains: Strains) -> sparse.csr_array:
        strains = refuse_activities(strains, "lost reactions")
        lost = sparse.csr_array(strains.design.astype(np.float32)) @ self._needs
        lost.data[:] = 1
        return sparse.csr_array(lost)

    def lost(self, strains: Strains) -> sparse.csr_array:
        """Return a matrix that is 1 where a strain loses a whole reaction, [S, R]."""
        counts = sparse.csr_array(self.lost_nodes(strains) @ self._belongs)
        counts.data = (counts.data == self.nodes_of[counts.indices]).astype(np.float32)
        counts.eliminate_zeros()
        return counts

    @cached_property
    def neighbourhood(self) -> sparse.csr_array:
        """Return unit vectors of the metabolites of each reaction, [R, M]; rarer metabolites weigh more.

        A metabolite of d reactions has the weight 1/√d, so that what takes part in everything (water, ATP) says little.
        """
        rarity = 1 / np.sqrt(np.maximum(self._metabolites.sum(axis=0), 1))
        weighted = sparse.csr_array(self._metabolites @ sparse.diags_array(rarity))
        length = np.sqrt(np.maximum(weighted.multiply(weighted).sum(axis=1), np.finfo(np.float32).tiny))
        return sparse.csr_array(sparse.diags_array(1 / length) @ weighted).astype(np.float32)

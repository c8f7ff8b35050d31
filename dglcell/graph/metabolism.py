"""Hold metabolism as arrays: genes, one reaction node per enzyme complex × direction, and metabolites."""

from __future__ import annotations

import ast
import functools
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dglcell.checks import Rule
from dglcell.errors import ConfigError, GraphError, did_you_mean, listing
from dglcell.graph.model_files import model_aliases, model_origin, read_model
from dglcell.graph.schema import METABOLITE, REACTION
from dglcell.graph.tables import standardised
from dglcell.graph.vocabulary import Vocabulary

if TYPE_CHECKING:
    from cobra import Model, Reaction
    from cobra.core.gene import GPR
    from scipy.sparse import csr_array


def enzyme_complexes(rule: GPR, *, limit: int = 10_000, where: str = "rule") -> list[frozenset[str]]:
    """Return the enzyme complexes of a gene–protein–reaction rule, each the genes it needs, in a fixed order.

    They are the AND-terms of the rule's disjunctive normal form; the reaction works as long as one complex has all its
    genes. cobra parses the rule, so that nested rules such as ``(A or B) and C`` come out right. A complex that
    contains another one is kept: curators write ``A or (A and B)`` when the enzyme works with and
    without its regulatory subunit B, and dropping the larger form would cut B off from the reaction.
    """

    def expand(node: object) -> set[frozenset[str]]:
        if isinstance(node, ast.Name):
            return {frozenset((node.id,))}
        assert isinstance(node, ast.BoolOp), "cobra refuses all but AND, OR and names"
        terms, *others = map(expand, node.values)
        any_of = isinstance(node.op, ast.Or)
        for other in others:
            if any_of:
                terms |= other
            if (size := len(terms) if any_of else len(terms) * len(other)) > limit:
                what, expected = f"{where}: the gene rule expands to too many enzyme complexes", f"at most {limit:,}"
                do = "simplify the rule in the model file; AND over long OR-lists multiplies their lengths"
                raise GraphError(what, got=f"{size:,} or fewer", expected=expected, do=do)
            if not any_of:
                terms = {left | right for left in terms for right in other}
        return terms

    return sorted(expand(rule.body), key=sorted) if rule.body else []


@dataclass(frozen=True)
class Metabolism:
    """Hold a genome-scale metabolic model as index arrays (no cobra objects).

    A reaction of the model becomes one node per enzyme complex × direction; a reaction without a rule one node per
    direction. ``PFK#2+`` is complex 2 of PFK running forward, ``PFK#2-`` backward, ``O2t+`` has no rule. Directions
    follow the flux bounds: backward if the lower bound is negative, forward if the upper bound is positive. A reaction
    that allows no flux keeps one node, forward, as a place in the network. (yeast-GEM 9.0.2 has 7 of these, counted in
    its 7,122 nodes, and no reaction that only runs backward.)
    """

    genes: Vocabulary  #: all genes of the model
    reactions: Vocabulary  #: reaction nodes
    metabolites: Vocabulary  #: metabolites, each in its compartment
    catalyses: NDArray[np.int64]  #: [2, E] (gene, reaction node)
    converts: NDArray[np.int64]  #: [2, E] (reaction node, metabolite)
    #: [E] float32, one per ``converts`` edge: negative consumed, positive produced, in the direction of the node
    stoichiometry: NDArray[np.float32]
    model_reactions: Vocabulary  #: reactions as the model has them
    model_reaction_of: NDArray[np.int64]  #: [N] index into ``model_reactions`` for each reaction node
    compartments: tuple[str, ...]  #: compartment of each metabolite
    provenance: dict[str, Any]  #: model name, where it came from with sha256, and counts
    aliases: Vocabulary  #: the names that the model has for its genes
    titles: Mapping[str, Mapping[str, str]]  #: node type → reaction of the model, or metabolite → its name in words
    #: medium → reaction node → its activity there, where that differs between media
    media: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return what the user called the model."""
        return str(self.provenance["name"])

    @classmethod
    def read(
        cls, name_or_path: str, raw: str | None = None, *, media: Mapping[str, Mapping[str, float]] | None = None
    ) -> Metabolism:
        """Read a model by name or path; see `dglcell.graph.model_files.read_model`.

        A process parses a file once, as long as its content stays the same. The wild type takes up all that any of the
        growth media offers, and a medium weakens or removes reaction nodes of uptake.
        """
        origin = model_origin(name_or_path, raw)
        made = _read(name_or_path, raw, json.dumps(media or {}), origin["sha256"])
        return replace(made, provenance={"name": name_or_path, **origin, **made.provenance})

    @classmethod
    def from_model(cls, model: Model, *, name: str | None = None) -> Metabolism:
        """Convert any cobra model."""
        where = name or model.id or "model"
        for kind in ("reactions", "metabolites", "genes"):
            if not getattr(model, kind):
                expected = "a model with genes, reactions and metabolites"
                do = "check that the file is whole, and that its reactions have gene rules"
                raise GraphError(f"metabolic model '{where}' has no {kind}", expected=expected, do=do)
        genes, metabolites, model_reactions = (
            Vocabulary.of(one.id for one in of) for of in (model.genes, model.metabolites, model.reactions)
        )
        nodes = sorted((node for reaction in model.reactions for node in _nodes(reaction)), key=lambda node: node[0])
        names, reactions, complexes, signs = zip(*nodes, strict=True)
        owners = [reaction.id for reaction in reactions]
        if unclear := sorted({of for name, of in zip(names, owners, strict=True) if model_reaction(name) != of}):
            what = f"metabolic model '{where}': names of reactions end as those of enzyme complexes do"
            raise GraphError(what, got=listing(unclear), do="rename reactions whose names end in '#' and a number")
        catalyses = [(genes.index(gene), i) for i, complex_ in enumerate(complexes) for gene in sorted(complex_)]
        converts = [
            (i, metabolites.index(metabolite.id), sign * coefficient)
            for i, (reaction, sign) in enumerate(zip(reactions, signs, strict=True))
            for metabolite, coefficient in reaction.metabolites.items()
        ]
        sizes = {"genes": len(genes), "reactions": len(model_reactions), "metabolites": len(metabolites)}
        return cls(
            genes=genes,
            reactions=Vocabulary(names),
            metabolites=metabolites,
            catalyses=np.array(catalyses, dtype=np.int64).reshape(-1, 2).T.copy(),
            converts=np.array([edge[:2] for edge in converts], dtype=np.int64).reshape(-1, 2).T.copy(),
            stoichiometry=np.array([edge[2] for edge in converts], dtype=np.float32),
            model_reactions=model_reactions,
            model_reaction_of=model_reactions.indices(owners),
            compartments=tuple(model.metabolites.get_by_id(name).compartment or "" for name in metabolites),
            provenance={"name": where, "id": model.id or "", **sizes},
            aliases=model_aliases(model),
            titles={REACTION: _titles(model.reactions), METABOLITE: _titles(model.metabolites)},
        )


@functools.lru_cache(maxsize=4)
def _read(name_or_path: str, raw: str | None, media: str, sha256: str) -> Metabolism:
    """Parse a model; ``media`` is JSON, and ``sha256`` stands for the content of the file."""
    model, changes = read_model(name_or_path, raw), json.loads(media)
    if not changes:
        return Metabolism.from_model(model, name=name_or_path)
    uptakes = media_uptakes(model, changes, "cell.media")
    for exchange in {exchange for of in uptakes.values() for exchange in of}:
        model.reactions.get_by_id(exchange).lower_bound = -max(of[exchange] for of in uptakes.values())
    made = Metabolism.from_model(model, name=name_or_path)
    return replace(made, media=_activities(uptakes, made.reactions))


def model_reaction(node: str) -> str:
    """Return the model's reaction that a reaction node belongs to: ``PFK`` for ``PFK#2+``, ``O2t`` for ``O2t-``."""
    name = node[:-1]
    reaction, _, number = name.rpartition("#")
    return reaction if reaction and number.isdecimal() else name


def _nodes(reaction: Reaction) -> Iterator[tuple[str, Reaction, frozenset[str], int]]:
    """Yield the name of each node of a reaction, the reaction, the genes of its complex, and the sign of its flux."""
    largest = float(np.finfo(np.float32).max)
    wrong = {m.id: n for m, n in reaction.metabolites.items() if not abs(n) <= largest}
    if wrong or any(math.isnan(bound) for bound in reaction.bounds):
        what = f"reaction '{reaction.id}': its stoichiometry or bounds are no finite numbers"
        got = f"bounds {reaction.bounds}, stoichiometry {wrong}" if wrong else f"bounds {reaction.bounds}"
        raise GraphError(what, got=got, do="mend the reaction in the model file")
    complexes = enzyme_complexes(reaction.gpr, where=f"reaction '{reaction.id}'")
    labelled = [(f"{reaction.id}#{k}", genes) for k, genes in enumerate(complexes, start=1)]
    backward = reaction.lower_bound < 0
    forward = reaction.upper_bound > 0 or not backward
    for label, genes in labelled or [(reaction.id, frozenset[str]())]:
        if forward:
            yield f"{label}+", reaction, genes, 1
        if backward:
            yield f"{label}-", reaction, genes, -1


def _titles(things: Iterable[Any]) -> dict[str, str]:
    found = {one.id: " ".join(str(one.name or "").split()) for one in things}
    return {name: title for name, title in found.items() if title and title != name}


# Growth media, as changes of the model's own medium.


def check_media(key: str, media: Mapping[str, Mapping[str, float]]) -> None:
    """Refuse uptakes that are negative or not finite."""
    for name, changes in media.items():
        for exchange, uptake in changes.items():
            if not 0 <= uptake < math.inf:
                what, expected = f"`{key}.{name}.{exchange}` is no uptake", "the largest in mmol/gDW/h, 0 for none"
                raise ConfigError(what, got=uptake, expected=expected, do="write uptake without a sign")


MediaChanges = Annotated[dict[str, dict[str, float]], Rule(check_media)]
"""A configuration has media so: medium → exchange reaction → its largest uptake, in mmol/gDW/h.

Exchange reactions that a medium does not name are as in the model's own medium, and 0 closes one for uptake.
"""


Uptakes = dict[str, dict[str, float]]
"""Medium → exchange reaction, as the model lists them → largest uptake, in mmol/gDW/h; infinite without a bound."""


def media_uptakes(model: Model, changes: Mapping[str, Mapping[str, float]], key: str) -> Uptakes:
    """Return what any cobra model may take up in media, as the configuration has them at ``key`` (`MediaChanges`).

    An exchange reaction is one that cobra finds to be, and that the model writes as secretion, so that uptake is a
    negative flux.
    """
    check_media(key, changes)
    exchanges = _exchanges(model)
    own = {exchange.id: max(0.0, -exchange.lower_bound) for exchange in exchanges}
    media = {name: {**own, **uptakes} for name, uptakes in changes.items()}
    for name, uptakes in media.items():
        if stray := next((exchange for exchange in uptakes if exchange not in own), None):
            what = f"`{key}.{name}` names no exchange reaction of {model.id or 'the model'}"
            raise ConfigError(what, got=stray, expected=f"among {listing(own)}", do=did_you_mean(stray, own))
        if not any(uptakes.values()):
            raise ConfigError(f"`{key}.{name}` closes every exchange reaction", expected="an uptake above 0")
        for exchange in exchanges:
            if (uptake := uptakes[exchange.id]) < (least := -exchange.upper_bound):
                what = f"`{key}.{name}.{exchange.id}`: the model forces more uptake"
                do = f"raise the uptake, or set the upper bound of {exchange.id} to 0 or more in the model file"
                raise ConfigError(what, got=f"{uptake:g}", expected=f"at least {least:g}", do=do)
    return media


def _exchanges(model: Model) -> list[Reaction]:
    try:
        found, reason = [reaction for reaction in model.exchanges if reaction.reactants], None
    except RuntimeError as error:  # cobra cannot tell which compartment is outside
        found, reason = [], error
    if not found:
        what = "the metabolic model has no exchange reactions, so that there are no media of it"
        raise GraphError(what, got=reason, expected="reactions that secrete a metabolite of the compartment `e`")
    return found


def _activities(media: Uptakes, reactions: Vocabulary) -> dict[str, dict[str, float]]:
    """Return medium → reaction node of uptake → its uptake as a share of the largest one in any of the media.

    Exchange reactions that are the same in all media are left out, and so are those without uptake.
    """
    shares: dict[str, dict[str, float]] = {name: {} for name in media}
    for node in filter(lambda node: node.endswith("-"), reactions):
        exchange = model_reaction(node)
        # cobra writes 1000 where a model has no bound.
        amounts = {name: min(uptakes.get(exchange, 0.0), 1000.0) for name, uptakes in media.items()}
        largest = max(amounts.values())
        if min(amounts.values()) < largest:
            for name, amount in amounts.items():
                shares[name][node] = amount / largest
    return shares


# Gene–gene relations that follow from a metabolic model.


CURRENCY_DEGREE = 50  # with more reactions a metabolite would join over 1,000 pairs, and say little of any

# BiGG identifiers without compartment, then names as other models write them, all in lower case.
_IDENTIFIERS = "h,h2o,o2,co2,pi,ppi,nh4,atp,adp,amp,gtp,gdp,nad,nadh,nadp,nadph,fad,fadh2,coa"
_NAMES = "h+,water,oxygen,carbon dioxide,phosphate,diphosphate,ammonium,ammonia,nad+,nad(+),nadp+,nadp(+),coenzyme a"
CURRENCY_SPECIES = frozenset(f"{_IDENTIFIERS},{_NAMES}".split(","))
"""These metabolites carry protons, water, gases, phosphate, energy and electrons in models of every size."""


def is_currency(metabolism: Metabolism) -> NDArray[np.bool_]:
    """Return which metabolites do not make two reactions neighbours, [N metabolites] bool."""
    degree, titles = _stoichiometric(metabolism).sum(axis=0), metabolism.titles[METABOLITE]
    known = [
        not CURRENCY_SPECIES.isdisjoint((name.removesuffix(f"_{of}").lower(), titles.get(name, name).lower()))
        for name, of in zip(metabolism.metabolites.names, metabolism.compartments, strict=True)
    ]
    return (degree > CURRENCY_DEGREE) | np.array(known, dtype=bool)


def shares_complex(metabolism: Metabolism) -> csr_array:
    """Relate genes that are subunits of one enzyme complex."""
    membership = _incidence(metabolism.catalyses, (len(metabolism.genes), len(metabolism.reactions)))
    return _without_diagonal(membership @ membership.T)


def isoenzyme(metabolism: Metabolism) -> csr_array:
    """Relate genes of different complexes of one reaction that share no complex of that reaction."""
    import pandas as pd

    gene, node = metabolism.catalyses
    rows = pd.DataFrame({"gene": gene, "node": node, "reaction": metabolism.model_reaction_of[node]})
    of_reaction, pair = rows[["gene", "reaction"]].drop_duplicates(), ["gene_x", "gene_y", "reaction"]
    together = rows.merge(rows, on=["node", "reaction"])[pair].drop_duplicates()
    apart = pd.concat([of_reaction.merge(of_reaction, on="reaction")[pair], together, together])
    apart = apart.drop_duplicates(keep=False)
    return _incidence(apart[["gene_x", "gene_y"]].to_numpy().T, (len(metabolism.genes),) * 2)


def metabolic_neighbour(metabolism: Metabolism) -> csr_array:
    """Relate genes of two different reactions that share a metabolite which is not currency."""
    substances = _stoichiometric(metabolism)[:, ~is_currency(metabolism)]
    adjacent = _without_diagonal(substances @ substances.T)
    gene, node = metabolism.catalyses
    edges = np.stack([gene, metabolism.model_reaction_of[node]])
    catalysed = _incidence(edges, (len(metabolism.genes), len(metabolism.model_reactions)))
    return _without_diagonal(catalysed @ adjacent @ catalysed.T)


DERIVED: dict[str, Callable[[Metabolism], csr_array]] = {
    "shares_complex": shares_complex,
    "isoenzyme": isoenzyme,
    "metabolic_neighbour": metabolic_neighbour,
}
"""This maps a derived relation to a function that returns a symmetric matrix [N genes, N genes], which is not zero
where two genes are related."""


def derived_edges(name: str, metabolism: Metabolism) -> NDArray[np.int64]:
    """Return the edges of a relation of `DERIVED`, gene indices [2, E], in both directions and without self-loops."""
    return np.stack(DERIVED[name](metabolism).nonzero()).astype(np.int64)


def _stoichiometric(metabolism: Metabolism) -> csr_array:
    """Return a matrix [N model reactions, N metabolites] that is not zero where a metabolite takes part."""
    node, metabolite = metabolism.converts
    edges = np.stack([metabolism.model_reaction_of[node], metabolite])
    return _incidence(edges, (len(metabolism.model_reactions), len(metabolism.metabolites)))


def _incidence(edges: NDArray[np.int64], shape: tuple[int, int]) -> csr_array:
    from scipy import sparse  # here, so that a configuration is read without it

    matrix = sparse.csr_array((np.ones(edges.shape[1], dtype=np.int64), tuple(edges)), shape=shape)
    matrix.data[:] = 1
    return matrix


def _without_diagonal(matrix: csr_array) -> csr_array:
    matrix.setdiag(0)
    matrix.eliminate_zeros()
    return matrix


# Fixed input features of nodes, from the metabolic model of the wild type.


WILD_TYPE = "wild_type"  # in place of a table of features: what `wild_type_features` computes

Fluxes = dict[str, float]


def wild_type_features(model: Model, node_type: str, names: Sequence[str]) -> NDArray[np.float32]:
    """Return standardised features of nodes, from fluxes of the cell without deletions and from the model.

    The fluxes are those of the fastest growth with the least total flux (Lewis et al. 2010, *Omic data from evolved E.
    coli are consistent with computed optimal growth*). No deletion is computed, so that they say nothing of any strain
    but the wild type.

    Returns:
        The features, [N, F] float32, of named nodes of the type ``reaction`` or ``metabolite``.
    """
    if node_type not in COLUMNS:
        what, do = f"there are no features `{WILD_TYPE}` of the node type '{node_type}'", "give a table in"
        raise GraphError(what, expected=" or ".join(COLUMNS), do=f"{do} `model.features.{node_type}`")
    rows = COLUMNS[node_type](model, wild_type_fluxes(model), names)
    return standardised(np.array(rows, dtype=np.float64)).astype(np.float32)


def wild_type_fluxes(model: Model) -> Fluxes:
    """Return the flux of every reaction of the model at its fastest growth, with the least total flux."""
    from cobra.exceptions import OptimizationError
    from cobra.flux_analysis import pfba

    try:
        fluxes = pfba(model).fluxes.to_dict()
    except OptimizationError as error:
        raise GraphError("the wild type has no fluxes", got=error, expected="a model that grows") from error
    return {name: flux if abs(flux) > 1e-9 else 0.0 for name, flux in fluxes.items()}  # the solver's zero


def _of_reactions(model: Model, fluxes: Fluxes, names: Sequence[str]) -> list[list[float]]:
    # The nodes of a reaction and direction share its flux equally.
    rows, complexes = [], Counter((model_reaction(name), name[-1]) for name in names)
    for name in names:
        reaction, sign = model.reactions.get_by_id(model_reaction(name)), 1 if name[-1] == "+" else -1
        flux, amounts = max(0.0, sign * fluxes[reaction.id]), [sign * n for n in reaction.metabolites.values()]
        reversible = reaction.lower_bound < 0 < reaction.upper_bound
        ends = sum(amount < 0 for amount in amounts), sum(amount > 0 for amount in amounts)
        of_model = complexes[reaction.id, name[-1]], reaction.boundary, reaction.objective_coefficient != 0
        rows.append([sign, flux, math.log1p(flux), flux > 0, reversible, *ends, *of_model])
    return rows


def _of_metabolites(model: Model, fluxes: Fluxes, names: Sequence[str]) -> list[list[float]]:
    goal = [reaction for reaction in model.reactions if reaction.objective_coefficient]
    rows = []
    for name in names:
        metabolite = model.metabolites.get_by_id(name)
        flux = sum(abs(fluxes[r.id] * r.metabolites[metabolite]) for r in metabolite.reactions) / 2
        needed = sum(reaction.metabolites.get(metabolite, 0.0) for reaction in goal)
        rows.append([flux, math.log1p(flux), flux > 0, math.log1p(len(metabolite.reactions)), needed])
    return rows


COLUMNS: dict[str, Callable[[Model, Fluxes, Sequence[str]], list[list[float]]]] = {
    REACTION: _of_reactions,
    METABOLITE: _of_metabolites,
}
"""This maps a node type to a row of numbers for each of its nodes."""

"""Compute the in-silico screen: growth of strains of a metabolic model, and their genetic interactions.

A strain's ``fitness`` is its maximal growth, by flux balance analysis, over that of the wild type in the model's own
medium; 0 where no steady state exists.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np
import swiglpk
from numpy.typing import NDArray

from dglcell.data.columns import MEDIUM, Provenance, columns_of, covariate_columns
from dglcell.data.sources.config import InSilicoConfig
from dglcell.data.sources.fba import FluxProblem
from dglcell.data.sources.growth import CHUNK, WILD_TYPE, Fitness, Growth, KnockoutRules, lethal, snap
from dglcell.data.strains import Strains
from dglcell.data.table import sets_at
from dglcell.errors import ConfigError, DataError, count, listing
from dglcell.files.atomic import sha256_file
from dglcell.graph.metabolism import media_uptakes
from dglcell.graph.model_files import locate_model, read_model

if TYPE_CHECKING:
    from cobra import Model

log = logging.getLogger(__name__)

MAX_STRAINS = 20_000_000
"""Most strains of one kind, because their gene sets and solutions are held in memory."""

Design = list[NDArray[np.int32]]
"""Strains by number of changed genes k: [S, k] alleles, ascending rows, for the wild type (once or never), singles,
pairs and triples. A gene at one of K activities is an allele, numbered K times the gene plus the activity."""

KEY = "data.source.insilico"


def gene_sets(genes: int, size: int, amount: str, rng: np.random.Generator, *, key: str) -> NDArray[np.int32]:
    """Choose all, no, or some random sets of ``size`` genes, [S, size] ascending rows in lexicographic order."""
    total = math.comb(genes, size)
    count = int({"all": total, "none": 0}.get(amount, amount))
    for what, most, of, do in (
        ("more strains than there are", total, f" for {genes:,} genes", f"set `{key}: all`"),
        ("too many strains", MAX_STRAINS, "", f"give a number, e.g. `{key}: 100000`, to sample"),
    ):
        if count > most:
            raise ConfigError(f"`{key}` asks for {what}", got=f"{count:,}", expected=f"at most {most:,}{of}", do=do)
    ranks = np.arange(total) if count == total else rng.choice(total, size=count, replace=False)
    sets = sets_at(ranks, genes, size).astype(np.int32)
    return sets[np.argsort(row_keys(sets, genes))]


def row_keys(sets: NDArray[np.int32], alleles: int) -> NDArray[np.int64]:
    """Return one integer per row of [S, k], in lexicographic order; k is at most 3 for up to two million alleles."""
    keys = np.zeros(len(sets), dtype=np.int64)
    for column in sets.T:
        keys = keys * alleles + column
    return keys


# Genetic interactions from relative fitness.
#
# Multiplicative model: epsilon of Costanzo et al. 2010 (Science 327:425), tau of Kuzmin et al. 2018 (Science
# 360:eaao1729). The same definitions as the laboratory screens.


def digenic(f_ij: Fitness, f_i: Fitness, f_j: Fitness) -> Fitness:
    """Compute epsilon_ij = f_ij − f_i f_j elementwise; arguments and result are [S] each."""
    return f_ij - f_i * f_j


def trigenic(f_ijk: Fitness, singles: Sequence[Fitness], pairs: Sequence[Fitness]) -> Fitness:
    """Compute tau_ijk = f_ijk − f_i f_j f_k − epsilon_ij f_k − epsilon_ik f_j − epsilon_jk f_i, elementwise.

    ``singles`` are f_i, f_j, f_k, and ``pairs`` f_ij, f_ik, f_jk, [S] each.
    """
    f_i, f_j, f_k = singles
    f_ij, f_ik, f_jk = pairs
    explained = digenic(f_ij, f_i, f_j) * f_k + digenic(f_ik, f_i, f_k) * f_j + digenic(f_jk, f_j, f_k) * f_i
    return f_ijk - f_i * f_j * f_k - explained


def load_insilico(config: InSilicoConfig, raw: str | None = None) -> Strains:
    """Compute the screen.

    Singles come first, then pairs, then triples, medium by medium; with media the wild type comes before them.
    ``fitness`` is given for all. A screen of deletions in the model's own medium has ``digenic_interaction`` for pairs
    and ``trigenic_interaction`` for triples. Values within 1e-6 of 0 (and fitness within 1e-6 of the wild type's in
    the same medium) are set to it: that is what a solver tolerance of 1e-9 can tell apart. Strains whose fitness the
    solver does not find are left out, and a warning counts them.
    """
    model = read_model(config.model, raw)
    problem, rules = FluxProblem.of(model, config.tolerance), KnockoutRules.of(model)
    activities = np.array(sorted(config.activities) or [0.0], dtype=np.float32)
    if config.media:
        media_uptakes(model, config.media, f"{KEY}.media")
    design = _draw(config, len(rules.genes))
    own = _grown(rules, problem, config)
    solved, growth_in, parts = Counter[str](), dict[str, float](), list[dict[str, list[Fitness]]]()
    for name, changes in config.media.items() or [(None, {})]:
        exchanges = [model.reactions.index(exchange) for exchange in changes]
        changed = problem.in_medium(name, exchanges, [*changes.values()])
        growth = own if name is None else _grown(rules, changed, config)
        if ((activities > 0) & (activities < 1)).any():
            _limit(growth, model)
        screen = Screen(growth, activities, own.wild_type, design)
        parts.append(screen.phenotypes(interactions=not (config.activities or config.media)))
        solved.update(growth.counts)
        growth_in[str(name)] = growth.wild_type
    strains = _strains(config, rules.genes, design, activities, parts)
    unsolved = np.isnan(strains.phenotypes["fitness"])
    if solved["time_outs"] or solved["failures"]:
        said = "%d linear programs timed out and %d failed; left out, because its fitness is not known: %s"
        log.warning(said, solved["time_outs"], solved["failures"], count(int(unsolved.sum()), "strain"))
    strains = strains.take(np.flatnonzero(~unsolved))
    path = locate_model(config.model, raw)
    parameters = {**asdict(config), "solver": f"GLPK {swiglpk.glp_version()}", "wild_type_growth": own.wild_type}
    provenance = Provenance(
        source="insilico",
        description=f"in-silico screen by flux balance analysis of {model.id or config.model}",
        citation="Orth, Thiele & Palsson 2010, Nat Biotechnol 28:245 (flux balance analysis)",
        licence="computed; the model's own licence applies to the model",
        files={path.name: sha256_file(path)},
        counts={**_counts(strains, config), **solved},
        parameters=parameters | ({"growth_in_media": growth_in} if config.media else {}),
    )
    return strains.with_(provenance=provenance)


def _counts(strains: Strains, config: InSilicoConfig) -> dict[str, int]:
    wild_types, *others = np.bincount(strains.num_deletions, minlength=4).tolist()
    return {
        "strains": len(strains),
        **({"wild_types": wild_types} if config.media else {}),
        **dict(zip(("singles", "pairs", "triples"), others, strict=True)),
        "lethal": int(lethal(strains.phenotypes["fitness"]).sum()),
    }


def _grown(rules: KnockoutRules, problem: FluxProblem, config: InSilicoConfig) -> Growth:
    """Return growth in a medium, in which the wild type has to grow."""
    growth = Growth(rules, problem, processes=config.processes)
    if not growth.wild_type > problem.tolerance:
        what, got = f"flux balance analysis: {problem.wild_type} does not grow", f"objective {growth.wild_type:g}"
        do = "check the model's objective and exchange bounds"
        do += "" if problem.medium is None else ", or leave the medium out"
        raise DataError(what, got=got, expected="a positive growth rate", do=do)
    return growth


def _limit(growth: Growth, model: Model) -> None:
    """Compute what all reactions can carry before any strain is solved, so that strains ask their subsets alike."""
    if unknown := growth.limit(np.ones(len(growth.rules.rules), dtype=bool)):
        where = "" if growth.problem.medium is None else f" in medium '{growth.problem.medium}'"
        shown = listing(model.reactions[j].id for j in unknown)
        log.warning("the solver found no capacity of %s%s: strains that weaken them have no fitness", shown, where)


def _draw(config: InSilicoConfig, genes: int) -> Design:
    rng, activities = np.random.default_rng(config.seed), max(1, len(config.activities))
    wild_type = np.zeros((int(bool(config.media)), 0), dtype=np.int32)
    singles = np.arange(genes * activities if config.singles else 0, dtype=np.int32)[:, None]
    pairs = gene_sets(genes, 2, config.pairs, rng, key=f"{KEY}.pairs")
    triples = gene_sets(genes, 3, config.triples, rng, key=f"{KEY}.triples")
    drawn = (sets * activities + rng.integers(activities, size=sets.shape, dtype=np.int32) for sets in (pairs, triples))
    design = [wild_type, singles, *drawn]
    if (strains := max(1, len(config.media)) * sum(map(len, design[1:]))) > MAX_STRAINS:
        got, expected = f"{strains:,} over all media", f"at most {MAX_STRAINS:,}"
        do = "sample fewer pairs or triples, or list fewer media"
        raise ConfigError(f"`{KEY}` asks for too many strains", got=got, expected=expected, do=do)
    return design


def _strains(
    config: InSilicoConfig,
    genes: tuple[str, ...],
    design: Design,
    activities: NDArray[np.float32],
    parts: list[dict[str, list[Fitness]]],
) -> Strains:
    """Return the strains of a design in every medium, whose phenotypes are in ``parts``."""
    targets, numbers = np.divmod(np.concatenate([sets.ravel() for sets in design] * len(parts)), len(activities))
    sizes = np.repeat([*range(4)], [len(sets) for sets in design])
    offsets = np.concatenate([[0], np.cumsum(np.tile(sizes, len(parts)))]).astype(np.int64)
    phenotypes = {
        name: np.concatenate([values for part in parts for values in part[name]]).astype(np.float32)
        for name in parts[0]
    }
    columns = columns_of(phenotype=phenotypes)
    if config.media:
        columns |= covariate_columns({MEDIUM: np.repeat(list(config.media), len(sizes))})
    left = activities[numbers] if config.activities else None
    return Strains(genes, targets, offsets, columns, dict.fromkeys(phenotypes, ""), activities=left)


class Screen:
    """Compute fitness of strains in one medium, level by level: a strain first asks its subsets of one gene less.

    Args:
        growth: growth of strains in the medium.
        activities: K activities of genes, ascending.
        reference: growth that has fitness 1, that of the wild type in the model's own medium.
        design: strains, which are solved with all their subsets.
    """

    def __init__(self, growth: Growth, activities: NDArray[np.float32], reference: float, design: Design) -> None:
        self._growth, self._activities, self._reference, self._design = growth, activities, reference, design
        self._alleles = len(growth.rules.genes) * len(activities)
        #: for each number of changed genes the ascending keys of strains, [S], and their solutions, [S]
        self._levels = [(np.zeros(1, dtype=np.int64), np.array([WILD_TYPE]))]
        *_, two, three = design
        singles = np.arange(self._alleles, dtype=np.int32)[:, None]
        pairs = np.concatenate([two, *_subsets(three)])
        for kind, listed in (("single", singles), ("double", pairs), ("triple", three)):
            keys, first = np.unique(row_keys(listed, self._alleles), return_index=True)
            solutions = np.zeros(len(keys), dtype=np.int64)
            for start in range(0, len(keys), CHUNK):
                solutions[start : start + CHUNK] = self._numbers(listed[first[start : start + CHUNK]])
            growth.solve(f"for {kind} deletions")
            self._levels.append((keys, solutions))

    def _numbers(self, sets: NDArray[np.int32]) -> NDArray[np.int64]:
        genes, numbers = np.divmod(sets.ravel(), len(self._activities))
        owner = np.repeat(np.arange(len(sets)), sets.shape[1])
        left_SR = self._growth.rules.left(len(sets), owner, genes, self._activities[numbers])
        return self._growth.number(left_SR, np.stack([self._find(part) for part in _subsets(sets)], axis=1))

    def _find(self, sets: NDArray[np.int32]) -> NDArray[np.int64]:
        keys, solutions = self._levels[sets.shape[1]]
        return solutions[np.searchsorted(keys, row_keys(sets, self._alleles))]

    def fitness(self, sets: NDArray[np.int32]) -> Fitness:
        """Return the fitness of strains of the design or of subsets of them, [S]; NaN where the solver found none."""
        growth = self._growth.values[self._find(sets)]
        return snap(growth / self._reference, 0.0, self._growth.wild_type / self._reference)

    def phenotypes(self, *, interactions: bool) -> dict[str, list[Fitness]]:
        """Return phenotype → its values for each part of the design, NaN where there is none."""
        f, (*_, two, three) = self.fitness, self._design
        found = {"fitness": [f(sets) for sets in self._design]}
        none = [np.full(len(sets), np.nan) for sets in self._design]
        if interactions and len(two):
            epsilon = digenic(f(two), f(two[:, :1]), f(two[:, 1:]))
            found["digenic_interaction"] = [*none[:2], snap(epsilon, 0.0), none[3]]
        if interactions and len(three):
            singles, pairs = [f(three[:, [place]]) for place in range(3)], [f(sets) for sets in _subsets(three)]
            tau = trigenic(f(three), singles, pairs[::-1])
            found["trigenic_interaction"] = [*none[:3], snap(tau, 0.0)]
        return found


def _subsets(sets: NDArray[np.int32]) -> list[NDArray[np.int32]]:
    """Return the subsets of one allele less, [S, k - 1] each."""
    return [np.delete(sets, place, axis=1) for place in range(sets.shape[1])]

"""Compute the in-silico screen: growth of strains of a metabolic model, and their genetic interactions.

A strain's ``fitness`` is its maximal growth, by flux balance analysis, over that of the wild type in the model's own
medium; 0 where no steady state exists.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

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
from dglcell.graph.metabolism import Media
from dglcell.graph.model_files import locate_model, read_model

log = logging.getLogger(__name__)

MAX_STRAINS = 20_000_000
"""Most strains of one kind, because their gene sets and solutions are held in memory."""

Design = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]
"""A design lists strains by number of changed genes: singles [S1, 1], pairs [S2, 2] and triples [S3, 3] of alleles. A
gene at an activity is an allele, whose number is K times that of the gene, plus that of the activity."""

KEY = "data.source.insilico"
KINDS = ("wild_types", "singles", "pairs", "triples")


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
    return distinct_rows(sets_at(ranks, genes, size).astype(np.int32), genes)


def row_keys(sets: NDArray[np.int32], alleles: int) -> NDArray[np.int64]:
    """Return one integer per row of [S, k], in lexicographic order; k is at most 3 for up to two million alleles."""
    keys = np.zeros(len(sets), dtype=np.int64)
    for column in sets.T:
        keys = keys * alleles + column
    return keys


def distinct_rows(sets: NDArray[np.int32], alleles: int) -> NDArray[np.int32]:
    """Return rows with ascending alleles, each once, in lexicographic order."""
    ascending = np.sort(sets, axis=1)
    _, first = np.unique(row_keys(ascending, alleles), return_index=True)
    return ascending[first]


# Genetic interactions from relative fitness.
#
# Multiplicative model: epsilon of Costanzo et al. 2010 (Science 327:425), tau of Kuzmin et al. 2018 (Science
# 360:eaao1729). The same definitions as the laboratory screens.


def digenic(f_ij: Fitness, f_i: Fitness, f_j: Fitness) -> Fitness:
    """Compute epsilon_ij = f_ij − f_i f_j elementwise; arguments and result are [S] each."""
    return f_ij - f_i * f_j


def trigenic(
    f_ijk: Fitness, singles: tuple[Fitness, Fitness, Fitness], pairs: tuple[Fitness, Fitness, Fitness]
) -> Fitness:
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
        Media.of(model, config.media, f"{KEY}.media")
    design = _draw(config, len(rules.genes))
    own = _grown(rules, problem, config)
    solved, growth_in, parts = Counter[str](), dict[str, float](), list[dict[str, NDArray[np.float32]]]()
    for name, changes in config.media.items() or [(None, {})]:
        exchanges, uptakes = [model.reactions.index(exchange) for exchange in changes], [*changes.values()]
        growth = own if name is None else _grown(rules, problem.in_medium(name, exchanges, uptakes), config)
        if ((activities > 0) & (activities < 1)).any() and (unknown := growth.limit(range(len(rules.rules)))):
            where = "" if name is None else f" in medium '{name}'"
            shown = listing(model.reactions[j].id for j in unknown)
            log.warning("the solver found no capacity of %s%s: strains that weaken them have no fitness", shown, where)
        screen = Screen(growth, activities, own.wild_type, design)
        is_plain = not (config.activities or config.media)
        parts.append(screen.phenotypes(wild_type=bool(config.media), interactions=is_plain))
        solved.update(growth.counts)
        growth_in[str(name)] = growth.wild_type
    whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    solved_rows = np.flatnonzero(~np.isnan(whole["fitness"]))
    columns = {name: values[solved_rows] for name, values in whole.items()}
    strains = _strains(config, rules.genes, design, activities).take(solved_rows)
    kinds = dict(zip(KINDS, np.bincount(strains.num_deletions, minlength=4).tolist(), strict=True))
    if not config.media:
        del kinds["wild_types"]
    counts = {"strains": len(strains), **kinds, "lethal": int(lethal(columns["fitness"]).sum()), **solved}
    if solved["time_outs"] or solved["failures"]:
        log.warning(
            "%d linear programs timed out and %d failed; left out, because its fitness is not known: %s",
            solved["time_outs"],
            solved["failures"],
            count(len(whole["fitness"]) - len(solved_rows), "strain"),
        )
    provenance = _provenance(config, locate_model(config.model, raw), model.id, own.wild_type, counts)
    if config.media:
        provenance.parameters["growth_in_media"] = growth_in
    columns_of_strains = {**columns_of(phenotype=columns), **strains.columns}
    return replace(strains, columns=columns_of_strains, units=dict.fromkeys(columns, ""), provenance=provenance)


def _grown(rules: KnockoutRules, problem: FluxProblem, config: InSilicoConfig) -> Growth:
    """Return growth in a medium, in which the wild type has to grow."""
    growth = Growth(rules, problem, processes=config.processes)
    if not growth.wild_type > problem.tolerance:
        what, got = f"flux balance analysis: {problem.wild_type} does not grow", f"objective {growth.wild_type:g}"
        do = "check the model's objective and exchange bounds"
        do += "" if problem.medium is None else ", or leave the medium out"
        raise DataError(what, got=got, expected="a positive growth rate", do=do)
    return growth


def _draw(config: InSilicoConfig, genes: int) -> Design:
    rng, activities = np.random.default_rng(config.seed), max(1, len(config.activities))
    singles = np.arange(genes * activities if config.singles else 0, dtype=np.int32)[:, None]
    pairs = gene_sets(genes, 2, config.pairs, rng, key=f"{KEY}.pairs")
    triples = gene_sets(genes, 3, config.triples, rng, key=f"{KEY}.triples")
    pairs, triples = (
        sets * activities + rng.integers(activities, size=sets.shape, dtype=np.int32) for sets in (pairs, triples)
    )
    design = singles, pairs, triples
    if (strains := max(1, len(config.media)) * sum(map(len, design))) > MAX_STRAINS:
        got, expected = f"{strains:,} over all media", f"at most {MAX_STRAINS:,}"
        do = "sample fewer pairs or triples, or list fewer media"
        raise ConfigError(f"`{KEY}` asks for too many strains", got=got, expected=expected, do=do)
    return design


def _strains(
    config: InSilicoConfig, genes: tuple[str, ...], design: Design, activities: NDArray[np.float32]
) -> Strains:
    media = max(1, len(config.media))
    sizes = np.repeat([0, 1, 2, 3], [int(bool(config.media)), *map(len, design)])
    alleles = np.tile(np.concatenate([rows.ravel() for rows in design]), media)
    offsets = np.concatenate([[0], np.cumsum(np.tile(sizes, media))]).astype(np.int64)
    targets, left = np.divmod(alleles, len(activities))
    columns = covariate_columns({MEDIUM: np.repeat(list(config.media), len(sizes))} if config.media else {})
    return Strains(genes, targets, offsets, columns, activities=activities[left] if config.activities else None)


def _provenance(
    config: InSilicoConfig, path: Path, model: str | None, wild_type_growth: float, counts: dict[str, int]
) -> Provenance:
    return Provenance(
        source="insilico",
        description=f"in-silico screen by flux balance analysis of {model or config.model}",
        citation="Orth, Thiele & Palsson 2010, Nat Biotechnol 28:245 (flux balance analysis)",
        licence="computed; the model's own licence applies to the model",
        files={path.name: sha256_file(path)},
        counts=counts,
        parameters={**asdict(config), "solver": f"GLPK {swiglpk.glp_version()}", "wild_type_growth": wild_type_growth},
    )


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
        #: for each number of changed genes k the strains [S, k], as `distinct_rows` gives them, and their solutions [S]
        self._levels = [(np.zeros((1, 0), dtype=np.int32), np.array([WILD_TYPE]))]
        _, two, three = design
        triples = distinct_rows(three, self._alleles)
        subsets = [np.delete(triples, left_out, axis=1) for left_out in range(3)]
        singles = np.arange(self._alleles, dtype=np.int32)[:, None]
        pairs = distinct_rows(np.concatenate([two, *subsets]), self._alleles)
        for kind, sets in (("single", singles), ("double", pairs), ("triple", triples)):
            self._levels.append((sets, self._growth.solve(self._parts(sets), f"for {kind} deletions")))

    def _parts(self, sets: NDArray[np.int32]) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int64]]]:
        """Yield what is left of the rules of strains, and the solutions of their subsets of one gene less."""
        for start in range(0, len(sets), CHUNK):
            part = sets[start : start + CHUNK]
            size = part.shape[1]
            genes, numbers = np.divmod(part.ravel(), len(self._activities))
            owner = np.repeat(np.arange(len(part)), size)
            parents = [self._find(np.delete(part, left_out, axis=1)) for left_out in range(size)]
            left_SR = self._growth.rules.left(len(part), owner, genes, self._activities[numbers])
            yield left_SR, np.stack(parents, axis=1)

    def _find(self, sets: NDArray[np.int32]) -> NDArray[np.int64]:
        known, solutions = self._levels[sets.shape[1]]
        return solutions[np.searchsorted(row_keys(known, self._alleles), row_keys(sets, self._alleles))]

    def _fitness(self, sets: NDArray[np.int32]) -> Fitness:
        growth = self._growth.values[self._find(np.sort(sets, axis=1))]
        return snap(growth / self._reference, 0.0, self._growth.wild_type / self._reference)

    def phenotypes(self, *, wild_type: bool, interactions: bool) -> dict[str, NDArray[np.float32]]:
        """Return columns over singles, pairs and triples; the wild type may come first. Interactions may be NaN."""
        levels = (np.zeros((int(wild_type), 0), dtype=np.int32), *self._design)
        columns = {"fitness": [self._fitness(sets) for sets in levels]}
        missing = [np.full(len(sets), np.nan) for sets in levels]
        _, _, two, three = levels

        def f(sets: NDArray[np.int32], *places: int) -> Fitness:
            return self._fitness(sets[:, places])

        if interactions and len(two):
            epsilon = digenic(f(two, 0, 1), f(two, 0), f(two, 1))
            columns["digenic_interaction"] = [*missing[:2], snap(epsilon, 0.0), missing[3]]
        if interactions and len(three):
            singles = f(three, 0), f(three, 1), f(three, 2)
            tau = trigenic(f(three, 0, 1, 2), singles, (f(three, 0, 1), f(three, 0, 2), f(three, 1, 2)))
            columns["trigenic_interaction"] = [*missing[:3], snap(tau, 0.0)]
        return {name: np.concatenate(parts).astype(np.float32) for name, parts in columns.items()}

"""Compute the in-silico screen: growth of strains of a metabolic model, and their genetic interactions.

A strain's ``fitness`` is its maximal growth, by flux balance analysis, over that of the wild type in the model's own
medium; 0 where no steady state exists. A gene of activity s leaves an enzyme complex s of its capacity, at most. A
complex is as strong as its weakest gene, and a reaction as strong as its best complex. The flux of a reaction of
activity s is at most s times the largest one that the wild type can need in that medium (`FluxSolver.capacities`), in
each direction. At 0 that is the deletion, and at 1 nothing is bound.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import swiglpk
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dglcell.data.changes import sets_at
from dglcell.data.columns import MEDIUM, Provenance, columns_of, covariate_columns
from dglcell.data.sources.config import InSilicoConfig
from dglcell.data.sources.fba import FluxProblem, FluxSolver
from dglcell.data.sources.growth import Fitness, Growth, KnockoutRules, digenic, distinct_rows, lethal, snap, trigenic
from dglcell.data.strains import Strains
from dglcell.errors import ConfigError, count, listing
from dglcell.files.atomic import sha256_file
from dglcell.graph.metabolism import Media
from dglcell.graph.model_files import locate_model, read_model

if TYPE_CHECKING:
    from cobra import Model

log = logging.getLogger(__name__)


@contextmanager
def progress_bars() -> Iterator[Callable[[str, int], Callable[[], None]]]:
    """Yield ``begin(what, total)``, which returns the function to call after each of ``total`` steps.

    It shows a bar on a terminal, and logs lines elsewhere.
    """
    console, started = Console(stderr=True), time.perf_counter()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    shown = console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=not shown) as bars:

        def begin(what: str, total: int) -> Callable[[], None]:
            if not shown:
                log.info("%s: %s", what, f"{total:,}")
            task = bars.add_task(what, total=total)
            return lambda: bars.advance(task)

        yield begin
    if not shown:
        log.info("done after %.1f s", time.perf_counter() - started)


MAX_STRAINS = 20_000_000
"""Most strains of one kind, because their gene sets and solutions are held in memory."""

Design = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]
"""A design lists strains by number of changed genes: singles [S1, 1], pairs [S2, 2] and triples [S3, 3] of alleles,
which in a screen of deletions are genes (`KnockoutRules`)."""


def gene_sets(genes: int, size: int, amount: str, rng: np.random.Generator, *, key: str) -> NDArray[np.int32]:
    """Choose all, no, or some random sets of ``size`` genes.

    Args:
        genes: number of genes N.
        size: genes in a set, 1 to 3.
        amount: ``all``, ``none`` or a number, the value of ``key``.
        rng: draws the numbered ones.

    Returns:
        [S, size] ascending rows in lexicographic order.

    Raises:
        ConfigError: more sets than there are, or too many to hold.
    """
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


def subsets(sets: NDArray[np.int32], genes: int) -> NDArray[np.int32]:
    """Return the distinct subsets with one gene less of the rows of [S, k]."""
    size = sets.shape[1]
    smaller = [np.delete(sets, left_out, axis=1) for left_out in range(size)]
    return distinct_rows(np.concatenate(smaller), genes)


KEY = "data.source.insilico"
KINDS = ("wild_types", "singles", "pairs", "triples")


def load_insilico(config: InSilicoConfig, raw: str | None = None) -> Strains:
    """Compute the screen.

    Singles come first, then pairs, then triples, medium by medium; with media the wild type comes before them.
    ``fitness`` is given for all. A screen of deletions in the model's own medium has ``digenic_interaction`` for pairs
    and ``trigenic_interaction`` for triples. Values within 1e-6 of 0 (and fitness within 1e-6 of the wild type's in
    the same medium) are set to it: that is what a solver tolerance of 1e-9 can tell apart. Strains whose fitness the
    solver does not find are left out, and a warning counts them.

    Raises:
        ConfigError: the design or a medium does not fit the model.
        GraphError: the model cannot be read.
        DataError: the wild type does not grow, or the model is not a plain flux balance problem.
    """
    model = read_model(config.model, raw)
    problem = FluxProblem.of(model, tolerance=config.tolerance, time_limit=config.time_limit)
    solved: Counter[str] = Counter()
    growth_in: dict[str, float] = {}
    parts: list[dict[str, NDArray[np.float32]]] = []
    design: Design | None = None
    with progress_bars() as begin:
        own = Growth(KnockoutRules.of(model), problem, processes=config.processes)
        for growth in _in_media(config, model, own, begin):
            screen = Screen(growth, own.wild_type, begin)
            design = design or _draw(config, screen)
            screen.solve(design)
            fitness = {} if _is_plain(config) else {"fitness": screen.fitness(design, wild_type=bool(config.media))}
            parts.append(fitness or screen.phenotypes(design))
            solved.update(growth.counts)
            growth_in[str(growth.problem.medium)] = growth.wild_type
    assert design is not None
    whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    solved_rows = np.flatnonzero(~np.isnan(whole["fitness"]))
    columns = {name: values[solved_rows] for name, values in whole.items()}
    strains = _strains(config, own.rules.genes, design).take(solved_rows)
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


def _is_plain(config: InSilicoConfig) -> bool:
    """Return whether the screen deletes genes in the model's own medium, and does nothing else."""
    return not (config.activities or config.media)


def _in_media(
    config: InSilicoConfig, model: Model, own: Growth, begin: Callable[[str, int], Callable[[], None]]
) -> Iterator[Growth]:
    """Yield growth at the activities of the screen, in each of its media.

    ``own`` is growth of deletion strains in the model's own medium.
    """
    if _is_plain(config):
        yield own
        return
    if config.media:
        Media.of(model, config.media, f"{KEY}.media")
    rules = replace(own.rules, activities=tuple(sorted(config.activities)) or own.rules.activities)
    for name, changes in config.media.items() or [(None, {})]:
        lower = own.problem.lower.copy()
        lower[[model.reactions.index(exchange) for exchange in changes]] = [-uptake for uptake in changes.values()]
        problem = replace(own.problem, lower=lower, medium=name)
        if rules.limiting != own.rules.limiting:
            reactions = np.array(list(chain.from_iterable(rules.reactions)), dtype=np.int64)
            advance = begin("reactions whose capacity is computed", len(reactions))
            capacities = FluxSolver(problem).capacities(reactions, advance)
            if unknown := [model.reactions[j].id for j in np.flatnonzero(np.isnan(capacities).any(axis=0))]:
                where = "" if name is None else f" in medium '{name}'"
                log.warning(
                    "the solver found no capacity of %s%s: strains that weaken them have no fitness",
                    listing(unknown),
                    where,
                )
            problem = problem.limited(capacities, rules.limiting)
        yield Growth(rules, problem, processes=config.processes)


def _strains(config: InSilicoConfig, genes: tuple[str, ...], design: Design) -> Strains:
    media, activities = max(1, len(config.media)), np.array(sorted(config.activities) or [0.0], dtype=np.float32)
    sizes = np.repeat([0, 1, 2, 3], [int(bool(config.media)), *map(len, design)])
    alleles = np.tile(np.concatenate([rows.ravel() for rows in design]), media)
    offsets = np.concatenate([[0], np.cumsum(np.tile(sizes, media))]).astype(np.int64)
    targets, left = np.divmod(alleles, len(activities))
    columns = covariate_columns({MEDIUM: np.repeat(list(config.media), len(sizes))} if config.media else {})
    return Strains(genes, targets, offsets, columns, activities=activities[left] if config.activities else None)


def _provenance(
    config: InSilicoConfig, path: Path, model: str | None, wild_type_growth: float, counts: dict[str, int]
) -> Provenance:
    description = f"in-silico deletion screen by flux balance analysis of {model or config.model}"
    if not _is_plain(config):
        description = (
            f"in-silico screen by flux balance analysis of {model or config.model}: a gene of activity s leaves its "
            "reactions at most s times the largest flux that the wild type can need in the medium, 0 is a deletion; "
            "fitness is growth over that of the wild type in the model's own medium"
        )
    return Provenance(
        source="insilico",
        description=description,
        citation="Orth, Thiele & Palsson 2010, Nat Biotechnol 28:245 (flux balance analysis)",
        licence="computed; the model's own licence applies to the model",
        files={path.name: sha256_file(path)},
        counts=counts,
        parameters={**asdict(config), "solver": f"GLPK {swiglpk.glp_version()}", "wild_type_growth": wild_type_growth},
    )


class Screen:
    """Compute fitness of strains, level by level, and the phenotypes that follow from it.

    Args:
        growth: growth of strains in one medium.
        reference: growth that has fitness 1, that of the wild type in the model's own medium.
        begin: as `progress_bars` has it.
    """

    def __init__(self, growth: Growth, reference: float, begin: Callable[[str, int], Callable[[], None]]) -> None:
        self._growth = growth
        self._reference = reference
        self._begin = begin
        self.genes, self.alleles = len(growth.rules.genes), growth.rules.alleles
        self._add(np.arange(self.alleles, dtype=np.int32)[:, None])

    def _add(self, sets: NDArray[np.int32]) -> None:
        kind = ("single", "double", "triple")[sets.shape[1] - 1]
        self._growth.add(sets, partial(self._begin, f"linear programs for {kind} deletions"))

    def solve(self, design: Design) -> None:
        """Solve the strains of a design and all their subsets."""
        _, two, three = design
        triples = distinct_rows(three, self.alleles)
        self._add(distinct_rows(np.concatenate([two, subsets(triples, self.alleles)]), self.alleles))
        self._add(triples)

    def _fitness(self, sets: NDArray[np.int32]) -> Fitness:
        return snap(self._growth.of(sets) / self._reference, 0.0, self._growth.wild_type / self._reference)

    def fitness(self, design: Design, *, wild_type: bool) -> NDArray[np.float32]:
        """Return fitness over singles, pairs and triples of a solved design, [S]; the wild type may come first."""
        strains = (np.zeros((1, 0), dtype=np.int32), *design) if wild_type else design
        return np.concatenate([self._fitness(sets) for sets in strains]).astype(np.float32)

    def phenotypes(self, design: Design) -> dict[str, NDArray[np.float32]]:
        """Return columns over singles, pairs and triples of a solved design.

        Only strains that have an interaction get a value for it; for others it is NaN.
        """
        one, two, three = design
        f_i, f_j = (self._fitness(two[:, [i]]) for i in range(2))
        g_i, g_j, g_k = (self._fitness(three[:, [i]]) for i in range(3))
        g_ij, g_ik, g_jk = (self._fitness(three[:, pair]) for pair in ([0, 1], [0, 2], [1, 2]))
        f_ij, g_ijk = self._fitness(two), self._fitness(three)
        nothing = [np.full(len(rows), np.nan) for rows in (one, two, three)]
        columns = {"fitness": [self._fitness(one), f_ij, g_ijk]}
        if len(two):
            columns["digenic_interaction"] = [nothing[0], snap(digenic(f_ij, f_i, f_j), 0.0), nothing[2]]
        if len(three):
            tau = snap(trigenic(g_ijk, (g_i, g_j, g_k), (g_ij, g_ik, g_jk)), 0.0)
            columns["trigenic_interaction"] = [nothing[0], nothing[1], tau]
        return {name: np.concatenate(parts).astype(np.float32) for name, parts in columns.items()}


def _draw(config: InSilicoConfig, screen: Screen) -> Design:
    rng = np.random.default_rng(config.seed)
    genes, activities = screen.genes, max(1, len(config.activities))
    singles = np.arange(screen.alleles if config.singles else 0, dtype=np.int32)[:, None]
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

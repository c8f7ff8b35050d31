"""Compute growth of many strains of a metabolic model exactly, with as few linear programs as possible.

Three facts save nearly all of them:

1. Growth depends only on what is left of the reactions, in which many sets of genes agree.
2. If a subset of the deletions already stops growth, so do all of them. Only the loss of a reaction whose flux the
   model forces may restore it: such strains are solved.
3. If an optimal flux vector of a subset of the deletions needs no more of any reaction than the further deletions
   leave, it is still feasible, hence still optimal (cf. Fast-SL: Pratapa, Balachandran & Raman 2015, Bioinformatics
   31:3299).

All of it holds for weakened genes, too. A gene of activity s leaves an enzyme complex s of its capacity, at most. A
complex is as strong as its weakest gene, and a reaction as strong as its best complex. The flux of a reaction of
activity s is at most s times the largest one that the wild type can need in that medium (`FluxSolver.capacity`), in
each direction. At 0 that is the deletion, and at 1 nothing is bound.
"""

from __future__ import annotations

import ast
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from dglcell.data.columns import COVARIATE, MEDIUM, Column
from dglcell.data.sources.config import FbaConfig, Simulator, Work
from dglcell.data.sources.fba import Bounds, FluxProblem, FluxSolver, Solution, solve_all
from dglcell.data.strains import Strains
from dglcell.errors import DataError, GraphError, count, listing
from dglcell.graph.metabolism import Media
from dglcell.graph.model_files import locate_model, model_aliases, read_model
from dglcell.graph.vocabulary import Vocabulary

if TYPE_CHECKING:
    from cobra import Model

log = logging.getLogger("dglcell")

Item = TypeVar("Item")


def tracked(items: Iterable[Item], what: str, total: int) -> Iterable[Item]:
    """Return items as they come, with a bar on a terminal, and a line of the log elsewhere."""
    console = Console(stderr=True)
    if console.is_terminal:
        return track(items, f"{what}: {total:,}", total, console=console, transient=True)
    log.info("%s: %s", what, f"{total:,}")
    return items


@dataclass(frozen=True)
class KnockoutRules:
    """Hold the R distinct gene–protein–reaction rules of a model, as cobra parses them.

    They are evaluated as they stand, for many strains at once, an operation per AND or OR: nothing has to be expanded
    into enzyme complexes. Reactions that share a rule are lost together.
    """

    genes: tuple[str, ...]  #: N sorted gene names
    rules: tuple[ast.expr, ...]  #: parsed rules
    reactions: tuple[NDArray[np.int64], ...]  #: for each rule the indices of its reactions in the model

    @classmethod
    def of(cls, model: Model) -> KnockoutRules:
        """Read the rules of a model, in the order of its reactions."""
        bodies: dict[str, ast.expr] = {}
        members: dict[str, list[int]] = {}
        for index, reaction in enumerate(model.reactions):
            if (body := reaction.gpr.body) is not None:
                bodies[text := ast.dump(body)] = body
                members.setdefault(text, []).append(index)
        reactions = tuple(np.array(indices, dtype=np.int64) for indices in members.values())
        return cls(tuple(sorted(gene.id for gene in model.genes)), tuple(bodies.values()), reactions)

    def left(
        self, strains: int, owner: NDArray[np.integer], genes: NDArray[np.integer], activities: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Return the activity of the rules of strains, [S, R].

        Args:
            strains: their number S.
            owner, genes, activities: [targets] which strain changes which gene, and what it leaves of it.
        """
        left_NS = np.ones((len(self.genes), strains), np.float32)
        np.minimum.at(left_NS, (genes, owner), activities)
        rows = dict(zip(self.genes, left_NS, strict=True))
        return np.array([_left(rule, rows) for rule in self.rules], np.float32).reshape(-1, strains).T


def _left(rule: ast.expr, rows: dict[str, NDArray[np.float32]]) -> NDArray[np.float32]:
    if isinstance(rule, ast.Name):
        return rows[rule.id]
    if not isinstance(rule, ast.BoolOp):
        raise TypeError(f"unexpected node in a parsed GPR: {ast.dump(rule)}")
    combine = np.minimum if isinstance(rule.op, ast.And) else np.maximum
    return combine.reduce([_left(part, rows) for part in rule.values])


Fitness = NDArray[np.float64]

# Relative growth is known to about this much. In yeast-GEM with a solver tolerance of 1e-9, strains that cannot
# grow still reach 5e-7 of the wild type, because every mass balance may be off by the tolerance.
RESOLUTION = 1e-6


def snap(values: Fitness, *levels: float) -> Fitness:
    """Set values within :data:`RESOLUTION` of one of ``levels`` to that level; NaN stays NaN."""
    snapped = values.copy()
    for level in levels:
        snapped[np.abs(values - level) < RESOLUTION] = level
    return snapped


def lethal(fitness: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Return whether a strain does not grow, [S]: its relative fitness is below :data:`RESOLUTION`."""
    return fitness < RESOLUTION


CHUNK = 8_192  # strains whose rules are evaluated together: bounds the work arrays
WILD_TYPE = 0  # number of its solution

Lost = tuple[bytes, bytes]
"""Rules that a strain does not have whole, as the bytes of their numbers (int32), and their activities (float32)."""


class Growth:
    """Solve growth of strains in one medium, and remember every solution.

    Attributes:
        counts: strains by the way their growth was found (``linear_programs``, ``same_blocked_reactions``,
            ``subset_optimum``), and programs that ended without an answer (``time_outs``, ``failures``).
        values: [C] growth of each solution, in the units of the model's objective (1/h for a biomass reaction); 0 if
            infeasible, NaN without an answer.
    """

    def __init__(self, rules: KnockoutRules, problem: FluxProblem, *, processes: int) -> None:
        self.rules, self.problem, self.counts = rules, problem, Counter(linear_programs=1)
        self._processes, self._solver = processes, FluxSolver(problem)
        self._capacities = np.zeros((2, len(problem.lower)))  # where it is 0 all of a flux is needed
        self._limited: set[int] = set()
        # Reactions of all rules, one rule after the other: each has one at least.
        self._members = np.concatenate([np.zeros(0, dtype=np.int64), *rules.reactions])
        self._starts = np.cumsum([0, *map(len, rules.reactions)], dtype=np.int64)[:-1]
        forced = (problem.lower > 0) | (problem.upper < 0)
        self._forced = np.array([forced[of].any() for of in rules.reactions], dtype=bool)
        self._known: dict[Lost, int] = {(b"", b""): WILD_TYPE}
        self._wild = self._solver.solve(self._bounds((b"", b"")))
        self.values = np.array([self._wild.value])
        self._needs_CR = self._needs(self._wild)[None]

    @property
    def wild_type(self) -> float:
        """Return growth of the wild type."""
        return float(self.values[WILD_TYPE])

    def limit(self, rules: Iterable[int]) -> list[int]:
        """Compute what the reactions of weakened rules can carry, and return those without an answer.

        Strains that weaken such a reaction have no growth.
        """
        reactions = sorted({j for rule in rules for j in self.rules.reactions[rule].tolist()} - self._limited)
        if reactions:
            for j in tracked(reactions, "reactions whose capacity is computed", len(reactions)):
                self._capacities[:, j] = self._solver.capacity(j)
            self._limited.update(reactions)
            self._needs_CR[WILD_TYPE] = self._needs(self._wild)
        return [j for j in reactions if np.isnan(self._capacities[:, j]).any()]

    def solve(self, parts: Iterable[tuple[NDArray[np.float32], NDArray[np.int64]]], what: str) -> NDArray[np.int64]:
        """Return the number of the solution of each strain, [S].

        Args:
            parts: activities of the rules of strains, [S, R], and solutions of strains with a part of their changes,
                [S, K]; a few thousand strains at a time, which bounds the work arrays.
            what: strains whose linear programs these are, for the bar.
        """
        found, lost = [np.zeros(0, dtype=np.int64)], list[Lost]()
        for left_SR, parents_SK in parts:
            found.append(self._inherit(left_SR, parents_SK))
            for row in left_SR[found[-1] < 0]:
                rules = np.flatnonzero(row < 1).astype(np.int32)
                lost.append((rules.tobytes(), row[rules].tobytes()))
        numbers = np.concatenate(found)
        fresh = [one for one in dict.fromkeys(lost) if one not in self._known]
        self.counts["subset_optimum"] += len(numbers) - len(lost)
        self.counts["same_blocked_reactions"] += len(lost) - len(fresh)
        if fresh:
            self._add(fresh, what)
        numbers[numbers < 0] = [self._known[one] for one in lost]
        return numbers

    def _inherit(self, left_SR: NDArray[np.float32], parents_SK: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return a subset's solution that holds for the whole set too, [S], −1 where there is none."""
        found = np.full(len(left_SR), -1, dtype=np.int64)
        dead, freed = lethal(self.values / self.wild_type), (left_SR[:, self._forced] < 1).any(axis=1)
        for parents in parents_SK.T:
            enough = (self._needs_CR[parents] <= left_SR).all(axis=1)
            found = np.where((found < 0) & (enough | (dead[parents] & ~freed)), parents, found)
        return found

    def _add(self, fresh: list[Lost], what: str) -> None:
        values, needs = [], []
        with closing(solve_all(self._solver, [*map(self._bounds, fresh)], processes=self._processes)) as solved:
            for solution in tracked(solved, f"linear programs {what}", len(fresh)):
                values.append(solution.value)
                needs.append(self._needs(solution))
                self.counts["time_outs"] += solution.timed_out
                self.counts["failures"] += bool(np.isnan(solution.value)) and not solution.timed_out
        self.counts["linear_programs"] += len(values)
        self._known.update(zip(fresh, range(len(self.values), len(self.values) + len(fresh)), strict=True))
        self.values = np.concatenate([self.values, values])
        self._needs_CR = np.concatenate([self._needs_CR, needs])

    def _bounds(self, lost: Lost) -> Bounds:
        """Return the bounds of the reactions of lost rules.

        Where a model asks for a flux that is larger than the limit, the flux is that limit.
        """
        members = [self.rules.reactions[rule] for rule in np.frombuffer(lost[0], np.int32)]
        reactions = np.concatenate([np.zeros(0, dtype=np.int64), *members])
        left = np.repeat(np.frombuffer(lost[1], np.float32), np.array([len(of) for of in members], dtype=np.int64))
        limits = np.zeros((2, len(reactions)))  # a deletion's, whatever the capacity
        np.multiply(left, self._capacities[:, reactions], out=limits, where=left > 0)
        lower, upper = (
            np.clip(of[reactions], -limits[0], limits[1]) for of in (self.problem.lower, self.problem.upper)
        )
        return Bounds(reactions, lower, upper)

    def _needs(self, solution: Solution) -> NDArray[np.float32]:
        """Return the least activity of each rule, [R], with which the flux vector is feasible; infinite without one."""
        if solution.fluxes is None:
            return np.full(len(self.rules.rules), np.inf, np.float32)
        # A flux below the solver's own tolerance is zero for it.
        beyond = np.maximum(np.abs(solution.fluxes) - self.problem.tolerance, 0)
        capacities = np.where(solution.fluxes < 0, *self._capacities)
        share = np.divide(beyond, capacities, out=np.ones_like(beyond), where=(beyond < capacities) & (beyond > 0))
        needs = np.where(beyond > 0, np.maximum(share, np.finfo(np.float32).tiny), 0).astype(np.float32)
        return np.maximum.reduceat(needs[self._members], self._starts) if len(self._starts) else needs[:0]


HUNDRED = 100  # what is left of a measured gene counts in hundredths, so that strains share linear programs


class FbaGrowth(Simulator):
    """Compute the growth rate of measured strains, in the units of the model's objective, in their media.

    Genes that the metabolic model lacks change nothing, and more than the wild type has counts as the wild type. Values
    within 1e-6 of 0, or relatively of the wild type, are set to it.
    """

    config: FbaConfig

    def __init__(self, config: FbaConfig) -> None:
        super().__init__(config)
        self._read: tuple[Model, KnockoutRules, FluxProblem] | None = None
        self._in_medium: dict[bytes, Growth] = {}  # by the uptakes: designs come in many batches

    def files(self, raw: str | None) -> list[Path]:
        """Return the file of the metabolic model."""
        return [locate_model(str(self.config.model), raw)]

    def compute(self, strains: Strains, work: Work) -> NDArray[np.float32]:
        """Return the growth of each strain, [S]."""
        model, rules, problem = self._read = self._read or self._model(work.raw)
        uptake_ME, medium_S, exchanges = self._media(strains, model)
        gene_of, growth_S = _genes(rules, model, strains), np.zeros(len(strains), np.float32)
        for medium, uptake_E in enumerate(uptake_ME):
            rows = np.flatnonzero(medium_S == medium)
            if uptake_E.tobytes() not in self._in_medium:
                name = None if len(uptake_ME) == 1 else f"number {medium + 1} of {len(uptake_ME)}"
                if MEDIUM in strains.covariates and self.config.media:
                    name = str(strains.shown(MEDIUM)[rows[0]])
                changed = problem.in_medium(name, exchanges, uptake_E)
                self._in_medium[uptake_E.tobytes()] = Growth(rules, changed, processes=self.config.processes)
            growth_S[rows] = _growth(self._in_medium[uptake_E.tobytes()], strains.take(rows), gene_of)
        return growth_S

    def _model(self, raw: str | None) -> tuple[Model, KnockoutRules, FluxProblem]:
        try:
            model = read_model(str(self.config.model), raw)
        except (DataError, GraphError) as error:
            raise GraphError(
                f"`{self.config.name}` is computed by a metabolic model that cannot be read here\n  {error}",
                expected=f"the model '{self.config.model}' that `data.fba.model` names",
                do="put the file there, or give its folder in DGLCELL_RAW",
            ) from error
        return model, KnockoutRules.of(model), FluxProblem.of(model, self.config.tolerance)

    def _media(self, strains: Strains, model: Model) -> tuple[NDArray[np.float64], NDArray[np.int64], list[int]]:
        """Return [M, E] uptakes in each distinct medium, the medium of each strain [S], and E exchange reactions."""
        config, media = self.config, self.config.media or {}
        based = {name: {**config.base, **of} for name, of in media.items()}
        for section, changes_of in (("", {"base": config.base}), (".media", based), (".uptakes", config.uptakes)):
            if used := {name: of for name, of in changes_of.items() if of}:
                Media.of(model, used, f"data.fba{section}")  # refuses what is no exchange reaction
        names = sorted({exchange for of in (config.base, *media.values(), *config.uptakes.values()) for exchange in of})
        uptake_SE = np.empty((len(strains), len(names)))
        shown = self._shown(strains) if MEDIUM in strains.covariates else np.full(len(strains), "")
        units_of = {covariate: _units(strains, covariate) for covariate in config.uptakes}
        for place, exchange in enumerate(names):
            uptake_SE[:, place] = config.base.get(exchange, -model.reactions.get_by_id(exchange).lower_bound)
            for name, of in media.items():
                if exchange in of:
                    uptake_SE[shown == name, place] = of[exchange]
            for covariate, units in units_of.items():
                uptake_SE[:, place] += config.uptakes[covariate].get(exchange, 0.0) * units
        distinct, medium_S = np.unique(uptake_SE, axis=0, return_inverse=True)
        return distinct, medium_S.reshape(-1), [model.reactions.index(name) for name in names]

    def _shown(self, strains: Strains) -> NDArray[np.str_]:
        media, shown = self.config.media or {}, strains.shown(MEDIUM).astype(str)
        unknown = sorted({*shown.tolist()} - set(media))
        if unknown and media:
            what = f"`{self.config.name}` cannot be computed: a medium of strains is not described"
            do = "describe it in `data.fba.media` or `cell.media`, e.g. `{acetate: {EX_glc__D_e: 0, EX_ac_e: 30}}`"
            raise DataError(what, got=listing(unknown), expected=f"among {listing(media)}", do=do)
        if unknown:
            log.warning("`data.fba.media` describes no media: `%s` is growth in the model's own", self.config.name)
        return shown


def _units(strains: Strains, covariate: str) -> NDArray[np.float64]:
    column, key = Column(COVARIATE, covariate), f"`data.fba.uptakes.{covariate}`"
    if column not in strains.columns:
        got, do = listing(strains.covariates), "name a covariate as `data.source.csv.covariates` does"
        raise DataError(f"{key}: the strains have no such covariate of numbers", got=got or "no covariates", do=do)
    units = np.asarray(strains.columns[column], dtype=np.float64)
    if (units < 0).any():
        raise DataError(f"{key}: a strain has a negative amount", got=float(units.min()))
    return units


def _genes(rules: KnockoutRules, model: Model, strains: Strains) -> NDArray[np.int64]:
    """Return the gene of the model that each name of the strains means, −1 where there is none."""
    vocabulary = Vocabulary(rules.genes).named_by(model_aliases(model))
    found = vocabulary.meant(strains.names)
    changed = np.unique(strains.targets)
    if len(changed):
        known = f"{int((found[changed] >= 0).sum()):,} of {count(len(changed), 'changed gene')}"
        log.info("%s in the metabolic model; others change nothing there", known)
    return found


def _growth(growth: Growth, strains: Strains, gene_of: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the growth of strains of one medium, [S]."""
    if not growth.wild_type > 0:
        return np.zeros(len(strains))

    def parts() -> Iterator[tuple[NDArray[np.float32], NDArray[np.int64]]]:
        for start in range(0, len(strains), CHUNK):
            part = strains.slice(start, min(start + CHUNK, len(strains)))
            left, genes = part.left(), gene_of[part.targets]
            left = np.where(left > 0, np.clip(np.rint(left * HUNDRED), 1, HUNDRED) / HUNDRED, 0).astype(np.float32)
            owner, known = np.repeat(np.arange(len(part)), part.num_deletions), genes >= 0
            left_SR = growth.rules.left(len(part), owner[known], genes[known], left[known])
            yield left_SR, np.full((len(part), 1), WILD_TYPE)

    if strains.activities is not None:
        weakened = [((left_SR > 0) & (left_SR < 1)).any(axis=0) for left_SR, _ in parts()]
        growth.limit(np.flatnonzero(np.any(weakened, axis=0)))
    numbers = growth.solve(parts(), f"of {growth.problem.wild_type}")
    found = growth.values[numbers]
    if unknown := np.unique(numbers[np.isnan(found)]).tolist():
        programs, whose = count(len(unknown), "linear program"), "whose strains have the growth of"
        log.warning("the solver gave no answer to %s, %s %s", programs, whose, growth.problem.wild_type)
    relative = snap(np.where(np.isnan(found), growth.wild_type, found) / growth.wild_type, 0.0, 1.0)
    return growth.wild_type * relative

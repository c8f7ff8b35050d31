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
from collections.abc import Iterable
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
from dglcell.graph.metabolism import media_uptakes
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
    rule_of: NDArray[np.int64]  #: [reactions of the model] index of the rule of each, R where it has none

    @classmethod
    def of(cls, model: Model) -> KnockoutRules:
        """Read the rules of a model, in the order of its reactions."""
        texts = [ast.dump(body) if (body := reaction.gpr.body) else "" for reaction in model.reactions]
        rules = {text: one.gpr.body for text, one in zip(texts, model.reactions, strict=True) if text}
        numbers = {text: number for number, text in enumerate([*rules, ""])}
        genes = tuple(sorted(gene.id for gene in model.genes))
        return cls(genes, tuple(rules.values()), np.array([numbers[text] for text in texts], dtype=np.int64))

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
    assert isinstance(rule, ast.BoolOp), "cobra refuses all but AND, OR and names"
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


class Growth:
    """Solve growth of strains in one medium, and remember every solution.

    `number` looks strains up, a few thousand at a time, and `solve` then solves all that are new.

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
        self._limited = np.zeros(len(problem.lower), dtype=bool)
        forced = rules.rule_of[(problem.lower > 0) | (problem.upper < 0)]
        self._forced = forced[forced < len(rules.rules)]
        whole_R = np.ones(len(rules.rules), np.float32)
        self._numbers = {whole_R.tobytes(): WILD_TYPE}  # activities of the rules → solution, perhaps still to come
        self._wild = self._solver.solve(self._bounds(whole_R))
        self.values = np.array([self._wild.value])
        self._needs_CR = self._needs(self._wild)[None]

    @property
    def wild_type(self) -> float:
        """Return growth of the wild type."""
        return float(self.values[WILD_TYPE])

    def limit(self, weakened_R: NDArray[np.bool_]) -> list[int]:
        """Compute what reactions of weakened rules can carry, where nobody has, and return those without an answer.

        Strains that weaken such a reaction have no growth.
        """
        reactions = np.flatnonzero(np.append(weakened_R, False)[self.rules.rule_of] & ~self._limited).tolist()
        if reactions:
            for j in tracked(reactions, "reactions whose capacity is computed", len(reactions)):
                self._capacities[:, j] = self._solver.capacity(j, -1), self._solver.capacity(j, 1)
            self._limited[reactions] = True
            self._needs_CR[WILD_TYPE] = self._needs(self._wild)
        return [j for j in reactions if np.isnan(self._capacities[:, j]).any()]

    def number(self, left_SR: NDArray[np.float32], parents_SK: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of the solution of each strain, [S]; that of a new one has no value before `solve`.

        Args:
            left_SR: activities of the rules of strains.
            parents_SK: solutions of strains with a part of their changes, which have values; one row if all share them.
        """
        self.limit(np.any((left_SR > 0) & (left_SR < 1), axis=0))
        numbers = np.full(len(left_SR), -1, dtype=np.int64)
        dead, freed = lethal(self.values / self.wild_type), (left_SR[:, self._forced] < 1).any(axis=1)
        for parents in parents_SK.T:
            enough = (self._needs_CR[parents] <= left_SR).all(axis=1)
            numbers = np.where((numbers < 0) & (enough | (dead[parents] & ~freed)), parents, numbers)
        others, known = np.flatnonzero(numbers < 0), len(self._numbers)
        for s in others:
            numbers[s] = self._numbers.setdefault(left_SR[s].tobytes(), len(self._numbers))
        self.counts["subset_optimum"] += len(numbers) - len(others)
        self.counts["same_blocked_reactions"] += len(others) - (len(self._numbers) - known)
        return numbers

    def solve(self, what: str) -> None:
        """Solve what has a number and no value; ``what`` names the strains, for the bar."""
        fresh = [self._bounds(np.frombuffer(left, np.float32)) for left in [*self._numbers][len(self.values) :]]
        if not fresh:
            return
        values, needs = [], []
        with closing(solve_all(self._solver, fresh, processes=self._processes)) as solved:
            for solution in tracked(solved, f"linear programs {what}", len(fresh)):
                values.append(solution.value)
                needs.append(self._needs(solution))
                self.counts["time_outs"] += solution.timed_out
                self.counts["failures"] += bool(np.isnan(solution.value)) and not solution.timed_out
        self.counts["linear_programs"] += len(fresh)
        self.values = np.concatenate([self.values, values])
        self._needs_CR = np.concatenate([self._needs_CR, needs])

    def _bounds(self, left_R: NDArray[np.float32]) -> Bounds:
        """Return the bounds of reactions whose rules are not whole.

        Where a model asks for a flux that is larger than the limit, the flux is that limit.
        """
        left = np.append(left_R, 1.0)[self.rules.rule_of]
        reactions = np.flatnonzero(left < 1)
        limits = np.zeros((2, len(reactions)))  # a deletion's, whatever the capacity
        np.multiply(left[reactions], self._capacities[:, reactions], out=limits, where=left[reactions] > 0)
        lower, upper = (
            np.clip(of[reactions], -limits[0], limits[1]) for of in (self.problem.lower, self.problem.upper)
        )
        return Bounds(reactions, lower, upper)

    def _needs(self, solution: Solution) -> NDArray[np.float32]:
        """Return the least activity of each rule, [R], with which the flux vector is feasible; infinite without one."""
        rules = len(self.rules.rules)
        if solution.fluxes is None:
            return np.full(rules, np.inf, np.float32)
        # A flux below the solver's own tolerance is zero for it.
        beyond = np.maximum(np.abs(solution.fluxes) - self.problem.tolerance, 0)
        capacities = np.where(solution.fluxes < 0, *self._capacities)
        share = np.divide(beyond, capacities, out=np.ones_like(beyond), where=beyond < capacities)
        share = np.where(beyond > 0, np.maximum(share, np.finfo(np.float32).tiny), 0).astype(np.float32)
        needs = np.zeros(rules + 1, np.float32)
        np.maximum.at(needs, self.rules.rule_of, share)
        return needs[:rules]


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
        exchanges, uptake_SE = self._uptakes(strains, model)
        uptake_ME, medium_S = np.unique(uptake_SE, axis=0, return_inverse=True)
        gene_of, growth_S = _genes(rules, model, strains), np.zeros(len(strains), np.float32)
        for number, uptake_E in enumerate(uptake_ME):
            rows = np.flatnonzero(medium_S.reshape(-1) == number)
            if uptake_E.tobytes() not in self._in_medium:
                name = None if len(uptake_ME) == 1 else f"number {number + 1} of {len(uptake_ME)}"
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

    def _uptakes(self, strains: Strains, model: Model) -> tuple[list[int], NDArray[np.float64]]:
        """Return the E exchange reactions that any medium changes, and the largest uptakes of each strain, [S, E]."""
        config, media = self.config, self.config.media or {}
        based = {name: {**config.base, **changes} for name, changes in media.items()}
        for section, changed in (("", {"base": config.base}), (".media", based), (".uptakes", config.uptakes)):
            if used := {name: changes for name, changes in changed.items() if changes}:
                media_uptakes(model, used, f"data.fba{section}")  # refuses what is no exchange reaction
        names = sorted({name for of in (config.base, *media.values(), *config.uptakes.values()) for name in of})
        own = {name: -model.reactions.get_by_id(name).lower_bound for name in names} | config.base
        shown, medium_S = np.unique(self._shown(strains), return_inverse=True)
        of_media = [[{**own, **media.get(medium, {})}[name] for name in names] for medium in shown.tolist()]
        uptake_SE = np.array(of_media, dtype=np.float64).reshape(len(shown), len(names))[medium_S.reshape(-1)]
        for covariate, of in config.uptakes.items():
            uptake_SE += np.outer(_units(strains, covariate), [of.get(name, 0.0) for name in names])
        return [model.reactions.index(name) for name in names], uptake_SE

    def _shown(self, strains: Strains) -> NDArray[np.str_]:
        """Return the name of each strain's medium, [S], empty where strains have none."""
        if MEDIUM not in strains.covariates:
            return np.full(len(strains), "")
        media, shown = self.config.media or {}, strains.shown(MEDIUM).astype(str)
        unknown = sorted({*shown.tolist()} - {*media})
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
    found = Vocabulary(rules.genes).named_by(model_aliases(model)).meant(strains.names)
    changed = np.unique(strains.targets)
    if len(changed):
        known = f"{int((found[changed] >= 0).sum()):,} of {count(len(changed), 'changed gene')}"
        log.info("%s in the metabolic model; others change nothing there", known)
    return found


HUNDRED = 100  # what is left of a measured gene counts in hundredths, so that strains share linear programs


def _growth(growth: Growth, strains: Strains, gene_of: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the growth of strains of one medium, [S]."""
    if not growth.wild_type > 0:
        return np.zeros(len(strains))
    numbers = np.zeros(len(strains), dtype=np.int64)
    for start in range(0, len(strains), CHUNK):
        part = strains.slice(start, min(start + CHUNK, len(strains)))
        left, genes = part.left(), gene_of[part.targets]
        left = np.where(left > 0, np.clip(np.rint(left * HUNDRED), 1, HUNDRED) / HUNDRED, 0).astype(np.float32)
        known = genes >= 0
        left_SR = growth.rules.left(len(part), part.owners[known], genes[known], left[known])
        numbers[start : start + CHUNK] = growth.number(left_SR, np.array([[WILD_TYPE]]))
    growth.solve(f"of {growth.problem.wild_type}")
    found = growth.values[numbers]
    if unknown := np.unique(numbers[np.isnan(found)]).tolist():
        programs, whose = count(len(unknown), "linear program"), "whose strains have the growth of"
        log.warning("the solver gave no answer to %s, %s %s", programs, whose, growth.problem.wild_type)
    relative = snap(np.where(np.isnan(found), growth.wild_type, found) / growth.wild_type, 0.0, 1.0)
    return growth.wild_type * relative

"""Compute growth of every strain of a screen exactly, with as few linear programs as possible.

Three facts save nearly all of them:

1. Growth depends only on the set of blocked reactions, which many gene sets share.
2. If a subset of the deletions already stops growth, so do all of them.
3. If an optimal flux vector of a subset of the deletions uses none of the reactions that the further
   deletions block, it is still feasible, hence still optimal (cf. Fast-SL: Pratapa, Balachandran & Raman
   2015, Bioinformatics 31:3299).

So a screen goes level by level: wild type, singles, pairs, triples; a strain first asks its subsets of one
gene less. All of it holds for weakened genes, too, where a reaction counts as blocked to an activity. It is blocked to
0.3 if 0.3 or less is left of it. A flux vector uses it beyond 0.3 if it needs more than that.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dglcell.data.sources.fba import FluxProblem, FluxSolver, Solution, solve_all
from dglcell.errors import DataError

if TYPE_CHECKING:
    from cobra import Model

# The parsed gene–protein–reaction rules are evaluated as they stand, for many strains at once, an operation per AND
# or OR. So nothing has to be expanded into enzyme complexes; the truth values are the same.


@dataclass(frozen=True)
class KnockoutRules:
    """Hold the distinct GPRs of a model.

    Reactions that share a rule are blocked together, so a strain's metabolism is determined by what is left of each
    rule. A gene at an activity is an allele, whose number is K times that of the gene, plus that of the
    activity; in a screen of deletions it is that of the gene.
    """

    genes: tuple[str, ...]  #: N sorted gene names
    rules: tuple[ast.expr, ...]  #: parsed rules, R of them
    reactions: tuple[NDArray[np.int64], ...]  #: for each rule the indices of its reactions in the model
    num_reactions: int  #: number of all reactions of the model
    activities: tuple[float, ...] = (0.0,)  #: K activities from 0 to 1, ascending

    @classmethod
    def of(cls, model: Model) -> KnockoutRules:
        """Read the rules of a model, in the order of its reactions, for deletions."""
        bodies: dict[str, ast.expr] = {}
        members: dict[str, list[int]] = {}
        for index, reaction in enumerate(model.reactions):
            if (body := reaction.gpr.body) is not None:
                bodies[text := ast.dump(body)] = body
                members.setdefault(text, []).append(index)
        return cls(
            genes=tuple(sorted(gene.id for gene in model.genes)),
            rules=tuple(bodies.values()),
            reactions=tuple(np.array(indices, dtype=np.int64) for indices in members.values()),
            num_reactions=len(model.reactions),
        )

    @property
    def alleles(self) -> int:
        """Return the number of alleles, N · K."""
        return len(self.genes) * len(self.activities)

    @property
    def limiting(self) -> tuple[float, ...]:
        """Return the T activities below 1: what has activity 1 is not changed."""
        return tuple(activity for activity in self.activities if activity < 1)

    def left_of(self, sets: NDArray[np.int32]) -> NDArray[np.uint8]:
        """Return what is left of the rules of strains with alleles [S, k] as the number of an activity, [S, R]; T is a
        whole rule.
        """
        genes, numbers = np.divmod(sets, len(self.activities))
        left_NS = np.full((len(self.genes), len(sets)), len(self.limiting), dtype=np.uint8)
        for gene, number in zip(genes.T, numbers.T, strict=True):
            left_NS[gene, np.arange(len(sets))] = np.minimum(number, len(self.limiting))
        return self.left(left_NS)

    def left(self, left_NS: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return what is left of the rules of strains, [S, R], from what is left of the genes, [N, S].

        A complex has that of its weakest gene, and a rule that of its best complex.
        """
        rows = dict(zip(self.genes, left_NS, strict=True))
        return np.array([_left(rule, rows) for rule in self.rules], np.uint8).reshape(-1, left_NS.shape[1]).T

    def needs(self, needs: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return what an optimum needs of each rule, [R], from what it needs of the reactions (`Solution`)."""
        return np.array([needs[reactions].max() for reactions in self.reactions], np.uint8)

    def codes(self, rules: NDArray[np.integer], numbers: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return the reactions of rules as `FluxSolver.solve` takes them, each at the activity of this number."""
        parts = [self.reactions[r] + self.num_reactions * int(at) for r, at in zip(rules, numbers, strict=True)]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def _left(rule: ast.expr, rows: dict[str, NDArray[np.uint8]]) -> NDArray[np.uint8]:
    if isinstance(rule, ast.Name):
        return rows[rule.id]
    if not isinstance(rule, ast.BoolOp):
        raise TypeError(f"unexpected node in a parsed GPR: {ast.dump(rule)}")
    combine = np.minimum if isinstance(rule.op, ast.And) else np.maximum
    return combine.reduce([_left(part, rows) for part in rule.values])


Lost = tuple[bytes, bytes]
"""Rules that a strain does not have whole, as the bytes of their numbers (int32), and of what is left (uint8)."""

WILD_TYPE: Lost = (b"", b"")


def lost_rules(left_SR: NDArray[np.uint8], whole: int) -> Iterator[Lost]:
    """Yield what each strain loses: rules of which less than ``whole`` is left."""
    for row in left_SR:
        lost = np.flatnonzero(row < whole).astype(np.int32)
        yield lost.tobytes(), row[lost].tobytes()


def unpacked(lost: Lost) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Return the numbers of rules, and what is left of each."""
    return np.frombuffer(lost[0], np.int32), np.frombuffer(lost[1], np.uint8)


# Genetic interactions from relative fitness.
#
# Multiplicative model: epsilon of Costanzo et al. 2010 (Science 327:425), tau of Kuzmin et al. 2018 (Science
# 360:eaao1729). The same definitions as the laboratory screens.


Fitness = NDArray[np.float64]

# Relative growth is known to about this much. In yeast-GEM with a solver tolerance of 1e-9, strains that cannot
# grow still reach 5e-7 of the wild type, because every mass balance may be off by the tolerance.
RESOLUTION = 1e-6


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


def snap(values: Fitness, *levels: float) -> Fitness:
    """Set values within :data:`RESOLUTION` of one of ``levels`` to that level; NaN stays NaN."""
    snapped = values.copy()
    for level in levels:
        snapped[np.abs(values - level) < RESOLUTION] = level
    return snapped


def lethal(fitness: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Return whether a strain does not grow, [S]: its relative fitness is below :data:`RESOLUTION`."""
    return fitness < RESOLUTION


# Strains whose rules are evaluated together: bounds the work arrays.
CHUNK = 16_384


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


class Growth:
    """Solve strains level by level, and remember every blocked set.

    Attributes:
        rules: the rules that tell which reactions a gene set blocks.
        problem: the problem of the wild type, with limits at the activities of ``rules`` that are below 1.
        counts: strains by the way their growth was found (``linear_programs``, ``same_blocked_reactions``,
            ``subset_optimum``), and programs that ended without an answer (``time_outs``, ``failures``).
    """

    def __init__(self, rules: KnockoutRules, problem: FluxProblem, *, processes: int = 1) -> None:
        self.rules = rules
        self.counts: Counter[str] = Counter()
        self.problem = problem
        self._processes = processes
        self._solver = FluxSolver(problem)
        self._known: dict[Lost, int] = {}
        self._values = np.zeros(0)
        self._needs_CR = np.zeros((0, len(rules.rules)), dtype=np.uint8)
        #: for each number of changed genes k the strains [S, k], as `distinct_rows` gives them, and their solutions [S]
        self._levels = [(np.zeros((1, 0), dtype=np.int32), np.zeros(1, dtype=np.int64))]
        self._solve([WILD_TYPE], lambda: None)
        if not self.wild_type > problem.tolerance:
            do = "check the model's objective and exchange bounds"
            raise DataError(
                f"flux balance analysis: {problem.wild_type} does not grow",
                got=f"objective value {self.wild_type:g}",
                expected="a positive growth rate",
                do=do + ("" if problem.medium is None else ", or leave the medium out"),
            )

    @property
    def wild_type(self) -> float:
        """Return growth of the wild type, in the units of the model's objective (1/h for a biomass reaction)."""
        return float(self._values[0])

    def of(self, sets: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return growth of solved strains with alleles [S, k]: 0 if infeasible, NaN without an answer."""
        return self._values[self._find(np.sort(sets, axis=1))]

    def _find(self, sets: NDArray[np.int32]) -> NDArray[np.int64]:
        known, solutions = self._levels[sets.shape[1]]
        return solutions[np.searchsorted(row_keys(known, self.rules.alleles), row_keys(sets, self.rules.alleles))]

    def add(self, sets: NDArray[np.int32], begin: Callable[[int], Callable[[], None]]) -> None:
        """Solve growth of strains with one changed gene more than those that were added last.

        Args:
            sets: [S, k] distinct rows as :func:`distinct_rows` gives them, all of whose subsets with k − 1 genes were
                added before.
            begin: called with the number of linear programs; returns what to call after each.
        """
        solutions = np.full(len(sets), -1, dtype=np.int64)
        open_rows = [np.zeros(0, dtype=np.int64)]
        lost: list[Lost] = []
        for start in range(0, len(sets), CHUNK):
            part = sets[start : start + CHUNK]
            left_SR = self.rules.left_of(part)
            found = self._inherit(part, left_SR)
            solutions[start : start + CHUNK] = found
            still = np.flatnonzero(found < 0)
            open_rows.append(start + still)
            lost += lost_rules(left_SR[still], len(self.rules.limiting))
        self.counts["subset_optimum"] += len(sets) - len(lost)
        fresh = list(dict.fromkeys(one for one in lost if one not in self._known))
        self.counts["same_blocked_reactions"] += len(lost) - len(fresh)
        if fresh:
            self._solve(fresh, begin(len(fresh)))
        solutions[np.concatenate(open_rows)] = [self._known[one] for one in lost]
        self._levels.append((sets, solutions))

    def _inherit(self, sets: NDArray[np.int32], left_SR: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return a subset's solution that holds for the whole set too, [S], −1 where there is none."""
        found = np.full(len(sets), -1, dtype=np.int64)
        dead = lethal(self._values / self.wild_type)
        for left_out in range(sets.shape[1]):
            parents = self._find(np.delete(sets, left_out, axis=1))
            enough = (self._needs_CR[parents] <= left_SR).all(axis=1)
            holds = dead[parents] | (enough & ~np.isnan(self._values[parents]))
            found = np.where((found < 0) & holds, parents, found)
        return found

    def _solve(self, fresh: list[Lost], advance: Callable[[], None]) -> None:
        values, needs = [], []

        def take(solution: Solution) -> None:
            values.append(solution.value)
            needs.append(self.rules.needs(solution.needs))
            self.counts["time_outs"] += solution.timed_out
            self.counts["failures"] += bool(np.isnan(solution.value)) and not solution.timed_out
            advance()

        blocked = [self.rules.codes(*unpacked(one)) for one in fresh]
        solve_all(self._solver, blocked, processes=self._processes, take=take)
        self.counts["linear_programs"] += len(values)
        self._known.update(zip(fresh, range(len(self._values), len(self._values) + len(fresh)), strict=True))
        self._values = np.concatenate([self._values, values])
        self._needs_CR = np.concatenate([self._needs_CR, np.stack(needs)])

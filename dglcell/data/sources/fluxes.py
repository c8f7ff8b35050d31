"""Compute fluxes, their ranges and shadow prices of the strains of an in-silico screen, kept beside its store."""

from __future__ import annotations

import hashlib
import logging
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dglcell.data.node_values import NOT_MEASURED, NodeValues
from dglcell.data.sources.fba import FluxProblem, FluxSolver, Solution, solve_all
from dglcell.data.sources.growth import CHUNK, KnockoutRules
from dglcell.errors import DataError, count, listing
from dglcell.graph.schema import METABOLITE, REACTION

if TYPE_CHECKING:
    from cobra import Model

log = logging.getLogger(__name__)

FLUX, PRICE, LOWEST, HIGHEST = "flux", "price", "lowest_flux", "highest_flux"
"""Fluxes, shadow prices and the ends of the range of each flux have these names among the values of nodes."""

UNITS = {FLUX: "mmol/gDW/h", PRICE: "gDW/mmol", LOWEST: "mmol/gDW/h", HIGHEST: "mmol/gDW/h"}
"""Name of the values → their unit; a price is growth per flux, (1/h) / (mmol/gDW/h)."""


class Vectors:
    """Collect vectors of one length in a file, because they may need more room than memory has; equal ones share a row.

    Args:
        names: what the values of a vector belong to.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  (it lives as long as the array that maps it)
        self._known: dict[bytes, int] = {}
        self.rows: list[NDArray[np.int64]] = []

    def append(self, vector: NDArray[np.float64]) -> int:
        """Return the row of a vector, which is written unless it is there already."""
        content = vector.astype("<f4").tobytes()
        key = hashlib.blake2b(content, digest_size=16).digest()
        if key not in self._known:
            self._file.write(content)
        return self._known.setdefault(key, len(self._known))

    def mapped(self) -> NDArray[np.float32]:
        """Return all vectors, mapped into memory."""
        self._file.flush()
        return np.memmap(self._file, "<f4", "r", shape=(len(self._known), len(self.names)))


class FluxTable:
    """Collect fluxes and shadow prices, or ranges of fluxes, at the fastest growth.

    The fluxes are those of the least total flux (parsimonious flux balance analysis). The shadow price of a metabolite
    is by how much growth increases per flux of it that is given to the cell, the dual value of its mass balance. The
    range of a flux goes from its lowest to its highest value over all flux vectors with the fastest growth (flux
    variability analysis).

    All depend on nothing but the medium and the reactions that a strain blocks or weakens, so that strains which share
    these share a vector. A strain that blocks only what the fluxes of the wild type in its medium do not use has the
    vectors of that wild type: its fluxes still give the fastest growth, and by complementary slackness the prices prove
    that. It has the ranges of the wild type if no range leaves what the strain allows: all flux vectors with the
    fastest growth are then still there. A strain without a steady state has none of them, and counts as not measured.

    Args:
        model: the metabolic model.
        wild_type: its problem in its own medium.
        kinds: some of `FLUX` and `PRICE`, or `LOWEST` and `HIGHEST`; of these strains share others.

    Raises:
        DataError: the solver does not find the values of the wild type.
    """

    def __init__(self, model: Model, wild_type: FluxProblem, kinds: Sequence[str]) -> None:
        nodes = {kind: model.metabolites if kind == PRICE else model.reactions for kind in kinds}
        self._kept = {kind: Vectors(node.id for node in nodes[kind]) for kind in kinds}
        self.failures = 0
        problem = self._asked(wild_type)
        self._append(self._of_wild_type(FluxSolver(problem), problem))

    def _asked(self, problem: FluxProblem) -> FluxProblem:
        return replace(
            problem, parsimonious=FLUX in self._kept, priced=PRICE in self._kept, ranged=LOWEST in self._kept
        )

    def add(
        self,
        rules: KnockoutRules,
        problem: FluxProblem,
        sets: Sequence[NDArray[np.int32]],
        *,
        processes: int,
        begin: Callable[[str, int], Callable[[], None]],
    ) -> None:
        """Solve the strains of one medium, which follow those of earlier calls.

        Args:
            rules: what a strain blocks.
            problem: of the medium.
            sets: [S, k] alleles of the strains, number of them by number.
            processes: number of processes; 0 for as many as there are CPUs.
            begin: as `progress_bars` has it.
        """
        problem = self._asked(problem)
        solver = FluxSolver(problem)
        root = self._of_wild_type(solver, problem)
        packed_SW = np.concatenate([_blocked(rules, some) for some in sets])
        packed_SW[~(packed_SW & _used(rules, problem, root)).any(axis=1)] = 0
        distinct_DW, which_S = np.unique(packed_SW, axis=0, return_inverse=True)
        blocked = [rules.reactions_of(row) for row in distinct_DW]
        rows = {kind: np.full(len(distinct_DW), NOT_MEASURED, np.int64) for kind in self._kept}
        advance = begin(f"{' and '.join(self._kept)} of different sets of reactions", len(blocked))
        with closing(solve_all(solver, problem, blocked, processes=processes, advance=advance)) as solutions:
            for number, solution in enumerate(solutions):
                found = self._append(solution)
                for kind, row in found.items():
                    rows[kind][number] = row
                if len(found) < len(rows) and solution.value != 0:
                    self.failures += 1  # there is a steady state, or the solver could not tell
        for kind, vectors in self._kept.items():
            vectors.rows.append(rows[kind][which_S.reshape(-1)])

    def _append(self, solution: Solution) -> dict[str, int]:
        """Return the rows of a solution's vectors, as far as it has them."""
        lowest, highest = (None, None) if solution.ranges is None else solution.ranges
        read = {FLUX: solution.fluxes, PRICE: solution.prices, LOWEST: lowest, HIGHEST: highest}
        return {kind: of.append(vector) for kind, of in self._kept.items() if (vector := read[kind]) is not None}

    def _of_wild_type(self, solver: FluxSolver, problem: FluxProblem) -> Solution:
        """Return the solution of the strain without changes."""
        found = solver.solve(np.zeros(0, np.int64))
        for key, asked, values in (
            ("fluxes", problem.parsimonious, found.fluxes),
            ("ranges", problem.ranged, found.ranges),
        ):
            if asked and values is None:
                raise DataError(
                    f"in-silico screen: the solver found no {key} of {problem.wild_type}",
                    got="the time limit" if found.timed_out else "a linear program without an answer",
                    do=f"raise `data.source.insilico.time_limit`, or set `data.source.insilico.{key}: false`",
                )
        if found.ranges is not None and not np.isfinite(found.ranges).all():
            unlimited = np.flatnonzero(~np.isfinite(found.ranges).all(axis=0))
            raise DataError(
                f"in-silico screen: nothing limits fluxes of {problem.wild_type}",
                got=listing([self._kept[LOWEST].names[j] for j in unlimited]),
                expected="a lower and an upper bound that ends every range",
                do="give these reactions bounds in the model, or set `data.source.insilico.ranges: false`",
            )
        return found

    def finish(self) -> dict[str, tuple[NodeValues, NDArray[np.int64]]]:
        """Return name → the values, and the row of each strain."""
        if self.failures:
            log.warning("the solver did not find all values of %s", count(self.failures, "linear program"))
        found = {}
        for kind, vectors in self._kept.items():
            rows = np.concatenate(vectors.rows)
            lacking = int((rows == NOT_MEASURED).sum())
            if lacking:
                log.info("%s have no %s, as a rule because they have no steady state", count(lacking, "strain"), kind)
            node_type = METABOLITE if kind == PRICE else REACTION
            found[kind] = NodeValues(node_type, vectors.names, vectors.mapped(), UNITS[kind]), rows
        return found


def _blocked(rules: KnockoutRules, sets: NDArray[np.int32]) -> NDArray[np.uint8]:
    """Return what strains block, [S, W], as `KnockoutRules.blocked` packs it."""
    size = CHUNK // max(1, len(rules.limiting))
    parts = [rules.blocked(sets[start : start + size]) for start in range(0, len(sets), size)]
    return np.concatenate(parts) if parts else np.zeros((0, rules.width), np.uint8)


def _used(rules: KnockoutRules, problem: FluxProblem, root: Solution) -> NDArray[np.uint8]:
    """Return which rules, and at which strengths, have a reaction whose flux is beyond its limits, packed."""
    lowest, highest = (root.fluxes, root.fluxes) if root.ranges is None else root.ranges
    if lowest is None or highest is None:
        return rules.pack(root.beyond)
    limits = problem.limits
    within = (lowest >= limits[:, 0] - problem.tolerance) & (highest <= limits[:, 1] + problem.tolerance)
    return rules.pack(~within.ravel())

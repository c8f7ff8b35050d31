"""Compute the fluxes of the strains of an in-silico screen, which are kept beside its store."""

from __future__ import annotations

import hashlib
import logging
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dglcell.data.node_values import NOT_MEASURED, NodeValues
from dglcell.data.sources.fba import FluxProblem, FluxSolver, solve_all
from dglcell.data.sources.growth import CHUNK, KnockoutRules
from dglcell.errors import DataError, count
from dglcell.graph.schema import REACTION

if TYPE_CHECKING:
    from cobra import Model

log = logging.getLogger(__name__)

FLUX = "flux"
"""Fluxes have this name among the values of nodes."""

UNIT = "mmol/gDW/h"


class FluxTable:
    """Collect fluxes at the fastest growth with the least total flux (parsimonious flux balance analysis).

    They depend on nothing but the medium and the reactions that a strain blocks or weakens, so that strains which share
    these share a vector. A strain that blocks only what the vector of the wild type in its medium does not use has
    that vector. A strain without a steady state has no fluxes, and counts as not measured.

    Args:
        model: the metabolic model.
        wild_type: its problem in its own medium.
    """

    def __init__(self, model: Model, wild_type: FluxProblem) -> None:
        self._names = tuple(reaction.id for reaction in model.reactions)
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  (vectors may need more room than memory has)
        self._rows: list[NDArray[np.int64]] = []
        self._known: dict[bytes, int] = {}
        self.failures = 0
        self._append(_fluxes_of(FluxSolver(replace(wild_type, parsimonious=True)), wild_type))

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
        problem = replace(problem, parsimonious=True)
        solver = FluxSolver(problem)
        root = _fluxes_of(solver, problem)
        packed_SW = np.concatenate([_blocked(rules, some) for some in sets])
        packed_SW[~(packed_SW & _used(rules, problem, root)).any(axis=1)] = 0
        distinct_DW, which_S = np.unique(packed_SW, axis=0, return_inverse=True)
        blocked = [rules.reactions_of(row) for row in distinct_DW]
        row_D = np.full(len(distinct_DW), NOT_MEASURED, np.int64)
        advance = begin("fluxes of different sets of reactions", len(blocked))
        with closing(solve_all(solver, problem, blocked, processes=processes, advance=advance)) as solutions:
            for number, solution in enumerate(solutions):
                if solution.fluxes is not None:
                    row_D[number] = self._append(solution.fluxes)
                elif solution.value != 0:  # there is a steady state, or the solver could not tell
                    self.failures += 1
        which_S = which_S.reshape(-1)
        self._rows.append(row_D[which_S])

    def _append(self, fluxes: NDArray[np.float64]) -> int:
        """Return the row of a vector, which is written unless it is there already."""
        content = fluxes.astype("<f4").tobytes()
        key = hashlib.blake2b(content, digest_size=16).digest()
        if key not in self._known:
            self._file.write(content)
        return self._known.setdefault(key, len(self._known))

    def finish(self) -> tuple[NodeValues, NDArray[np.int64]]:
        """Return the fluxes, and the row of each strain."""
        self._file.flush()
        values = np.memmap(self._file, "<f4", "r", shape=(len(self._known), len(self._names)))
        rows = np.concatenate(self._rows)
        lacking = int((rows == NOT_MEASURED).sum())
        if lacking:
            log.info("%s have no fluxes, as a rule because they have no steady state", count(lacking, "strain"))
        if self.failures:
            log.warning("the solver found no fluxes for %s", count(self.failures, "linear program"))
        return NodeValues(REACTION, self._names, values, UNIT), rows


def _fluxes_of(solver: FluxSolver, problem: FluxProblem) -> NDArray[np.float64]:
    """Return the fluxes of the strain without changes, [reactions]."""
    fluxes = solver.solve(np.zeros(0, np.int64)).fluxes
    if fluxes is None:
        raise DataError(
            f"in-silico screen: the solver found no fluxes of {problem.wild_type}",
            do="raise `data.source.insilico.time_limit`, or set `data.source.insilico.fluxes: false`",
        )
    return fluxes


def _blocked(rules: KnockoutRules, sets: NDArray[np.int32]) -> NDArray[np.uint8]:
    """Return what strains block, [S, W], as `KnockoutRules.blocked` packs it."""
    size = CHUNK // max(1, len(rules.limiting))
    parts = [rules.blocked(sets[start : start + size]) for start in range(0, len(sets), size)]
    return np.concatenate(parts) if parts else np.zeros((0, rules.width), np.uint8)


def _used(rules: KnockoutRules, problem: FluxProblem, fluxes: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Return which rules, and at which strengths, have a reaction whose flux is beyond its limits, packed."""
    limits = problem.limits
    within = (fluxes >= limits[:, 0] - problem.tolerance) & (fluxes <= limits[:, 1] + problem.tolerance)
    return rules.pack(~within.ravel())

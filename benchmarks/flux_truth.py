"""Compute the truth for ``benchmarks.explain_fba``: which fluxes change, and which deletions are responsible."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from cobra import Model
from cobra.flux_analysis import pfba
from cobra.util.solver import fix_objective_as_constraint
from numpy.typing import NDArray

from dglcell.files.atomic import atomic_file

APART, DIFFERENT, ZERO = 1e-6, 1e-3, 1e-9
"""Ranges of fluxes are apart by more than the first, and fluxes differ by more than the second, relative to their size
or to 1. A smaller flux than the third is none."""

SECONDS = 5
"""So long may the solver look for an end of a range, because it can turn in circles."""

MOST_OF = 0.99
"""A subset of deletions is responsible if it takes so much of the growth that all of them take."""

RANGES, PER_GROWTH, PARSIMONIOUS = "flux variability", "flux variability, per growth", "parsimonious fluxes"


class Fluxes(NamedTuple):
    """Hold the largest growth, one solution with small fluxes, and the range of each flux there, each [reactions]."""

    growth: float
    fluxes: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


class Truth(NamedTuple):
    """Hold the truth for strains and for triples.

    Attributes:
        genotypes: genes of each strain, separated by ``;``.
        kept: [strains, reactions] which reactions a strain keeps.
        changed: definition → [strains, reactions] which of them change.
        triples: genes of each triple.
        growth: [triples, 8] growth relative to the wild type, of the subsets in the order of ``subsets``.
    """

    genotypes: list[str]
    kept: NDArray[np.bool_]
    changed: dict[str, NDArray[np.bool_]]
    triples: list[str]
    growth: NDArray[np.float64]

    def save(self, path: Path) -> None:
        """Write the truth to an ``.npz`` file."""
        arrays: dict[str, Any] = {"genotypes": np.array(self.genotypes), "triples": np.array(self.triples)}
        arrays |= {"kept": self.kept, "growth": self.growth, **self.changed}
        with atomic_file(path) as partial, partial.open("wb") as file:
            np.savez_compressed(file, **arrays)

    @classmethod
    def read(cls, path: Path) -> Truth:
        """Read the file that ``save`` wrote."""
        with np.load(path) as found:
            changed = {name: found[name] for name in (RANGES, PER_GROWTH, PARSIMONIOUS) if name in found}
            texts = (found["genotypes"].tolist(), found["triples"].tolist())
            return cls(texts[0], found["kept"], changed, texts[1], found["growth"])


def fluxes_of(model: Model) -> Fluxes:
    """Return the largest growth and the parsimonious fluxes, which stand for the ranges."""
    growth, fluxes = float(model.slim_optimize()), pfba(model).fluxes.to_numpy()
    return Fluxes(growth, fluxes, fluxes, fluxes)


def with_ranges(model: Model, found: Fluxes, wanted: NDArray[np.bool_]) -> Fluxes:
    """Return the same with the ranges of some fluxes at the largest growth.

    An end that the solver does not find is infinite.
    """
    low, high = found.low.copy(), found.high.copy()
    with model:
        fix_objective_as_constraint(model)
        model.solver.configuration.timeout = SECONDS
        for i in np.flatnonzero(wanted).tolist():
            for ends, direction, unknown in ((low, "min", -np.inf), (high, "max", np.inf)):
                model.objective = model.problem.Objective(model.reactions[i].flux_expression, direction=direction)
                ends[i] = model.slim_optimize(error_value=unknown)
    return found._replace(low=low, high=high)


def truth_of(model: Model, genotypes: Sequence[str], triples: Sequence[str]) -> Truth:
    """Compute the truth for strains and triples, whose genes are separated by ``;``.

    Ranges are computed where they decide. What carries no flux in any parsimonious solution does not change. Nor does
    a reaction whose parsimonious flux in the strain is one that the wild type can have, too.
    """
    before, kept, after = fluxes_of(model), list[NDArray[np.bool_]](), list[Fluxes]()
    for strain in genotypes:
        with model:
            _delete(model, strain.split(";"))
            kept.append(np.array([reaction.bounds != (0, 0) for reaction in model.reactions]))
            after.append(fluxes_of(model))
    every = np.stack([one.fluxes for one in (before, *after)])
    carries = np.any(np.abs(every) > ZERO, axis=0)
    before, changed = with_ranges(model, before, carries), list[dict[str, NDArray[np.bool_]]]()
    for number, (strain, one) in enumerate(zip(genotypes, after, strict=True), start=1):
        some = changes(before, one)
        with model:
            _delete(model, strain.split(";"))
            changed.append(changes(before, with_ranges(model, one, some[RANGES] | some[PER_GROWTH])))
        print(f"{number} of {len(genotypes)} strains", flush=True)
    by_definition = {name: np.stack([one[name] for one in changed]) for name in changed[0]}
    growth = np.array([_growth_of_subsets(model, triple.split(";")) for triple in triples]) / before.growth
    return Truth(list(genotypes), np.stack(kept), by_definition, list(triples), growth)


def sick_triples(model: Model, number: int, growth: tuple[float, float]) -> list[str]:
    """Draw deletions of three genes at random until so many of them grow, relative to the wild type, within a range."""
    rng, genes, found = np.random.default_rng(0), sorted(gene.id for gene in model.genes), dict[str, None]()
    whole = model.slim_optimize()
    while len(found) < number:
        chosen = sorted(rng.choice(genes, 3, replace=False).tolist())
        if growth[0] < _growth(model, chosen) / whole < growth[1]:
            found[";".join(chosen)] = None
    return list(found)


def changes(before: Fluxes, after: Fluxes) -> dict[str, NDArray[np.bool_]]:
    """Return which reactions change, by three definitions, [reactions]."""
    size = np.maximum(1, np.maximum(np.abs(before.fluxes), np.abs(after.fluxes)))
    return {
        RANGES: _apart(before, after, 1, 1),
        PER_GROWTH: _apart(before, after, before.growth, after.growth),
        PARSIMONIOUS: np.abs(after.fluxes - before.fluxes) > DIFFERENT * size,
    }


def changed_prices(model: Model, genotypes: Sequence[str]) -> NDArray[np.bool_]:
    """Return which metabolites have another shadow price at the largest growth, [strains, metabolites].

    Shadow prices, too, are one solution among several, and no ranges are computed of them.
    """
    before, found = model.optimize().shadow_prices.to_numpy(), []
    for strain in genotypes:
        with model:
            _delete(model, strain.split(";"))
            after = model.optimize().shadow_prices.to_numpy()
        size = np.maximum(np.abs(before).max(), np.abs(after).max())
        found.append(np.abs(after - before) > DIFFERENT * size)
    return np.stack(found)


def _apart(before: Fluxes, after: Fluxes, unit: float, new_unit: float) -> NDArray[np.bool_]:
    """Return where two ranges have no flux in common, in units of their own."""
    gap = np.maximum(after.low / new_unit - before.high / unit, before.low / unit - after.high / new_unit)
    return gap > APART * np.maximum(1, np.abs(before.high / unit))


def _delete(model: Model, genes: Sequence[str]) -> None:
    for gene in genes:
        model.genes.get_by_id(gene).knock_out()


def subsets(number: int) -> list[tuple[int, ...]]:
    """Return all subsets of so many things, small ones first."""
    return [chosen for size in range(number + 1) for chosen in itertools.combinations(range(number), size)]


def _growth_of_subsets(model: Model, genes: Sequence[str]) -> list[float]:
    return [_growth(model, [genes[i] for i in chosen]) for chosen in subsets(len(genes))]


def _growth(model: Model, genes: Sequence[str]) -> float:
    with model:
        _delete(model, genes)
        return max(0.0, float(model.slim_optimize(error_value=0.0)))


def responsible(values: NDArray[np.float64], most: float = MOST_OF) -> set[tuple[int, ...]]:
    """Return the smallest subsets that take most of what all changes take; several where they are equally small.

    If all changes take nothing, no subset is responsible.

    Args:
        values: [2^n] values of all subsets, in the order of ``subsets``.
        most: which part of the whole change they have to take.
    """
    if values[-1] == values[0]:
        return set()
    every = subsets(len(values).bit_length() - 1)
    taken = (values - values[0]) / (values[-1] - values[0])
    enough = [chosen for chosen, part in zip(every, taken, strict=True) if part >= most]
    return {chosen for chosen in enough if len(chosen) == len(enough[0])}

"""Compute the growth of measured strains by flux balance analysis, as a covariate beside what was measured.

A strain has the reactions that its genes leave, as in an in-silico screen (`dglcell.data.sources.insilico`), and the
medium that it grew in. Genes that the metabolic model lacks change nothing. What is left of a gene counts in
hundredths, and more than the wild type has counts as the wild type.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dglcell.data.columns import COVARIATE, MEDIUM, Column
from dglcell.data.sources.config import FbaConfig
from dglcell.data.sources.fba import FluxProblem, FluxSolver, Solution, solve_all
from dglcell.data.sources.growth import WILD_TYPE, KnockoutRules, Lost, lost_rules, snap, unpacked
from dglcell.data.sources.insilico import progress_bars
from dglcell.data.sources.source import Simulator, Work
from dglcell.data.strains import Strains
from dglcell.errors import DataError, GraphError, count, listing
from dglcell.files.atomic import atomic_file
from dglcell.graph.metabolism import Media
from dglcell.graph.model_files import locate_model, read_model
from dglcell.graph.names import model_aliases
from dglcell.graph.vocabulary import Vocabulary

if TYPE_CHECKING:
    from cobra import Model

log = logging.getLogger("dglcell")

WHOLE = 100  # hundredths of what the wild type has
CHUNK = 4096  # strains whose rules are evaluated together
FLUSH_SECONDS = 10.0  # after which the cache is written, and progress said


class FbaGrowth(Simulator):
    """Compute the growth rate of strains, in the units of the model's objective (1/h for a biomass reaction).

    Strains that lose the same reactions in the same medium have one linear program, and those that lose none which the
    wild type's optimum uses have its growth. Values within 1e-6 of 0, or relatively of the wild type, are set to it.
    """

    config: FbaConfig

    def __init__(self, config: FbaConfig) -> None:
        super().__init__(config)
        self._read: tuple[Model, KnockoutRules, FluxProblem] | None = None
        self._known: dict[str, dict[Lost, float]] = {}

    def files(self, raw: str | None) -> list[Path]:
        """Return the file of the metabolic model."""
        return [locate_model(str(self.config.model), raw)]

    def compute(self, strains: Strains, work: Work) -> NDArray[np.float32]:
        """Return the growth of each strain, [S]; zeros where only a shard of it is computed.

        Raises:
            GraphError: the metabolic model is not here, or cannot be read.
            ConfigError: a medium does not fit the model.
            DataError: a strain has a medium that is not described, or the wild type has no optimum in one.
        """
        model, rules, problem = self._read = self._read or self._model(work.raw)
        lower_ME, medium_S, exchanges = self._media(strains, model)
        sets = list(_lost_sets(rules, strains, _genes(rules, model, strains)))
        growth_S = np.zeros(len(strains))
        for medium, lower_E in enumerate(lower_ME):
            rows = np.flatnonzero(medium_S == medium)
            lower = problem.lower.copy()
            lower[exchanges] = lower_E
            name = None if len(lower_ME) == 1 else f"number {medium + 1} of {len(lower_ME)}"
            if MEDIUM in strains.covariates and self.config.media:
                name = str(strains.shown(MEDIUM)[rows[0]])
            of_medium = replace(problem, lower=lower, medium=name)
            folder = work.cache / _content(of_medium, rules)
            # Designs come in many batches, which the same files are not read for again.
            known = self._known[folder.name] = self._known.get(folder.name) or read_growth(folder)
            here = _Medium(rules, of_medium, self.config.processes, folder, known)
            growth_S[rows] = here.growth([sets[row] for row in rows], *work.shard)
        return growth_S.astype(np.float32)

    def _model(self, raw: str | None) -> tuple[Model, KnockoutRules, FluxProblem]:
        try:
            model = read_model(str(self.config.model), raw)
        except (DataError, GraphError) as error:
            raise GraphError(
                f"`{self.config.name}` is computed by a metabolic model that cannot be read here\n  {error}",
                expected=f"the model '{self.config.model}' that `data.fba.model` names",
                do="put the file there, or give its folder with `--raw` or in DGLCELL_RAW",
            ) from error
        problem = FluxProblem.of(model, tolerance=self.config.tolerance, time_limit=self.config.time_limit)
        return model, KnockoutRules.of(model), problem

    def _media(self, strains: Strains, model: Model) -> tuple[NDArray[np.float64], NDArray[np.int64], list[int]]:
        """Return [M, E] bounds in each distinct medium, the medium of each strain [S], and E exchange reactions."""
        config, media = self.config, self.config.media or {}
        based = {name: {**config.base, **of} for name, of in media.items()}
        sections = (("", {"base": config.base}), (".media", based), (".uptakes", config.uptakes))
        for section, changes_of in sections:
            if used := {name: of for name, of in changes_of.items() if of}:
                Media.of(model, used, f"data.fba{section}")  # refuses what is no exchange reaction
        changes = (config.base, *media.values(), *config.uptakes.values())
        names = sorted({exchange for of in changes for exchange in of})
        place = {name: i for i, name in enumerate(names)}
        own = np.array([max(0.0, -model.reactions.get_by_id(name).lower_bound) for name in names])
        uptake_SE = np.tile(own, (len(strains), 1))
        for exchange, amount in config.base.items():
            uptake_SE[:, place[exchange]] = amount
        if MEDIUM in strains.covariates:
            shown = self._shown(strains)
            for name, of in media.items():
                for exchange, amount in of.items():
                    uptake_SE[shown == name, place[exchange]] = amount
        for covariate, of in config.uptakes.items():
            column, key = Column(COVARIATE, covariate), f"`data.fba.uptakes.{covariate}`"
            if column not in strains.columns:
                got, do = listing(strains.covariates), "name a covariate as `data.source.csv.covariates` does"
                what = f"{key}: the strains have no such covariate of numbers"
                raise DataError(what, got=got or "strains without covariates", do=do)
            units = np.asarray(strains.columns[column], dtype=np.float64)
            if (units < 0).any():
                raise DataError(f"{key}: a strain has a negative amount", got=float(units.min()))
            for exchange, amount in of.items():
                uptake_SE[:, place[exchange]] += amount * units
        distinct, medium_S = np.unique(uptake_SE, axis=0, return_inverse=True)
        indices = [model.reactions.index(name) for name in names]
        return -distinct, medium_S.reshape(-1), indices

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


def _genes(rules: KnockoutRules, model: Model, strains: Strains) -> NDArray[np.int64]:
    """Return the gene of the model that each name of the strains means, −1 where there is none."""
    plain = Vocabulary(rules.genes)
    vocabulary = Vocabulary(rules.genes, model_aliases(model).of_genes(plain))
    found = vocabulary.indices([vocabulary.find(name) for name in strains.names])
    changed = np.unique(strains.targets)
    known = int((found[changed] >= 0).sum())
    if len(changed):
        log.info(
            "%s of the changed genes %s in the metabolic model; the others change nothing there",
            f"{known:,} of {len(changed):,}",
            "is" if known == 1 else "are",
        )
    return found


def _lost_sets(rules: KnockoutRules, strains: Strains, gene_of: NDArray[np.int64]) -> Iterator[Lost]:
    """Yield what each strain loses, in hundredths."""
    left = strains.left().astype(np.float64)
    hundredths = np.where(left > 0, np.clip(np.rint(left * WHOLE), 1, WHOLE), 0).astype(np.uint8)
    for start in range(0, len(strains), CHUNK):
        part = strains.slice(start, min(start + CHUNK, len(strains)))
        first, last = strains.offsets[start], strains.offsets[start + len(part)]
        left_NS = np.full((len(rules.genes), len(part)), WHOLE, dtype=np.uint8)
        genes, owner = gene_of[part.targets], np.repeat(np.arange(len(part)), part.num_deletions)
        known = genes >= 0
        np.minimum.at(left_NS, (genes[known], owner[known]), hundredths[first:last][known])
        yield from lost_rules(rules.left(left_NS), WHOLE)


@dataclass
class _Medium:
    rules: KnockoutRules  #: rules of the model
    problem: FluxProblem  #: of the wild type in this medium
    processes: int  #: as in `FbaConfig`
    folder: Path  #: of files of growth, which several processes may add to at once
    known: dict[Lost, float]  #: what is lost → growth, NaN where the solver gave no answer, which is not written
    new: list[Lost] = field(default_factory=list)  #: what is not written yet

    def growth(self, sets: list[Lost], shard: int, shards: int) -> NDArray[np.float64]:
        """Return the growth of strains, [S], or zeros once one of several shards is computed."""
        known, wanted = self.known, list(dict.fromkeys(sets))
        missing = [one for i, one in enumerate(wanted) if i % shards == shard and one not in known]
        if missing or (WILD_TYPE not in known and shards == 1):
            self._solve(missing)
        if shards > 1:
            return np.zeros(len(sets))
        wild = known[WILD_TYPE]
        if unknown := [one for one in wanted if np.isnan(known[one])]:
            log.warning(
                "the solver gave no answer to %s, whose strains have the growth of %s; a longer "
                "`data.fba.time_limit` may help",
                count(len(unknown), "linear program"),
                self.problem.wild_type,
            )
        found = np.array([wild if np.isnan(known[one]) else known[one] for one in sets])
        return wild * snap(found / wild, 0.0, 1.0) if wild > 0 else np.zeros(len(sets))

    def _solve(self, missing: list[Lost]) -> None:
        """Solve linear programs, and write what they say as they go."""
        rules, lost = self.rules, [unpacked(one) for one in missing]
        amounts = np.unique(np.concatenate([np.zeros(1, np.uint8), *(left for _, left in lost)]))
        with progress_bars() as begin, ExitStack() as ends:
            ends.callback(self._write)
            solver = FluxSolver(self._limited(lost, amounts / WHOLE, begin))
            wild = solver.solve(np.zeros(0, dtype=np.int64))
            needs_R, needed = rules.needs(wild.needs), dict[Lost, NDArray[np.int64]]()
            self._put(WILD_TYPE, wild.value)
            for one, (which, left) in zip(missing, lost, strict=True):
                numbers = np.searchsorted(amounts, left)
                if (needs_R[which] > numbers).any():
                    needed[one] = rules.codes(which, numbers)
                else:
                    self._put(one, wild.value)
            advance, written = begin(f"linear programs of {self.problem.wild_type}", len(needed)), time.monotonic()
            waiting = iter(enumerate(needed, start=1))

            def take(solution: Solution) -> None:
                nonlocal written
                number, one = next(waiting)
                self._put(one, solution.value)
                if time.monotonic() - written > FLUSH_SECONDS:
                    self._write()
                    written = time.monotonic()
                    log.info("%s of %s linear programs", f"{number:,}", f"{len(needed):,}")
                advance()

            solve_all(solver, [*needed.values()], processes=self.processes, take=take)

    def _put(self, lost: Lost, growth: float) -> None:
        if lost not in self.known and not np.isnan(growth):
            self.new.append(lost)
        self.known[lost] = growth

    def _write(self) -> None:
        """Write what is new as a file of its own."""
        kept = {f"{rules.hex()}:{left.hex()}": self.known[rules, left] for rules, left in self.new}
        if kept:
            with atomic_file(self.folder / f"{uuid.uuid4().hex}.json") as partial:
                partial.write_text(json.dumps(kept), encoding="utf-8")
        self.new.clear()

    def _limited(
        self,
        lost: list[tuple[NDArray[np.int32], NDArray[np.uint8]]],
        activities: NDArray[np.float64],
        begin: Callable[[str, int], Callable[[], None]],
    ) -> FluxProblem:
        weakened = np.unique(np.concatenate([np.zeros(0, np.int32), *(rules[left > 0] for rules, left in lost)]))
        capacities = np.full((2, self.problem.shape[1]), np.inf)
        if len(weakened):
            reactions = np.unique(np.concatenate([self.rules.reactions[rule] for rule in weakened]))
            advance = begin("reactions whose capacity is computed", len(reactions))
            capacities = FluxSolver(self.problem).capacities(reactions, advance)
        return self.problem.limited(capacities, activities.tolist())


def _content(problem: FluxProblem, rules: KnockoutRules) -> str:
    """Return a hash of a problem without limits of time, and of the reactions of each rule."""
    digest = hashlib.sha256(f"{problem.shape} {problem.tolerance}".encode())
    for values in (problem.rows, problem.columns, problem.values, problem.lower, problem.upper, problem.objective):
        digest.update(np.ascontiguousarray(values).tobytes())
    for reactions in rules.reactions:
        digest.update(reactions.tobytes() + b"\n")
    return digest.hexdigest()[:24]


def read_growth(folder: Path) -> dict[Lost, float]:
    """Read the growth that is written in the small files of a folder, by what is lost."""
    known: dict[Lost, float] = {}
    for path in sorted(folder.glob("*.json")):
        try:
            for lost, growth in json.loads(path.read_bytes()).items():
                rules, left = map(bytes.fromhex, lost.split(":"))
                known[rules, left] = growth
        except (OSError, ValueError, AttributeError):
            log.warning("'%s' cannot be read and is not used; it may be removed", path)
    return known

"""Choose settings for a user's table: model, link, split, batch, epochs and warm-up, each with its reason."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dglcell.baselines.simple import not_fitness_like
from dglcell.cluster.scripts import SMALLEST, job_time
from dglcell.config.read import BASES
from dglcell.data.columns import CONDITION, MEDIUM
from dglcell.data.config import NONE
from dglcell.data.sources.guides import MISMATCH
from dglcell.data.strains import Strains
from dglcell.errors import ConfigError, DataError, count, listing
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.schema import CATALYSES

GROWTH, PAIRS = "hetero_cell", "set_operator"

FEW = 1_000
"""With fewer strains than this, a tenth of them is too small a part to measure anything."""

INSILICO, FBA = "insilico", "fba_growth"
"""Labels of this source are what flux balance analysis computes, and the covariate of this name is."""

MOST_SIMULATED = 5_000
"""Most strains for which `init` asks for growth by flux balance analysis, which takes a minute or two."""

WARM_UP = 0.05
"""The learning rate rises in this fraction of the steps."""

SECONDS_AT_START, GIGABYTES_AT_START = 12.0, 0.8
"""What a run takes without strains."""

SPARE_TIME, SPARE_MEMORY = 8, 2
"""A job of SLURM asks for the estimate times this, because others may use its machine, too."""

WIDTH = 80
"""This is the width of a terminal."""


def lacking_genes(table: Strains, cell: CellGraph) -> NDArray[np.bool_]:
    """Return which strains delete a gene that the cell graph lacks, [S] bool. These cannot train."""
    unknown = np.array([cell.genes.find(name) not in cell.genes for name in table.names], dtype=bool)
    lacks: NDArray[np.bool_] = table.total(unknown[table.targets]) > 0
    return lacks


@dataclass(frozen=True)
class Facts:
    """Hold what decides the choices, of the strains whose genes are all in the cell graph. No other strains train."""

    strains: int
    fewest: int  #: smallest number of deletions of a strain
    most: int
    classes: bool  #: all labels are 0 or 1
    fitness: bool  #: all labels look like a growth relative to the wild type
    genes: int  #: of the cell graph
    metabolic: bool = False  #: most of the deleted genes have reactions in the cell graph
    known: bool = True  #: other strains change the same genes, for most strains
    weakened: bool = False  #: strains weaken genes, to strengths that the table has or that are learned
    conditions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  #: of the strains → their categories
    rare: tuple[str, ...] = ()  #: conditions that differ between most strains, so that they say nothing of a new one
    strength_from: tuple[str, ...] = ()  #: conditions that strengths are learned from
    simulated: bool = False  #: flux balance analysis has made the labels

    @classmethod
    def of(cls, table: Strains, cell: CellGraph, strength_from: Sequence[str] = ()) -> Facts:
        """Collect the facts about a table of strains on a cell graph.

        Args:
            table: the strains.
            cell: the cell graph.
            strength_from: conditions that what is left of genes is learned from, if they are not rare.
        """
        kept = ~lacking_genes(table, cell)
        if not kept.any():
            raise DataError(
                "every strain deletes a gene that the cell graph lacks",
                got=listing(name for name in table.names if cell.genes.find(name) not in cell.genes),
                expected="names like " + cell.genes.examples(),
                do="choose another `--cell`, or give a table of other names of genes with `--aliases FILE`",
            )
        deletions = table.num_deletions[kept]
        labels = [values[kept & ~np.isnan(values)] for values in table.phenotypes.values()]
        classes = all(set(np.unique(values)) <= {0.0, 1.0} for values in labels)
        with_reactions = set(np.unique(cell.edges(CATALYSES).src).tolist() if CATALYSES in cell.relations else [])
        deleted, times = np.unique(table.targets[np.repeat(kept, table.num_deletions)], return_counts=True)
        met = [cell.genes.index(cell.genes.find(table.names[gene])) for gene in deleted]
        new = table.total(np.isin(table.targets, deleted[times == 1]))[kept] > 0
        rare = tuple(name for name, values in table.conditions.items() if 2 * len(values) > len(deletions))
        learned = tuple(name for name in strength_from if name not in rare)
        return cls(
            len(deletions),
            int(deletions.min()),
            int(deletions.max()),
            classes,
            not classes and all(len(values) and not_fitness_like(values) is None for values in labels),
            len(cell.genes),
            2 * len(with_reactions.intersection(met)) > len(met),
            bool(new.mean() < 0.5),
            bool(learned) or table.strengths is not None,
            table.conditions,
            rare,
            learned,
            table.provenance.source == INSILICO,
        )

    @property
    def varied(self) -> bool:
        """Return whether strains differ by more than the genes that they delete."""
        return self.weakened or bool(self.conditions)

    @property
    def what(self) -> str:
        """Describe the labels in words."""
        return "classes" if self.classes else "growth" if self.fitness else "scores"

    def model(self) -> tuple[str, str]:
        """Choose a model, and return it with the reason."""
        if self.fitness:
            return GROWTH, "labels look like growth: each strain's own graph, with the reactions that it loses"
        if self.fewest < 2 and self.classes:
            return GROWTH, "classes of strains, single deletions among them: each strain's own graph"
        if self.most < 2:
            return GROWTH, "single deletions alone: each strain's own graph"
        if self.metabolic:
            why = "most deleted genes have reactions: each strain's own graph says which are lost"
            return GROWTH, f"{self.what}, and {why}"
        return PAIRS, f"{self.what} of several deletions: products of genes' vectors, over the wild type's graph"


class Pace(NamedTuple):
    """Say how long a model is trained on tables, and what that takes."""

    steps: int  #: of the optimiser, for a small table; a large one has more, in its fewest epochs
    steps_of_epoch: int  #: approximately, as far as batches are not too small or large for that
    batches: tuple[int, int]  #: smallest and largest
    epochs: tuple[int, int]  #: fewest and most
    seconds_of_step: float  #: on one core of a server of 2023
    seconds_of_strain: float
    seconds_of_epoch: float


PACES = {
    GROWTH: Pace(600, 10, (8, 256), (8, 60), 0.012, 2e-4, 0.15),
    PAIRS: Pace(500, 24, (8, 2048), (10, 60), 0.02, 1e-5, 0.15),
}


def size_of(genes: int) -> float:
    """Return the size of a cell graph relative to 1,000 genes; smaller cell graphs cost as much as that."""
    return max(1.0, genes / 1000)


class Schedule(NamedTuple):
    """Say how long a table is trained."""

    strains: int  #: that train, approximately
    batch: int
    epochs: int

    @classmethod
    def of(cls, strains: int, model: str = GROWTH, genes: int = 0) -> Schedule:
        """Make a schedule. Few strains need small batches and many epochs, or the steps are too few to learn anything.

        A step on a large cell graph takes longer, so that there are fewer.
        """
        pace = PACES[model]
        (batch, largest), (fewest, most) = pace.batches, pace.epochs
        while batch < largest and strains >= 2 * batch * pace.steps_of_epoch:
            batch *= 2
        wanted = pace.steps / math.sqrt(size_of(genes))
        return cls(strains, batch, max(fewest, min(most, round(wanted / max(1, math.ceil(strains / batch))))))

    @property
    def steps(self) -> int:
        """Return the number of optimiser steps of the whole training."""
        return self.epochs * math.ceil(self.strains / self.batch)

    def seconds(self, model: str, genes: int) -> float:
        """Estimate how long training takes, null models included, on one core that nothing else uses."""
        pace, larger = PACES[model], size_of(genes)
        of_epochs = self.epochs * (pace.seconds_of_epoch + self.strains * pace.seconds_of_strain * larger)
        of_nulls = 2 * larger * (2 + min(self.strains, 20_000) / 500)
        return SECONDS_AT_START + self.steps * pace.seconds_of_step * larger + of_epochs + of_nulls

    def __str__(self) -> str:
        of = f"of about {count(self.strains, 'strain')} in batches of {self.batch}: {count(self.steps, 'step')}"
        return f"{count(self.epochs, 'epoch')} {of}"


@dataclass
class Settings:
    """Hold the settings that are chosen for a table: keys of the experiment's file, each with its reason."""

    model: str
    schedule: Schedule
    facts: Facts
    keys: dict[str, dict[str, Any]] = field(default_factory=dict)  #: section → key → value
    reasons: dict[str, str] = field(default_factory=dict)  #: dotted key → why it has its value

    def put(self, name: str, value: object, reason: str) -> None:
        """Set a key, given its dotted name, and note the reason for its value."""
        section, _, key = name.partition(".")
        self.keys.setdefault(section, {})[key] = value
        self.reasons[name] = reason

    @property
    def sentence(self) -> str:
        """Say in a sentence what is set up, and why."""
        facts = self.facts
        of = {1: "single genes", 2: "pairs of genes", 3: "triples of genes"}.get(facts.most, "sets of genes")
        strong = "an additive ridge" if facts.most < 2 else "a kernel ridge"
        strong = "a kernel ridge of lost reactions" if facts.metabolic else strong
        strong = "a kernel ridge over strains" if facts.varied else strong
        over = "each strain's own graph" if self.model == GROWTH else "the wild type"
        return (
            f"{facts.what} of {of}: {strong} is hard to beat; the network passes messages over {over}; both are "
            "trained, and the better of them or their mean predicts"
        )

    @property
    def minutes(self) -> int:
        """Estimate how many minutes the training takes on one free core."""
        return max(1, math.ceil(self.schedule.seconds(self.model, self.facts.genes) / 60))

    @property
    def gigabytes(self) -> float:
        """Estimate how many gigabytes of memory the training takes."""
        return GIGABYTES_AT_START + self.facts.genes / 10_000 + self.facts.strains / 100_000

    @property
    def cost(self) -> str:
        """Describe the estimates of time and memory in words."""
        return f"roughly {count(self.minutes, 'minute')} on one free core and {self.gigabytes:.1f} GB of memory"

    def __str__(self) -> str:
        texts = f"models      {self.sentence}", f"training    {self.schedule}; {self.cost}"
        lines = [line for text in texts for line in textwrap.wrap(text, WIDTH, subsequent_indent=" " * 12)]
        return "\n".join([*lines, "settings    each is in the file, with its reason"])


def choose_settings(facts: Facts, split: str, model: str | None = None) -> Settings:
    """Choose the settings that a table does not give.

    Args:
        facts: facts about the table.
        split: kind of split.
        model: model that the user asked for.
    """
    if model is not None and model not in BASES:
        raise ConfigError("no settings for this model", got=f"`--model {model}`", expected=" or ".join(BASES))
    name, why = facts.model() if model is None else (model, "as `--model` says")
    fractions = (0.7, 0.15, 0.15) if facts.strains < FEW else (0.8, 0.1, 0.1)
    trained = facts.strains if split == NONE else round(facts.strains * fractions[0])
    chosen = Settings(name, Schedule.of(trained, name, facts.genes), facts)
    chosen.reasons["extends"] = why
    _choose_split(chosen, split, fractions)
    if name == GROWTH and facts.metabolic and (facts.fitness or facts.classes):
        reason = "what a strain cannot use any more is lost too: genes of one pathway are then alike"
        chosen.put("cell.lose_blocked", True, reason)
    _choose_fba(chosen)
    if facts.rare:
        seen = {name: list(values) for name, values in facts.conditions.items() if name not in facts.rare}
        seen |= {FBA: []} if "fba" in chosen.keys.get("data", {}) else {}
        reason = "differs between most strains and says nothing of a new one; it keeps strains apart"
        chosen.put("model.conditions", seen, f"{listing(facts.rare)} {reason}")
    if facts.strength_from:
        reason = "what is left of a gene is learned from these; the table does not say it"
        chosen.put("model.strength_from", list(facts.strength_from), reason)
        if facts.strength_from != (MISMATCH,):
            chosen.put("model.strength_hidden", 0, "a number for each allele and class")
    _choose_link(chosen)
    _choose_pace(chosen)
    return chosen


def _choose_split(chosen: Settings, kind: str, fractions: Sequence[float]) -> None:
    facts = chosen.facts
    if kind == NONE:
        chosen.put("split.kind", kind, "every strain trains, as was asked for")
        chosen.put("trainer.checkpoint", "last", "no validation part says which epoch is best")
        return
    chosen.put("split.kind", kind, _about_split(kind, facts))
    if kind == CONDITION and facts.conditions:
        condition = MEDIUM if MEDIUM in facts.conditions else next(iter(facts.conditions))
        chosen.put("split.condition", condition, "its test values are new to the model")
    parts = f"of {count(facts.strains, 'strain')}, which are few, more are kept to validate and test"
    parts = parts if facts.strains < FEW else "a tenth validates, a tenth tests"
    chosen.put("split.fractions", list(fractions), parts)


def _about_split(kind: str, facts: Facts) -> str:
    if kind != "random":
        return "as `--split` says"
    if not facts.known:
        return "most strains change a gene that no other strain changes, so that test strains have new genes"
    new_genes = "genes that mostly trained; `gene_disjoint` tests new genes"
    if facts.varied:
        of = [*["strengths"] * facts.weakened, *["conditions"] * bool(facts.conditions)]
        media = f", `{CONDITION}` new media" if MEDIUM in facts.conditions else ""
        return f"test strains have new {' and '.join(of)} of {new_genes}{media}"
    return f"test strains are new combinations of {new_genes}"


def _choose_fba(chosen: Settings) -> None:
    """Give tables of growth what the metabolic model says, where it knows most genes and takes seconds to compute.

    Links that compare strains with measured ones take no covariates, so that tables which have these links get none;
    and what is left of a gene has to be known.
    """
    facts = chosen.facts
    compares = facts.fitness and facts.most > 1 and not facts.varied
    if chosen.model != GROWTH or not facts.metabolic or facts.simulated or compares or facts.strength_from:
        return
    if (facts.fitness or facts.most < 2) and facts.strains <= MOST_SIMULATED:
        reason = "the metabolic model's growth of each strain, which the network and baselines see; null: none"
        chosen.put("data.fba", {"name": FBA}, reason)


def _choose_link(chosen: Settings) -> None:
    facts, put = chosen.facts, chosen.put
    if facts.classes and "checkpoint" not in chosen.keys.get("trainer", {}):
        put("trainer.checkpoint", "best_average_precision", "ranks strains well even if a class is rare")
    if facts.classes and chosen.model == GROWTH:
        put("data.normalise", "logistic", "labels are 0 and 1: the model predicts log-odds")
        put("loss.name", "bce", "the loss of classes")
    elif facts.classes:
        put("loss.name", "mse", "0 and 1 are taken as numbers, which ranks pairs better than log-odds here")
    elif chosen.model == GROWTH and facts.fitness and facts.most > 1 and not facts.varied:
        put("model.link", "minimum", "a strain grows at most as well as one that loses a part of the same")
    elif chosen.model == GROWTH and facts.fitness:
        put("model.link", "log", "growth is positive, and effects of deletions multiply")
    else:
        put("model.link", "identity", "scores add up")


def _choose_pace(chosen: Settings) -> None:
    """Choose how long is trained, and what a job of SLURM asks for."""
    schedule, put = chosen.schedule, chosen.put
    steps = count(schedule.steps, "step")
    put("data.batch_size", schedule.batch, f"{count(schedule.strains, 'training strain')}")
    put("data.eval_batch_size", 4096, "evaluation needs no gradients")
    put("trainer.epochs", schedule.epochs, f"{steps} in all; small tables have more epochs")
    put("scheduler.warmup", round(WARM_UP * schedule.steps), f"a twentieth of the {steps}")
    if chosen.model == PAIRS:
        decay = round(2.5 * (110_000 / max(1, schedule.strains)) ** 0.3, 1)
        put("optimizer.weight_decay", decay, "the fewer strains, the stronger; 2.5 for 110,000")
    about = f"of a SLURM job: {SPARE_TIME} times the estimate, at least half an hour; `auto` goes by a finished run"
    put("slurm.time", job_time(SPARE_TIME * 60 * chosen.minutes), about)
    memory = max(SMALLEST, math.ceil(SPARE_MEMORY * chosen.gigabytes))
    put("slurm.memory", f"{memory}G", f"of a SLURM job: {SPARE_MEMORY} times the estimate, at least {SMALLEST} GB")

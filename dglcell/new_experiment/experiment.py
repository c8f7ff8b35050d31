"""Write a user's first experiment for a table: choose its settings, each with its reason."""

from __future__ import annotations

import math
import re
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np
import yaml

from dglcell.baselines.simple import MOST_NEGATIVE, not_fitness_like
from dglcell.config.experiment import Config
from dglcell.config.read import BASES, as_plain_text, load_config
from dglcell.data.columns import COVARIATE, MEDIUM
from dglcell.data.config import NONE
from dglcell.data.sources import SourceConfig, load_source
from dglcell.data.sources.config import CsvConfig
from dglcell.data.sources.csv_table import MISMATCH
from dglcell.data.strains import Strains
from dglcell.errors import ConfigError, DataError, count, listing
from dglcell.files.atomic import atomic_file
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.schema import CATALYSES
from dglcell.new_experiment.table import OTHER_CELL, Wanted, find_cell, read_own_table

GROWTH, PAIRS = "hetero_cell", "set_operator"

FEW = 1_000  # with fewer strains a tenth of them is too small a part to measure anything
FEW_VALUES, SHOWN = 5, 10  # values of a covariate that a message lists, and genes that it names


def write_experiment(wanted: Wanted) -> str:
    """Write the file of an experiment, and return what the user has to know about the strains and the settings."""
    cell, keys = find_cell(wanted)
    own = read_own_table(wanted, cell, keys.get("cell", {}).get("model"))
    content = {"extends": keys.pop("extends"), "experiment": {"name": wanted.file.stem}, **keys}
    content["data"] = {"source": {"name": "csv", "csv": _column_keys(own.config)}}
    table = load_source(SourceConfig("csv", csv=own.config))
    content["data"] |= {"unknown_genes": "drop"} if (cell.genes.meant(table.names) < 0).any() else {}
    chosen = choose_settings(Facts.of(table, cell, own.activity_from), wanted.split, wanted.model)
    content["extends"].append(BASES[chosen.model])
    for section, settings in chosen.keys.items():
        content[section] = {**content.get(section, {}), **settings}
    head = (
        _comment(f"Strains of {wanted.table.name} on the cell graph of {wanted.cell}."),
        _comment(f"{chosen.sentence}."),
        f"# `dglcell config show {shlex.quote(str(wanted.file))}` prints every key with its default.",
        _comment(f"{chosen.schedule}."),
        _comment("Comments say why each key has its value. Keys without a comment say what the table is."),
    )
    text = "\n".join([*head, with_reasons(content, chosen.reasons)])
    with atomic_file(wanted.file) as partial:
        partial.write_text(text, encoding="utf-8")
        config = load_config(partial)
    return "\n".join([*_about_strains(config, table, cell), str(chosen), *own.notes])


def _column_keys(config: CsvConfig) -> dict[str, Any]:
    """Return the keys of `data.source.csv` that differ from their defaults."""
    default, keys = asdict(CsvConfig()), asdict(config)
    if config.guides is not None:
        keys["guides"] = {name: value for name, value in keys["guides"].items() if value}
    return {name: value for name, value in keys.items() if value != default[name]}


def with_reasons(content: Mapping[str, Any], reasons: Mapping[str, str]) -> str:
    """Return an experiment as YAML, with the reason for a key, which ``reasons`` has by its dotted name, above it."""
    lines, path = list[str](), list[str]()
    for line in yaml.safe_dump(as_plain_text(dict(content)), sort_keys=False, allow_unicode=True).splitlines():
        if found := re.match(r"( *)([\w-]+):", line):
            path = [*path[: len(found[1]) // 2], found[2]]
            if reason := reasons.get(".".join(path)):
                lines.append(_comment(reason, found[1]))
        lines.append(line)
    return "\n".join(lines) + "\n"


def _comment(text: str, indent: str = "") -> str:
    begin = f"{indent}# "
    return textwrap.TextWrapper(120, begin, begin, break_long_words=False, break_on_hyphens=False).fill(text)


def _about_strains(config: Config, table: Strains, cell: CellGraph) -> list[str]:
    """Describe strains, and compare their genes with those of the cell graph."""
    deletions, strains = np.unique(table.num_deletions, return_counts=True)
    sizes = [f"{number:,} of {count(size, 'gene')}" for size, number in zip(deletions, strains, strict=True)]
    left = table.left()[table.left() > 0]
    weakened = len(left) or config.model.activity_from
    lines = [f"strains     {len(table):,}, phenotypes {', '.join(table.phenotypes)}"]
    lines.append(f"{'changes' if weakened else 'deletions':11} {', '.join(sizes)}")
    if len(left):
        gone = count(len(table.targets) - len(left), "deletion")
        lines.append(f"activities   {left.min():g} to {left.max():g}; {gone}")
    shown = [(name, of) for name, of in table.of_kind(COVARIATE).items() if not name.startswith(MISMATCH)]
    for i, (name, of) in enumerate(shown):
        values = table.covariates[name]
        some = listing(values, FEW_VALUES) if values else f"{of.min():g} to {of.max():g}"
        lines.append(f"{'' if i else 'covariates':11} {name}: {some}")
    if positions := len(table.covariates) - len(shown):
        lines.append(f"mismatches  where guides do not match, {positions} positions")
    index = cell.genes.meant(table.names)
    unknown = [name for name, found in zip(table.names, index, strict=True) if found < 0]
    if table.names:
        share, changed = 1 - len(unknown) / len(table.names), "changed" if weakened else "deleted"
        lines.append(f"genes       {len(table.names):,} are {changed}, {share:.0%} of them are in the cell graph")
    if unknown:
        share = (table.total(index[table.targets] < 0) > 0).mean()
        lines.append(f"unknown     {count(len(unknown), 'gene')}, in {share:.0%} of the strains:")
        lines += [f"  {name}" for name in unknown[:SHOWN]]
        lines += [f"  and {len(unknown) - SHOWN:,} more"] * (len(unknown) > SHOWN)
        lines += ["`cell.more_genes: FILE:COLUMN` adds these genes, without edges."]
        lines += ["Training leaves these strains out: `data.unknown_genes: drop`."]
    return lines


# Settings that a table does not give: model, link, split, batch, epochs and warm-up.


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
    weakened: bool = False  #: strains weaken genes, to activities that the table has or that are learned
    covariates: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  #: of the strains → their categories
    rare: tuple[str, ...] = ()  #: covariates that differ between most strains, so that they say nothing of a new one
    activity_from: tuple[str, ...] = ()  #: covariates that activities are learned from

    @classmethod
    def of(cls, table: Strains, cell: CellGraph, activity_from: Sequence[str] = ()) -> Facts:
        """Collect the facts about a table; what is left of genes is learned from ``activity_from``, unless rare."""
        index = cell.genes.meant(table.names)
        kept = table.total(index[table.targets] < 0) == 0
        if not kept.any():
            what, expected = "every strain deletes a gene that the cell graph lacks", cell.genes.examples()
            got = listing(name for name, found in zip(table.names, index, strict=True) if found < 0)
            raise DataError(what, got=got, expected=f"names like {expected}", do=OTHER_CELL)
        deletions = table.num_deletions[kept]
        labels = [values[kept & ~np.isnan(values)] for values in table.phenotypes.values()]
        binary = [set(np.unique(values)) <= {0.0, 1.0} for values in labels]
        with_reactions = set(np.unique(cell.edges(CATALYSES).src).tolist() if CATALYSES in cell.relations else [])
        deleted, times = np.unique(table.targets[np.repeat(kept, table.num_deletions)], return_counts=True)
        new = table.total(np.isin(table.targets, deleted[times == 1]))[kept] > 0
        rare = tuple(name for name, values in table.covariates.items() if 2 * len(values) > len(deletions))
        learned = tuple(name for name in activity_from if name not in rare)
        return cls(
            len(deletions),
            int(deletions.min()),
            int(deletions.max()),
            all(binary),
            # With half of what training takes for noise, as its part has fewer strains.
            not any(binary) and all(len(of) and not_fitness_like(of, MOST_NEGATIVE / 2) is None for of in labels),
            len(cell.genes),
            2 * len(with_reactions.intersection(index[deleted].tolist())) > len(deleted),
            bool(new.mean() < 0.5),
            bool(learned) or table.activities is not None,
            table.covariates,
            rare,
            learned,
        )

    @property
    def varied(self) -> bool:
        """Return whether strains differ by more than the genes that they delete."""
        return self.weakened or bool(self.covariates)

    @property
    def what(self) -> str:
        """Describe the labels in words."""
        return "classes" if self.classes else "growth" if self.fitness else "scores"

    @property
    def compares(self) -> bool:
        """Return whether the link compares strains with measured ones that lose a part of the same."""
        return self.fitness and self.most > 1 and not self.varied

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


class Schedule(NamedTuple):
    """Say how long a table is trained."""

    strains: int  #: that train, approximately
    batch: int
    epochs: int

    @classmethod
    def of(cls, strains: int, model: str = GROWTH, genes: int = 0) -> Schedule:
        """Make a schedule. Few strains need small batches and many epochs, or the steps are too few to learn anything.

        A large table has more steps, in the fewest epochs. A step on a large cell graph takes longer, so that there are
        fewer.
        """
        steps, steps_of_epoch, largest, fewest = (600, 10, 256, 8) if model == GROWTH else (500, 24, 2048, 10)
        batch = 8
        while batch < largest and strains >= 2 * batch * steps_of_epoch:
            batch *= 2
        wanted = steps / math.sqrt(max(1.0, genes / 1000))
        return cls(strains, batch, max(fewest, min(60, round(wanted / max(1, math.ceil(strains / batch))))))

    @property
    def steps(self) -> int:
        """Return the number of optimiser steps of the whole training."""
        return self.epochs * math.ceil(self.strains / self.batch)

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

    def __str__(self) -> str:
        texts = f"models      {self.sentence}", f"training    {self.schedule}"
        lines = [line for text in texts for line in textwrap.wrap(text, 80, subsequent_indent=" " * 12)]
        return "\n".join([*lines, "settings    each is in the file, with its reason"])


def choose_settings(facts: Facts, split: str, model: str | None = None) -> Settings:
    """Choose the settings that a table does not give, for a kind of split, and a model if the user asked for one."""
    if model is not None and model not in BASES:
        raise ConfigError("no settings for this model", got=f"`--model {model}`", expected=" or ".join(BASES))
    name, why = facts.model() if model is None else (model, "as `--model` says")
    fractions = (0.7, 0.15, 0.15) if facts.strains < FEW else (0.8, 0.1, 0.1)
    trained = facts.strains if split == NONE else round(facts.strains * fractions[0])
    chosen = Settings(name, Schedule.of(trained, name, facts.genes), facts, reasons={"extends": why})
    if split == NONE:
        chosen.put("split.kind", split, "every strain trains, as was asked for")
        chosen.put("trainer.checkpoint", "last", "no validation part says which epoch is best")
    else:
        chosen.put("split.kind", split, _about_split(facts) if split == "random" else "as `--split` says")
        if split == "covariate" and facts.covariates:
            covariate = MEDIUM if MEDIUM in facts.covariates else next(iter(facts.covariates))
            chosen.put("split.covariate", covariate, "its test values are new to the model")
        few = f"of {count(facts.strains, 'strain')}, which are few, more are kept to validate and test"
        chosen.put("split.fractions", [*fractions], few if facts.strains < FEW else "a tenth validates, a tenth tests")
    _choose_inputs(chosen)
    _choose_link(chosen)
    _choose_pace(chosen)
    return chosen


def _about_split(facts: Facts) -> str:
    if not facts.known:
        return "most strains change a gene that no other strain changes, so that test strains have new genes"
    new = "are new combinations of"
    if facts.varied:
        of = ["activities"] * facts.weakened + ["covariates"] * bool(facts.covariates)
        new = f"have new {' and '.join(of)} of"
    media = ", `covariate` new media" if MEDIUM in facts.covariates else ""
    return f"test strains {new} genes that mostly trained; `gene_disjoint` tests new genes{media}"


def _choose_inputs(chosen: Settings) -> None:
    """Choose what the model is told of strains beside their genes."""
    facts, put = chosen.facts, chosen.put
    of_metabolism = chosen.model == GROWTH and facts.metabolic
    if of_metabolism and (facts.fitness or facts.classes):
        reason = "what a strain cannot use any more is lost too: genes of one pathway are then alike"
        put("cell.lose_blocked", True, reason)
    # Links that compare strains with measured ones take no covariates, and flux balance analysis has to know what is
    # left of a gene. It takes a minute or two for so few strains.
    takes_growth = of_metabolism and not (facts.compares or facts.activity_from)
    if takes_growth and (facts.fitness or facts.most < 2) and facts.strains <= 5_000:
        reason = "the metabolic model's growth of each strain, which the network and baselines see; null: none"
        put("data.fba", {"name": "fba_growth"}, reason)
    if facts.rare:
        seen = {name: list(values) for name, values in facts.covariates.items() if name not in facts.rare}
        seen |= {"fba_growth": []} if "fba" in chosen.keys.get("data", {}) else {}
        reason = "differs between most strains and says nothing of a new one; it keeps strains apart"
        put("model.covariates", seen, f"{listing(facts.rare)} {reason}")
    if facts.activity_from:
        reason = "what is left of a gene is learned from these; the table does not say it"
        put("model.activity_from", list(facts.activity_from), reason)
        if facts.activity_from != (MISMATCH,):
            put("model.activity_hidden", 0, "a number for each allele and class")


def _choose_link(chosen: Settings) -> None:
    facts, put = chosen.facts, chosen.put
    if facts.classes and "checkpoint" not in chosen.keys.get("trainer", {}):
        put("trainer.checkpoint", "best_average_precision", "ranks strains well even if a class is rare")
    if facts.classes and chosen.model == GROWTH:
        put("data.normalise", "logistic", "labels are 0 and 1: the model predicts log-odds")
        put("loss.name", "bce", "the loss of classes")
    elif facts.classes:
        put("loss.name", "mse", "0 and 1 are taken as numbers, which ranks pairs better than log-odds here")
    elif chosen.model == GROWTH and facts.compares:
        put("model.link", "minimum", "a strain grows at most as well as one that loses a part of the same")
    elif chosen.model == GROWTH and facts.fitness:
        put("model.link", "log", "growth is positive, and effects of deletions multiply")
    else:
        put("model.link", "identity", "scores add up")


def _choose_pace(chosen: Settings) -> None:
    schedule, put = chosen.schedule, chosen.put
    steps = count(schedule.steps, "step")
    put("data.batch_size", schedule.batch, f"{count(schedule.strains, 'training strain')}")
    put("data.eval_batch_size", 4096, "evaluation needs no gradients")
    put("trainer.epochs", schedule.epochs, f"{steps} in all; small tables have more epochs")
    put("scheduler.warmup", round(0.05 * schedule.steps), f"a twentieth of the {steps}")
    if chosen.model == PAIRS:
        decay = round(2.5 * (110_000 / max(1, schedule.strains)) ** 0.3, 1)
        put("optimizer.weight_decay", decay, "the fewer strains, the stronger; 2.5 for 110,000")
    put("slurm.time", "4:00:00", "of a SLURM job, which is queued again if that is too short")
    put("slurm.memory", "16G", "of a SLURM job")

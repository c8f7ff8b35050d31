"""Job arrays: one experiment with several seeds and values of keys."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dglcell.errors import ConfigError

OWN = ("seed", "experiment.name")
"""Keys that members are told by themselves."""

LONGEST = 200
"""Letters of a member's name, at most: file systems take 255."""


@dataclass(frozen=True)
class Sweep:
    """The members of a job array: every combination of values, each with every seed.

    Attributes:
        seeds: of each combination; the experiment's own where empty.
        values: dotted key → values, as written on a command line.
        split_seeds: whether a member's seed is also `split.seed`, so that its strains are divided anew.
    """

    seeds: tuple[int, ...] = ()
    values: tuple[tuple[str, tuple[str, ...]], ...] = ()
    split_seeds: bool = False

    @classmethod
    def parse(cls, seeds: str | None, values: Sequence[str], split_seeds: bool = False) -> Sweep:
        """Read a command line's options.

        Args:
            seeds: e.g. ``0-4`` or ``0,3,7``.
            values: e.g. ``optimizer.lr=1e-3,1e-4`` or ``cell.derived=[isoenzyme],[shares_complex,isoenzyme]``.
            split_seeds: see ``Sweep``.

        Raises:
            ConfigError: they are not of these forms, a value stands twice, or there is no seed for the splits.
        """
        if split_seeds and not seeds:
            raise ConfigError("`--split-seeds` needs seeds", do="give `--seeds`, e.g. --seeds 0-4")
        keys = tuple(_values(value) for value in values)
        swept = [key for key, _ in keys]
        for key in swept:
            if key in OWN or (split_seeds and key == "split.seed"):
                raise ConfigError("`--sweep` cannot take this key", got=key, do="see `--seeds` and `--split-seeds`")
            if swept.count(key) > 1:
                raise ConfigError("`--sweep` names a key twice", got=key, do="put its values into one list")
        return cls(tuple(_seeds(seeds)) if seeds else (), keys, split_seeds)

    def members(self, experiment: str) -> list[list[str]]:
        """Overrides of every member, the array's task 0 first.

        Members with other values are other experiments: their names carry the values, so that their run directories
        differ.

        Raises:
            ConfigError: two members would have one name, or a name is too long.
        """
        chosen = list(itertools.product(*([f"{key}={value}" for value in values] for key, values in self.values)))
        names = [_name(words) for words in chosen]
        for name in names:
            if names.count(name) > 1 or len(name) > LONGEST:
                what = "is too long" if len(name) > LONGEST else "stands for several members"
                raise ConfigError(
                    f"the name of a sweep's member {what}", got=name, do="submit these values one by one, with names"
                )
        return [
            list(self._member(f"{experiment}/{name}", list(words), seed))
            for name, words in zip(names, chosen, strict=True)
            for seed in self.seeds or (None,)
        ]

    def _member(self, name: str, chosen: list[str], seed: int | None) -> Iterator[str]:
        yield from chosen
        if chosen:
            yield f"experiment.name={name}"
        if seed is not None:
            yield f"seed={seed}"
            if self.split_seeds:
                yield f"split.seed={seed}"


def _name(words: Sequence[str]) -> str:
    """Of a folder: what is more than a word becomes a dash."""
    return "_".join(re.sub(r"[^\w.=+-]+", "-", word).strip("-") for word in words)


def _seeds(text: str) -> list[int]:
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not (last.isdecimal() and int(first) <= int(last))):
            raise ConfigError("`--seeds` is no list of seeds", got=text, expected="e.g. 0-4 or 0,3,7")
        seeds += range(int(first), int(last if dash else first) + 1)
    if len(set(seeds)) < len(seeds):
        raise ConfigError("`--seeds` names a seed twice", got=text)
    return seeds


def _values(text: str) -> tuple[str, tuple[str, ...]]:
    key, equals, values = text.partition("=")
    chosen = tuple(value.strip() for value in _split(values))
    if not (key and equals and all(chosen)):
        raise ConfigError("`--sweep` is not of the form key=value,value", got=text, do="e.g. optimizer.lr=1e-3,1e-4")
    if len(set(chosen)) < len(chosen):
        raise ConfigError("`--sweep` names a value twice", got=text)
    return key, chosen


def _split(text: str) -> list[str]:
    """At commas that stand in no brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "[{") - (letter in "]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts

"""Job arrays: one experiment with several seeds and values of keys."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dglcell.errors import ConfigError


@dataclass(frozen=True)
class Sweep:
    """The members of a job array: every combination of values, each with every seed.

    Attributes:
        seeds: of each combination; the experiment's own where empty.
        values: dotted key → values, as written on a command line.
    """

    seeds: tuple[int, ...] = ()
    values: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @classmethod
    def parse(cls, seeds: str | None, values: Sequence[str]) -> Sweep:
        """Read a command line's options.

        Args:
            seeds: e.g. ``0-4`` or ``0,3,7``.
            values: e.g. ``optimizer.lr=1e-3,1e-4``.

        Raises:
            ConfigError: they are not of these forms, or a value stands twice.
        """
        return cls(tuple(_seeds(seeds)) if seeds else (), tuple(_values(value) for value in values))

    def members(self, experiment: str) -> list[list[str]]:
        """Overrides of every member, the array's task 0 first.

        Members with other values are other experiments: their names carry the values, so that their run directories
        differ.
        """
        combinations = itertools.product(*([f"{key}={value}" for value in values] for key, values in self.values))
        return [
            list(self._member(experiment, list(chosen), seed))
            for chosen in combinations
            for seed in self.seeds or (None,)
        ]

    def _member(self, experiment: str, chosen: list[str], seed: int | None) -> Iterator[str]:
        yield from chosen
        if chosen:
            yield f"experiment.name={experiment}/{'_'.join(chosen).replace('/', '-')}"
        if seed is not None:
            yield f"seed={seed}"


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
    chosen = tuple(value.strip() for value in values.split(","))
    if not (key and equals and all(chosen)):
        raise ConfigError("`--sweep` is not of the form key=value,value", got=text, do="e.g. optimizer.lr=1e-3,1e-4")
    if any(character.isspace() for character in text):
        raise ConfigError("`--sweep` holds a blank", got=text, do="write lists without blanks, e.g. key=[a,b]")
    if len(set(chosen)) < len(chosen):
        raise ConfigError("`--sweep` names a value twice", got=text)
    return key, chosen

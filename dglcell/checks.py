"""Check single values of a configuration, by rules for every key and by the type of each key.

A type has its rules as functions behind it: ``layers: Annotated[int, at_least(1)] = 3``. Rules *between* keys are in
the methods ``validate`` of their dataclasses.
"""

from __future__ import annotations

import functools
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import ConfigError, did_you_mean

LARGEST_INTEGER = 2**31 - 1
LARGEST_SEED = 2**32 - 1
MOST_WORKERS = 4_096
"""Most threads or processes."""

LONGEST_NAME = 255
"""Most bytes that file systems allow in a file's name."""

LEAST_STRENGTH = 1e-6
"""A target that is not deleted has at least this strength: means divide by it, and less is no measurement."""

STRONGEST = 10.0
"""Larger strengths look like percent, because a gene is seldom expressed ten times as strongly as in the wild type."""

A_STRENGTH = f"0 for a deletion, 1 for the wild type, or another finite number from {LEAST_STRENGTH:g} upwards"
"""Messages say this of what they expect."""

AUTO = "auto"
"""This stands in place of a number that is found by measuring."""

MANY_LINES = "experiment.description"
"""This is the only text that may have several lines; comments have it as one line."""

REPEATABLE = re.compile(r"slurm\..*|.*\.na_values")
"""In these lists of shell lines and of cells, an item may be empty and may come again."""

LINE_ENDS = {"Cc", "Cs", "Zl", "Zp"}
"""These Unicode categories are control characters, halves of characters, and separators of lines and of paragraphs."""

HIDDEN = "***"
"""This stands for every value of ``slurm.environment``, which may be a token, wherever a configuration is written."""


def shown(key: str, value: object) -> object:
    """Return the value of a key as messages may show it."""
    return HIDDEN if key.startswith("slurm.environment") else value


def no_strengths(values: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Return which numbers are no strengths of a target."""
    # The limit is that of single precision, in which tables keep strengths.
    return ~(np.isfinite(values) & ((values == 0) | (values >= np.float32(LEAST_STRENGTH))))


def check_values(value: Any, key: str = "") -> None:
    """Refuse values that their types do not allow, or that nothing could work with, in any section, list or mapping.

    The latter are control characters, numbers that are not finite or need more than 32 bits (seeds have their own
    limit), lists with an item twice or with an empty name, and empty lists where null would mean all.

    Args:
        value: a section, a list, a mapping, or a single value.
        key: its dotted path, for the message.

    Raises:
        ConfigError: naming the key.
    """
    if is_dataclass(value):
        hints: Mapping[str, Any] = _hints(type(value))  # type: ignore[arg-type]
        for part in fields(value):
            below, item = f"{key}.{part.name}".lstrip("."), getattr(value, part.name)
            hint = hints[part.name]
            if item == [] and type(None) in get_args(hint):
                raise ConfigError(f"`{below}` is an empty list", expected="at least one, or null for all")
            checks = _checks(hint, item)
            if not any(isinstance(check, OneOf) or check is check_seed for check in checks):
                check_values(item, below)
            for check in checks:
                check(below, item)
    elif isinstance(value, Mapping):
        for name, item in value.items():
            _check_name(name, f"{key} (a name in it)")
            check_values(item, f"{key}.{name}")
    elif isinstance(value, (list, tuple)):
        _check_list(value, key)
        for number, item in enumerate(value):
            check_values(item, f"{key}[{number}]")
    elif isinstance(value, str):
        check_one_line(value, key)
    elif isinstance(value, (int, float)):
        _check_number(value, key)


def check_choice(
    key: str, value: Any, known: Iterable[object], otherwise: str | None = None, show: Callable[[Any], str] = str
) -> None:
    """Refuse a value that is none of a closed list.

    Args:
        key: dotted key.
        value: value of the key.
        known: allowed values; None for null.
        otherwise: what to do where no known value is close.
        show: function that returns how the message shows a value.

    Raises:
        ConfigError: the value is none of these; the message names the key and close values.
    """
    if value not in (known := list(known)):
        names = ["null" if one is None else show(one) for one in known if one != ""]
        do = did_you_mean(value, names, otherwise)
        raise ConfigError(f"`{key}` is unknown", got=show(value), expected=", ".join(names), do=do)


def check_one_line(text: str, key: str) -> None:
    """Refuse characters that would end a line, hide text, or mean something to a terminal.

    Values reach job scripts, paths, file names and messages to other programs, where a line break would begin a new
    command.

    Raises:
        ConfigError: naming the key.
    """
    allowed = "\n\r\t" if key == MANY_LINES else ""
    if any(unicodedata.category(letter) in LINE_ENDS and letter not in allowed for letter in text):
        raise ConfigError(f"`{key}` has a control character", got=shown(key, ascii(text)), expected="one line of text")


# Types have these functions of a key and its value, which raise a ``ConfigError`` that names the key.


Check = Callable[[str, Any], None]


def must(fits: Callable[[Any], bool], fault: str, expected: object = None, do: str | None = None) -> Check:
    """Make a check that values fit; its error says which fault the key has."""

    def check(key: str, value: Any) -> None:
        if not fits(value):
            raise ConfigError(f"`{key}` {fault}", got=value, expected=expected, do=do)

    return check


def at_least(least: float, fault: str = "is too small", also: str = "") -> Check:
    """Make a check that numbers are at least ``least``; ``also`` is added to what the error expects."""
    return must(lambda number: number >= least, fault, f"{least} or more{also}")


def positive(expected: str | None = None, do: str | None = None) -> Check:
    """Make a check that numbers are above zero."""
    return must(lambda number: number > 0, "must be positive", expected, do)


def below_one(what: str = "share") -> Check:
    """Make a check that numbers are 0 or more, and less than 1."""
    return must(lambda number: 0 <= number < 1, f"is no {what}", "0 or more, and less than 1")


@dataclass(frozen=True)
class OneOf:
    """Check that a value is one of ``known``, as ``check_choice`` does."""

    known: tuple[object, ...]
    show: Callable[[Any], str] = str

    def __call__(self, key: str, value: object) -> None:
        check_choice(key, value, self.known, show=self.show)


def one_of(*known: object) -> OneOf:
    """Make a check that values are among these."""
    return OneOf(known)


def check_seed(key: str, seed: int) -> None:
    """Refuse a seed that a generator of random numbers does not take."""
    if not 0 <= seed <= LARGEST_SEED:
        raise ConfigError(f"`{key}` is out of range", got=seed, expected=f"0 … {LARGEST_SEED}")


def check_workers(key: str, number: int | str) -> None:
    """Refuse more threads or processes than any machine has."""
    if isinstance(number, int) and number > MOST_WORKERS:
        raise ConfigError(f"`{key}` is too large", got=number, expected=f"{MOST_WORKERS} or fewer")


def check_count_or_auto(key: str, number: int | str) -> None:
    """Refuse values that are neither 1 or more nor ``AUTO``."""
    if isinstance(number, str) and number != AUTO:
        raise ConfigError(f"`{key}` is no number", got=number, expected=f"1 or more, or {AUTO}")
    if isinstance(number, int) and number < 1:
        raise ConfigError(f"`{key}` is too small", got=number, expected="1 or more")


Count = Annotated[int, at_least(1)]  # of something that there is
Number = Annotated[int, at_least(0)]  # of something that there may be none of
Positive = Annotated[float, positive()]
Seed = Annotated[int, check_seed]


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _checks(hint: Any, value: Any) -> list[Check]:
    """Return the functions behind a type, or behind the part of ``… | None`` that is not None."""
    if get_origin(hint) is Annotated:
        return [check for check in get_args(hint)[1:] if callable(check)]
    if value is None or type(None) not in get_args(hint):
        return []
    return [check for part in get_args(hint) for check in _checks(part, value)]


def _check_number(number: int | float, key: str) -> None:
    if not math.isfinite(number):
        raise ConfigError(f"`{key}` is no finite number", got=number, expected="a finite number")
    if isinstance(number, int) and abs(number) > LARGEST_INTEGER:
        raise ConfigError(f"`{key}` is too large", got=number, expected=f"at most {LARGEST_INTEGER}")


def _check_list(items: list[Any] | tuple[Any, ...], key: str) -> None:
    names = [] if REPEATABLE.fullmatch(key) else [item for item in items if isinstance(item, str)]
    for number, name in enumerate(names):
        if not name:
            raise ConfigError(f"`{key}` holds an empty name", got=list(items), do="remove it, or give it a name")
        if name in names[:number]:
            raise ConfigError(f"`{key}` lists '{name}' twice", got=list(items), do="list each once")


def _check_name(name: Any, key: str) -> None:
    if isinstance(name, str) and not name:
        raise ConfigError(f"`{key}` is empty", expected="a name")
    check_values(name, key)

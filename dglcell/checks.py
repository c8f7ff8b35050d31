"""What no value of a configuration may be, whatever its key: the checks that need to know nothing of an experiment."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from dglcell.errors import ConfigError, did_you_mean

LARGEST_INTEGER = 2**31 - 1
LARGEST_SEED = 2**32 - 1
MOST_WORKERS = 4_096
"""Threads or processes."""

LONGEST_NAME = 255
"""Bytes of a file's name, as file systems have it."""

MANY_LINES = "experiment.description"
"""The one text that may have several lines: it goes to comments, as one line."""

REPEATABLE = re.compile(r"slurm\..*|.*\.na_values")
"""Lists of shell lines and of cells: an item may be empty, and may come again."""

LINE_ENDS = {"Cc", "Cs", "Zl", "Zp"}
"""Unicode categories: control characters, halves of characters, separators of lines and of paragraphs."""


HIDDEN = "***"
"""Stands for every value of ``slurm.environment``, which may be a token, wherever a configuration is written."""


def shown(key: str, value: object) -> object:
    """The value of a key as messages may show it."""
    return HIDDEN if key.startswith("slurm.environment") else value


def check_values(value: Any, key: str = "") -> None:
    """Refuse values that nothing could work with, in any section, list or mapping.

    These are control characters, numbers that are not finite or need more than 32 bits (seeds have their own limit),
    lists with an item twice or with an empty name, and empty lists where null would mean all.

    Args:
        value: a section, a list, a mapping, or a single value.
        key: its dotted path, for the message.

    Raises:
        ConfigError: naming the key.
    """
    if is_dataclass(value):
        for part in fields(value):
            below, item = f"{key}.{part.name}".lstrip("."), getattr(value, part.name)
            if item == [] and "None" in str(part.type):
                raise ConfigError(f"`{below}` is an empty list", expected="at least one, or null for all")
            check_values(item, below)
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
    elif isinstance(value, (int, float)) and not key.endswith("seed"):
        _check_number(value, key)


def check_choice(key: str, value: object, known: Iterable[object], otherwise: str | None = None) -> None:
    """Refuse a value that is none of a closed list.

    Args:
        key: dotted.
        value: of the key.
        known: what it may be; None for null.
        otherwise: what to do where no known value is close.

    Raises:
        ConfigError: naming the key, and close values.
    """
    if value not in (known := list(known)):
        names = ["null" if one is None else str(one) for one in known]
        do = did_you_mean(value, names, otherwise)
        raise ConfigError(f"`{key}` is unknown", got=value, expected=", ".join(names), do=do)


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


def check_seed(seed: int, key: str) -> None:
    """Refuse a seed that a generator of random numbers does not take.

    Raises:
        ConfigError: naming the key.
    """
    if not 0 <= seed <= LARGEST_SEED:
        raise ConfigError(f"`{key}` is out of range", got=seed, expected=f"0 … {LARGEST_SEED}")


def check_workers(number: int | None, key: str) -> None:
    """Refuse more threads or processes than any machine has.

    Raises:
        ConfigError: naming the key.
    """
    if number is not None and number > MOST_WORKERS:
        raise ConfigError(f"`{key}` is too large", got=number, expected=f"{MOST_WORKERS} or fewer")


def _check_number(number: int | float, key: str) -> None:
    if not math.isfinite(number):
        raise ConfigError(f"`{key}` is no finite number", got=number, expected="a finite number")
    if isinstance(number, int) and abs(number) > LARGEST_INTEGER:
        raise ConfigError(f"`{key}` is too large", got=number, expected=f"at most {LARGEST_INTEGER}")


def _check_list(items: list[Any] | tuple[Any, ...], key: str) -> None:
    names = [] if REPEATABLE.fullmatch(key) else [item for item in items if isinstance(item, str)]
    for number, name in enumerate(names):
        if not name:
            raise ConfigError(f"`{key}` holds an empty name", got=list(items))
        if name in names[:number]:
            raise ConfigError(f"`{key}` lists '{name}' twice", got=list(items), do="list each once")


def _check_name(name: Any, key: str) -> None:
    if isinstance(name, str) and not name:
        raise ConfigError(f"`{key}` is empty", expected="a name")
    check_values(name, key)

"""Check configurations by pydantic: types, keys that nobody knows, and the rules behind each type.

A type has its rules behind it: ``layers: Annotated[int, at_least(1)] = 3``. Rules *between* keys are in the methods
``validate`` of their dataclasses.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import ConfigError, closest, did_you_mean

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError
    from pydantic_core import CoreSchema

Item = TypeVar("Item")

LARGEST_INTEGER, LARGEST_SEED = 2**31 - 1, 2**32 - 1
LONGEST_NAME = 255  # most bytes that file systems allow in a file's name
AUTO = "auto"  # in place of a number that is found by measuring
HIDDEN = "***"  # in place of every value of `slurm.environment`, which may be a token, where a configuration is written
MANY_LINES = "experiment.description"  # the only text that may have several lines; comments have it as one line
REPEATABLE = re.compile(r"slurm\..*|.*\.na_values")  # lists of shell lines and of cells: items may be empty and repeat
LINE_ENDS = {"Cc", "Cs", "Zl", "Zp"}  # control characters, halves of characters, separators of lines and paragraphs

LEAST_ACTIVITY = 1e-6
"""A target that is not deleted has at least this activity: means divide by it, and less is no measurement."""

STRONGEST = 10.0
"""Larger activities look like percent, because a gene is seldom expressed ten times as strongly as in the wild type."""

AN_ACTIVITY = f"0 for a deletion, 1 for the wild type, or another finite number from {LEAST_ACTIVITY:g} upwards"
"""Messages say this of what they expect."""


def shown(key: str, value: object) -> object:
    """Return the value of a key as messages may show it; the section `slurm` may have secrets in it."""
    return HIDDEN if key == "slurm" or key.startswith("slurm.environment") else value


def no_activities(values: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Return which numbers are no activities of a target."""
    # The limit is that of single precision, in which tables keep activities.
    return ~(np.isfinite(values) & ((values == 0) | (values >= np.float32(LEAST_ACTIVITY))))


def check_values(value: Any, key: str = "") -> None:
    """Refuse a section whose values its types do not allow, or that nothing could work with.

    The latter are control characters, numbers that need more than 32 bits (seeds have their own limit), and lists with
    an item twice or with an empty name.
    """
    read_section(type(value), value, key)
    _check_plain(asdict(value), key)


Explain = Callable[[str, Any], str | None]


def read_section(kind: Any, content: Any, key: str = "", where: str = "", explain: Explain | None = None) -> Any:
    """Make a section of a mapping, or check one that is made.

    Args:
        kind: its dataclass.
        content: keys and values; those that are left out have their defaults.
        key: dotted path of the section, for the message.
        where: the file that has the section, for the message.
        explain: returns what to do about an unknown key, or None where the closest one is a better advice.
    """
    from pydantic import ValidationError

    try:
        return _adapter(kind).validate_python((content,))[0]
    except ValidationError as error:
        raise _refusal(error, kind, key, f"{where}: " if where else "", explain) from error


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import ConfigDict, TypeAdapter

    config = ConfigDict(extra="forbid", coerce_numbers_to_str=True, allow_inf_nan=False, hide_input_in_errors=True)
    config["revalidate_instances"] = "always"
    return TypeAdapter(tuple[kind], config=config)  # dataclasses inside take over its configuration


def _refusal(error: ValidationError, hint: Any, key: str, where: str, explain: Explain | None) -> ConfigError:
    """Return the first fault that pydantic has found, as an error that names its key."""
    first = error.errors(include_url=False)[0]
    value, expected, known = first["input"], first["msg"].removeprefix("Input should be "), _keys(hint)
    for part in first["loc"][1:]:
        unknown = part not in known and not isinstance(known, defaultdict)
        if unknown and first["type"] == "unexpected_keyword_argument":
            near, before = closest(part, known), f"{key}.".lstrip(".")
            do = explain(f"{before}{part}", value) if explain else None
            do = do or (f"did you mean `{before}{near[0]}`?" if near else None)
            expected = f"among {', '.join(known)}" if known else "none"
            return ConfigError(f"{where}unknown key `{before}{part}`", expected=expected, do=do)
        try:
            known = _keys(known[part])
        except KeyError:  # what pydantic calls a part of a type
            break
        key = (f"{key}[{part}]" if isinstance(part, int) else f"{key}.{part}").lstrip(".")
    fault = first.get("ctx", {}).get("error")
    if isinstance(fault, BrokenRuleError):
        try:
            fault.rule(key, fault.value)
        except ConfigError as refused:
            return refused
    if first["type"] == "dataclass_type":
        expected = f"a mapping with {', '.join(known)}"
    if first["type"] == "list_type" and isinstance(value, str | int | float):
        expected = f"a list, e.g. [{shown(key, value)}]"
    what = "is no finite number" if first["type"] == "finite_number" else "has a wrong value"
    got = "null" if value is None else shown(key, value)
    return ConfigError(f"{where}`{key or '(the file)'}` {what}", got=got, expected=expected)


def _keys(hint: Any) -> Mapping[Any, Any]:
    """Return key → type of a section; of a mapping or list, every key leads to the type of its values."""
    if is_dataclass(hint):
        return get_type_hints(hint, include_extras=True)
    if get_origin(hint) in (dict, list):
        return defaultdict(lambda: get_args(hint)[-1])
    members = get_args(hint)[:1] if get_origin(hint) is Annotated else get_args(hint)
    return next((found for one in members if (found := _keys(one)) or isinstance(found, defaultdict)), {})


def _check_plain(value: Any, key: str) -> None:
    if isinstance(value, Mapping):
        for name, item in value.items():
            if name == "":
                raise ConfigError(f"`{key} (a name in it)` is empty", expected="a name")
            _check_plain(name, f"{key} (a name in it)")
            _check_plain(item, f"{key}.{name}".lstrip("."))
    elif isinstance(value, list | tuple):
        names = [] if REPEATABLE.fullmatch(key) else [item for item in value if isinstance(item, str)]
        for number, name in enumerate(names):
            if not name:
                raise ConfigError(f"`{key}` holds an empty name", got=list(value), do="remove it, or give it a name")
            if name in names[:number]:
                raise ConfigError(f"`{key}` lists '{name}' twice", got=list(value), do="list each once")
        for number, item in enumerate(value):
            _check_plain(item, f"{key}[{number}]")
    elif isinstance(value, str):
        if value == "None" and not REPEATABLE.match(key):
            do = "write null where nothing is meant, or leave the key out"
            raise ConfigError(f"`{key}` is the text None, which means nothing in YAML", do=do)
        check_one_line(value, key)
    elif isinstance(value, int) and abs(value) > LARGEST_INTEGER and not key.endswith("seed"):
        raise ConfigError(f"`{key}` is too large", got=value, expected=f"at most {LARGEST_INTEGER}")


def check_choice(
    key: str, value: Any, known: Iterable[object], otherwise: str | None = None, show: Callable[[Any], str] = str
) -> None:
    """Refuse a value that is none of a closed list, in which None is null.

    ``otherwise`` is what to do where no known value is close, and ``show`` returns how the message shows a value.
    """
    if value not in (known := list(known)):
        names = ["null" if one is None else show(one) for one in known if one != ""]
        do = did_you_mean(value, names, otherwise)
        raise ConfigError(f"`{key}` is unknown", got=show(value), expected=", ".join(names), do=do)


def check_one_line(text: str, key: str) -> None:
    """Refuse characters that would end a line, hide text, or mean something to a terminal.

    Values reach job scripts, paths, file names and messages to other programs, where a line break would begin a new
    command.
    """
    allowed = "\n\r\t" if key == MANY_LINES else "\t" if text == "\t" else ""  # a tab may separate columns
    if any(unicodedata.category(letter) in LINE_ENDS and letter not in allowed for letter in text):
        raise ConfigError(f"`{key}` has a control character", got=shown(key, ascii(text)), expected="one line of text")


class BrokenRuleError(ValueError):
    """A rule is broken by a value; pydantic then says by which key, and the rule itself what to say."""

    def __init__(self, rule: Callable[[str, Any], None], value: Any) -> None:
        super().__init__()
        self.rule, self.value = rule, value


@dataclass(frozen=True)
class Rule:
    """A rule stands behind a type: ``check`` raises a `ConfigError` for a key and a value that breaks it."""

    check: Callable[[str, Any], None]

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], CoreSchema]) -> CoreSchema:
        from pydantic_core import core_schema

        return core_schema.no_info_wrap_validator_function(self._run, handler(source))

    def _run(self, value: Any, read: Callable[[Any], Any]) -> Any:
        # YAML reads true and false as truth values, which are no numbers, but may be names.
        made = read(str(value).lower() if isinstance(value, bool) else value)
        try:
            self.check("", made)
        except ConfigError:
            raise BrokenRuleError(self.check, made) from None
        return made


def must(fits: Callable[[Any], bool], fault: str, expected: object = None, do: str | None = None) -> Rule:
    """Make a rule that values fit; its error says which fault the key has."""

    def check(key: str, value: Any) -> None:
        if not fits(value):
            raise ConfigError(f"`{key}` {fault}", got=value, expected=expected, do=do)

    return Rule(check)


def at_least(least: float, fault: str = "is too small", also: str = "") -> Rule:
    """Make a rule that numbers are at least ``least``; ``also`` is added to what the error expects."""
    return must(lambda number: number >= least, fault, f"{least} or more{also}")


def positive(expected: str | None = None, do: str | None = None) -> Rule:
    """Make a rule that numbers are above zero."""
    return must(lambda number: number > 0, "must be positive", expected, do)


def one_of(*known: object, show: Callable[[Any], str] = str) -> Rule:
    """Make a rule that values are among these, shown in messages by ``show``."""
    return Rule(lambda key, value: check_choice(key, value, known, show=show))


Count = Annotated[int, at_least(1)]  # of something that there is
Number = Annotated[int, at_least(0)]  # of something that there may be none of
Positive = Annotated[float, positive()]
Seed = Annotated[int, must(lambda seed: 0 <= seed <= LARGEST_SEED, "is out of range", f"0 … {LARGEST_SEED}")]
Workers = Annotated[int, at_least(0, "is negative"), must(lambda n: n <= 4_096, "is too large", "4096 or fewer")]
CountOrAuto = Annotated[int | str, must(lambda n: n == AUTO or n in range(1, 4_097), "is no number", "1 to 4096, auto")]
NotEmpty = Annotated[list[Item], must(bool, "is an empty list", "at least one, or null for all")]

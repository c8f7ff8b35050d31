"""Read files that others may have written or damaged without trust, then check them field by field."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import DglcellError

# Files are read without trust: any bytes give either a value or one reason in plain words.


class UnreadableError(ValueError):
    """The error holds the reason why a file cannot be read, for the line `got` of an error message."""


BOMB_BYTES, BOMB_RATIO = 1 << 30, 100
"""A packed array is refused that unpacks to more bytes than the first, and to more times its own than the second."""


def parse_json(content: str | bytes) -> Any:
    """Parse a JSON text in UTF-8 and return its value.

    Raises:
        UnreadableError: it is not text or not JSON, is nested too deep, or one of its texts has half a character.
    """
    try:
        found = json.loads(content)
        json.dumps(found, ensure_ascii=False).encode()  # escapes may stand for halves of characters
        return found
    except RecursionError:
        raise UnreadableError("lists inside each other, too deep to be read") from None
    except UnicodeEncodeError:
        raise UnreadableError("text with half a character, which cannot be written") from None
    except ValueError as error:
        raise UnreadableError(f"no JSON: {error}" if content else "an empty file") from error


def read_json(path: Path) -> Any:
    """Read a JSON file and return its value.

    Raises:
        UnreadableError: it is missing or not a file, or as for `parse_json`.
    """
    try:
        return parse_json(path.read_bytes())
    except OSError as error:
        raise UnreadableError(error.strerror or str(error)) from error


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of an ``.npz`` file; Python objects in it are never loaded.

    Raises:
        UnreadableError: it is missing, torn, not an ``.npz`` file, or holds something else than arrays.
    """
    try:
        with zipfile.ZipFile(path) as file:
            for member in file.infolist():
                if member.file_size > max(BOMB_BYTES, BOMB_RATIO * member.compress_size):
                    raise UnreadableError(f"'{member.filename}' in it unpacks to {member.file_size:,} bytes")
        with np.load(path, allow_pickle=False) as archive:
            found = {name: archive[name] for name in archive.files}
    except UnreadableError:
        raise
    except OSError as error:
        raise UnreadableError(error.strerror or "no arrays") from error
    except MemoryError as error:
        raise UnreadableError("an array larger than the memory") from error
    except Exception as error:  # whatever the parsers of zip, deflate and numpy's headers say of such bytes
        # The error of numpy is left out, because it advises to load such a file unsafely.
        is_object = "pickle" in str(error).lower()
        torn = "no whole arrays" if path.stat().st_size else "an empty file"
        raise UnreadableError("Python objects, which are not loaded" if is_object else torn) from error
    if not all(isinstance(array, np.ndarray) for array in found.values()):
        raise UnreadableError("files that are no arrays")
    return found


# A table says which fields a file must have and of which kind each field is.


@dataclass(frozen=True)
class Kind:
    """Describe which values a field may have."""

    expected: str  #: description of the kind, for messages
    fits: Callable[[Any], bool]  #: returns whether a value is of the kind


def list_of(kind: Kind) -> Kind:
    """Return the kind of a list whose items are all of one kind."""
    return Kind(f"a list, each item {kind.expected}", lambda v: isinstance(v, list) and all(map(kind.fits, v)))


def mapping_of(kind: Kind) -> Kind:
    """Return the kind of a mapping from names to values of one kind."""
    return Kind(
        f"names and their values, each {kind.expected}",
        lambda v: isinstance(v, Mapping) and all(isinstance(name, str) and kind.fits(v[name]) for name in v),
    )


def optional(kind: Kind) -> Kind:
    """Return the kind of a value that is of the given kind or None."""
    return Kind(f"{kind.expected}, or nothing", lambda v: v is None or kind.fits(v))


def record(fields: Mapping[str, Kind]) -> Kind:
    """Return the kind of a mapping with these fields (`find_wrong`)."""
    return Kind(f"{', '.join(fields)}", lambda v: find_wrong(v, fields) is None)


def is_count(value: Any) -> bool:
    """Return whether a value is a whole number from 0 on that fits into 64 bits."""
    return type(value) is int and 0 <= value < 1 << 63


TEXT = Kind("text", lambda v: isinstance(v, str))
FLAG = Kind("true or false", lambda v: isinstance(v, bool))
COUNT = Kind("a whole number, 0 or more", is_count)
NUMBER = Kind("a number", lambda v: type(v) in (int, float) and (abs(v) < 1e308 or v != v))
SHA256 = Kind("a sha256", lambda v: isinstance(v, str) and re.fullmatch("[0-9a-f]{64}", v) is not None)
MAPPING = Kind("names and their values", lambda v: isinstance(v, Mapping) and all(isinstance(n, str) for n in v))


@dataclass(frozen=True)
class Wrong:
    """A fault is a field that is missing or does not have the kind that it must have."""

    what: str  #: name of the field and its fault
    got: str | None  #: value of the field; None where it is missing
    expected: str  #: description of the value that it must have


def find_wrong(content: Any, fields: Mapping[str, Kind]) -> Wrong | None:
    """Return the first field that is missing or not of its kind, or None.

    Args:
        content: the value that was read.
        fields: dotted path → kind of the value at that path.
    """
    for path, kind in fields.items():
        value = content
        for key in path.split("."):
            if not isinstance(value, Mapping) or key not in value:
                return Wrong(f"`{path}` is missing", None, kind.expected)
            value = value[key]
        if not kind.fits(value):
            return Wrong(f"`{path}` is wrong", shown(value), kind.expected)
    return None


def shown(value: Any) -> str:
    """Return a value for a message: the value itself if it is short, else its type."""
    if value is None or isinstance(value, (bool, int, float, str)):
        text = repr(value)
        return text if len(text) <= 60 else f"{text[:60]}…"
    return f"a {type(value).__name__}" + (f" of {len(value):,}" if isinstance(value, (list, tuple, Mapping)) else "")


def damaged(
    path: Path, reason: Wrong | Exception | str, error: type[DglcellError], *, expected: str, do: str
) -> DglcellError:
    """Return the error for a file that cannot be used.

    Args:
        path: path of the file.
        reason: the field that is wrong, or why the file cannot be read.
        error: class of the error.
        expected: description of the file that was expected.
        do: advice that tells the user how to mend it.
    """
    if isinstance(reason, Wrong):
        return error(f"'{path}' is damaged: {reason.what}", got=reason.got, expected=reason.expected, do=do)
    return error(f"'{path}' is damaged", got=reason, expected=expected, do=do)


def read_fields(
    path: Path, fields: Mapping[str, Kind], error: type[DglcellError], *, expected: str, do: str
) -> dict[str, Any]:
    """Read a JSON file that must have some fields; arguments are those of `find_wrong` and `damaged`.

    Raises:
        error: the file cannot be read, or a field is missing or not of its kind.
    """
    try:
        content = read_json(path)
    except UnreadableError as reason:
        raise damaged(path, reason, error, expected=expected, do=do) from reason
    wrong = find_wrong(content, fields)
    if wrong is not None or not isinstance(content, dict):
        raise damaged(path, wrong or type(content).__name__, error, expected=expected, do=do)
    return content

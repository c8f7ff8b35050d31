"""Read files that others may have written or damaged without trust, then check them field by field."""

from __future__ import annotations

import functools
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, TypeAdapter, ValidationError
from pydantic_core import from_json

from dglcell.errors import DglcellError


class UnreadableError(ValueError):
    """A file cannot be read; the reason names a field that is wrong, ``got`` is its value, ``expected`` its kind."""

    def __init__(self, reason: object, got: str | None = None, expected: str | None = None) -> None:
        super().__init__(reason)
        self.got, self.expected = got, expected


# A packed array is refused that unpacks to more bytes than the first, and to more times its own than the second.
BOMB_BYTES, BOMB_RATIO = 1 << 30, 100


def parse_json(content: str | bytes) -> Any:
    """Parse a JSON text in UTF-8 and return its value."""
    try:
        return from_json(content)
    except ValueError as error:
        raise UnreadableError(f"no JSON: {error}" if content else "an empty file") from error


def read_json(path: Path) -> Any:
    """Read a JSON file and return its value."""
    try:
        return parse_json(path.read_bytes())
    except OSError as error:
        raise UnreadableError(error.strerror or str(error)) from error


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of an ``.npz`` file; Python objects in it are never loaded."""
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
    except Exception as error:  # whatever the parsers of zip, deflate and numpy's headers say of such bytes
        # The error of numpy is left out, because it advises to load such a file unsafely.
        is_object = "pickle" in str(error).lower()
        torn = "no whole arrays, or too large ones" if path.stat().st_size else "an empty file"
        raise UnreadableError("Python objects, which are not loaded" if is_object else torn) from error
    if not all(isinstance(array, np.ndarray) for array in found.values()):
        raise UnreadableError("files that are no arrays")
    return found


# Fields are described by types, which nothing is converted to: ``dict[str, Whole]``, ``str | None``.


def _not_infinite(value: float) -> float:
    if math.isinf(value):
        raise ValueError("an infinite number")
    return value


Whole = Annotated[int, Field(ge=0, lt=1 << 63)]
Number = Annotated[float, AfterValidator(_not_infinite)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]

Fields = Mapping[str, Any]  # dotted path of a field → type of its value; the empty path is that of the whole content
_adapter = functools.cache(TypeAdapter[Any])


def check_fields(content: Any, fields: Fields) -> None:
    """Refuse a value that was read if a field is missing or not of its type."""
    for path, kind in fields.items():
        value = content
        for key in filter(None, path.split(".")):
            if not isinstance(value, Mapping) or key not in value:
                raise UnreadableError(f"`{path}` is missing", None, "a value")
            value = value[key]
        try:
            _adapter(kind).validate_python(value, strict=True)
        except ValidationError as error:
            fault, expected = error.errors()[0]["input"], error.errors()[0]["msg"].removeprefix("Input should be ")
            text = repr(fault) if isinstance(fault, bool | int | float | str | None) else f"a {type(fault).__name__}"
            got = text[:60] + "…" * (len(text) > 60)
            raise UnreadableError(f"`{path or '(the file)'}` is wrong", got, expected) from error


def damaged(path: Path, reason: Exception | str, error: type[DglcellError], *, expected: str, do: str) -> DglcellError:
    """Return the error for a file that cannot be used, where ``reason`` is no field with an expectation of its own."""
    if isinstance(reason, UnreadableError) and reason.expected:
        return error(f"'{path}' is damaged: {reason}", got=reason.got, expected=reason.expected, do=do)
    return error(f"'{path}' is damaged", got=reason, expected=expected, do=do)


def read_fields(path: Path, fields: Fields, error: type[DglcellError], *, expected: str, do: str) -> dict[str, Any]:
    """Read a JSON file that must have some fields; arguments are those of `check_fields` and `damaged`."""
    try:
        content = read_json(path)
        check_fields(content, fields)
        if not isinstance(content, dict):
            raise UnreadableError(type(content).__name__)
    except UnreadableError as reason:
        raise damaged(path, reason, error, expected=expected, do=do) from reason
    return content

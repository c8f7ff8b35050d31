"""Make dataclasses from plain containers whose values have exactly the types that they should have."""

from __future__ import annotations

import dataclasses
import functools
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


class InexactError(Exception):
    """A value has to be converted or is wrong, which OmegaConf decides; users do not see this error."""


def exact(kind: Any, value: Any) -> Any:
    """Return a value as its type says, without the nodes of OmegaConf, whose making takes longer than all else.

    Args:
        kind: a dataclass, a list or mapping of such, or the type of a single value.
        value: plain containers and single values; integers count as exact numbers.

    Raises:
        InexactError: some value is not exactly of its type.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type) and type(value) is dict:
        hints = _hints(kind)
        if not _required(kind) <= set(value) <= set(hints):
            raise InexactError
        return kind(**{name: exact(hints[name], item) for name, item in value.items()})
    if origin in (Union, UnionType):
        if value is None and NoneType in inner:
            return None
        others = [each for each in inner if each is not NoneType]
        return exact(others[0] if len(others) == 1 else type(value) if type(value) in others else None, value)
    if origin is list and type(value) is list:
        return [exact(inner[0], item) for item in value]
    if origin is dict and type(value) is dict:
        return {exact(inner[0], name): exact(inner[1], item) for name, item in value.items()}
    if kind is float and type(value) is int:
        return float(value)
    if kind is Any or (kind in (bool, int, float, str) and type(value) is kind):
        return value
    if origin is Literal and any(type(value) is type(one) and value == one for one in inner):
        return value
    raise InexactError


@functools.cache
def _required(kind: type) -> set[str]:
    both = dataclasses.MISSING, dataclasses.MISSING
    return {field.name for field in dataclasses.fields(kind) if (field.default, field.default_factory) == both}


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)

"""Explain keys of the original system (``original.yaml``) that experiments do not have here.

The user of such a file is told what a key is called here, or why there is none, instead of "unknown key".
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from dglcell.published.file import read_declarations


@functools.cache
def original_keys() -> tuple[dict[str, str], dict[str, str]]:
    """Return key of the original → the key here, and key or section of the original → why there is none here."""
    keys = read_declarations("dglcell.config", "original.yaml")
    return keys["renamed"], keys["dropped"]


def explain(key: str, value: object = None) -> str | None:
    """Return what a key of the original system is called here, or why there is none; None for one that never existed.

    Args:
        value: value of the key; where it is a section, each of its keys is explained.
    """
    return "; ".join(dict.fromkeys(_answers(key, value))) or None


def _answers(key: str, value: object) -> Iterator[str]:
    renamed, dropped = original_keys()
    if key in renamed:
        yield f"`{key}` of the original system is `{renamed[key]}` here"
    elif isinstance(value, dict) and value and any(known.startswith(f"{key}.") for known in (*renamed, *dropped)):
        for name, below in value.items():
            yield from _answers(f"{key}.{name}", below)
    elif section := next((k for k in dropped if key == k or key.startswith(f"{k}.")), None):
        yield f"leave out `{key}` of the original system: {dropped[section]}"

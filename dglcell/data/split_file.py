"""Splits that another program wrote: JSON lists of strain numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dglcell.data.partition import PARTS, UNUSED, Parts
from dglcell.errors import DataError, listing

NAMES = (("train",), ("val", "validation"), ("test",))
EXPECTED = '{"train": [0, 1, …], "val": […], "test": […]}'


def read_index_file(path: Path, strains: int, unlisted: str) -> Parts:
    """The parts of a JSON file such as torchcell's ``index_seed_42.json``.

    A number is that of a strain in the store, counted from 0. The file fits a store only if its strains stand in the
    order of the data set that the file was written for; of that a file without names is no proof.

    Args:
        path: the file, with the keys ``train``, ``val`` (or ``validation``) and ``test``.
        strains: S, of the store.
        unlisted: strains that the file does not list: ``refuse`` it, or leave them ``unused``.

    Returns:
        [S] parts.

    Raises:
        DataError: the file is not of this form, lists a strain twice or one that is not there, or lists too few.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise DataError(f"split '{path}' is no JSON", got=error, expected=EXPECTED) from None
    parts = np.full(strains, UNUSED, np.uint8)
    for part, names in enumerate(NAMES):
        numbers = _numbers(content, names, path)
        outside = numbers[(numbers < 0) | (numbers >= strains)]
        if len(outside):
            raise DataError(
                f"split '{path}': strains of `{names[0]}` that the store does not have",
                got=listing(outside.tolist(), 5),
                expected=f"0 … {strains - 1:,}",
                do="use the store that the file was written for",
            )
        times = np.bincount(numbers, minlength=strains)
        twice = np.flatnonzero((times > 1) | ((times > 0) & (parts != UNUSED)))
        if len(twice):
            raise DataError(
                f"split '{path}' lists strains more than once",
                got=listing(twice.tolist(), 5),
                expected=f"each strain in one of {', '.join(PARTS)}",
            )
        parts[numbers] = part
    missing = np.flatnonzero(parts == UNUSED)
    if len(missing) and unlisted == "refuse":
        raise DataError(
            f"split '{path}' does not list every strain of the store",
            got=f"{strains - len(missing):,} of {strains:,}; not {listing(missing.tolist(), 5)}",
            do="use the store that the file was written for; if it is a subset, set `split.unlisted: unused`",
        )
    return parts


def _numbers(content: Any, names: tuple[str, ...], path: Path) -> NDArray[np.int64]:
    """The strain numbers under one of ``names``."""
    found = [name for name in names if isinstance(content, dict) and name in content]
    if len(found) != 1:
        raise DataError(
            f"split '{path}' has no `{names[0]}`, or two",
            got="keys " + ", ".join(content) if isinstance(content, dict) else type(content).__name__,
            expected=EXPECTED,
        )
    numbers = content[found[0]]
    if not isinstance(numbers, list) or not all(type(n) is int and abs(n) < 1 << 62 for n in numbers):
        raise DataError(
            f"split '{path}': `{found[0]}` is no list of strain numbers",
            expected=EXPECTED,
            do="give the file index_seed_….json, not index_details_seed_….json",
        )
    return np.array(numbers, np.int64)

"""Define columns of strains: what they are, what they may hold, their hashes and keys, and where data came from."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dglcell.errors import DataError
from dglcell.files.atomic import canonical_hash

Array = Any
"""This is an array of numpy or a tensor of torch."""

PHENOTYPE, P_VALUE, SD, REPLICATES, ROW = "phenotype", "p_value", "sd", "replicates", "row"
COVARIATE, SEEN, BLOCKED = "condition", "seen", "blocked"  # by these names hashes of published splits and stores go
MEASURED = (PHENOTYPE, P_VALUE, SD, REPLICATES)
"""Columns of these kinds hold measurements in float32, and NaN where nothing was measured."""

STORED = (*MEASURED, COVARIATE)
"""A store keeps columns of these kinds in this order, all in float32."""

MEDIUM = "medium"
"""The covariate of this name is the growth medium, which a cell graph may know by its exchange reactions."""

COMPUTED = "computed"
"""Provenance has under this parameter which covariates a simulator has computed, and how."""

COUNTS, TARGETS, ACTIVITIES = ("counts",), ("genes",), ("strengths",)
"""Hashes and stores give these labels to what is no column: numbers of targets, targets, and their activities."""


class Column(NamedTuple):
    """Identify a column of strains."""

    #: one of ``STORED``; or ``ROW``, the number of the strain in its store; or ``SEEN``, [S, C], the covariates as a
    #: model sees them (`Strains.with_covariates`); or ``BLOCKED``, [S, K], the reaction nodes that a strain loses
    #: because it loses others (`dglcell.training.prepare`)
    kind: str
    name: str = ""  #: the phenotype that it is, or belongs to; or the covariate
    #: names that the values of a covariate are indices of; none where they are numbers
    categories: tuple[str, ...] = ()

    @property
    def label(self) -> tuple[str, ...]:
        """Return the parts of this identity one after the other, as hashes and stores have them."""
        return (self.kind, self.name, *self.categories)


def columns_of(**kinds: Mapping[str, Array]) -> dict[Column, Array]:
    """Return columns from kind → name → [S] values, in the order of a store."""
    return {Column(kind, name): values for kind in MEASURED for name, values in kinds.get(kind, {}).items()}


def covariate_columns(covariates: Mapping[str, ArrayLike]) -> dict[Column, NDArray[np.float32]]:
    """Return columns, sorted, from covariate → [S] numbers, or texts, whose distinct values become categories."""
    columns = {}
    for name, given in sorted(covariates.items()):
        values, categories = np.asarray(given), tuple[str, ...]()
        numeric = values.dtype.kind in "biuf"
        most = float(np.finfo(np.float32).max)
        usable = np.abs(values.astype(np.float64)) <= most if numeric else np.ones(len(values), dtype=bool)
        if values.dtype.kind == "O":  # an array of texts lacks none
            import pandas as pd

            usable = ~pd.isna(values)
        if not usable.all():
            number = int(np.argmin(usable))
            what = f"strain {number}: covariate '{name}' is {'not a finite number' if numeric else 'missing'}"
            do = "give the covariate of every strain, or leave such strains out"
            expected = "a number for every strain, or a text for every strain"
            raise DataError(what, got=str(values[number]), expected=expected, do=do)
        if not numeric:
            found, values = np.unique(values.astype(str), return_inverse=True)
            check_names(f"category of covariate '{name}'", categories := tuple(map(str, found)))
        columns[Column(COVARIATE, name, categories)] = values.astype(np.float32)
    return columns


@dataclass(frozen=True)
class Provenance:
    """Record where data came from."""

    source: str  #: short name of the source, e.g. ``collins2007``.
    description: str = ""  #: one sentence
    citation: str = ""  #: publication, where there is one
    licence: str = ""  #: as stated by the source
    urls: tuple[str, ...] = ()  #: where the raw files can be had
    files: dict[str, str] = field(default_factory=dict)  #: raw file name → sha256
    counts: dict[str, int] = field(default_factory=dict)  #: rows read, kept, dropped by reason
    parameters: dict[str, Any] = field(default_factory=dict)  #: the options that shaped the table


LONGEST_NAME = 200
"""Letters of a gene's or phenotype's name at most. Longer ones come from a file that is read wrongly."""


@functools.lru_cache(maxsize=16)
def check_names(what: str, names: tuple[str, ...]) -> None:
    """Refuse names of a ``what`` that a reader cannot see or tell apart."""
    for name in names:
        if not name.isprintable() or name != name.strip() or not 0 < len(name) <= LONGEST_NAME:
            expected = f"1 to {LONGEST_NAME} visible letters, without blanks around them"
            do = "change the name in its source"
            raise DataError(f"the name of a {what} cannot be used", got=ascii(name), expected=expected, do=do)


def stored_numbers(values: ArrayLike) -> NDArray[np.float32]:
    """Return a column as a store keeps it, in float32 with one NaN; what is beyond float32 is infinite."""
    with np.errstate(over="ignore"):
        kept = np.array(values, "<f4")
    kept[np.isnan(kept)] = np.nan
    return kept


def target_dtype(names: int) -> np.dtype:
    """Return the smaller of uint16 and uint32 that holds an index of ``number`` names."""
    return np.dtype("<u2" if names < 2**16 else "<u4")


def content_hash(vocabulary: str, units: Mapping[str, str], columns: Iterable[tuple[tuple[str, ...], str]]) -> str:
    """Compute the hash of strains from those of their vocabulary and their columns."""
    return canonical_hash({"vocabulary": vocabulary, "units": units, "columns": columns})


def hashes(stored: Mapping[tuple[str, ...], NDArray[Any]]) -> tuple[tuple[tuple[str, ...], str], ...]:
    """Return the label of each column of `Strains.stored`, and the sha256 of its bytes."""
    return tuple((of, hashlib.sha256(np.ascontiguousarray(values).data).hexdigest()) for of, values in stored.items())


def translated(targets: NDArray[np.integer], mapping: NDArray[np.int64]) -> NDArray[np.integer]:
    """Return ``mapping[targets]``, −1 where there is none; it is the same array where all keep their indices."""
    if np.array_equal(mapping, np.arange(len(mapping))):
        return targets
    return mapping.astype(np.int32)[targets]


# Keys: nothing draws random numbers. Whatever is shuffled is sorted by a hash of the seed and of names, so that a split
# does not depend on the order of strains or names, nor on the version of numpy.

Keys = NDArray[np.uint64]


def gene_keys(names: Sequence[str]) -> Keys:
    """Return a key for each name: 64 bits of its sha256, [N]."""
    digests = b"".join(hashlib.sha256(name.encode()).digest()[:8] for name in names)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def number_keys(values: NDArray[np.floating]) -> Keys:
    """Return the bits of each number in float32; −0 has those of 0."""
    return (values + np.float32(0)).astype("<f4").view("<u4").astype(np.uint64)


def shuffled(keys: Keys, seed: int) -> Keys:
    """Map different keys to different ones in an order that the seed makes random (splitmix64, Steele 2014)."""
    mixed = keys ^ np.frombuffer(hashlib.sha256(str(seed).encode()).digest()[:8], dtype="<u8")[0]
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))

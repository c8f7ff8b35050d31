"""Node vocabularies: sorted unique names, and the mapping of names in files onto them."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import ConfigError, GraphError, listing

UNKNOWN_POLICIES = ("refuse", "drop")


@dataclass(frozen=True)
class Vocabulary:
    """Names of one node type; the index of a name is its position.

    Attributes:
        names: sorted, unique.
    """

    names: tuple[str, ...]

    @classmethod
    def of(cls, names: Iterable[str]) -> Vocabulary:
        """The vocabulary of the distinct ``names``, sorted."""
        return cls(tuple(sorted(set(names))))

    @cached_property
    def _index(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    @cached_property
    def sha256(self) -> str:
        """Hash of the names in order; two vocabularies with this hash give every name the same index."""
        return hashlib.sha256("\n".join(self.names).encode()).hexdigest()

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self._index

    def index(self, name: str) -> int:
        """Index of ``name``.

        Raises:
            GraphError: the name is unknown; the message suggests close names.
        """
        if name not in self._index:
            raise GraphError(
                f"unknown name '{name}'{self.suggestion(name)}",
                expected=f"one of the {len(self):,} names of the vocabulary",
                do="use systematic names as printed by `dglcell graph describe --names`",
            )
        return self._index[name]

    def suggestion(self, name: str) -> str:
        """Close names, as the end of a message; empty where nothing is close."""
        close = difflib.get_close_matches(name, self.names, n=3)
        return f" (close: {', '.join(close)})" if close else ""

    def indices(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Indices of ``names``; −1 where a name is unknown."""
        get = self._index.get
        return np.fromiter((get(name, -1) for name in names), dtype=np.int64, count=len(names))


@dataclass(frozen=True)
class AliasTable:
    """Other names of genes (common names, identifiers with prefixes) → systematic names.

    An alias that stands for several systematic names is ambiguous and maps to nothing.
    """

    systematic: Mapping[str, tuple[str, ...]]

    @classmethod
    def empty(cls) -> AliasTable:
        """A table without aliases."""
        return cls({})

    def resolve(self, names: Sequence[str], known: Vocabulary | None = None) -> tuple[list[str], list[str]]:
        """Replace aliases by systematic names.

        A name of ``known`` stands for itself, whatever the aliases say.

        Returns:
            The resolved names (an ambiguous or unlisted name stays as it is) and the distinct ambiguous ones.
        """
        resolved, ambiguous = [], set()
        for name in names:
            targets = () if known is not None and name in known else self.systematic.get(name, ())
            if len(targets) > 1:
                ambiguous.add(name)
            resolved.append(targets[0] if len(targets) == 1 else name)
        return resolved, sorted(ambiguous)


@dataclass(frozen=True)
class NameReport:
    """How the names of one file met the vocabulary.

    Attributes:
        total: distinct names seen.
        unknown: distinct names that the vocabulary lacks.
        ambiguous: distinct aliases of several genes.
        rows_dropped: rows left out because of them.
    """

    total: int
    unknown: tuple[str, ...] = ()
    ambiguous: tuple[str, ...] = ()
    rows_dropped: int = 0


def enforce_name_policy(report: NameReport, policy: str, *, where: str, key: str) -> None:
    """Refuse unmapped names unless the user chose to drop their rows.

    Args:
        report: what was found.
        policy: ``refuse`` or ``drop``.
        where: the file or table, for the message.
        key: the configuration key that sets ``policy``, for the message.

    Raises:
        ConfigError: ``policy`` is neither.
        GraphError: names are unknown or ambiguous and the policy is ``refuse``.
    """
    if policy not in UNKNOWN_POLICIES:
        raise ConfigError(f"`{key}` is not a policy", got=policy, expected=" or ".join(UNKNOWN_POLICIES))
    if policy == "drop" or not (report.unknown or report.ambiguous):
        return
    found = []
    if report.unknown:
        found.append(f"{len(report.unknown):,} unknown ({listing(report.unknown)})")
    if report.ambiguous:
        found.append(f"{len(report.ambiguous):,} ambiguous ({listing(report.ambiguous)})")
    raise GraphError(
        f"{where}: names that the gene vocabulary does not have",
        got="; ".join(found),
        expected=f"all {report.total:,} names known",
        do=f"mend the names, give an alias table, or set `{key}: drop` to leave these rows out",
    )

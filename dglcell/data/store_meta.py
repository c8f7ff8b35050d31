"""The ``meta`` record of a store: what is in it, where it came from and how it was built."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any

from dglcell.data.columns import Layout
from dglcell.data.table import Provenance
from dglcell.errors import DataError
from dglcell.files import canonical_hash
from dglcell.graph.vocabulary import Vocabulary

SCHEMA = 2


@dataclass(frozen=True)
class StoreMeta:
    """Everything about a store but its columns.

    Attributes:
        sha256: of the columns, vocabulary and units; independent of block size and date.
        blocks: number of strains in each block.
        deletions: deleted genes of all strains together.
        names: the gene vocabulary, sorted.
        vocabulary_sha256: its hash.
        phenotypes: names, in order.
        p_values: phenotypes that have p-values.
        sds: phenotypes that have standard deviations over replicates.
        replicates: phenotypes that have numbers of measurements.
        units: phenotype → unit.
        provenance: where the strains came from.
        command: the command that built the store.
        created: date and time of the build, UTC.
        version: of the package that built it.
        schema: version of the file format.
    """

    sha256: str
    blocks: tuple[int, ...]
    deletions: int
    names: tuple[str, ...]
    vocabulary_sha256: str
    phenotypes: tuple[str, ...]
    p_values: tuple[str, ...]
    sds: tuple[str, ...]
    replicates: tuple[str, ...]
    units: dict[str, str]
    provenance: Provenance
    command: str
    created: str
    version: str
    schema: int = SCHEMA

    @property
    def strains(self) -> int:
        """Number of strains."""
        return sum(self.blocks)

    @property
    def layout(self) -> Layout:
        """What the columns are."""
        return Layout(len(self.names), self.phenotypes, self.p_values, self.sds, self.replicates)

    def to_bytes(self) -> bytes:
        """The record: JSON that ends with a hash of itself."""
        content = json.loads(json.dumps(asdict(self)))
        return json.dumps({**content, "meta_sha256": canonical_hash(content)}, ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, record: bytes, where: str) -> StoreMeta:
        """Read the record back.

        Args:
            record: as written by `to_bytes`.
            where: the store, for the message.

        Raises:
            DataError: the record is damaged, or its format is not the one that this version of the package reads.
        """
        try:
            content = json.loads(record)
        except ValueError:
            raise _damaged(where) from None
        schema = content.get("schema") if isinstance(content, dict) else None
        if isinstance(schema, int) and schema != SCHEMA:
            newer = schema > SCHEMA
            raise DataError(
                f"{where} has {'a newer' if newer else 'an older'} format than this version of dglcell reads",
                got=f"schema {schema}, written by dglcell {content.get('version', '(unknown)')}",
                expected=f"schema {SCHEMA}",
                do=("update dglcell, or " if newer else "") + "build it anew with `dglcell data build --overwrite`",
            )
        expected = {*(field.name for field in fields(cls)), "meta_sha256"}
        if not isinstance(content, dict) or content.keys() != expected:
            raise _damaged(where)
        if content.pop("meta_sha256") != canonical_hash(content):
            raise _damaged(where)
        tuples = {key: tuple(content[key]) for key in _TUPLES}
        return cls(**{**content, **tuples, "provenance": _provenance(content)})

    def check_vocabulary(self, where: str) -> None:
        """Compare the hash of the names with the recorded one.

        Raises:
            DataError: they differ.
        """
        found = Vocabulary(self.names).sha256
        if found != self.vocabulary_sha256:
            raise DataError(
                f"{where}: its gene names do not fit their hash", got=found, expected=self.vocabulary_sha256
            )


_TUPLES = ("blocks", "names", "phenotypes", "p_values", "sds", "replicates")


def _provenance(content: dict[str, Any]) -> Provenance:
    provenance = content["provenance"]
    return Provenance(**{**provenance, "urls": tuple(provenance["urls"])})


def _damaged(where: str) -> DataError:
    return DataError(
        f"{where}: its description (record 'meta') is damaged",
        do="copy the store again, or build it anew with `dglcell data build --overwrite`",
    )

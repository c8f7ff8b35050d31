"""Read the strain store: an LMDB directory with the columns of strains unchanged, and one ``meta`` record."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import lmdb
import numpy as np
from numpy.typing import NDArray

from dglcell.data.columns import (
    ACTIVITIES,
    COUNTS,
    COVARIATE,
    PHENOTYPE,
    TARGETS,
    Column,
    Provenance,
    content_hash,
    target_dtype,
)
from dglcell.data.strains import Strains
from dglcell.errors import DataError
from dglcell.files.atomic import canonical_hash, parse_json, sha256_file
from dglcell.graph.vocabulary import Vocabulary

# A column of a store is a value of LMDB; stores of earlier versions have several large ones for each:
#
# ======== ===========================================================================================
# counts   uint8, number of targets of each strain; a single one where all strains of the value have as many
# genes    uint16 (uint32 from 65,536 names on), targets strain after strain, in the order of the source
# others   float32, little-endian: activities of targets, where some are not deleted, and columns of strains
# meta     JSON
# ======== ===========================================================================================
#
# A key is the number of the value and that of the column, big-endian.

SCHEMA = 3
META_KEY = b"meta"
AGAIN = "copy the store again, or build it anew with `dglcell data build --overwrite`"


def value_key(value: int, column: int) -> bytes:
    """Return the LMDB key of the ``value``-th value of a column."""
    return struct.pack(">IH", value, column)


@dataclass(frozen=True)
class StoreMeta:
    """Describe everything in a store but its columns."""

    #: what each column is, and the sha256 of its bytes: numbers of targets, targets, their activities where some are
    #: not deleted, phenotypes, what belongs to these, and covariates
    columns: tuple[tuple[tuple[str, ...], str], ...]
    values: tuple[int, ...]  #: number of strains in each value of a column
    deletions: int  #: targets of all strains together
    names: tuple[str, ...]  #: the gene vocabulary, sorted
    vocabulary_sha256: str  #: hash of the vocabulary
    units: dict[str, str]  #: phenotype → unit
    provenance: Provenance  #: where the strains came from
    command: str  #: the command that built the store
    created: str  #: date and time of the build, UTC
    version: str  #: version of the package that built it
    schema: int = SCHEMA  #: version of the file format

    @property
    def strains(self) -> int:
        """Return the number of strains."""
        return sum(self.values)

    @property
    def sha256(self) -> str:
        """Return a hash of columns, vocabulary and units, which does not depend on the size of values or the date."""
        return content_hash(self.vocabulary_sha256, self.units, self.columns)

    def of_kind(self, kind: str) -> tuple[str, ...]:
        """Return the names of the columns of a kind."""
        return tuple(label[1] for label, _ in self.columns if label[0] == kind and len(label) > 1)

    @property
    def covariates(self) -> dict[str, tuple[str, ...]]:
        """Return the covariates: name → categories, none where values are numbers."""
        return {label[1]: label[2:] for label, _ in self.columns if label[0] == COVARIATE}

    @property
    def phenotypes(self) -> tuple[str, ...]:
        """Return the names of the phenotypes, in order."""
        return self.of_kind(PHENOTYPE)

    def to_bytes(self) -> bytes:
        """Return the record as JSON that ends with a hash of itself."""
        content = json.loads(json.dumps(asdict(self)))
        return json.dumps({**content, "meta_sha256": canonical_hash(content)}, ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, record: bytes, where: str) -> StoreMeta:
        """Read the record from its bytes.

        Args:
            record: as written by `to_bytes`.
            where: the store, for the message.

        Raises:
            DataError: the record is damaged, or its format is not the one that this version of the package reads.
        """
        try:
            content = parse_json(record)
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
        if (
            not isinstance(content, dict)
            or content.keys() != expected
            or content.pop("meta_sha256") != canonical_hash(content)
        ):
            raise _damaged(where)
        provenance = Provenance(**{**content["provenance"], "urls": tuple(content["provenance"]["urls"])})
        columns = tuple((tuple(label), sha256) for label, sha256 in content["columns"])
        sequences = {"columns": columns, "values": tuple(content["values"]), "names": tuple(content["names"])}
        return cls(**{**content, **sequences, "provenance": provenance})


def _damaged(where: str) -> DataError:
    return DataError(f"{where}: its description (record 'meta') is damaged", do=AGAIN)


# LMDB files: read-only environments, one for each file and process.
#
# LMDB forbids opening a file twice in one process and using an environment across a fork. py-lmdb keeps its
# register of open files over the fork, so that a worker whose parent has the store open could not open it. Both
# are settled here: stores of the same file share one environment, and a forked child closes what it inherited
# before it opens anything.


DATA_FILE = "data.mdb"
HASH_FILE = "data.mdb.sha256"
"""This file holds the hash of all bytes of the LMDB file, including those that no record needs."""

_open: WeakValueDictionary[tuple[int, int], lmdb.Environment] = WeakValueDictionary()
_owner = [os.getpid()]


def open_environment(path: Path) -> lmdb.Environment:
    """Open the store directory ``path``; everyone in this process who holds it shares one environment.

    It is closed when the last holder lets go of it.

    Raises:
        DataError: there is no store, or its file is cut short or not an LMDB file.
    """
    if _owner[0] != os.getpid():
        for inherited in list(_open.values()):
            inherited.close()
        _open.clear()
        _owner[0] = os.getpid()
    file = path / DATA_FILE
    if not file.is_file():
        missing = "does not exist" if not path.exists() else f"is not a store: it has no {DATA_FILE}"
        raise DataError(
            f"'{path}' {missing}", expected="the directory of a store", do="build one with `dglcell data build`"
        )
    status = file.stat()
    key = status.st_dev, status.st_ino
    environment = _open.get(key)
    if environment is None:
        try:
            environment = lmdb.open(str(path), readonly=True, lock=False, readahead=False, meminit=False)
        except lmdb.Error as error:
            raise DataError(
                f"'{path}' cannot be opened as a store",
                got=error,
                expected=f"an LMDB file named {DATA_FILE} that you may read",
                do=AGAIN,
            ) from None
        _open[key] = environment
    # Reading a page beyond the end of the file would end the process with SIGBUS.
    needed = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
    if status.st_size < needed:
        raise DataError(
            f"store '{path}' is cut short",
            got=f"{status.st_size:,} bytes in {DATA_FILE}",
            expected=f"{needed:,} bytes or more",
            do=AGAIN,
        )
    return environment


class Store:
    """Hold a store that was opened for reading.

    Cheap to make, to pickle and to carry over a fork: the file is open only while it is read.

    Args:
        path: the store's directory.

    Attributes:
        meta: what the store holds and where it came from.

    Raises:
        DataError: no store is there, or its file is cut short, damaged or of another format.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.meta = self._read_meta(open_environment(self.path))

    def __len__(self) -> int:
        return self.meta.strains

    @property
    def sha256(self) -> str:
        """Return the hash of the content, which is also that of the strains."""
        return self.meta.sha256

    @property
    def file_size(self) -> int:
        """Return the number of bytes on disk."""
        return (self.path / DATA_FILE).stat().st_size

    def read(self) -> Strains:
        """Read all strains, and check each column by its hash.

        Raises:
            DataError: a column is damaged, or the store was built anew.
        """
        meta, environment = self.meta, open_environment(self.path)
        if self._read_meta(environment).sha256 != self.sha256:
            raise DataError(f"store '{self.path}' was built anew while it was in use", do="open it again")
        with environment.begin(buffers=True) as transaction:
            found = {label: self._column(transaction, number) for number, (label, _) in enumerate(meta.columns)}
        offsets = np.zeros(meta.strains + 1, np.int64)
        np.cumsum(found.pop(COUNTS), out=offsets[1:])
        targets, activities = found.pop(TARGETS), found.pop(ACTIVITIES, None)
        columns = {Column(kind, name, tuple(more)): values for (kind, name, *more), values in found.items()}
        return Strains(meta.names, targets, offsets, columns, meta.units, meta.provenance, activities)

    def _column(self, transaction: lmdb.Transaction, number: int) -> NDArray[Any]:
        meta = self.meta
        label, sha256 = meta.columns[number]
        name, stored = " of ".join(label), np.dtype(np.uint8 if label == COUNTS else "<f4")
        if label == TARGETS:
            stored = target_dtype(len(meta.names))
        contents = []
        for value, strains in enumerate(meta.values):
            try:
                content = transaction.get(value_key(value, number))
            except lmdb.Error as error:
                raise self._broken("LMDB cannot read it", error) from None
            if content is None:
                raise self._broken(f"its column '{name}' is missing")
            contents.append(bytes(content) * strains if label == COUNTS and len(content) == 1 else content)
        whole = b"".join(contents)
        if hashlib.sha256(whole).hexdigest() != sha256:
            raise self._broken(f"its column '{name}' does not fit its hash")
        # What fits the hash has the length that it was written with.
        return np.frombuffer(whole, stored).astype(np.int32 if label == TARGETS else stored)

    def _read_meta(self, environment: lmdb.Environment) -> StoreMeta:
        try:
            with environment.begin() as transaction:
                record = transaction.get(META_KEY)
        except lmdb.Error as error:
            raise self._broken("LMDB cannot read it", error) from None
        if record is None:
            raise DataError(
                f"'{self.path}' is an LMDB directory but not a store of strains",
                expected="a record named 'meta'",
                do="build a store with `dglcell data build`",
            )
        return StoreMeta.from_bytes(record, f"store '{self.path}'")

    def _broken(self, what: str, error: lmdb.Error | None = None) -> DataError:
        return DataError(f"store '{self.path}' is damaged: {what}", got=error, do=AGAIN)


def verify_store(path: Path) -> Store:
    """Open a store, and verify that its every byte is what was written.

    The hash of the whole file comes first: LMDB trusts what it reads.

    Raises:
        DataError: something differs; the message names it.
    """
    recorded, file = path / HASH_FILE, path / DATA_FILE
    if file.is_file():
        expected = recorded.read_bytes().strip() if recorded.is_file() else b"nothing"
        found = sha256_file(file).encode()
        if found != expected:
            raise DataError(
                f"store '{path}': {DATA_FILE} does not fit the hash in {HASH_FILE}",
                got=found.decode(),
                expected=ascii(expected)[2:-1],
                do=AGAIN,
            )
    store = Store(path)
    if Vocabulary(store.meta.names).sha256 != store.meta.vocabulary_sha256:
        raise DataError(f"store '{path}': its gene names do not fit their hash", do=AGAIN)
    store.read()
    return store

"""Packed columnar blocks of strains, and the LMDB files that they are kept in."""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakValueDictionary

import lmdb
import numpy as np
from numpy.typing import NDArray

from dglcell.errors import DataError
from dglcell.files.atomic import canonical_hash

# The packed columnar block: how some thousands of strains become one value of a store, and back.
#
# A value is, in this order (little-endian, so that every column is aligned):
#
# ======== ===========================================================================================
# header   16 bytes: crc32 of all that follows, number of strains, deletions in all, deletions of each
#          strain (``VARIES`` where strains differ)
# labels   float32, one column after the other
# genes    uint16 (uint32 from 65,536 names on), strain after strain, in the order of the source
# counts   uint8, number of deletions of each strain; only where strains differ
# ======== ===========================================================================================


HEADER = struct.Struct("<4I")
CRC = struct.Struct("<I")
VARIES = 2**32 - 1
MAX_DELETIONS = 255

PHENOTYPE, P_VALUE, SD, REPLICATES = "phenotype", "p_value", "sd", "replicates"


@dataclass(frozen=True)
class Layout:
    """What the columns of a store are.

    Attributes:
        names: number of gene names.
        phenotypes: the phenotypes, in order.
        p_values: those with a p-value column.
        sds: those with a column of standard deviations over replicates.
        replicates: those with a column of numbers of measurements.
    """

    names: int
    phenotypes: tuple[str, ...]
    p_values: tuple[str, ...] = ()
    sds: tuple[str, ...] = ()
    replicates: tuple[str, ...] = ()

    @property
    def gene_dtype(self) -> np.dtype:
        """Smallest of uint16 and uint32 that holds an index of every name."""
        return np.dtype("<u2" if self.names < 2**16 else "<u4")

    @property
    def labels(self) -> tuple[tuple[str, str], ...]:
        """(kind, phenotype) of each float32 column, in stored order."""
        return (
            *((PHENOTYPE, name) for name in self.phenotypes),
            *((P_VALUE, name) for name in self.p_values),
            *((SD, name) for name in self.sds),
            *((REPLICATES, name) for name in self.replicates),
        )


@dataclass(frozen=True)
class Block:
    """Columns of consecutive strains.

    Attributes:
        counts: [S] uint8, deleted genes of each strain.
        genes: [sum(counts)] gene indices in the layout's type, concatenated.
        labels: [C, S] float32, one row for each label column of the layout.
    """

    counts: NDArray[np.uint8]
    genes: NDArray[np.unsignedinteger]
    labels: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.counts)

    def slice(self, start: int, stop: int) -> Block:
        """Strains ``start`` to ``stop``."""
        first = int(self.counts[:start].sum(dtype=np.int64))
        last = first + int(self.counts[start:stop].sum(dtype=np.int64))
        return Block(self.counts[start:stop], self.genes[first:last], self.labels[:, start:stop])

    @staticmethod
    def concatenate(blocks: Sequence[Block]) -> Block:
        """The strains of ``blocks``, one block after the other."""
        return Block(
            np.concatenate([block.counts for block in blocks]),
            np.concatenate([block.genes for block in blocks]),
            np.concatenate([block.labels for block in blocks], axis=1),
        )

    def pack(self) -> bytes:
        """The block as the value of one store record."""
        uniform = bool((self.counts == self.counts[0]).all())
        body = b"".join(
            (
                HEADER.pack(0, len(self), len(self.genes), self.counts[0] if uniform else VARIES)[CRC.size :],
                self.labels.astype("<f4", copy=False).tobytes(),
                self.genes.tobytes(),
                b"" if uniform else self.counts.tobytes(),
            )
        )
        return CRC.pack(zlib.crc32(body)) + body


def unpack(value: bytes | memoryview, layout: Layout, where: str) -> Block:
    """The block of a stored value; its arrays are views of ``value``.

    Args:
        value: bytes of the record.
        layout: of the store.
        where: the store and block, for the message.

    Raises:
        DataError: the bytes are not those that were written.
    """
    intact = len(value) >= HEADER.size and CRC.unpack_from(value)[0] == zlib.crc32(value[CRC.size :])
    if intact:
        _, strains, deletions, each = HEADER.unpack_from(value)
        columns = len(layout.labels)
        genes_at = HEADER.size + 4 * columns * strains
        counts_at = genes_at + layout.gene_dtype.itemsize * deletions
        intact = len(value) == counts_at + (strains if each == VARIES else 0)
    if not intact:
        raise DataError(
            f"{where} is damaged: its checksum does not fit its bytes",
            do="copy the store again, or build it anew with `dglcell data build --overwrite`",
        )
    labels = np.frombuffer(value, "<f4", columns * strains, HEADER.size).reshape(columns, strains)
    genes = np.frombuffer(value, layout.gene_dtype, deletions, genes_at)
    if each == VARIES:
        counts = np.frombuffer(value, np.uint8, strains, counts_at)
    else:
        counts = np.broadcast_to(np.uint8(each), strains)
    return Block(counts, genes, labels)


class ContentHash:
    """sha256 over the columns of a store, whatever the size of its blocks and the date of its build.

    Args:
        layout: of the store.
        vocabulary: hash of the gene vocabulary that the indices refer to.
        units: phenotype → unit.
    """

    def __init__(self, layout: Layout, vocabulary: str, units: dict[str, str]) -> None:
        self._head = {"vocabulary": vocabulary, "units": units}
        self._labels = [([kind, name], hashlib.sha256()) for kind, name in layout.labels]
        self._counts = hashlib.sha256()
        self._genes = hashlib.sha256()

    def update(self, block: Block) -> None:
        """Take in the next strains."""
        self._counts.update(block.counts.tobytes())
        self._genes.update(block.genes.tobytes())
        for (_, digest), column in zip(self._labels, block.labels, strict=True):
            digest.update(column.tobytes())

    def hexdigest(self) -> str:
        """The hash of everything taken in so far."""
        columns = [
            (["counts"], self._counts.hexdigest()),
            (["genes"], self._genes.hexdigest()),
            *((label, digest.hexdigest()) for label, digest in self._labels),
        ]
        return canonical_hash({**self._head, "columns": columns})


# LMDB files: read-only environments, one for each file and process, and a file that grows as it is written.
#
# LMDB forbids opening a file twice in one process and using an environment across a fork. py-lmdb keeps its
# register of open files over the fork, so that a worker whose parent has the store open could not open it. Both
# are settled here: stores of the same file share one environment, and a forked child closes what it inherited
# before it opens anything.


DATA_FILE = "data.mdb"
HASH_FILE = "data.mdb.sha256"
"""Holds the hash of all bytes of the file, those that no record needs included."""

# What one write transaction takes before it is committed, so that a build needs little memory.
TRANSACTION_BYTES = 2**25

_open: WeakValueDictionary[tuple[int, int], lmdb.Environment] = WeakValueDictionary()
_owner = [os.getpid()]


def open_environment(path: Path) -> lmdb.Environment:
    """The environment of the store directory ``path``, shared with every other holder in this process.

    It is closed when the last holder lets go of it.

    Raises:
        DataError: there is no store, or its file is cut short or not an LMDB file.
    """
    if _owner[0] != os.getpid():
        for inherited in list(_open.values()):
            inherited.close()
        _open.clear()
        _owner[0] = os.getpid()
    size, key = _file_of(path)
    environment = _open.get(key)
    if environment is None:
        try:
            environment = lmdb.open(str(path), readonly=True, lock=False, readahead=False, meminit=False)
        except lmdb.Error as error:
            raise DataError(
                f"'{path}' cannot be opened as a store",
                got=error,
                expected=f"an LMDB file named {DATA_FILE} that you may read",
                do="copy the store again, or build it anew with `dglcell data build --overwrite`",
            ) from None
        _open[key] = environment
    # Reading a page beyond the end of the file would end the process with SIGBUS.
    needed = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
    if size < needed:
        raise DataError(
            f"store '{path}' is cut short",
            got=f"{size:,} bytes in {DATA_FILE}",
            expected=f"{needed:,} bytes or more",
            do="copy the store again, or build it anew with `dglcell data build --overwrite`",
        )
    return environment


def _file_of(path: Path) -> tuple[int, tuple[int, int]]:
    """Size and identity (device, inode) of the data file of a store directory."""
    file = path / DATA_FILE
    if not file.is_file():
        missing = "does not exist" if not path.exists() else f"is not a store: it has no {DATA_FILE}"
        raise DataError(
            f"'{path}' {missing}",
            expected="the directory of a store",
            do="build one with `dglcell data build`, or list those there are with `dglcell data list`",
        )
    status = file.stat()
    return status.st_size, (status.st_dev, status.st_ino)


class GrowingFile:
    """An LMDB file written in the order of its keys, no longer than its content needs.

    Args:
        directory: where it is written.
        target: what it will be called, for messages.

    Raises:
        DataError: on writing, where there is no room.
    """

    def __init__(self, directory: Path, target: Path) -> None:
        self._target = target
        with self._writing():
            self._environment = lmdb.open(str(directory), mode=0o666, lock=False, sync=False, meminit=False)
        self._transaction: lmdb.Transaction | None = None
        self._room = 0

    def __enter__(self) -> GrowingFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if self._transaction is not None and kind is None:
                with self._writing():
                    self._transaction.commit()
                    self._environment.sync(True)
            elif self._transaction is not None:
                self._transaction.abort()
        finally:
            self._environment.close()

    def append(self, key: bytes, value: bytes) -> None:
        """Add a record whose key is greater than all before."""
        with self._writing():
            if self._transaction is None or len(value) > self._room:
                self._begin(len(value))
            assert self._transaction is not None
            self._transaction.put(key, value, append=True)
        self._room -= len(value)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except lmdb.Error as error:
            raise DataError(
                f"store '{self._target}' cannot be written; nothing of it is left behind",
                # Where a write ends halfway LMDB speaks of an input/output error, and not of a full disk.
                got=f"{error}; {shutil.disk_usage(self._target.parent).free:,} bytes are free there",
                do="make room, or choose another path",
            ) from None

    def _begin(self, least: int) -> None:
        if self._transaction is not None:
            self._transaction.commit()
        page = self._environment.stat()["psize"]
        used = (self._environment.info()["last_pgno"] + 1) * page
        self._room = max(TRANSACTION_BYTES, least)
        # Twice the room: pages that are not full, and copies of those the tree rewrites.
        self._environment.set_mapsize(used + 2 * self._room + 64 * page)
        self._transaction = self._environment.begin(write=True)

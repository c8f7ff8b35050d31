"""LMDB files: read-only environments, one for each file and process, and a file that grows as it is written.

LMDB forbids opening a file twice in one process and using an environment across a fork. py-lmdb keeps its
register of open files over the fork, so that a worker whose parent has the store open could not open it. Both
are settled here: stores of the same file share one environment, and a forked child closes what it inherited
before it opens anything.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakValueDictionary

import lmdb

from dglcell.errors import DataError

DATA_FILE = "data.mdb"
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
            self._environment = lmdb.open(str(directory), lock=False, sync=False, meminit=False)
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

"""Build a store: every strain is checked once, and columns grow as strains come in."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import TracebackType

import lmdb
import numpy as np
from numpy.typing import NDArray

import dglcell
from dglcell.data.columns import (
    CONDITION,
    P_VALUE,
    PHENOTYPE,
    REPLICATES,
    SD,
    STORED,
    Column,
    ContentHash,
    stored_numbers,
    target_dtype,
)
from dglcell.data.store import DATA_FILE, HASH_FILE, META_KEY, Store, StoreMeta, value_key
from dglcell.data.strains import Strains, translated
from dglcell.errors import DataError, GenotypeError
from dglcell.files.atomic import atomic_directory, sha256_file
from dglcell.graph.vocabulary import Vocabulary

VALUE_STRAINS = 2**18
"""One value of a column has so many strains; as many are checked, and are in memory, at a time."""

MOST_TARGETS = 255
"""A strain has at most so many targets, because their number is stored in a byte."""

TRANSACTION_BYTES = 2**25
"""A write transaction is committed after so many bytes, so that a build needs little memory."""

# The checks of strains that enter a store, made once so that nothing downstream has to make them.


def _check_genotypes(
    counts: NDArray[np.int64], genes: NDArray[np.int64], vocabulary: Vocabulary, rows_before: int, allow_empty: bool
) -> None:
    if not allow_empty and (counts == 0).any():
        raise GenotypeError(
            f"strain {rows_before + int(np.argmax(counts == 0)) + 1:,} deletes no gene",
            expected="at least one gene in every strain",
            do="drop the row, or allow the wild type as a strain with `allow_empty`",
        )
    if (counts > MOST_TARGETS).any():
        strain = int(np.argmax(counts > MOST_TARGETS))
        raise GenotypeError(
            f"strain {rows_before + strain + 1:,} deletes too many genes",
            got=int(counts[strain]),
            expected=f"at most {MOST_TARGETS}",
            do="drop the row",
        )
    strain_of = np.repeat(np.arange(len(counts)), counts)
    keys = np.sort(strain_of * len(vocabulary) + genes)
    twice = keys[1:] == keys[:-1]
    if twice.any():
        strain, gene = divmod(int(keys[int(np.argmax(twice))]), len(vocabulary))
        raise GenotypeError(
            f"strain {rows_before + strain + 1:,} deletes gene '{vocabulary.names[gene]}' twice",
            expected="distinct genes in every strain",
            do="drop the row, or leave out the repeated gene",
        )


def _label_columns(strains: Strains, columns: Sequence[Column]) -> dict[Column, NDArray[np.float32]]:
    """Return the columns as they are stored, in their order; conditions have been checked with their source."""
    if set(strains.columns) != set(columns):
        raise DataError(
            "the label columns differ from those of the store",
            got=_named(sorted(strains.columns)) or "none",
            expected=_named(columns),
        )
    return {column: stored_numbers(strains.columns[column]) for column in columns}


def _named(columns: Iterable[Column]) -> str:
    return ", ".join(f"{column.kind} of {column.name}" for column in columns)


def _check_labels(columns: Mapping[Column, NDArray[np.float32]], rows_before: int) -> None:
    for (kind, name, categories), values in columns.items():
        wrong, expected = np.isinf(values), "a finite number, or nothing where it was not measured"
        if kind == CONDITION:
            wrong, expected = ~np.isfinite(values), "a finite number for every strain"
            if categories:
                wrong, expected = ~np.isin(values, np.arange(len(categories))), "the number of a category"
        elif kind == P_VALUE:
            wrong, expected = (values < 0) | (values > 1), "a number from 0 to 1, or nothing"
        elif kind == SD:
            wrong, expected = wrong | (values < 0), "a finite number, 0 or more, or nothing"
        elif kind == REPLICATES:
            wrong, expected = ~((values >= 0) & (values % 1 == 0)), "a whole number, 0 or more"
        if wrong.any():
            strain = int(np.argmax(wrong))
            raise DataError(
                f"strain {rows_before + strain + 1:,} has an unusable {kind} of '{name}'",
                got=float(values[strain]),
                expected=expected,
                do="mend or drop the row",
            )
    phenotypes = {column.name: values for column, values in columns.items() if column.kind == PHENOTYPE}
    missing = np.logical_and.reduce([np.isnan(values) for values in phenotypes.values()])
    if missing.any():
        raise DataError(
            f"strain {rows_before + int(np.argmax(missing)) + 1:,} has no label at all",
            got=f"{int(missing.sum()):,} such strains so far",
            expected=f"a value of at least one of {', '.join(phenotypes)}",
            do="drop the rows without a measurement",
        )


class StoreWriter:
    """Write a store from strains that come in pieces, in bounded memory.

    Used as a context manager. The store appears at ``path`` when the ``with`` block ends without an
    exception; until then, and if the process is killed, what was there before stays.

    Args:
        path: directory of the store to be.
        head: names, columns, units and provenance of all pieces, and whether they have strengths; its own strains are
            not written.
        command: the command that builds the store, for the record.
        overwrite: replace the store at ``path``.
        allow_empty: accept strains without a deletion (the wild type), as is always done where strains have conditions.

    Raises:
        DataError: ``path`` exists, or no phenotype is named, or (at the end) no strain was written.
    """

    def __init__(
        self, path: str | Path, head: Strains, *, command: str, overwrite: bool = False, allow_empty: bool = False
    ) -> None:
        self.path = Path(path)
        self._head, self._command = head, command
        self._overwrite, self._allow_empty = overwrite, allow_empty
        self._vocabulary = Vocabulary.of(head.names)
        self._columns = _stored_columns(head)
        self._units = {name: head.units.get(name, "") for name in head.phenotypes}
        self._has_strengths = head.strengths is not None
        self._hash = ContentHash(self._vocabulary, self._columns, self._units, with_strengths=self._has_strengths)
        self._pending: list[Strains] = []
        self._values: list[int] = []
        self._strains = self._deletions = 0
        json.dumps(asdict(head.provenance))

    def __enter__(self) -> StoreWriter:
        if self._overwrite:
            _refuse_to_replace(self.path)
        with ExitStack() as stack:
            directory = stack.enter_context(atomic_directory(self.path, overwrite=self._overwrite))
            stack.push(partial(_record_hash, directory))
            self._file = stack.enter_context(GrowingFile(directory, self.path))
            stack.push(self._finish)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._stack.__exit__(kind, error, trace)

    def append(self, strains: Strains) -> None:
        """Check and write strains, which follow those of earlier pieces.

        Raises:
            DataError: columns differ from the head's, or a strain is unusable; the message has the number of the
                strain, from 1 over all pieces, and the gene.
            GenotypeError: a strain deletes no gene, too many, an unknown gene, or one gene twice.
        """
        for start in range(0, len(strains), VALUE_STRAINS):
            piece = self._checked(strains.slice(start, min(start + VALUE_STRAINS, len(strains))))
            self._hash.update(piece.num_deletions, piece.targets, piece.strengths, piece.columns)
            self._strains += len(piece)
            self._pending.append(piece)
            if sum(map(len, self._pending)) >= VALUE_STRAINS:
                self._write()

    def _checked(self, strains: Strains) -> Strains:
        """Return the strains as they are stored."""
        targets = translated(strains.targets, self._vocabulary.indices(strains.names))
        if (targets < 0).any():
            missing = strains.names[strains.targets[int(np.argmax(targets < 0))]]
            raise GenotypeError(
                f"gene '{missing}' is not among the names of the store", do="give the writer the names of all pieces"
            )
        counts = strains.num_deletions
        # With conditions, a strain without deletions is the wild type in some condition.
        may_be_empty = self._allow_empty or bool(self._head.conditions)
        _check_genotypes(counts, targets.astype(np.int64), self._vocabulary, self._strains, may_be_empty)
        columns = _label_columns(strains, self._columns)
        _check_labels(columns, self._strains)
        if strains.strengths is not None and not self._has_strengths:
            raise DataError("strains with strengths follow strains without them", do="give all pieces strengths")
        return strains.with_(
            names=self._vocabulary.names,
            targets=targets.astype(target_dtype(len(self._vocabulary))),
            columns=columns,
            strengths=strains.left() if self._has_strengths else None,
        )

    def _write(self) -> None:
        """Write the pending strains as one value of each column."""
        strains = Strains.concat(self._pending)
        self._pending.clear()
        counts = strains.num_deletions.astype(np.uint8)
        if (counts == counts[0]).all():
            counts = counts[:1]
        strengths = () if strains.strengths is None else (strains.strengths.astype("<f4", copy=False),)
        for number, values in enumerate((counts, strains.targets, *strengths, *strains.columns.values())):
            self._file.append(value_key(len(self._values), number), values.tobytes())
        self._values.append(len(strains))
        self._deletions += len(strains.targets)

    def _finish(self, kind: type[BaseException] | None, *_: object) -> None:
        """Write what is pending and the description, unless an exception ended the build."""
        if kind is not None:
            return
        if self._pending:
            self._write()
        if not self._values:
            raise _no_strains()
        meta = StoreMeta(
            columns=tuple(self._hash.columns()),
            values=tuple(self._values),
            deletions=self._deletions,
            names=self._vocabulary.names,
            vocabulary_sha256=self._vocabulary.sha256,
            units=self._units,
            provenance=self._head.provenance,
            command=self._command,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            version=dglcell.__version__,
        )
        self._file.append(META_KEY, meta.to_bytes())


def _record_hash(directory: Path, kind: type[BaseException] | None, *_: object) -> None:
    """Record the hash of the file once it is complete and closed."""
    if kind is None:
        (directory / HASH_FILE).write_text(f"{sha256_file(directory / DATA_FILE)}\n", encoding="utf-8")


def build_store(
    strains: Strains | Iterable[Strains],
    path: str | Path,
    *,
    command: str,
    overwrite: bool = False,
    allow_empty: bool = False,
) -> Store:
    """Write strains as a store at ``path``, and open it; the order of strains and of each one's genes is kept.

    Args:
        strains: all of them, or pieces with the same names and columns, of which there is one at a time in memory.
        path, command, overwrite, allow_empty: see ``StoreWriter``.

    Raises:
        DataError: a strain or column is unusable, or ``path`` exists; nothing is left behind.
    """
    pieces = iter([strains] if isinstance(strains, Strains) else strains)
    first = next(pieces, None)
    if first is None:
        raise _no_strains()
    with StoreWriter(path, first, command=command, overwrite=overwrite, allow_empty=allow_empty) as writer:
        writer.append(first)
        for piece in pieces:
            writer.append(piece)
    return Store(path)


def _no_strains() -> DataError:
    return DataError("no strains: a store needs at least one", do="check the source and its filters")


def _stored_columns(head: Strains) -> list[Column]:
    """Return the columns of a store, in order.

    Raises:
        DataError: there is no phenotype, or a column belongs to none.
    """
    if not head.phenotypes:
        raise DataError("no phenotype: a store needs at least one", do="name a phenotype column of the source")
    for kind, said in SAID.items():
        stray = [name for name in head.of_kind(kind) if name not in head.phenotypes]
        if stray:
            raise DataError(
                f"{said} of a phenotype that is not there",
                got=", ".join(stray),
                expected=f"some of {', '.join(head.phenotypes)}",
            )
    return [column for kind in STORED for column in head.columns if column.kind == kind]


SAID = {P_VALUE: "p-values", SD: "standard deviations", REPLICATES: "numbers of measurements"}
"""Messages use these words for the kinds of columns that belong to a phenotype."""


def _refuse_to_replace(path: Path) -> None:
    """Refuse to replace anything but a store, because replacing a directory removes everything in it."""
    if not path.exists():
        return
    others = ["a file"]
    if path.is_dir():
        names = sorted(entry.name for entry in path.iterdir())
        others = [name for name in names if name not in (DATA_FILE, HASH_FILE)]
    if others:
        raise DataError(
            f"'{path}' will not be replaced: it is not a store",
            got=", ".join(others[:5]),
            expected=f"a directory with nothing but {DATA_FILE}",
            do="choose another path",
        )


class GrowingFile:
    """Write an LMDB file in the order of its keys, no longer than its content needs.

    Args:
        directory: where it is written.
        target: the path that it will have, for messages.

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
        """Add a record whose key is greater than all keys before it."""
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

"""Build a store: every strain is checked once, and columns are written some strains at a time."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import lmdb
import numpy as np
from numpy.typing import NDArray

import dglcell
from dglcell.data.columns import (
    CONDITION,
    NODE_ROW,
    P_VALUE,
    PHENOTYPE,
    REPLICATES,
    SD,
    STORED,
    Column,
    ContentHash,
    target_dtype,
)
from dglcell.data.node_values import is_node_file
from dglcell.data.store import DATA_FILE, HASH_FILE, META_KEY, Store, StoreMeta, value_key
from dglcell.data.strains import Strains, translated
from dglcell.errors import DataError, GenotypeError
from dglcell.files.atomic import atomic_directory, sha256_file
from dglcell.graph.vocabulary import Vocabulary

VALUE_STRAINS = 2**18
"""One value of a column has so many strains, and as many are checked at a time."""

MOST_TARGETS = 255
"""A strain has at most so many targets, because their number is stored in a byte."""

TRANSACTION_BYTES = 2**25
"""A write transaction is committed after so many bytes, so that it needs little memory."""

# The checks of strains that enter a store, made once so that nothing downstream has to make them.


def _check_genotypes(
    counts: NDArray[np.int64],
    genes: NDArray[np.int64],
    vocabulary: Vocabulary,
    rows_before: int,
    allow_empty: bool,
) -> None:
    if not allow_empty and (counts == 0).any():
        raise GenotypeError(
            f"strain {rows_before + int(np.argmax(counts == 0)) + 1:,} deletes no gene",
            expected="at least one gene in every strain",
            do="drop the row: the wild type is a strain only where strains have conditions",
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
    with np.errstate(over="ignore"):  # a value beyond float32 becomes infinite and is refused as such
        found = {column: np.array(strains.columns[column], "<f4") for column in columns}
    for values in found.values():
        # One bit pattern for missing values, so that equal content has an equal hash.
        values[np.isnan(values)] = np.nan
    return found


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


def build_store(strains: Strains, path: str | Path, *, command: str, overwrite: bool = False) -> Store:
    """Write strains as a store at ``path``, and open it; the order of strains and of each one's genes is kept.

    The store appears when it is complete; until then, and if the process is killed, what was there before stays.

    Args:
        strains: all of them; with conditions, one without deletions is the wild type in some condition.
        path: directory of the store to be.
        command: the command that builds the store, for the record.
        overwrite: replace the store at ``path``.

    Raises:
        DataError: there is no strain or no phenotype, a strain or column is unusable, or ``path`` exists; the message
            has the number of the strain, from 1.
        GenotypeError: a strain deletes no gene, too many, or one gene twice.
    """
    path, columns = Path(path), _stored_columns(strains)
    if not len(strains):
        raise DataError("no strains: a store needs at least one", do="check the source and its filters")
    json.dumps(asdict(strains.provenance))
    if overwrite:
        _refuse_to_replace(path)
    with atomic_directory(path, overwrite=overwrite) as directory:
        with GrowingFile(directory, path) as file:
            _write(file, strains, columns, command)
        (directory / HASH_FILE).write_text(f"{sha256_file(directory / DATA_FILE)}\n", encoding="utf-8")
        for name, values in strains.nodes.items():
            values.write(directory, name, strains.columns[Column(NODE_ROW, name)])
    return Store(path)


def _write(file: GrowingFile, strains: Strains, columns: Sequence[Column], command: str) -> None:
    """Check strains and write their columns, then the description of the store."""
    vocabulary = Vocabulary.of(strains.names)
    indices = vocabulary.indices(strains.names)
    units = {name: strains.units.get(name, "") for name in strains.phenotypes}
    content = ContentHash(vocabulary, columns, units, with_strengths=strains.strengths is not None)
    sizes: list[int] = []
    for start in range(0, len(strains), VALUE_STRAINS):
        piece = strains.slice(start, min(start + VALUE_STRAINS, len(strains)))
        targets, counts = translated(piece.targets, indices), piece.num_deletions
        _check_genotypes(counts, targets.astype(np.int64), vocabulary, start, bool(strains.conditions))
        labels = _label_columns(piece, columns)
        _check_labels(labels, start)
        targets, left = targets.astype(target_dtype(len(vocabulary))), piece.strengths
        strengths = () if left is None else (left.astype("<f4", copy=False),)
        content.update(counts, targets, left, labels)
        stored = counts.astype(np.uint8)
        if (stored == stored[0]).all():
            stored = stored[:1]
        for number, values in enumerate((stored, targets, *strengths, *labels.values())):
            file.append(value_key(len(sizes), number), values.tobytes())
        sizes.append(len(piece))
    meta = StoreMeta(
        columns=tuple(content.columns()),
        values=tuple(sizes),
        deletions=len(strains.targets),
        names=vocabulary.names,
        vocabulary_sha256=vocabulary.sha256,
        units=units,
        provenance=strains.provenance,
        command=command,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        version=dglcell.__version__,
    )
    file.append(META_KEY, meta.to_bytes())


def _stored_columns(strains: Strains) -> list[Column]:
    """Return the columns of a store, in order.

    Raises:
        DataError: there is no phenotype, or a column belongs to none.
    """
    if not strains.phenotypes:
        raise DataError("no phenotype: a store needs at least one", do="name a phenotype column of the source")
    for kind, said in SAID.items():
        stray = [name for name in strains.of_kind(kind) if name not in strains.phenotypes]
        if stray:
            raise DataError(
                f"{said} of a phenotype that is not there",
                got=", ".join(stray),
                expected=f"some of {', '.join(strains.phenotypes)}",
            )
    return [column for kind in STORED for column in strains.columns if column.kind == kind]


SAID = {P_VALUE: "p-values", SD: "standard deviations", REPLICATES: "numbers of measurements"}
"""Messages use these words for the kinds of columns that belong to a phenotype."""


def _refuse_to_replace(path: Path) -> None:
    """Refuse to replace anything but a store, because replacing a directory removes everything in it."""
    if not path.exists():
        return
    others = ["a file"]
    if path.is_dir():
        names = sorted(entry.name for entry in path.iterdir())
        others = [name for name in names if name not in (DATA_FILE, HASH_FILE) and not is_node_file(name)]
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

"""Build and read stores: LMDB directories with the columns of strains unchanged, and one ``meta`` record."""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
import textwrap
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

import dglcell
from dglcell.data.columns import (
    ACTIVITIES,
    COUNTS,
    COVARIATE,
    P_VALUE,
    PHENOTYPE,
    REPLICATES,
    SD,
    TARGETS,
    Column,
    Provenance,
    content_hash,
    hashes,
    target_dtype,
)
from dglcell.data.strains import Strains
from dglcell.errors import DataError, GenotypeError, count
from dglcell.files.atomic import atomic_directory, canonical_hash, sha256_file
from dglcell.files.untrusted import parse_json
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

    def to_bytes(self) -> bytes:
        """Return the record as JSON that ends with a hash of itself."""
        content = json.loads(json.dumps(asdict(self)))
        return json.dumps({**content, "meta_sha256": canonical_hash(content)}, ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, record: bytes, where: str) -> StoreMeta:
        """Read the record from its bytes, as `to_bytes` writes them; ``where`` names the store in messages."""
        damaged = DataError(f"{where}: its description (record 'meta') is damaged", do=AGAIN)
        try:
            content = parse_json(record)
            schema, sha256 = content.get("schema"), content.pop("meta_sha256", None)
        except (ValueError, AttributeError, TypeError):
            raise damaged from None
        if isinstance(schema, int) and schema != SCHEMA:
            newer = schema > SCHEMA
            what = f"{where} has {'a newer' if newer else 'an older'} format than this version of dglcell reads"
            got = f"schema {schema}, written by dglcell {content.get('version', '(unknown)')}"
            do = ("update dglcell, or " if newer else "") + "build it anew with `dglcell data build --overwrite`"
            raise DataError(what, got=got, expected=f"schema {SCHEMA}", do=do)
        if sha256 != canonical_hash(content) or content.keys() != {field.name for field in fields(cls)}:
            raise damaged
        return TypeAdapter(StoreMeta).validate_python(content)


DATA_FILE = "data.mdb"
HASH_FILE = "data.mdb.sha256"
"""This file holds the hash of all bytes of the LMDB file, including those that no record needs."""

_one_at_a_time = threading.Lock()


@contextmanager
def _opened(path: Path) -> Iterator[lmdb.Transaction]:
    """Open the store directory ``path`` for as long as it is read.

    LMDB forbids opening a file twice in one process, and using an environment across a fork; so none stays open.
    """
    file = path / DATA_FILE
    if not file.is_file():
        missing = "does not exist" if not path.exists() else f"is not a store: it has no {DATA_FILE}"
        do = "build one with `dglcell data build`"
        raise DataError(f"'{path}' {missing}", expected="the directory of a store", do=do)
    with _one_at_a_time:
        try:
            environment = lmdb.open(str(path), readonly=True, lock=False, readahead=False, meminit=False)
        except lmdb.Error as error:
            expected = f"an LMDB file named {DATA_FILE} that you may read"
            raise DataError(f"'{path}' cannot be opened as a store", got=error, expected=expected, do=AGAIN) from None
        with environment:
            # Reading a page beyond the end of the file would end the process with SIGBUS.
            needed = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
            if (size := file.stat().st_size) < needed:
                got, expected = f"{size:,} bytes in {DATA_FILE}", f"{needed:,} bytes or more"
                raise DataError(f"store '{path}' is cut short", got=got, expected=expected, do=AGAIN)
            try:
                with environment.begin(buffers=True) as transaction:
                    yield transaction
            except lmdb.Error as error:
                raise DataError(f"store '{path}' is damaged: LMDB cannot read it", got=error, do=AGAIN) from None


class Store:
    """Hold a store that was opened for reading: its ``path``, and in ``meta`` what it holds and where it came from.

    Cheap to make, to pickle and to carry over a fork: the file is open only while it is read.

    Raises:
        DataError: no store is there, or its file is cut short, damaged or of another format.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        with _opened(self.path) as transaction:
            self.meta = self._read_meta(transaction)

    def __len__(self) -> int:
        return self.meta.strains

    @property
    def sha256(self) -> str:
        """Return the hash of the content, which is also that of the strains."""
        return self.meta.sha256

    def read(self) -> Strains:
        """Read all strains, and check each column by its hash."""
        meta = self.meta
        with _opened(self.path) as transaction:
            if self._read_meta(transaction).sha256 != self.sha256:
                raise DataError(f"store '{self.path}' was built anew while it was in use", do="open it again")
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
            content = bytes(transaction.get(value_key(value, number), b""))
            contents.append(content * strains if label == COUNTS and len(content) == 1 else content)
        whole = b"".join(contents)
        if hashlib.sha256(whole).hexdigest() != sha256:
            raise DataError(f"store '{self.path}' is damaged: its column '{name}' does not fit its hash", do=AGAIN)
        # What fits the hash has the length that it was written with.
        return np.frombuffer(whole, stored).astype(np.int32 if label == TARGETS else stored)

    def _read_meta(self, transaction: lmdb.Transaction) -> StoreMeta:
        record = transaction.get(META_KEY)
        if record is None:
            what, do = f"'{self.path}' is an LMDB directory but not a store of strains", "build a store"
            raise DataError(what, expected="a record named 'meta'", do=f"{do} with `dglcell data build`")
        return StoreMeta.from_bytes(bytes(record), f"store '{self.path}'")


def verify_store(path: Path) -> Store:
    """Open a store, and verify that its every byte is what was written.

    The hash of the whole file comes first: LMDB trusts what it reads.
    """
    recorded, file = path / HASH_FILE, path / DATA_FILE
    if file.is_file():
        expected = recorded.read_bytes().strip() if recorded.is_file() else b"nothing"
        found = sha256_file(file).encode()
        if found != expected:
            what = f"store '{path}': {DATA_FILE} does not fit the hash in {HASH_FILE}"
            raise DataError(what, got=found.decode(), expected=ascii(expected)[2:-1], do=AGAIN)
    store = Store(path)
    if Vocabulary(store.meta.names).sha256 != store.meta.vocabulary_sha256:
        raise DataError(f"store '{path}': its gene names do not fit their hash", do=AGAIN)
    store.read()
    return store


# Building: every strain is checked once, on its way into an LMDB file.


MOST_TARGETS = 255
"""Most targets of a strain, because their number is stored in a byte."""


def build_store(strains: Strains, path: str | Path, *, command: str, overwrite: bool = False) -> Store:
    """Write strains as a store at ``path``, and open it; the order of strains and of each one's genes is kept.

    Until the store is whole, and if the process is killed, what was at ``path`` before stays. ``command`` is the one
    that builds it, for the record.

    Raises:
        DataError: a strain or column is unusable, or ``path`` exists; nothing is left behind.
        GenotypeError: a strain deletes no gene, too many, or one gene twice.
    """
    path, stored, names = Path(path), strains.stored(), Vocabulary.of(strains.names)
    _check(strains, stored, names)
    json.dumps(asdict(strains.provenance))
    if overwrite:
        _refuse_to_replace(path)
    with atomic_directory(path, overwrite=overwrite) as directory:
        try:
            _write(strains, stored, names, directory, command)
            (directory / HASH_FILE).write_text(f"{sha256_file(directory / DATA_FILE)}\n", encoding="utf-8")
        except (lmdb.Error, OSError) as error:
            # Where a write ends halfway LMDB speaks of an input/output error, and not of a full disk.
            what = f"store '{path}' cannot be written; nothing of it is left behind"
            got = f"{error}; {shutil.disk_usage(path.parent).free:,} bytes are free there"
            raise DataError(what, got=got, do="make room, or choose another path") from None
    return Store(path)


def _write(
    strains: Strains, stored: Mapping[tuple[str, ...], NDArray[Any]], names: Vocabulary, directory: Path, command: str
) -> None:
    meta = StoreMeta(
        columns=hashes(stored),
        values=(len(strains),),
        deletions=len(strains.targets),
        names=names.names,
        vocabulary_sha256=names.sha256,
        units={name: strains.units.get(name, "") for name in strains.phenotypes},
        provenance=strains.provenance,
        command=command,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        version=dglcell.__version__,
    )
    # Twice the room: pages that are not full, and copies of those the tree rewrites. The file grows as needed. The
    # description, which has the names of all genes, takes less than the rest.
    room = 2 * sum(values.nbytes for values in stored.values()) + 2**28
    with lmdb.open(str(directory), room, mode=0o666, lock=False, sync=False, meminit=False) as environment:
        with environment.begin(write=True) as transaction:
            for number, (label, values) in enumerate(stored.items()):
                of_all = label == COUNTS and (values == values[0]).all()
                transaction.put(value_key(0, number), (values[:1] if of_all else values).tobytes(), append=True)
            transaction.put(META_KEY, meta.to_bytes(), append=True)
        environment.sync(True)


def _refuse_to_replace(path: Path) -> None:
    """Refuse to replace anything but a store, because replacing a directory removes everything in it."""
    if not path.exists():
        return
    names = sorted(entry.name for entry in path.iterdir()) if path.is_dir() else ["a file"]
    if others := [name for name in names if name not in (DATA_FILE, HASH_FILE)]:
        what, expected = f"'{path}' will not be replaced: it is not a store", f"a directory with only {DATA_FILE}"
        raise DataError(what, got=", ".join(others[:5]), expected=expected, do="choose another path")


# The checks of strains that enter a store, made once so that nothing downstream has to make them. Covariates have been
# checked with their source.


RULES: dict[str, tuple[str, Callable[[NDArray[Any]], NDArray[np.bool_]]]] = {
    PHENOTYPE: ("a finite number, or nothing where it was not measured", np.isinf),
    P_VALUE: ("a number from 0 to 1, or nothing", lambda values: (values < 0) | (values > 1)),
    SD: ("a finite number, 0 or more, or nothing", lambda values: np.isinf(values) | (values < 0)),
    REPLICATES: ("a whole number, 0 or more", lambda values: ~((values >= 0) & (values % 1 == 0))),
    COVARIATE: ("a finite number for every strain", lambda values: ~np.isfinite(values)),
}
"""This maps a kind of column to what it may hold, and to which of its values are wrong."""


def _check(strains: Strains, stored: Mapping[tuple[str, ...], NDArray[Any]], names: Vocabulary) -> None:
    """Refuse strains that no store takes, and say which is the first; ``stored`` is `Strains.stored`."""
    phenotypes, counts = strains.phenotypes, strains.num_deletions
    if not phenotypes:
        raise DataError("no phenotype: a store needs at least one", do="name a phenotype column of the source")
    if not len(strains):
        raise DataError("no strains: a store needs at least one", do="check the source and its filters")
    stray = [c.label for c in strains.columns if c.kind in (P_VALUE, SD, REPLICATES) and c.name not in phenotypes]
    if stray:
        what = f"a column belongs to a phenotype that is not there: {' of '.join(stray[0])}"
        raise DataError(what, expected=f"some of {', '.join(phenotypes)}")

    def refuse(
        wrong: NDArray[np.bool_], what: str, values: NDArray[Any], expected: str, error: Any = DataError
    ) -> None:
        if wrong.any():
            strain, do = int(np.argmax(wrong)), "mend or drop the row"
            raise error(f"strain {strain + 1:,} {what}", got=values[strain].item(), expected=expected, do=do)

    expected = f"1 to {MOST_TARGETS} genes in every strain"
    # With covariates, a strain without deletions is the wild type with some covariate.
    refuse((counts == 0) & (not strains.covariates), "deletes no gene", counts, expected, GenotypeError)
    refuse(counts > MOST_TARGETS, "deletes too many genes", counts, expected, GenotypeError)
    keys = np.sort(strains.owners * len(names) + stored[TARGETS])
    for key in keys[1:][keys[1:] == keys[:-1]][:1].tolist():
        what = f"strain {key // len(names) + 1:,} deletes gene '{names.names[key % len(names)]}' twice"
        do = "drop the row, or leave out the repeated gene"
        raise GenotypeError(what, expected="distinct genes in every strain", do=do)
    for (kind, *rest), values in stored.items():
        if kind in RULES:
            expected, is_wrong = RULES[kind]
            wrong = ~np.isin(values, np.arange(len(rest) - 1)) if kind == COVARIATE and rest[1:] else is_wrong(values)
            refuse(wrong, f"has an unusable {kind} of '{rest[0]}'", values, expected)
    labels = np.stack([*phenotypes.values()])
    expected = f"a value of at least one of {', '.join(phenotypes)}"
    refuse(np.isnan(labels).all(axis=0), "has no label at all", labels[0], expected)


# Stores as text for a terminal.


def describe_store(store: Store) -> str:
    """Describe what a store holds and where it came from, from its metadata alone."""
    meta, source = store.meta, store.meta.provenance
    phenotypes = (name + (f" [{unit}]" if (unit := meta.units.get(name)) else "") for name in meta.of_kind(PHENOTYPE))
    size = (store.path / DATA_FILE).stat().st_size
    entries = [
        ("store", str(store.path)),
        ("strains", f"{meta.strains:,} with {meta.deletions:,} deletions over {len(meta.names):,} gene names"),
        ("phenotypes", ", ".join(phenotypes)),
        ("p-values", ", ".join(meta.of_kind(P_VALUE))),
        ("replicate SD", ", ".join(meta.of_kind(SD))),
        ("replicates", ", ".join(meta.of_kind(REPLICATES))),
        ("size", f"{size:,} bytes, {size / len(store):.1f} a strain"),
        ("source", source.source + (f": {source.description}" if source.description else "")),
        ("citation", source.citation),
        ("licence", source.licence),
        *(("url", url) for url in source.urls),
        *(("raw file", f"{name}  sha256 {digest[:12]}…") for name, digest in source.files.items()),
        ("rows", ", ".join(f"{what.replace('_', ' ')} {count:,}" for what, count in source.counts.items())),
        ("parameters", ", ".join(f"{key}={value}" for key, value in source.parameters.items())),
        ("built", f"{meta.created} by dglcell {meta.version}"),
        ("command", meta.command),
        ("sha256", meta.sha256),
    ]
    return _entries(entries)


def format_stats(store: Store) -> str:
    """Format `describe_store`, and labels, numbers of deletions and genes over all strains of the store."""
    import pandas as pd

    table = store.read()
    labels = pd.DataFrame(table.phenotypes).astype(np.float64)  # sums over millions of strains need more than float32
    spread = labels.describe().T.assign(std=labels.std(ddof=0)).rename_axis(columns="phenotype")
    spread = spread.rename(columns={"count": "measured", "std": "SD", "25%": "25 %", "50%": "median", "75%": "75 %"})
    whole = {"measured": "{:,.0f}".format}
    lines = spread.to_string(float_format="{:.4g}".format, na_rep="n/a", formatters=whole, line_width=None)
    replicates = ", ".join(
        f"{name}: {count(int((numbers > 1).sum()), 'strain')} with 2 to {numbers.max():.0f} measurements"
        for name, numbers in table.of_kind(REPLICATES).items()
        if (numbers > 1).any()
    )
    numbers = zip(*np.unique(table.num_deletions, return_counts=True), strict=True)
    deletions = ", ".join(f"{strains:,} with {number}" for number, strains in numbers)
    deleted = f"{len(np.unique(table.targets)):,} of {len(table.names):,} names are deleted in some strain"
    extra = [("replicates", replicates), ("deletions", deletions), ("genes", deleted)]
    return "\n\n".join([describe_store(store), lines, _entries(extra)])


def _entries(entries: Iterable[tuple[str, str]]) -> str:
    wrap = textwrap.TextWrapper(80, subsequent_indent=" " * 14, break_long_words=False, break_on_hyphens=False)
    return "\n".join(wrap.fill(f"{label:<13} {text}") for label, text in entries if text)

"""The strain store: an LMDB directory of packed blocks of strains and one ``meta`` record."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
from numpy.typing import NDArray

from dglcell.data.blocks import (
    DATA_FILE,
    HASH_FILE,
    P_VALUE,
    PHENOTYPE,
    REPLICATES,
    SD,
    Block,
    ContentHash,
    Layout,
    open_environment,
    unpack,
)
from dglcell.data.table import Provenance, StrainTable
from dglcell.errors import DataError, listing
from dglcell.files.atomic import canonical_hash, parse_json, sha256_file
from dglcell.graph.vocabulary import Vocabulary

# The ``meta`` record of a store: what is in it, where it came from and how it was built.


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


META_KEY = b"meta"
MOST_THREADS = 8
# Blocks that one thread takes at a time.
SPAN = 32

_opening = threading.Lock()


def reading_threads() -> int:
    """How many threads read blocks: checksums and copies let go of Python's lock."""
    return min(MOST_THREADS, os.cpu_count() or 1)


def block_key(block: int) -> bytes:
    """LMDB key of a block: its number, 8 bytes, big-endian, so that the order of keys is that of blocks."""
    return block.to_bytes(8, "big")


class Store:
    """A store opened for reading.

    Cheap to make, to pickle and to carry over a fork: each process opens the file when it first needs it.

    Args:
        path: the store's directory.

    Attributes:
        meta: what the store holds and where it came from.

    Raises:
        DataError: no store is there, or its file is cut short, damaged or of a newer format.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._held: tuple[int, lmdb.Environment] | None = None
        self.meta = self._read_meta(open_environment(self.path))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_held": None}

    def __len__(self) -> int:
        return self.meta.strains

    @property
    def sha256(self) -> str:
        """Hash of the content: equal for the same strains, whatever the size of blocks and the date."""
        return self.meta.sha256

    @property
    def file_size(self) -> int:
        """Bytes on disk."""
        return (self.path / DATA_FILE).stat().st_size

    def read(self, phenotypes: Sequence[str] | None = None) -> StrainTable:
        """All strains.

        Args:
            phenotypes: the phenotypes wanted, all where None. Strains that miss them all stay in, as NaN.

        Raises:
            DataError: a phenotype is not in the store, or a block is damaged.
        """
        meta, rows = self.meta, self._label_rows(phenotypes)
        counts = np.empty(meta.strains, np.uint8)
        genes = np.empty(meta.deletions, np.int32)
        labels = np.empty((len(rows), meta.strains), np.float32)
        with self._environment().begin(buffers=True) as transaction, ThreadPoolExecutor(reading_threads()) as pool:

            def check(span: range) -> list[Block]:
                return [self._block(transaction, block) for block in span]

            # Checked before anything is copied: where a block's strains go depends on the blocks before it.
            spans = [range(i, min(i + SPAN, len(meta.blocks))) for i in range(0, len(meta.blocks), SPAN)]
            blocks = [block for found in pool.map(check, spans) for block in found]
            strains = np.cumsum([0, *map(len, blocks)])
            deletions = np.cumsum([0, *(len(block.genes) for block in blocks)])

            def copy(span: range) -> None:
                for block in span:
                    found, here = blocks[block], slice(strains[block], strains[block + 1])
                    counts[here] = found.counts
                    genes[deletions[block] : deletions[block + 1]] = found.genes
                    for into, row in enumerate(rows):
                        labels[into, here] = found.labels[row]

            for _ in pool.map(copy, spans):
                pass
            # They are views of the file, which go before the transaction does.
            blocks.clear()
        return self._table(counts, genes, labels, rows)

    def blocks(self, numbers: Iterable[int]) -> Iterator[Block]:
        """Some blocks in turn, as columns in the store's own indices; usable in several threads at once.

        Their arrays are views of the file, valid until the next is asked for.

        Raises:
            DataError: a block is damaged, or the store was built anew.
        """
        with self._opened().begin(buffers=True) as transaction:
            for block in numbers:
                yield self._block(transaction, block)

    def read_block(self, block: int) -> StrainTable:
        """The strains of one block (``meta.blocks`` has the number of strains in each).

        Raises:
            DataError: the block is damaged.
            IndexError: there is no such block.
        """
        if not 0 <= block < len(self.meta.blocks):
            raise IndexError(f"block {block} of {len(self.meta.blocks)}")
        with self._opened().begin(buffers=True) as transaction:
            found = self._block(transaction, block)
            return self._table(
                found.counts, found.genes.astype(np.int32), found.labels.copy(), range(len(found.labels))
            )

    def verify(self) -> None:
        """Check each block's checksum, the counts, the vocabulary and the hash of the content.

        Raises:
            DataError: something differs; the message names it.
        """
        self.meta.check_vocabulary(f"store '{self.path}'")
        digest = ContentHash(self.meta.layout, self.meta.vocabulary_sha256, self.meta.units)
        for block in self.blocks(range(len(self.meta.blocks))):
            digest.update(block)
        if digest.hexdigest() != self.sha256:
            raise DataError(
                f"store '{self.path}': its columns do not fit their hash",
                got=digest.hexdigest(),
                expected=self.sha256,
                do="build it anew with `dglcell data build --overwrite`",
            )

    def _environment(self) -> lmdb.Environment:
        environment = open_environment(self.path)
        if self._read_meta(environment).sha256 != self.sha256:
            raise DataError(f"store '{self.path}' was built anew while it was in use", do="open it again")
        return environment

    def _opened(self) -> lmdb.Environment:
        """The environment, kept for this process."""
        with _opening:
            if self._held is None or self._held[0] != os.getpid():
                self._held = os.getpid(), self._environment()
            return self._held[1]

    def _read_meta(self, environment: lmdb.Environment) -> StoreMeta:
        try:
            with environment.begin() as transaction:
                record = transaction.get(META_KEY)
        except lmdb.Error as error:
            raise self._damaged(error) from None
        if record is None:
            raise DataError(
                f"'{self.path}' is an LMDB directory but not a store of strains",
                expected="a record named 'meta'",
                do="build a store with `dglcell data build`",
            )
        return StoreMeta.from_bytes(record, f"store '{self.path}'")

    def _block(self, transaction: lmdb.Transaction, block: int) -> Block:
        """One block, as views of the file that die with ``transaction``."""
        where = f"store '{self.path}': block {block} of {len(self.meta.blocks)}"
        try:
            value = transaction.get(block_key(block))
        except lmdb.Error as error:
            raise self._damaged(error) from None
        if value is None:
            raise DataError(f"{where} is missing", do="build it anew with `dglcell data build --overwrite`")
        found = unpack(value, self.meta.layout, where)
        if len(found) != self.meta.blocks[block]:
            raise DataError(
                f"{where} has the wrong number of strains", got=len(found), expected=self.meta.blocks[block]
            )
        return found

    def _damaged(self, error: lmdb.Error) -> DataError:
        return DataError(
            f"store '{self.path}' is damaged: LMDB cannot read it",
            got=error,
            do="copy the store again, or build it anew with `dglcell data build --overwrite`",
        )

    def _label_rows(self, phenotypes: Sequence[str] | None) -> list[int]:
        """Rows of the label matrix that belong to ``phenotypes``, in their order."""
        wanted = self.meta.phenotypes if phenotypes is None else phenotypes
        unknown = [name for name in wanted if name not in self.meta.phenotypes]
        if unknown or not wanted:
            raise DataError(
                f"store '{self.path}' lacks a phenotype" if unknown else "no phenotype asked for",
                got=listing(unknown) if unknown else "an empty list",
                expected=f"some of {', '.join(self.meta.phenotypes)}",
                do="name phenotypes as `dglcell data stats` prints them",
            )
        row = {label: i for i, label in enumerate(self.meta.layout.labels)}
        kinds = (PHENOTYPE, P_VALUE, SD, REPLICATES)
        return [row[kind, name] for kind in kinds for name in wanted if (kind, name) in row]

    def _table(
        self,
        counts: NDArray[np.uint8],
        genes: NDArray[np.int32],
        labels: NDArray[np.float32],
        rows: Sequence[int],
    ) -> StrainTable:
        columns: dict[str, dict[str, NDArray[np.float32]]] = {PHENOTYPE: {}, P_VALUE: {}, SD: {}, REPLICATES: {}}
        for row, values in zip(rows, labels, strict=True):
            kind, name = self.meta.layout.labels[row]
            columns[kind][name] = values
        offsets = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(counts, out=offsets[1:])
        units = {name: self.meta.units.get(name, "") for name in columns[PHENOTYPE]}
        return StrainTable(
            self.meta.names,
            genes,
            offsets,
            columns[PHENOTYPE],
            self.meta.provenance,
            units,
            columns[P_VALUE],
            columns[SD],
            columns[REPLICATES],
        )


def verify_store(path: Path) -> tuple[Store, bool]:
    """Open a store whose every byte is what was written, as far as can be told.

    The hash of the whole file comes first: LMDB trusts what it reads. Stores that were built before it was recorded are
    verified by their content alone, which leaves bytes that no record uses.

    Args:
        path: the store's directory.

    Returns:
        the store, and whether a hash of its file was there.

    Raises:
        DataError: something differs; the message names it.
    """
    recorded, hashed = path / HASH_FILE, (path / HASH_FILE).is_file() and (path / DATA_FILE).is_file()
    if hashed:
        expected, found = recorded.read_bytes().strip(), sha256_file(path / DATA_FILE).encode()
        if found != expected:
            raise DataError(
                f"store '{path}': {DATA_FILE} does not fit the hash in {HASH_FILE}",
                got=found.decode(),
                expected=ascii(expected)[2:-1],
                do="copy the store again, or build it anew with `dglcell data build --overwrite`",
            )
    store = Store(path)
    store.verify()
    return store, hashed


@dataclass(frozen=True)
class StoreListing:
    """One store found in a folder.

    Attributes:
        path: its directory.
        store: the store, where it opens.
        problem: why it does not, else empty.
    """

    path: Path
    store: Store | None = None
    problem: str = ""


def list_stores(root: str | Path) -> list[StoreListing]:
    """The stores under ``root``, by path; a directory counts as one if it holds an LMDB file.

    Raises:
        DataError: ``root`` is not a directory.
    """
    root = Path(root)
    if not root.is_dir():
        raise DataError(f"'{root}' is not a directory", do="name the folder that holds the stores")
    listings = []
    for file in sorted(root.rglob(DATA_FILE)):
        path = file.parent
        if path.name.startswith("."):
            continue
        try:
            listings.append(StoreListing(path, Store(path)))
        except DataError as error:
            listings.append(StoreListing(path, problem=str(error).splitlines()[0]))
    return listings

"""Building a store: checks every strain once, and writes blocks as chunks of strains come in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, fields
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import NotRequired, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

import dglcell
from dglcell.data.blocks import (
    DATA_FILE,
    HASH_FILE,
    HEADER,
    MAX_DELETIONS,
    P_VALUE,
    PHENOTYPE,
    REPLICATES,
    SD,
    Block,
    ContentHash,
    GrowingFile,
    Layout,
)
from dglcell.data.store import META_KEY, Store, StoreMeta, block_key
from dglcell.data.table import Provenance, StrainTable, TableHead
from dglcell.errors import DataError, GenotypeError
from dglcell.files.atomic import atomic_directory, sha256_file
from dglcell.graph.vocabulary import Vocabulary

# The checks of strains that enter a store, made once so that nothing downstream has to make them.


def chunk_to_block(
    chunk: StrainTable, vocabulary: Vocabulary, layout: Layout, rows_before: int, allow_empty: bool
) -> Block:
    """The strains of ``chunk`` as columns of a store, checked.

    Args:
        chunk: the strains.
        vocabulary: of the store; the chunk's names are mapped onto it.
        layout: of the store.
        rows_before: strains that came before, so that messages count from the first of all.
        allow_empty: accept strains without a deletion.

    Raises:
        DataError: columns differ from the layout, a label is infinite or out of range, or a strain has none.
        GenotypeError: a strain has no deletion, too many, an unknown gene, or one gene twice.
    """
    counts = chunk.num_deletions
    genes = _map_genes(chunk, vocabulary)
    _check_genotypes(counts, genes, vocabulary, rows_before, allow_empty)
    labels = _label_matrix(chunk, layout)
    _check_labels(labels, layout, rows_before)
    return Block(counts.astype(np.uint8), genes.astype(layout.gene_dtype), labels)


def _map_genes(chunk: StrainTable, vocabulary: Vocabulary) -> NDArray[np.int64]:
    mapping = vocabulary.indices(chunk.names)
    genes = mapping[chunk.genes]
    if (genes < 0).any():
        missing = chunk.names[chunk.genes[int(np.argmax(genes < 0))]]
        raise GenotypeError(
            f"gene '{missing}' is not among the names of the store",
            do="give the writer the names of all chunks",
        )
    return genes


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
            do="drop the row, or allow the wild type as a strain with `allow_empty`",
        )
    if (counts > MAX_DELETIONS).any():
        strain = int(np.argmax(counts > MAX_DELETIONS))
        raise GenotypeError(
            f"strain {rows_before + strain + 1:,} deletes too many genes",
            got=int(counts[strain]),
            expected=f"at most {MAX_DELETIONS}",
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


def _label_matrix(chunk: StrainTable, layout: Layout) -> NDArray[np.float32]:
    given: dict[str, Mapping[str, NDArray[np.float32]]] = {
        PHENOTYPE: chunk.phenotypes,
        P_VALUE: chunk.p_values,
        SD: chunk.sds,
        REPLICATES: chunk.replicates,
    }
    found = {(kind, name) for kind, columns in given.items() for name in columns}
    if found != set(layout.labels):
        raise DataError(
            "the label columns differ from those of the store",
            got=", ".join(f"{kind} of {name}" for kind, name in sorted(found)) or "none",
            expected=", ".join(f"{kind} of {name}" for kind, name in layout.labels),
        )
    labels = np.empty((len(layout.labels), len(chunk)), np.float32)
    with np.errstate(over="ignore"):  # a value beyond float32 becomes infinite and is refused as such
        for row, (kind, name) in enumerate(layout.labels):
            labels[row] = given[kind][name]
    # One bit pattern for missing values, so that equal content has an equal hash.
    labels[np.isnan(labels)] = np.nan
    return labels


def _check_labels(labels: NDArray[np.float32], layout: Layout, rows_before: int) -> None:
    for (kind, name), values in zip(layout.labels, labels, strict=True):
        wrong, expected = np.isinf(values), "a finite number, or nothing where it was not measured"
        if kind == P_VALUE:
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
    missing = np.isnan(labels[: len(layout.phenotypes)]).all(axis=0)
    if missing.any():
        raise DataError(
            f"strain {rows_before + int(np.argmax(missing)) + 1:,} has no label at all",
            got=f"{int(missing.sum()):,} such strains so far",
            expected=f"a value of at least one of {', '.join(layout.phenotypes)}",
            do="drop the rows without a measurement",
        )


# LMDB stores a value of n bytes in ceil((n + 16) / page) pages; this is just under 64 KiB.
BLOCK_BYTES = 2**16 - 16
CHUNK_STRAINS = 2**18


class StoreWriter:
    """Writes a store from chunks of strains, in bounded memory.

    Used as a context manager. The store appears at ``path`` when the ``with`` block ends without an
    exception; until then, and if the process is killed, what was there before stays.

    Args:
        path: directory of the store to be.
        names: every gene name that a chunk may have.
        phenotypes: phenotypes that every chunk has.
        p_values: phenotypes with p-values.
        sds: phenotypes with standard deviations over replicates.
        replicates: phenotypes with numbers of measurements.
        units: phenotype → unit.
        provenance: where the strains come from; may be replaced (``writer.provenance = …``) until the end
            of the ``with`` block.
        command: the command that builds the store, for the record.
        block_strains: most strains in one block; as many as fit 64 KiB where None.
        overwrite: replace the store at ``path``.
        allow_empty: accept strains without a deletion (the wild type).

    Raises:
        DataError: ``path`` exists, or no phenotype is named, or (at the end) no strain was written.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        names: Sequence[str],
        phenotypes: Sequence[str],
        provenance: Provenance,
        command: str,
        p_values: Sequence[str] = (),
        sds: Sequence[str] = (),
        replicates: Sequence[str] = (),
        units: Mapping[str, str] | None = None,
        block_strains: int | None = None,
        overwrite: bool = False,
        allow_empty: bool = False,
    ) -> None:
        self.path = Path(path)
        self.provenance = provenance
        self._command = command
        self._vocabulary = Vocabulary.of(names)
        self._layout = _layout(len(self._vocabulary), phenotypes, p_values, sds, replicates)
        self._units = {name: (units or {}).get(name, "") for name in phenotypes}
        self._block_strains = block_strains
        self._overwrite = overwrite
        self._allow_empty = allow_empty
        self._hash = ContentHash(self._layout, self._vocabulary.sha256, self._units)
        self._pending: Block | None = None
        self._blocks: list[int] = []
        self._strains = 0
        self._deletions = 0
        json.dumps(asdict(provenance))

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

    def append(self, chunk: StrainTable) -> None:
        """Check and write strains, which follow those of earlier chunks.

        Raises:
            DataError: the chunk's columns differ from the writer's, or a strain is unusable; the message has
                the number of the strain, from 1 over all chunks, and the gene.
            GenotypeError: a strain deletes no gene, too many, an unknown gene, or one gene twice.
        """
        block = chunk_to_block(chunk, self._vocabulary, self._layout, self._strains, self._allow_empty)
        self._strains += len(block)
        self._pending = block if self._pending is None else Block.concatenate([self._pending, block])
        self._write_full_blocks(final=False)

    def _write_full_blocks(self, final: bool) -> None:
        pending = self._pending
        if pending is None:
            return
        width = self._layout.gene_dtype.itemsize
        ends = np.cumsum(4 * len(self._layout.labels) + width * pending.counts.astype(np.int64))
        start = 0
        while start < len(pending):
            stop = self._block_end(pending.counts, ends, start)
            if stop == len(pending) and not final:
                break
            self._write(pending.slice(start, stop))
            start = stop
        self._pending = pending.slice(start, len(pending))

    def _block_end(self, counts: NDArray[np.uint8], ends: NDArray[np.int64], start: int) -> int:
        """Where a block that begins at strain ``start`` has to end; ``ends`` are bytes up to each strain."""
        room = BLOCK_BYTES - HEADER.size + (ends[start - 1] if start else 0)
        stop = int(np.searchsorted(ends, room, side="right"))
        if (counts[start:stop] != counts[start]).any():
            # One more byte for each strain, the number of its deletions.
            each = ends[start:stop] + np.arange(1, stop - start + 1)
            stop = start + int(np.searchsorted(each, room, side="right"))
        if self._block_strains is not None:
            stop = min(stop, start + self._block_strains)
        return max(stop, start + 1)

    def _write(self, block: Block) -> None:
        self._file.append(block_key(len(self._blocks)), block.pack())
        self._hash.update(block)
        self._blocks.append(len(block))
        self._deletions += len(block.genes)

    def _finish(self, kind: type[BaseException] | None, *_: object) -> None:
        """Write what is pending and the description, unless an exception ended the build."""
        if kind is not None:
            return
        self._write_full_blocks(final=True)
        if not self._blocks:
            raise DataError("no strains: a store needs at least one", do="check the source and its filters")
        meta = StoreMeta(
            sha256=self._hash.hexdigest(),
            blocks=tuple(self._blocks),
            deletions=self._deletions,
            names=self._vocabulary.names,
            vocabulary_sha256=self._vocabulary.sha256,
            phenotypes=self._layout.phenotypes,
            p_values=self._layout.p_values,
            sds=self._layout.sds,
            replicates=self._layout.replicates,
            units=self._units,
            provenance=self.provenance,
            command=self._command,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            version=dglcell.__version__,
        )
        self._file.append(META_KEY, meta.to_bytes())


def _record_hash(directory: Path, kind: type[BaseException] | None, *_: object) -> None:
    """Once the file is complete and closed."""
    if kind is None:
        (directory / HASH_FILE).write_text(f"{sha256_file(directory / DATA_FILE)}\n", encoding="utf-8")


class BuildOptions(TypedDict):
    """How a store is built; see ``StoreWriter``."""

    command: str
    block_strains: NotRequired[int | None]
    overwrite: NotRequired[bool]
    allow_empty: NotRequired[bool]


def build_store_from_blocks(
    head: TableHead, blocks: Iterable[StrainTable], path: str | Path, **options: Unpack[BuildOptions]
) -> Store:
    """Write strains that come a block at a time as a store at ``path``, and open it.

    Memory is bounded by the blocks that come; larger ones are checked and written in pieces.

    Args:
        head: what all blocks have in common.
        blocks: the strains, in order; their names are among the head's, their columns are the head's.
        path: directory of the store to be.
        options: see ``StoreWriter``.

    Raises:
        DataError: a strain or column is unusable, or ``path`` exists; nothing is left behind.
    """
    columns = {field.name: getattr(head, field.name) for field in fields(head)}
    with StoreWriter(path, **columns, **options) as writer:
        for block in blocks:
            for start in range(0, len(block), CHUNK_STRAINS):
                writer.append(block.slice(start, min(start + CHUNK_STRAINS, len(block))))
    return Store(path)


def build_store(table: StrainTable, path: str | Path, **options: Unpack[BuildOptions]) -> Store:
    """Write ``table`` as a store at ``path`` and open it; see `build_store_from_blocks`.

    The order of strains and of each one's genes is kept.
    """
    return build_store_from_blocks(table.head, [table], path, **options)


def _layout(
    names: int, phenotypes: Sequence[str], p_values: Sequence[str], sds: Sequence[str], replicates: Sequence[str]
) -> Layout:
    if not phenotypes:
        raise DataError("no phenotype: a store needs at least one", do="name a phenotype column of the source")
    for kind, wanted in (
        ("p-values", p_values),
        ("standard deviations", sds),
        ("numbers of measurements", replicates),
    ):
        stray = [name for name in wanted if name not in phenotypes]
        if stray:
            raise DataError(
                f"{kind} of a phenotype that is not there",
                got=", ".join(stray),
                expected=f"some of {', '.join(phenotypes)}",
            )
    return Layout(names, tuple(phenotypes), tuple(p_values), tuple(sds), tuple(replicates))


def _refuse_to_replace(path: Path) -> None:
    """Replacing a directory removes it with all it holds, so it has to be a store and nothing else."""
    if not path.exists():
        return
    others = ["a file"]
    if path.is_dir():
        others = sorted(entry.name for entry in path.iterdir() if entry.name not in (DATA_FILE, HASH_FILE))
    if others:
        raise DataError(
            f"'{path}' will not be replaced: it is not a store",
            got=", ".join(others[:5]),
            expected=f"a directory with nothing but {DATA_FILE}",
            do="choose another path",
        )

"""The packed columnar block: how some thousands of strains become one value of a store, and back.

A value is, in this order (little-endian, so that every column is aligned):

======== ===========================================================================================
header   16 bytes: crc32 of all that follows, number of strains, deletions in all, deletions of each
         strain (``VARIES`` where strains differ)
labels   float32, one column after the other
genes    uint16 (uint32 from 65,536 names on), strain after strain, in the order of the source
counts   uint8, number of deletions of each strain; only where strains differ
======== ===========================================================================================
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import DataError
from dglcell.files import canonical_hash

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

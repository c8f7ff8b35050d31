"""One pass over a store before its training part is streamed: what can be used, and what the labels are like."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dglcell.data.dataset import StrainDataset, check_labelled, choose_phenotypes, refuse_nothing_left
from dglcell.data.kinds import CLASSIFICATION, REGRESSION
from dglcell.data.moments import Moments
from dglcell.data.partition import TEST, TRAIN, UNUSED, VALIDATION, Parts
from dglcell.data.store import Store
from dglcell.data.stream import BlockReader, Strains, StrainStream, in_order
from dglcell.data.stream_config import StreamingConfig
from dglcell.data.stream_order import StreamOrder
from dglcell.graph.vocabulary import NameReport, Vocabulary, enforce_name_policy

SAMPLE = 4096
"""Training strains, the first of the store, that are kept in memory, to try batch sizes and strategies on."""
SPAN = 16
"""Blocks that one thread looks at at a time."""


@dataclass(frozen=True)
class Survey:
    """What a run needs to know of a store whose training part it streams.

    Attributes:
        stream: the training part.
        resident: the strains of validation and test, whose predictions are kept in memory as well, and a few of
            training.
        moments: of the training labels.
    """

    stream: StrainStream
    resident: StrainDataset
    moments: Moments


@dataclass(frozen=True)
class _Found:
    """What a span of blocks holds.

    Attributes:
        usable: [n] strains that have genes of the cell graph and labels.
        lacking: [n] strains that have other genes.
        unknown: store indices of these genes.
        counts: training strains in each block.
        moments: of their labels.
        labelled, other: [T] whether a usable strain has a label; one that is neither 0 nor 1.
        most: deletions of any usable strain.
        kept: strains to be kept in memory.
    """

    usable: NDArray[np.bool_]
    lacking: NDArray[np.bool_]
    unknown: frozenset[int]
    counts: list[int]
    moments: Moments
    labelled: Tensor
    other: Tensor
    most: int
    kept: Strains


def survey(
    store: Store,
    vocabulary: Vocabulary,
    part: Parts,
    config: StreamingConfig,
    *,
    phenotypes: list[str] | None = None,
    unknown: str = "refuse",
    seed: int = 0,
) -> Survey:
    """Read all of a store once, and keep little of it.

    Args:
        store: the strains.
        vocabulary: gene vocabulary of the cell graph.
        part: [S] the split.
        config: of the stream.
        phenotypes, unknown: see ``StrainDataset.from_table``.
        seed: of the training order.

    Raises:
        GraphError: unknown genes under ``refuse``.
        DataError: a phenotype that the store lacks or without labels, no strain left, or a damaged block.
    """
    chosen = tuple(choose_phenotypes(store.meta.phenotypes, phenotypes))
    mapping = vocabulary.indices(store.meta.names)
    # An unknown gene keeps its index in the store, as −1 − index, so that it can be named.
    own = np.where(mapping < 0, -1 - np.arange(len(mapping)), mapping).astype(np.int32)
    reader = BlockReader(store, own, chosen)
    blocks = range(len(store.meta.blocks))
    spans = [blocks[i : i + SPAN] for i in range(0, len(blocks), SPAN)]
    found = list(in_order(lambda work: _look(reader, part, *work), _with_room(store, part, spans), config.readers))
    lacking = sorted({store.meta.names[gene] for one in found for gene in one.unknown})
    dropped = sum(int(one.lacking.sum()) for one in found)
    report = NameReport(len(store.meta.names), tuple(lacking), rows_dropped=dropped)
    enforce_name_policy(report, unknown, where=f"store of '{store.meta.provenance.source}'", key="data.unknown_genes")
    usable = np.concatenate([one.usable for one in found])
    for name, labelled in zip(chosen, torch.stack([one.labelled for one in found]).any(0).tolist(), strict=True):
        check_labelled(name, labelled)
    if not usable.any():
        refuse_nothing_left(len(store), dropped)
    other = torch.stack([one.other for one in found]).any(0).tolist()
    most = max(one.most for one in found)
    resident = StrainDataset(
        **_columns([one.kept for one in found]),
        phenotypes=chosen,
        units=tuple(store.meta.units.get(name, "") for name in chosen),
        max_deletions=most,
        names=report,
        known_kinds=tuple(REGRESSION if yes else CLASSIFICATION for yes in other),
    )
    order = StreamOrder(np.array([n for one in found for n in one.counts], np.int64), config.window, seed)
    part = np.where(usable, part, np.uint8(UNUSED))
    stream = StrainStream(reader, part, TRAIN, order, most, config.readers)
    moments = found[0].moments
    for one in found[1:]:
        moments += one.moments
    return Survey(stream, resident, moments)


def _with_room(store: Store, part: Parts, spans: Sequence[range]) -> Iterator[tuple[range, int]]:
    """How many training strains of each span of blocks are kept in memory."""
    ends, room = np.cumsum([0, *store.meta.blocks]), SAMPLE
    for span in spans:
        yield span, room
        room = max(0, room - int((part[ends[span.start] : ends[span.stop]] == TRAIN).sum()))


def _look(reader: BlockReader, part: Parts, span: range, room: int) -> _Found:
    pieces = reader.read(span, lambda here: None)
    strains = Strains.join(pieces)
    ends = strains.counts.cumsum(0)
    wrong = (strains.genes < 0).nonzero().squeeze(1)
    lacking = torch.zeros(strains.num_strains, dtype=torch.bool)
    lacking[torch.searchsorted(ends, wrong, right=True)] = True
    usable = ~lacking & ~strains.labels.isnan().all(1)
    here = torch.from_numpy(part[strains.rows.numpy()])
    training = usable & (here == TRAIN)
    kept = (here == VALIDATION) | (here == TEST) | (training & (training.cumsum(0) <= room))
    labels = strains.labels[usable]
    return _Found(
        usable.numpy(),
        lacking.numpy(),
        frozenset((-1 - strains.genes[wrong]).unique().tolist()),
        [int(x.sum()) for x in training.split([piece.num_strains for piece in pieces])],
        Moments.of(strains.labels[training]),
        (~labels.isnan()).any(0),
        ((labels != 0) & (labels != 1) & ~labels.isnan()).any(0),
        int(strains.counts[usable].max()) if len(labels) else 0,
        _take(strains, usable & kept),
    )


def _take(strains: Strains, wanted: Tensor) -> Strains:
    """Some of the strains."""
    genes = strains.genes[wanted.repeat_interleave(strains.counts)]
    return Strains(genes, *(column[wanted] for column in strains[1:]))


def _columns(kept: Sequence[Strains]) -> dict[str, Tensor]:
    """Tensors of a resident data set."""
    strains = Strains.join(kept)
    offsets = torch.cat([strains.counts.new_zeros(1), strains.counts.cumsum(0)])
    return {"genes": strains.genes, "offsets": offsets, "labels": strains.labels, "rows": strains.rows}

"""What a step costs under each strategy and kernel, predicted from sizes and from what a machine can do."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from dglcell.graph.resident import ResidentCell, ResidentRelation
from dglcell.graph.schema import Relation
from dglcell.kernels.spmm import spmm
from dglcell.perturbation.deletions import keep_masks
from dglcell.perturbation.genotype import GenotypeBatch


@dataclass(frozen=True)
class Rates:
    """What the device does in a second.

    Attributes:
        bytes: moved by a copy, reads and writes.
        flops: of a matrix product, a multiplication and an addition each.
    """

    bytes: float
    flops: float


def measure_rates(device: torch.device, dtype: torch.dtype) -> Rates:
    """A copy of 64 MB and a matrix product of 1024³; takes some ten milliseconds."""
    data = torch.ones((64 << 20) // dtype.itemsize, dtype=dtype, device=device)
    target, square = torch.empty_like(data), torch.ones(1024, 1024, dtype=dtype, device=device)

    def seconds(work: Callable[[], object]) -> float:
        best = float("inf")
        for _ in range(3):
            _wait(device)
            started = time.perf_counter()
            work()
            _wait(device)
            best = min(best, time.perf_counter() - started)
        return best

    copy = seconds(lambda: target.copy_(data))
    return Rates(2 * data.nbytes / copy, 2 * 1024**3 / seconds(lambda: square @ square))


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


CACHE_GAIN = 4.0
"""How much faster than a copy rows are gathered that stay in the cache."""


def predict_product(kernel: str, relation: ResidentRelation, columns: int, itemsize: int, rates: Rates) -> float:
    """Seconds of one product, to tell hopeless kernels from those worth timing."""
    gathered = relation.num_edges * columns * itemsize
    if kernel == "dense":
        return 2.0 * relation.num_src * relation.num_dst * columns / rates.flops
    if kernel == "reference":
        return 5 * gathered / rates.bytes  # gather: read and write; scatter: read, read and write
    rows = (relation.num_src + relation.num_dst) * columns * itemsize
    return (gathered / CACHE_GAIN + rows) / rates.bytes


@dataclass(frozen=True)
class Share:
    """How much of a relation's work in a layer differs from the wild type's.

    Attributes:
        rows: changed (destination, strain) pairs, as a share of M · B.
        edges: edges out of changed sources, as a share of E · B.
        total_rows: M · B.
    """

    rows: float
    edges: float
    total_rows: int


def survey(
    cell: ResidentCell, layers: Sequence[Sequence[Relation]], genotypes: GenotypeBatch
) -> list[dict[Relation, Share]]:
    """Follow the deletions of some strains through all layers.

    Args:
        cell: the cell.
        layers: relations that each layer computes.
        genotypes: B strains.
    """
    keep = keep_masks(cell, genotypes)
    changed = {node_type: torch.zeros_like(mask) for node_type, mask in keep.items()}
    shares: list[dict[Relation, Share]] = []
    for relations in layers:
        after = {node_type: mask.clone() for node_type, mask in changed.items()}
        shares.append({})
        for relation in relations:
            edges = cell[relation]
            sources_NB = changed[relation[0]] | ~keep[relation[0]]
            reached_MB = spmm(edges, sources_NB.to(torch.float32), weighted=False) > 0.5
            rows_MB = reached_MB | ~keep[relation[2]] | changed[relation[2]]
            after[relation[2]] |= rows_MB
            moved = (sources_NB.sum(1) * edges.out_degrees).sum() / max(edges.num_edges * sources_NB.shape[1], 1)
            shares[-1][relation] = Share(float(rows_MB.float().mean()), float(moved), rows_MB.numel())
        changed = after
    return shares

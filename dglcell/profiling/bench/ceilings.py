"""What the machine can do at most, and what a step would cost if nothing else limited it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch

from dglcell.graph.schema import GENE, Relation
from dglcell.models.config import HeteroCellConfig
from dglcell.profiling.bench.clock import clock

COPY_BYTES = 256 * 2**20
GEMM_SIZE = {"cpu": 2048, "cuda": 8192}


@dataclass(frozen=True)
class Ceilings:
    """Measured here, on the same device, in the same precision, with the same threads.

    Attributes:
        copy_bytes_per_second: bytes read plus bytes written when copying 256 MiB.
        gemm_flops_per_second: of a square matrix product.
    """

    copy_bytes_per_second: float
    gemm_flops_per_second: float


def measure_ceilings(device: str, dtype: str, *, budget: float = 1.0) -> Ceilings:
    """Copy and multiply for ``budget`` seconds each; the best of them counts."""
    source = torch.ones(COPY_BYTES // 4, device=device)
    target = torch.empty_like(source)
    copy = clock(lambda: target.copy_(source), budget, device)
    size = GEMM_SIZE[torch.device(device).type]
    matrix = torch.ones(size, size, dtype=getattr(torch, dtype), device=device)
    gemm = clock(lambda: matrix @ matrix, budget, device)
    return Ceilings(2 * COPY_BYTES / min(copy.seconds), 2 * size**3 / min(gemm.seconds))


def ideal_seconds(
    config: HeteroCellConfig, edges: dict[Relation, int], nodes: dict[str, int], batch: int, dtype: str, rates: Ceilings
) -> float:
    """A step of plain node masks at the machine's ceilings: a yardstick that is the same for all methods.

    Bytes: every aggregation reads one state of C = (B + 1) · H columns per edge, forward and backward, and those
    reads run at the copy rate. Flops: the Linear layers of all convolutions and of the pooling on all rows of all
    strains, forward once and backward twice, at the matrix product's rate. The two are added. A method is above 100 %
    where strains share work, or where the rows it gathers stay in cache.
    """
    strains, width = batch + 1, config.hidden
    size = torch.finfo(getattr(torch, dtype)).bits // 8
    gathered = 2 * config.layers * sum(edges.values()) * strains * width * size
    rows = sum(nodes[relation[2]] for relation in edges)
    hidden = config.gin_hidden or width
    per_row = 2 * width * width
    if config.conv == "gin":
        widths = [width] + [hidden] * (config.gin_layers - 1) + [width]
        per_row = sum(a * b for a, b in itertools.pairwise(widths))
    pooled = nodes[GENE] * width * (width + width // 2)
    flops = 3 * 2 * strains * (config.layers * rows * per_row + pooled)
    return gathered / rates.copy_bytes_per_second + flops / rates.gemm_flops_per_second

"""Keep what ``auto`` stands for, found once for a machine and a cell graph, and predict what steps cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from dglcell.errors import CheckpointError
from dglcell.graph.resident import ResidentCell, ResidentRelation
from dglcell.graph.schema import Relation
from dglcell.kernels.spmm import KERNELS, spmm
from dglcell.perturbation import STRATEGIES
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.sent import keep_masks
from dglcell.perturbation.states import DENSE_SHARE, Execution

COMPILED_DENSE_SHARE = 0.25
"""From this share of listed pairs on, compiled layers compute all pairs sooner than plain torch computes the list."""


@dataclass(frozen=True)
class Autotuned:
    """Describe how the strains' graphs of a cell are computed.

    Attributes:
        strategy: the strategy that ``auto`` stands for.
        dense_share: share of all N · B rows; where more rows change, ``difference`` computes all of them.
        kernels: relation name → number of columns → kernel; the entry with the nearest number of columns is used.
        differences: name of the floating type of the strains' differences; None for the type of the base.
        compile: whether ``torch.compile`` joins the operations of layers.
        shares: whether predictions of strains that share deletions compute these once, where ``strategy`` is not
        ``difference``, which always does.
    """

    strategy: str
    dense_share: float = DENSE_SHARE
    kernels: dict[str, dict[int, str]] = field(default_factory=dict)
    differences: str | None = None
    compile: bool = False
    shares: bool = False

    @classmethod
    def default(cls, device_type: str) -> Autotuned:
        """Return the choice without calibration: on a GPU ``node_mask``, which never waits for the device."""
        return cls("difference" if device_type == "cpu" else "node_mask")

    def execution(self, *, recompute: bool) -> Execution:
        """Return how rows are computed with this choice."""
        dtype = None if self.differences is None else getattr(torch, self.differences)
        return Execution(dtype, recompute, self.compile, self.dense_share)

    def for_layers(self, *, compiled: bool, half: bool) -> Autotuned:
        """Return this choice for layers that are compiled or not, with differences in half precision or not.

        Listed rows run uncompiled, so that lists pay off less often where layers are compiled.
        """
        share = min(self.dense_share, COMPILED_DENSE_SHARE) if compiled else self.dense_share
        return replace(self, compile=compiled, differences="bfloat16" if half else None, dense_share=share)

    def apply(self, cell: ResidentCell) -> None:
        """Make ``kernel: auto`` of the cell's relations follow this choice."""
        for relation in cell.relations:
            cell[relation].preferred = dict(self.kernels.get("/".join(relation), {}))

    def to_dict(self) -> dict[str, Any]:
        """Return the choice as plain containers, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: dict[str, Any], source: str) -> Autotuned:
        """Read the choice from what ``to_dict`` returned.

        Raises:
            CheckpointError: ``content`` has another form.
        """
        try:
            kernels = {name: {int(c): str(k) for c, k in by.items()} for name, by in content["kernels"].items()}
            differences = content.get("differences")
            if differences not in (None, "bfloat16", "float32"):
                raise ValueError(f"differences of type {differences!r}")
            strategy, compiled, shares = (
                content["strategy"],
                content.get("compile", False),
                content.get("shares", False),
            )
            unknown = {kernel for by in kernels.values() for kernel in by.values()} - set(KERNELS)
            if strategy not in STRATEGIES or unknown or not isinstance(compiled, bool) or not isinstance(shares, bool):
                raise ValueError(
                    f"strategy {strategy!r}, kernels {sorted(unknown)}, compile {compiled!r}, shares {shares!r}"
                )
            share = float(content["dense_share"])
            if not 0 <= share <= 1:
                raise ValueError(f"a share of {share}")
            return cls(strategy, share, kernels, differences, compiled, shares)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(
                f"'{source}' does not hold choices of strategy and kernels",
                got=f"{type(error).__name__}: {error}",
                expected="`strategy`, `dense_share` and `kernels`, as a run writes them to autotuned.json",
                do="give the autotuned.json of a run, or set `model.autotuned: null` to have them found anew",
            ) from error


@dataclass(frozen=True)
class Rates:
    """Hold how many bytes a device moves and how many operations it computes in a second.

    Attributes:
        bytes: bytes that a copy moves in a second; reads and writes both count.
        flops: operations of a matrix product in a second; a multiplication and an addition count as two.
    """

    bytes: float
    flops: float


PROBES = {"cpu": (64 << 20, 1024), "cuda": (1 << 30, 8192)}
"""Copies have so many bytes and square matrices this width, by device: large beside its caches and what it takes to
start work."""


def measure_rates(device: torch.device, dtype: torch.dtype) -> Rates:
    """Measure a copy and a matrix product; this takes some ten milliseconds."""
    size, width = PROBES.get(device.type, PROBES["cpu"])
    data = torch.ones(size // dtype.itemsize, dtype=dtype, device=device)
    target, square = torch.empty_like(data), torch.ones(width, width, dtype=dtype, device=device)

    def seconds(work: Callable[[], object]) -> float:
        best = float("inf")
        for _ in range(3):
            wait_for(device)
            started = time.perf_counter()
            work()
            wait_for(device)
            best = min(best, time.perf_counter() - started)
        return best

    copy = seconds(lambda: target.copy_(data))
    return Rates(2 * data.nbytes / copy, 2 * width**3 / seconds(lambda: square @ square))


def wait_for(device: torch.device) -> None:
    """Wait until a GPU has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


CACHE_GAIN = 4.0
"""Rows that stay in the cache are gathered so many times as fast as a copy."""


def predict_product(kernel: str, relation: ResidentRelation, columns: int, itemsize: int, rates: Rates) -> float:
    """Predict the seconds of one product, so that hopeless kernels need not be timed."""
    gathered = relation.num_edges * columns * itemsize
    if kernel == "dense":
        return 2.0 * relation.num_src * relation.num_dst * columns / rates.flops
    if kernel == "reference":
        return 5 * gathered / rates.bytes  # gather: read and write; scatter: read, read and write
    rows = (relation.num_src + relation.num_dst) * columns * itemsize
    return (gathered / CACHE_GAIN + rows) / rates.bytes


@dataclass(frozen=True)
class Share:
    """Hold how much of a relation's work in a layer differs from the wild type's.

    Attributes:
        rows: (destination, strain) pairs that change, as a share of M · B.
        edges: edges out of sources that change, as a share of E · B.
        total_rows: the number of pairs, M · B.
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
        layers: the relations that each layer computes.
        genotypes: the B strains.
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

"""Expected times of a training step on a GPU, by arithmetic: ``python -m benchmarks.roofline OUT``.

Operators, bytes and products are counted (``benchmarks.counting``), kernels of compiled layers by torch's own compiler,
which fuses them as for a GPU (``benchmarks.gpu_fusion``). They are divided by the ceilings of one H200. Nothing is
timed, no GPU is needed, and nothing that comes out is a measurement.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from benchmarks import gpu_fusion
from benchmarks.cells import generated_cell
from benchmarks.counting import Counts, OperatorCounter, Product, batch_on_meta, count_step, counting, task_on_meta
from benchmarks.workload import Setting, random_genotypes
from dglcell.files.atomic import write_json
from dglcell.graph.cell_graph import CellGraph
from dglcell.models.config import HeteroCellConfig
from dglcell.nn.hetero_layer import HeteroLayer, RelationConv, StackedConvs
from dglcell.perturbation import execution
from dglcell.perturbation.strategies import node_mask
from dglcell.runs.usage import environment

# This says what the device can do, and how much of it a good kernel reaches.


@dataclass(frozen=True)
class Device:
    """A device has these ceilings, in bytes, operations and seconds.

    Attributes:
        copy: bytes a second from and to memory.
        cache: bytes a second out of the second cache.
        flops: operations a second of a dense product in bfloat16.
        launch: seconds to launch a kernel.
        of_copy, of_cache, of_flops: shares that kernels are taken to reach.
    """

    name: str = "H200"
    copy: float = 4.3e12
    cache: float = 5.5e12
    flops: float = 790e12
    launch: float = 6e-6
    of_copy: float = 0.88
    of_cache: float = 0.7
    of_flops: float = 0.8


# These functions cost what torch's compiler makes of the update of all relations' rows.


@dataclass(frozen=True)
class Cost:
    """A cost has launches, and bytes for each number of a strain's row."""

    launches: int
    bytes: float


NODES = 512


def compiled_update(convs: StackedConvs, strains: int, dtype: torch.dtype, *, both: bool, training: bool) -> Cost:
    """Cost the update of a layer's relations together, compiled for a GPU.

    Args:
        convs: convolutions of the layer.
        strains: B.
        dtype: type of differences.
        both: whether the nodes' own states differ; not in the first layer.
        training: forward and backward; otherwise forward alone.
    """
    torch.compiler.reset()
    arguments = _arguments(convs, strains, dtype, "cpu", both=both)
    seen: list[gpu_fusion.Fused] = []
    _update(gpu_fusion.compiled(execution._run, seen), convs, strains, arguments, training)
    return Cost(sum(fused.launches for fused in seen), sum(fused.bytes for fused in seen) / _numbers(convs, strains))


def plain_update(convs: StackedConvs, strains: int, dtype: torch.dtype, *, both: bool, training: bool) -> Cost:
    """Cost the same update in plain torch."""
    arguments = _arguments(convs, strains, dtype, "meta", both=both)
    with OperatorCounter() as counter:
        _update(execution._run, convs, strains, arguments, training)
    return Cost(counter.counts.all_launches, counter.counts.all_bytes / _numbers(convs, strains))


def _stacked(layer: HeteroLayer) -> StackedConvs:
    return StackedConvs(layer.relations, [cast(RelationConv, conv) for conv in layer.convs])


def _numbers(convs: StackedConvs, strains: int) -> int:
    return len(convs.convs) * NODES * strains * _width(convs)


def _width(convs: StackedConvs) -> int:
    return next(p.shape[-1] for p in convs.parameters() if p.dim() == 2)


Rows = list[Tensor | None]


def _arguments(
    convs: StackedConvs, strains: int, dtype: torch.dtype, device: str, *, both: bool
) -> tuple[Rows, Rows, Rows]:
    """Make bases, differences, and gradients of the result."""

    def rows(*shape: int, kind: torch.dtype = torch.float32) -> Tensor:
        return torch.ones(*shape, _width(convs), dtype=kind, device=device, requires_grad=True)

    R, K = len(convs.convs), NODES * strains
    deltas = [rows(K, kind=dtype) if both else None, rows(R, K, kind=dtype)]
    return [rows(NODES), rows(R, NODES)], deltas, [rows(NODES).detach(), rows(K, kind=dtype).detach()]


def _update(run: Any, convs: StackedConvs, strains: int, arguments: tuple[Rows, Rows, Rows], training: bool) -> None:
    bases, deltas, gradients = arguments
    with torch.set_grad_enabled(training):
        rows = run(convs.total, strains, bases, deltas)
    if training:
        torch.autograd.backward(rows, gradients)


# Designs say what a step launches and moves, and how long that takes at the ceilings.


@dataclass(frozen=True)
class Design:
    """A design is one way to compute a step.

    Attributes:
        name: name for the table.
        launches: launches of all kernels; 1 where a CUDA graph holds them.
        gathered_bytes: bytes that sparse products read.
        other_bytes: bytes that everything else reads and writes.
        dense_flops: operations of relations that are multiplied as dense matrices.
    """

    name: str
    launches: int
    gathered_bytes: int
    other_bytes: int
    dense_flops: float = 0.0

    def seconds(self, device: Device) -> dict[str, float]:
        """Return seconds of products, of everything else, of launches, and of a step whose host launches ahead."""
        products = self.gathered_bytes / (device.cache * device.of_cache)
        products += self.dense_flops / (device.flops * device.of_flops)
        others = self.other_bytes / (device.copy * device.of_copy)
        launches = self.launches * device.launch
        return {
            "products": products,
            "others": others,
            "launches": launches,
            "step": max(products + others, launches),
        }


def designs(cell: CellGraph, config: HeteroCellConfig, strains: int) -> list[Design]:
    """Return designs, from what was before to what a GPU is to do."""
    genotypes = random_genotypes(len(cell.genes), strains, 3, 0)

    def counted(*, half: bool) -> Counts:
        return count_step(cell, config, genotypes, half=half)

    with _unshared():
        before = counted(half=False)
    wide, half = counted(half=False), counted(half=True)
    saved = compiled_saving(cell, config, strains, training=True)
    compiled = half.all_launches - saved.launches, round(half.all_bytes - saved.bytes)
    edges = [len(cell.edges(relation).src) for relation in cell.relations]
    dense, flops = as_dense(half.products, edges, len(cell.genes), most=2)
    return [
        Design("plain torch, float32, layer 1 not shared", *_sizes(before)),
        Design("plain torch, float32", *_sizes(wide)),
        Design("plain torch, differences in bfloat16", *_sizes(half)),
        Design("compiled layers, differences in bfloat16", compiled[0], half.gathered_bytes, compiled[1]),
        Design("… in one CUDA graph", 1, half.gathered_bytes, compiled[1]),
        Design("… and the two densest relations dense", 1, half.gathered_bytes - dense, compiled[1], flops),
    ]


def _sizes(counts: Counts) -> tuple[int, int, int]:
    return counts.all_launches, counts.gathered_bytes, counts.all_bytes


@contextmanager
def _unshared() -> Iterator[None]:
    """Let layer 1 multiply all strains' columns."""
    before = node_mask.FEWER
    node_mask.FEWER = 1 << 30
    try:
        yield
    finally:
        node_mask.FEWER = before


def as_dense(products: Sequence[Product], edges: Sequence[int], genes: int, *, most: int) -> tuple[int, float]:
    """Return bytes that are not gathered where the relations with most edges are dense, and operations in their place.

    Args:
        products: sparse products, each along all relations.
        edges: number of edges of every relation.
        genes: N.
        most: number of relations that are dense.
    """
    share, padded = sum(sorted(edges)[-most:]) / sum(edges), -(-genes // 64) * 64
    gathered, columns = sum(p.gathered_bytes for p in products), sum(p.columns for p in products)
    return round(share * gathered), 2.0 * padded**2 * columns * most


def compiled_saving(cell: CellGraph, config: HeteroCellConfig, strains: int, *, training: bool) -> Cost:
    """Return launches and bytes that compiled layers save, in a step or forward, with differences in bfloat16."""
    model = task_on_meta(cell, config, True).model
    launches, size = 0, 0.0
    numbers = len(cell.genes) * strains * config.hidden
    layers = [layer for layer in model.modules() if isinstance(layer, HeteroLayer)]
    for both in (False, True):
        layer = layers[0].to("meta")
        number = len(layers[1:] if both else layers[:1])
        how: dict[str, Any] = {"dtype": torch.bfloat16, "both": both, "training": training}
        plain = plain_update(_stacked(layer), strains, **how)
        made = compiled_update(_stacked(layer.to_empty(device="cpu")), strains, **how)
        launches += number * (plain.launches - made.launches)
        size += number * (plain.bytes - made.bytes) * numbers * len(layer.convs)
    return Cost(launches, size)


# These functions estimate predictions of all triples.

TRIPLES = 465_000_000


@dataclass(frozen=True)
class Prediction:
    """This is an estimate of forward passes over all triples.

    Attributes:
        strains_per_second: rate of one GPU.
    """

    batch: int
    launches: int
    gathered_bytes: int
    other_bytes: int
    strains_per_second: float

    def hours(self, gpus: int) -> float:
        """Return the hours for all triples on so many GPUs, which share nothing."""
        return TRIPLES / (gpus * self.strains_per_second) / 3600


def prediction(cell: CellGraph, config: HeteroCellConfig, batch: int, device: Device) -> Prediction:
    """Estimate predictions of strains of three deletions, with differences in bfloat16, by compiled layers."""
    genotypes = random_genotypes(len(cell.genes), batch, 3, 0)
    task, strains = task_on_meta(cell, config, True), batch_on_meta(genotypes)
    with counting(task.model.cell) as counter, torch.no_grad():
        task.model(strains.perturbations)
    launches, gathered, other = _sizes(counter.counts)
    saved = compiled_saving(cell, config, batch, training=False)
    sizes = launches - saved.launches, gathered, round(other - saved.bytes)
    return Prediction(batch, *sizes, batch / Design("", *sizes).seconds(device)["step"])


# These functions write the file.


def rows(cell: CellGraph, setting: Setting, device: Device) -> list[dict[str, Any]]:
    """Return the table of designs."""
    config = dataclasses.replace(setting.model(metabolism=False), recompute="false")
    found = []
    for design in designs(cell, config, setting.batch):
        seconds = design.seconds(device)
        found.append(
            {
                **dataclasses.asdict(design),
                "expected_seconds": seconds,
                "expected_samples_per_second": setting.batch / seconds["step"],
            }
        )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``python -m benchmarks.roofline``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT", help="JSON")
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of genes (default: 1, yeast)")
    options = parser.parse_args(arguments)
    cell, setting, device = generated_cell(scale=options.scale), Setting("gin", 28, 64, 3, 3), Device()
    predicted = dataclasses.replace(setting.model(metabolism=False), layers=2, recompute="false")
    of_predictions = prediction(cell, predicted, 256, device)
    result = {
        "environment": environment("python -m benchmarks.roofline OUT"),
        "is": "expected, by arithmetic; nothing was measured on a GPU",
        "device": dataclasses.asdict(device),
        "cell": {"genes": len(cell.genes), "edges": cell.num_edges},
        "setting": dataclasses.asdict(dataclasses.replace(setting, device="cuda")),
        "rows": rows(cell, setting, device),
        "prediction": {
            **dataclasses.asdict(of_predictions),
            "layers": predicted.layers,
            "triples": TRIPLES,
            "expected_hours": {gpus: of_predictions.hours(gpus) for gpus in (1, 8)},
        },
    }
    write_json(options.out, result)
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())

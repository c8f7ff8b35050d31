"""Time the strategies on one experiment's cell graph and strains: a full training step on the CPU, in one process."""

from __future__ import annotations

import dataclasses
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dglcell.config import Config
from dglcell.data.dataset import StrainBatch
from dglcell.errors import ConfigError
from dglcell.graph.resident import ResidentCell
from dglcell.losses.masked import MaskedLoss
from dglcell.models.hetero_cell import HeteroCell
from dglcell.perturbation.perturb import STRATEGIES
from dglcell.training.optimizers import make_optimizer
from dglcell.training.prepare import Prepared

BASE = "edge_subgraph"
TOLERANCE = 1e-10


@dataclass(frozen=True)
class BenchRow:
    """One strategy's full training step (forward, backward, optimiser).

    Attributes:
        seconds_per_step: median over the timed steps.
        peak_memory_bytes: largest resident set of the process so far; strategies run from the leanest to the
            largest, so each figure is an upper bound for its strategy.
        ratio: speed relative to ``edge_subgraph``.
    """

    strategy: str
    kernel: str
    device: str
    dtype: str
    conv: str
    batch: int
    hidden: int
    layers: int
    edges: int
    seconds_per_step: float
    samples_per_second: float
    peak_memory_bytes: int
    ratio: float = 1.0


def bench(config: Config, prepared: Prepared, *, batch: int, steps: int) -> list[BenchRow]:
    """Check in float64 that all strategies agree, then time each.

    Args:
        config: whose model, cell graph and strains are used.
        prepared: from ``config``.
        batch: B.
        steps: timed steps after two that are not.

    Raises:
        ConfigError: the training part has fewer strains than the batch.
        RuntimeError: strategies disagree.
    """
    train = prepared.parts["train"]
    if len(train) < batch:
        raise ConfigError("the training part is smaller than the batch", got=len(train), expected=f"{batch} or more")
    generator = torch.Generator().manual_seed(config.seed)
    strains = train[torch.randperm(len(train), generator=generator)[:batch]]
    total = int(prepared.dataset.offsets.diff()[strains].sum())
    data = prepared.dataset.gather(strains, total)
    few = prepared.dataset.gather(strains[:4], int(prepared.dataset.offsets.diff()[strains[:4]].sum()))
    check_agreement(config, prepared, few)
    rows = [
        _time(config, prepared, data, strategy, steps) for strategy in ("difference", "node_mask", "edge_mask", BASE)
    ]
    base = next(row for row in rows if row.strategy == BASE)
    return [dataclasses.replace(row, ratio=base.seconds_per_step / row.seconds_per_step) for row in rows]


def check_agreement(config: Config, prepared: Prepared, data: StrainBatch) -> None:
    """Predictions of every strategy in float64.

    Raises:
        RuntimeError: two of them differ by more than ``TOLERANCE``, relative to the largest prediction.
    """
    with torch.no_grad():
        predictions = [make_model(config, prepared, s).double()(data.genotypes).phenotypes for s in STRATEGIES]
    worst = max(float((p - predictions[0]).abs().max() / predictions[0].abs().max()) for p in predictions)
    if not worst <= TOLERANCE:
        raise RuntimeError(f"strategies disagree: predictions differ by {worst}, more than {TOLERANCE}")


def make_model(config: Config, prepared: Prepared, strategy: str) -> HeteroCell:
    """The experiment's model without dropout, the same weights for every strategy."""
    torch.manual_seed(config.seed)
    settings = dataclasses.replace(config.model, strategy=strategy, dropout=0.0)
    cell = ResidentCell(prepared.cell.graph)
    return HeteroCell(cell, settings, len(prepared.dataset.phenotypes), prepared.features)


def _time(config: Config, prepared: Prepared, data: StrainBatch, strategy: str, steps: int) -> BenchRow:
    model = make_model(config, prepared, strategy)
    step = _training_step(config, model, data)
    seconds = [_clock(step) for _ in range(steps + 2)][2:]
    median = statistics.median(seconds)
    batch = len(data.strains)
    return BenchRow(
        strategy=strategy,
        kernel=config.model.kernel,
        device="cpu",
        dtype=str(next(model.parameters()).dtype).removeprefix("torch."),
        conv=config.model.conv,
        batch=batch,
        hidden=config.model.hidden,
        layers=config.model.layers,
        edges=prepared.cell.graph.num_edges(),
        seconds_per_step=median,
        samples_per_second=batch / median,
        peak_memory_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    )


def _training_step(config: Config, model: nn.Module, data: StrainBatch) -> Callable[[], None]:
    optimizer, loss = make_optimizer(config.optimizer, model.parameters()), MaskedLoss(config.loss)
    target: Tensor = (data.labels - data.labels.nanmean(0)) / data.labels.std().nan_to_num(1.0).clamp(min=1e-6)

    def step() -> None:
        optimizer.zero_grad()
        loss(model(data.genotypes).phenotypes, target).backward()
        optimizer.step()

    return step


def _clock(step: Callable[[], None]) -> float:
    started = time.perf_counter()
    step()
    return time.perf_counter() - started


def format_bench(rows: list[BenchRow]) -> str:
    """A table, fastest first."""
    lines = [f"{'strategy':<14} {'ms/step':>9} {'strains/s':>10} {'ratio':>7} {'peak MB':>8}"]
    for row in sorted(rows, key=lambda r: r.seconds_per_step):
        lines.append(
            f"{row.strategy:<14} {row.seconds_per_step * 1e3:>9.1f} {row.samples_per_second:>10,.0f} "
            f"{row.ratio:>6.1f}x {row.peak_memory_bytes / 1e6:>8,.0f}"
        )
    return "\n".join(lines)

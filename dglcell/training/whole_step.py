"""Do a training step as one piece: forward, loss, backward, clipping and the optimiser's step in a single CUDA graph.

A step launches hundreds of small kernels, and a fast GPU waits for the host. A graph holds all of them and is launched
at once. Its addresses and shapes are fixed: batches are copied to where the first one lay. A batch of another shape,
such as the last of an epoch, is computed without the graph.
"""

from __future__ import annotations

import gc
import logging
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import GradientAccumulationScheduler
from pytorch_lightning.plugins.precision import DoublePrecision, Precision
from torch import Tensor

from dglcell.data.strains import Strains

log = logging.getLogger("dglcell")

WORTH = 20
"""A step is recorded when so many of its kind were done; recording takes about as long as these."""

ASIDE = 3
"""So many steps before recording run on another stream, where libraries make what they keep."""

Work = Callable[[Strains], Sequence[Tensor]]
"""Everything that a step does on the device; and what is read of it afterwards."""

Replay = Callable[[], Sequence[Tensor]]
"""Does it once more, with what lies in the recorded batch now."""


def fits(trainer: pl.Trainer) -> bool:
    """Return whether a run's steps are alike: of one process, in one precision, an optimiser's step for every batch."""
    alike = trainer.world_size == trainer.accumulate_grad_batches == 1
    callbacks = trainer.callbacks  # type: ignore[attr-defined]
    alike &= not any(isinstance(callback, GradientAccumulationScheduler) for callback in callbacks)
    return alike and type(trainer.precision_plugin) in (Precision, DoublePrecision)


def record(work: Work, batch: Strains) -> Replay:
    """Record a step as a CUDA graph, which computes nothing yet."""
    gc.collect()  # what is freed during a recording would be freed by other rules
    torch.cuda.empty_cache()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        results = work(batch)

    def replay() -> Sequence[Tensor]:
        graph.replay()
        return results

    return replay


def aside(work: Work, batch: Strains) -> Sequence[Tensor]:
    """Do a step on another stream than the usual one, as must be done before a graph is recorded."""
    here, there = torch.cuda.current_stream(), torch.cuda.Stream()
    there.wait_stream(here)
    with torch.cuda.stream(there):
        results = work(batch)
    here.wait_stream(there)
    return results


@dataclass
class _Recorded:
    """Hold a recorded step: what it depends on beside the batch, where its batch lies, and how to do it."""

    key: Hashable
    batch: Strains
    replay: Replay


class WholeStep:
    """Do training steps, by a recorded one as soon as one is worth it.

    Steps that wait for the device, as some cell graphs make them do, cannot be recorded; then all are done as ever.

    Args:
        work: the step.
        record: records it.
        aside: does one of the steps before that.
    """

    def __init__(
        self,
        work: Work,
        record: Callable[[Work, Strains], Replay] = record,
        aside: Callable[[Work, Strains], Sequence[Tensor]] = aside,
    ) -> None:
        self._work, self._record, self._aside = work, record, aside
        self._seen: Counter[Hashable] = Counter()
        self._recorded: dict[Hashable, _Recorded] = {}
        self._gave_up = False

    def __call__(self, batch: Strains, key: Hashable) -> list[Tensor]:
        """Do a step, and return tensors of their own with its results.

        Args:
            batch: on the device.
            key: what the step depends on beside the batch and the weights; where it changes a step is recorded anew.
        """
        if self._gave_up:
            return list(self._work(batch))
        shapes = tuple(tensor.shape for tensor in tensors_of(batch))
        known = self._recorded.get(shapes)
        if known is None or known.key != key:
            self._seen[shapes, key] += 1
            left = WORTH - self._seen[shapes, key]
            if left >= 0:
                return list(self._aside(self._work, batch) if left < ASIDE else self._work(batch))
            known = self._record_step(shapes, batch, key)
            if known is None:
                return list(self._work(batch))
        for mine, theirs in zip(tensors_of(known.batch), tensors_of(batch), strict=True):
            mine.copy_(theirs)
        return [result.clone() for result in known.replay()]

    def _record_step(self, shapes: Hashable, batch: Strains, key: Hashable) -> _Recorded | None:
        self._recorded.pop(shapes, None)  # its memory is free for the next
        own = batch.map(torch.clone)
        try:
            self._recorded[shapes] = _Recorded(key, own, self._record(self._work, own))
        except RuntimeError as error:
            log.info("steps are launched one by one; a CUDA graph cannot hold them: %s", str(error).partition("\n")[0])
            self._gave_up = True
            return None
        return self._recorded[shapes]


def tensors_of(batch: Strains) -> list[Tensor]:
    """Return all that a step reads of a batch."""
    given = [batch.targets, batch.offsets, batch.strengths, *batch.columns.values()]
    return [tensor for tensor in given if tensor is not None]

"""A training step as one piece: forward, loss, backward, clipping and the optimiser's step in a single CUDA graph.

A step launches thousands of small kernels, one after the other. A graph holds them all, with their arguments, and is
launched at once. It has fixed addresses and fixed shapes: batches are copied to where the first one lay, and one of
another shape (the last of an epoch) is computed without the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dglcell.data.strains import Strains

WARM_UP = 3
"""Steps that are computed as ever before a graph is recorded: libraries and the optimiser make what they keep."""

Work = Callable[[Strains], Sequence[Tensor]]
"""Everything that a step does on the device; and what is read of it afterwards."""

Replay = Callable[[], Sequence[Tensor]]
"""Does it once more, with what lies in the recorded batch now."""


def record(work: Work, batch: Strains) -> Replay:
    """Record a step as a CUDA graph, which computes nothing yet."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = work(batch)

    def replay() -> Sequence[Tensor]:
        graph.replay()
        return results

    return replay


def aside(work: Work, batch: Strains) -> Sequence[Tensor]:
    """Compute a step on another stream than the usual one, as must be done before a graph is recorded."""
    here, there = torch.cuda.current_stream(), torch.cuda.Stream()
    there.wait_stream(here)
    with torch.cuda.stream(there):
        results = work(batch)
    here.wait_stream(there)
    return results


@dataclass
class Recorded:
    """A step that was recorded.

    Attributes:
        key: what it depends on beside the batch, e.g. the learning rate.
        batch: where its batch lies.
        replay: does it.
    """

    key: Hashable
    batch: Strains
    replay: Replay


class WholeStep:
    """Does training steps, by a recorded one as soon as there is one that fits.

    Args:
        work: a step.
        record: records it.
        warm_up: does one of the first steps.
    """

    def __init__(
        self,
        work: Work,
        record: Callable[[Work, Strains], Replay] = record,
        warm_up: Callable[[Work, Strains], Sequence[Tensor]] = aside,
    ) -> None:
        self._work, self._record, self._warm_up = work, record, warm_up
        self._steps = 0
        self._shapes: list[torch.Size] = []
        self._recorded: Recorded | None = None

    def __call__(self, batch: Strains, key: Hashable) -> list[Tensor]:
        """A step, and tensors of their own with its results.

        Args:
            batch: on the device.
            key: what the step depends on beside the batch and the weights; where it changes a step is recorded anew.
        """
        self._steps += 1
        if self._steps <= WARM_UP:
            return list(self._warm_up(self._work, batch))
        shapes = [tensor.shape for tensor in tensors_of(batch)]
        if shapes != self._shapes:
            # Worth recording only if another one of this shape follows.
            self._shapes, self._recorded = shapes, None
            return list(self._work(batch))
        if self._recorded is None or self._recorded.key != key:
            self._recorded = None  # its memory is free for the next
            own = copied(batch)
            self._recorded = Recorded(key, own, self._record(self._work, own))
        for mine, theirs in zip(tensors_of(self._recorded.batch), tensors_of(batch), strict=True):
            mine.copy_(theirs)
        return [result.clone() for result in self._recorded.replay()]


def tensors_of(batch: Strains) -> list[Tensor]:
    """All that a step reads of a batch."""
    return [batch.targets, batch.offsets, *batch.phenotypes.values()]


def copied(batch: Strains) -> Strains:
    """The batch at addresses of its own."""
    return batch.map(torch.clone)

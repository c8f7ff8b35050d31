"""How things are measured: on what, for how long, within which limits."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

from dglcell.profiling.bench.ceilings import Ceilings, measure_ceilings
from dglcell.profiling.bench.isolate import Forked, Isolation, in_this_process
from dglcell.profiling.bench.memory_limit import MemoryLimit
from dglcell.profiling.bench.options import BenchOptions


@dataclass(frozen=True)
class Conditions:
    """The same for all methods.

    Attributes:
        device: ``cpu`` or ``cuda``.
        dtype: ``float32`` or ``bfloat16``.
        threads: that torch computes with.
        seconds_per_row: budget of timed repetitions.
        ceilings: of this machine.
        limit: of memory.
        isolation: where methods run.
    """

    device: str
    dtype: str
    threads: int
    seconds_per_row: float
    ceilings: Ceilings
    limit: MemoryLimit
    isolation: Isolation


def conditions(options: BenchOptions) -> Conditions:
    """As asked for; on a CPU methods run in forks, unless that is not wanted or not possible.

    Must be made before this process has computed with several threads.
    """
    threads = options.threads or torch.get_num_threads()
    isolation: Isolation = in_this_process
    if options.device == "cpu" and not options.in_process and hasattr(os, "fork"):
        isolation = Forked(threads)
    else:
        torch.set_num_threads(threads)
    budget = min(1.0, options.seconds_per_row)
    ceilings = isolation(lambda: measure_ceilings(options.device, options.dtype, budget=budget))
    limit = MemoryLimit(options.memory_limit)
    return Conditions(options.device, options.dtype, threads, options.seconds_per_row, ceilings, limit, isolation)

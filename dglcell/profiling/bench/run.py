"""Run methods under settings, one after the other, and keep what comes out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import dgl
import torch
from torch._dynamo.exc import TorchDynamoException

from dglcell.errors import MissingDependencyError
from dglcell.graph.schema import GENE
from dglcell.profiling.bench.ceilings import Ceilings, ideal_seconds
from dglcell.profiling.bench.clock import Timing, clock
from dglcell.profiling.bench.memory import MemoryLimit, is_out_of_memory, measured_memory, release
from dglcell.profiling.bench.methods.method import MethodSpec, UnsupportedError, training_step
from dglcell.profiling.bench.row import OK, OUT_OF_MEMORY, BenchRow, Results
from dglcell.profiling.bench.setting import Setting
from dglcell.profiling.bench.table import format_row
from dglcell.profiling.bench.workload import Workload

log = logging.getLogger("dglcell")


@dataclass(frozen=True)
class Runner:
    """Times methods and adds rows to the results.

    Attributes:
        results: where rows go.
        workload: setting → what is computed.
        ceilings: of this machine.
        seconds_per_row: budget of timed steps.
        limit: of memory.
    """

    results: Results
    workload: Callable[[Setting], Workload]
    ceilings: Ceilings
    seconds_per_row: float
    limit: MemoryLimit

    def run(self, plan: Sequence[tuple[Setting, Sequence[MethodSpec]]]) -> None:
        """Every method of every setting that has no row yet."""
        for setting, specs in plan:
            missing = [spec for spec in specs if not self.results.has(spec, setting)]
            if not missing:
                continue
            log.info("%s", setting.title())
            workload = self.workload(setting).to(setting.device)
            for spec in missing:
                self._add_row(spec, setting, workload)

    def _add_row(self, spec: MethodSpec, setting: Setting, workload: Workload) -> None:
        row = BenchRow.start(spec, setting, workload.cell.graph.num_edges())
        self.results.begin(row)
        try:
            self._measure(row, spec, setting, workload)
        except BaseException:
            # Interrupted, or a bug: only a process that dies on the spot leaves its row behind.
            self.results.drop(row)
            raise
        self.results.write()
        log.info("  %s", format_row(row))

    def _measure(self, row: BenchRow, spec: MethodSpec, setting: Setting, workload: Workload) -> None:
        """Fill in the row; whatever keeps a method from running is its result."""
        failure = ""
        try:
            with measured_memory(setting.device) as peak, self.limit.on(setting.device):
                timing = self._time(spec, setting, workload)
        except MissingDependencyError as error:
            failure = f"missing: {_first_line(error)}"
        except UnsupportedError as error:
            failure = f"unsupported: {_first_line(error)}"
        except (RuntimeError, MemoryError, dgl.DGLError) as error:
            if is_out_of_memory(error):
                failure = OUT_OF_MEMORY
            elif isinstance(error, TorchDynamoException):
                failure = f"error: {_first_line(error)}"
            else:
                raise
        finally:
            release(setting.device)
        if failure:
            row.status = failure
            return
        row.peak_memory_bytes = peak.bytes
        self._fill(row, timing)
        if spec.same_predictions:
            row.share_of_ideal = self._ideal(setting, workload) / timing.median

    def _time(self, spec: MethodSpec, setting: Setting, workload: Workload) -> Timing:
        method = spec.build(workload, setting.device)
        step = training_step(method, workload, setting.dtype)
        timing = clock(step, self.seconds_per_row, setting.device, first_counts=not spec.compiled)
        if spec.compiled:
            torch.compiler.reset()
        return timing

    @staticmethod
    def _fill(row: BenchRow, timing: Timing) -> None:
        row.status, row.steps, row.warm_up = OK, len(timing.seconds), timing.warm_up
        row.seconds_per_step, row.seconds_best, row.seconds_first = timing.median, min(timing.seconds), timing.first
        row.samples_per_second = row.batch / timing.median

    def _ideal(self, setting: Setting, workload: Workload) -> float:
        graph, config = workload.cell.graph, workload.config
        used = [r for r in workload.cell.relations if config.metabolism or r[0] == r[2] == GENE]
        edges = {relation: graph.num_edges(relation) for relation in used}
        nodes = {node_type: graph.num_nodes(node_type) for node_type in graph.ntypes}
        return ideal_seconds(config, edges, nodes, setting.batch, setting.dtype, self.ceilings)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]

"""Run methods under settings, one after the other, and keep what comes out."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import dgl
import torch
from torch._dynamo.exc import TorchDynamoException

from dglcell.devices import is_out_of_memory, measured_memory, release
from dglcell.errors import MissingDependencyError
from dglcell.graph.schema import GENE
from dglcell.memory import return_freed_memory
from dglcell.profiling.bench.ceilings import ideal_seconds
from dglcell.profiling.bench.clock import Timing, clock
from dglcell.profiling.bench.conditions import Conditions
from dglcell.profiling.bench.isolate import DiedError, Forked
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
        given: device, budget, limits, and where methods run.
        faults: methods that are not timed, and why.
    """

    results: Results
    workload: Callable[[Setting], Workload]
    given: Conditions
    faults: Mapping[str, str] = field(default_factory=dict)

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
            found = self.given.isolation(lambda: self._measure(row, spec, setting, workload))
        except DiedError as error:
            status = OUT_OF_MEMORY if error.killed else f"crashed: {error}"
            found = dataclasses.replace(row, status=status)
        except BaseException:
            # Interrupted, or a bug: only a process that dies on the spot leaves its row behind.
            self.results.end(row, None)
            raise
        self.results.end(row, found)
        log.info("  %s", format_row(found))

    def _measure(self, row: BenchRow, spec: MethodSpec, setting: Setting, workload: Workload) -> BenchRow:
        """The row filled in; whatever keeps a method from running is its result."""
        if spec.name in self.faults:
            return dataclasses.replace(row, status=f"error: {self.faults[spec.name]}")
        status = ""
        if spec.stock_memory and isinstance(self.given.isolation, Forked):
            return_freed_memory()
        try:
            with measured_memory(setting.device) as peak, self.given.limit.on(setting.device):
                timing = self._time(spec, setting, workload)
        except MissingDependencyError as error:
            status = f"missing: {_first_line(error)}"
        except UnsupportedError as error:
            status = f"unsupported: {_first_line(error)}"
        except (RuntimeError, MemoryError, dgl.DGLError) as error:
            if is_out_of_memory(error):
                status = OUT_OF_MEMORY
            elif isinstance(error, TorchDynamoException):
                status = f"error: {_first_line(error)}"
            else:
                raise
        finally:
            release(setting.device)
        if status:
            return dataclasses.replace(row, status=status)
        return dataclasses.replace(
            row,
            status=OK,
            steps=len(timing.seconds),
            warm_up=timing.warm_up,
            seconds_per_step=timing.median,
            seconds_best=min(timing.seconds),
            seconds_first=timing.first,
            samples_per_second=setting.batch / timing.median,
            peak_memory_bytes=peak.bytes,
            share_of_ideal=self._ideal(setting, workload) / timing.median if spec.same_predictions else None,
        )

    def _time(self, spec: MethodSpec, setting: Setting, workload: Workload) -> Timing:
        method = spec.build(workload, setting.device)
        step = training_step(method, workload, setting.dtype)
        timing = clock(step, self.given.seconds_per_row, setting.device, first_counts=not spec.compiled)
        if spec.compiled:
            torch.compiler.reset()
        return timing

    def _ideal(self, setting: Setting, workload: Workload) -> float:
        graph, config = workload.cell.graph, workload.config
        used = [r for r in workload.cell.relations if config.metabolism or r[0] == r[2] == GENE]
        edges = {relation: graph.num_edges(relation) for relation in used}
        nodes = {node_type: graph.num_nodes(node_type) for node_type in graph.ntypes}
        return ideal_seconds(config, edges, nodes, setting.batch, setting.dtype, self.given.ceilings)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]

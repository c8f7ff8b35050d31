"""Time training steps of every method: ``python -m benchmarks.bench --help``."""

from __future__ import annotations

import argparse
import dataclasses
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.exc import TorchDynamoException

from benchmarks.agreement import check_methods
from benchmarks.methods import BASE, MethodSpec, UnsupportedError, choose_methods, methods, training_step
from benchmarks.products import ProductRow, format_products, product_rows
from benchmarks.results_file import OK, OUT_OF_MEMORY, BenchRow, Results, format_row, format_table
from benchmarks.timing import Conditions, DiedError, Forked, Timing, clock, conditions, describe_machine, ideal_seconds
from benchmarks.workload import (
    CONVS,
    GRID_BATCHES,
    GRID_HIDDEN,
    GRID_LAYERS,
    BenchOptions,
    Setting,
    Subject,
    Workload,
    experiment_subject,
    hetero_model,
    random_subject,
    settings,
)
from dglcell.cli import run
from dglcell.cli.arguments import add_raw, load, positive
from dglcell.config.experiment import Config
from dglcell.errors import MissingDependencyError, shorten
from dglcell.files.atomic import write_json
from dglcell.graph.schema import GENE
from dglcell.machine.devices import check_device, measured_memory, release
from dglcell.machine.memory import is_out_of_memory, return_freed_memory

# The runner runs methods under settings, one after the other, and keeps the results.


log = logging.getLogger("dglcell")


@dataclass(frozen=True)
class Runner:
    """A runner times methods and adds rows to the results.

    Attributes:
        results: results to which rows are added.
        workload: function from a setting to the workload of its methods.
        given: device, budget, limits, and where methods run.
        faults: methods that are not timed, and why.
    """

    results: Results
    workload: Callable[[Setting], Workload]
    given: Conditions
    faults: Mapping[str, str] = field(default_factory=dict)

    def run(self, plan: Sequence[tuple[Setting, Sequence[MethodSpec]]]) -> None:
        """Run every method of every setting that has no row yet."""
        for setting, specs in plan:
            missing = [spec for spec in specs if not self.results.has(spec, setting)]
            if not missing:
                continue
            log.info("%s", setting.title())
            workload = self.workload(setting).to(setting.device)
            for spec in missing:
                self._add_row(spec, setting, workload)

    def _add_row(self, spec: MethodSpec, setting: Setting, workload: Workload) -> None:
        row = BenchRow.start(spec, setting, workload.cell.num_edges)
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
        """Return the row filled in; whatever keeps a method from running is its result."""
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
        except Exception as error:
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
        cell, config = workload.cell, workload.config
        used = [r for r in cell.relations if config.metabolism or r[0] == r[2] == GENE]
        edges = {relation: len(cell.edges(relation)) for relation in used}
        return ideal_seconds(config, edges, cell.num_nodes, setting.batch, setting.dtype, self.given.ceilings)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]


# These functions lead from options to a table and a file.


HEADLINE_LARGE = (
    BASE,
    f"{BASE}_kept_memory",
    f"{BASE}_compiled",
    "pyg_spmm",
    "node_mask",
    "difference",
    "auto",
    "dango",
)
"""From ``LARGE_BATCH`` on, these methods run: those that take minutes per step are left out, except the method to which
all ratios are."""
HEADLINE = (*HEADLINE_LARGE, "pyg_node_dim", "edge_mask")
LARGE_BATCH = 16


def bench(options: BenchOptions, config: Config | None = None) -> str:
    """Run the benchmark: compare methods in float64, then time each.

    Args:
        options: what to run.
        config: an experiment, whose cell graph, model and strains take the place of generated or real ones.

    Returns:
        The table.

    Raises:
        ConfigError: options contradict each other, or name unknown methods.
        RuntimeError: methods disagree.
    """
    options.validate()
    check_device(options.device)
    plan = _plan(options, config)
    given = conditions(options)
    subject = experiment_subject(config, options.command) if config else random_subject(options)
    about = describe_machine(options.command, subject.cell, subject.title, given)
    log.info("%s: %s edges", subject.title, f"{subject.cell.num_edges:,}")
    if options.products:
        return _products(subject, [setting for setting, _ in plan], given, about, options.output)
    results = Results(about, options.output)
    if options.resume:
        results.resume()
    specs = {spec.name: spec for _, members in plan for spec in members}
    small = [subject.small(conv) for conv in dict.fromkeys(setting.conv for setting, _ in plan)]
    agreement = given.isolation(lambda: check_methods(small, list(specs.values()), options.device))
    results.agreed_within(agreement.largest_difference)
    results.write()
    Runner(results, subject.workload, given, agreement.faults).run(plan)
    return format_table(results.rows)


def _plan(options: BenchOptions, config: Config | None) -> list[tuple[Setting, Sequence[MethodSpec]]]:
    """Return settings, the largest first, and the methods of each."""
    model = hetero_model(config) if config else None
    every = settings(
        convs=options.conv or (CONVS if options.grid else (model.conv if model else "gin",)),
        batches=options.batch or (GRID_BATCHES if options.grid else (32,) if model else (8, 28)),
        hidden=options.hidden or (GRID_HIDDEN if options.grid else (model.hidden if model else 64,)),
        layers=options.layers or (GRID_LAYERS if options.grid else (model.layers,) if model else (2, 3)),
        deletions=(None,) if config else options.deletions,
        device=options.device,
        dtype=options.dtype,
    )
    return [(setting, _methods_for(setting, options)) for setting in every]


def _methods_for(setting: Setting, options: BenchOptions) -> list[MethodSpec]:
    if options.methods:
        return choose_methods(options.methods)
    if options.grid:
        return choose_methods(["all"])
    names = HEADLINE_LARGE if setting.batch > LARGE_BATCH else HEADLINE
    known = methods()
    return choose_methods([name for name in names if name in known or f"{name}:auto" in known])


def _products(
    subject: Subject, plan: Sequence[Setting], given: Conditions, about: dict[str, Any], output: Path | None
) -> str:
    rows: list[ProductRow] = []
    for row in product_rows(subject.cell, [(setting.batch, setting.hidden) for setting in plan], given):
        rows.append(row)
        if output is not None:
            write_json(output, {"environment": about, "products": [dataclasses.asdict(r) for r in rows]})
    return format_products(rows)


# These functions are the command line.


EPILOG = """\
All methods run on the same cell graph, strains and weights, on a CPU each in a fork of this one process; before
anything is timed, their predictions and all gradients are compared in float64. Ratios are to `pyg_replicated`: PyTorch
Geometric on B copies of the cell graph with a mask on every edge, which needs `pip install dglcell[bench]`.

  python -m benchmarks.bench                              headline: a generated cell graph of yeast size
  python -m benchmarks.bench --graph real --raw DIR             public yeast networks
  python -m benchmarks.bench --batch 8 28 --hidden 64 --layers 3 --conv gin --methods pyg_replicated node_mask auto
  python -m benchmarks.bench --grid --output grid.json --resume everything, to be interrupted and continued
  python -m benchmarks.bench --products --batch 28              the sparse products of every kernel
  python -m benchmarks.bench conf/quickstart.yaml               an experiment's own cell graph, model and strains

A method that runs out of memory is a row that says so.
"""


def positive_float(text: str) -> float:
    """Parse a number above 0.

    Raises:
        argparse.ArgumentTypeError: the text is no such number.
    """
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"'{shorten(text, 40)}' is not a number above 0")
    return number


def _add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for what to measure on, what to vary, and how."""
    parser.add_argument("experiment", nargs="?", type=Path, metavar="FILE", help="an experiment to measure on")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="of the experiment")
    parser.add_argument("--config", type=Path, metavar="FILE", help="the same as FILE")
    add_raw(parser)
    graph = parser.add_argument_group("cell graph")
    graph.add_argument("--graph", choices=("generated", "real"), default="generated", help="(default: generated)")
    graph.add_argument("--symmetrise", action="store_true", help="store undirected pairs in both directions")
    graph.add_argument("--metabolism", action="store_true", help="with --graph real: add reactions and metabolites")
    graph.add_argument(
        "--scale", type=positive_float, default=1.0, help="of the number of generated genes (default: 1)"
    )
    graph.add_argument("--seed", type=int, default=0, help="of graph, strains and weights (default: 0)")
    vary = parser.add_argument_group("what is varied")
    vary.add_argument("--methods", nargs="+", metavar="NAME", help="or `all`; an unknown name lists all")
    vary.add_argument("--batch", nargs="+", type=positive, metavar="N", help="strains per step (default: 8 28)")
    vary.add_argument("--hidden", nargs="+", type=positive, metavar="N", help="width (default: 64)")
    vary.add_argument("--layers", nargs="+", type=positive, metavar="N", help="rounds (default: 2 3)")
    vary.add_argument("--conv", nargs="+", choices=("gin", "sage"), help="convolutions (default: gin)")
    vary.add_argument("--deletions", nargs="+", type=positive, default=[3], metavar="N", help="genes (default: 3)")
    vary.add_argument("--grid", action="store_true", help="all methods, and all values of what is not given")
    vary.add_argument("--products", action="store_true", help="sparse products instead of training steps")
    how = parser.add_argument_group("how")
    how.add_argument("--device", default="cpu", help="cpu or cuda (default: cpu)")
    how.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="(default: float32)")
    how.add_argument("--threads", type=positive, metavar="N", help="of torch (default: torch's own choice)")
    how.add_argument("--seconds-per-row", type=positive_float, default=10.0, metavar="S", help="budget (default: 10)")
    how.add_argument("--memory-limit", type=positive_float, metavar="GB", help="per method (default: what is free)")
    how.add_argument("--output", type=Path, metavar="JSON", help="write environment and rows here, row by row")
    how.add_argument("--resume", action="store_true", help="keep the rows that --output has already")
    how.add_argument("--in-process", action="store_true", help="no forks; the first crash is the end")


def _bench_options(options: argparse.Namespace) -> BenchOptions:
    """Turn the options of the command line into those of the benchmark."""
    given: dict[str, Any] = {}
    for key in dataclasses.fields(BenchOptions):
        value = getattr(options, key.name)
        given[key.name] = tuple(value or ()) if isinstance(key.default, tuple) else value
    if options.memory_limit is not None:
        given["memory_limit"] = int(options.memory_limit * 1e9)
    return BenchOptions(**given)


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of the benchmark's options."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bench",
        description="Time a training step of this package and of what came before, after checking that they agree.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_options(parser)
    parser.set_defaults(run=_command)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``python -m benchmarks.bench``."""
    return run(make_parser(), arguments)


def _command(options: argparse.Namespace) -> None:
    asked = _bench_options(options)
    if options.config is None:
        options.config = options.experiment
    elif options.experiment is not None:
        # With `--config` all positional arguments are overrides.
        options.overrides = [str(options.experiment), *options.overrides]
    print(bench(asked, load(options) if options.config else None))


if __name__ == "__main__":
    sys.exit(main())

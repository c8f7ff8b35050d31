"""``dglcell bench``: from options to a table and a file."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dglcell.config import Config
from dglcell.devices import check_device
from dglcell.files import write_json
from dglcell.profiling.bench.agreement import check_methods
from dglcell.profiling.bench.conditions import Conditions, conditions
from dglcell.profiling.bench.experiment import hetero_model
from dglcell.profiling.bench.machine import describe_machine
from dglcell.profiling.bench.methods import BASE, choose_methods, methods
from dglcell.profiling.bench.methods.method import MethodSpec
from dglcell.profiling.bench.options import BenchOptions
from dglcell.profiling.bench.products import ProductRow, format_products, product_rows
from dglcell.profiling.bench.row import Results
from dglcell.profiling.bench.run import Runner
from dglcell.profiling.bench.setting import CONVS, GRID_BATCHES, GRID_HIDDEN, GRID_LAYERS, Setting, settings
from dglcell.profiling.bench.subject import Subject, experiment_subject, random_subject
from dglcell.profiling.bench.table import format_table

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
"""From ``LARGE_BATCH`` on: without what takes minutes per step there, but with what all ratios are to."""
HEADLINE = (*HEADLINE_LARGE, "pyg_node_dim", "edge_mask")
LARGE_BATCH = 16

log = logging.getLogger("dglcell")


def bench(options: BenchOptions, config: Config | None = None) -> str:
    """Run the benchmark: compare methods in float64, then time each.

    Args:
        options: what to run.
        config: an experiment, whose cell graph, model and strains take the place of generated or real ones.

    Returns:
        the table.

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
    log.info("%s: %s edges", subject.title, f"{subject.cell.graph.num_edges():,}")
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
    """Settings, the largest first, and the methods of each."""
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

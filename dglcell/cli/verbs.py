"""What every verb does: call the package, print what comes back.

Heavy imports happen inside the verbs, so that ``dglcell --help`` answers at once.
"""

from __future__ import annotations

import argparse
import sys
import textwrap

from dglcell.cli.arguments import load
from dglcell.errors import ConfigError


def train(options: argparse.Namespace) -> None:
    """``dglcell train``."""
    config = load(options)
    from dglcell.training.metrics import format_results_table
    from dglcell.training.run import train as run

    result = run(config, options.command)
    if not result.rows:
        return
    print(f"\n{format_results_table(result.rows, color=sys.stdout.isatty())}\n")
    if config.plot:
        print(f"picture  {result.directory.report}")
    print(f"run      {result.directory.path}")


def evaluate(options: argparse.Namespace) -> None:
    """``dglcell evaluate``."""
    from dglcell.training.metrics import format_results_table
    from dglcell.training.report import evaluate_run

    rows = evaluate_run(options.run_directory, options.checkpoint)
    print(format_results_table(rows, color=sys.stdout.isatty()))


def predict(options: argparse.Namespace) -> None:
    """``dglcell predict``."""
    from dglcell.predict import predict_table, read_genotypes, write_table
    from dglcell.training.checkpoint import load_trained
    from dglcell.training.device import check_device
    from dglcell.training.directory import RunDirectory

    check_device(options.device)
    trained = load_trained(RunDirectory(options.run_directory), options.checkpoint)
    table = read_genotypes(options.genotypes, trained.cell.genes, trained.phenotypes)
    trained.model.to(options.device)
    write_table(options.output, trained, table, predict_table(trained, table, batch_size=options.batch_size))
    print(f"{len(table.rows):,} predictions written to {options.output}")


def data_build(options: argparse.Namespace) -> None:
    """``dglcell data build``."""
    config = load(options)
    from dglcell.data.report import describe_store
    from dglcell.training.prepare import build

    print(describe_store(build(config, options.command, overwrite=options.overwrite)))


def data_stats(options: argparse.Namespace) -> None:
    """``dglcell data stats``."""
    from dglcell.data.report import format_stats
    from dglcell.data.store import Store

    print(format_stats(Store(options.store)))


def data_verify(options: argparse.Namespace) -> None:
    """``dglcell data verify``."""
    from dglcell.data.store import Store

    store = Store(options.store)
    store.verify()
    print(f"{options.store}: {len(store):,} strains, all blocks and hashes are right ({store.sha256[:12]})")


def data_list(options: argparse.Namespace) -> None:
    """``dglcell data list``."""
    from dglcell.data.report import format_listings
    from dglcell.data.sources import list_sources
    from dglcell.data.store import list_stores

    for source in list_sources(options.raw):
        missing = "" if source.available else "; its raw file is not here"
        print(f"{source.name} ({source.size}{missing})")
        print(textwrap.fill(source.description, 100, initial_indent="    ", subsequent_indent="    "))
    if options.folder.is_dir():
        print(f"\nstores in {options.folder}\n{format_listings(list_stores(options.folder))}")


def graph_describe(options: argparse.Namespace) -> None:
    """``dglcell graph describe``."""
    from dglcell.graph.cell import build_cell
    from dglcell.graph.cell_graph import CellGraph
    from dglcell.graph.describe import describe
    from dglcell.training.directory import RunDirectory

    if options.config.is_dir():
        if options.overrides:
            raise ConfigError(
                f"run '{options.config}' has the cell graph it was trained on",
                got=" ".join(options.overrides),
                do="leave the overrides out, or describe an experiment's file",
            )
        cell = CellGraph.load(RunDirectory(options.config).cell)
    else:
        config = load(options)
        cell = build_cell(config.cell, config.paths.raw)
    print(describe(cell, names=options.names))


def config_show(options: argparse.Namespace) -> None:
    """``dglcell config show``."""
    from dglcell.config_io import to_yaml

    print(to_yaml(load(options)), end="")


def config_validate(options: argparse.Namespace) -> None:
    """``dglcell config validate``."""
    config = load(options)
    print(f"{options.config}: valid; the run directory will be {config.run_directory}")


def bench(options: argparse.Namespace) -> None:
    """``dglcell bench``."""
    from dglcell.cli.bench_options import bench_options

    asked = bench_options(options)
    if options.config is None:
        options.config = options.experiment
    elif options.experiment is not None:
        # With `--config` all positional arguments are overrides.
        options.overrides = [str(options.experiment), *options.overrides]
    config = load(options) if options.config else None
    from dglcell.profiling.bench.command import bench as run

    print(run(asked, config))


def doctor(options: argparse.Namespace) -> None:
    """``dglcell doctor``."""
    from dglcell.doctor import examine, format_findings

    print(format_findings(examine()))

"""What every verb does: call the package, print what comes back.

Heavy imports happen inside the verbs, so that ``dglcell --help`` answers at once.
"""

from __future__ import annotations

import argparse
import sys
import textwrap

from dglcell.cli.arguments import load
from dglcell.errors import ConfigError
from dglcell.training.stop_signals import StopSignals


def train(options: argparse.Namespace) -> None:
    """``dglcell train``."""
    config = load(options)
    # A signal may come as early as now: imports alone take seconds.
    with StopSignals(config.slurm.requeue) as signals:
        from dglcell.training.results_table import format_results_table
        from dglcell.training.run import train as run

        result = run(config, options.command, signals)
    if not result.rows:
        return
    print(f"\n{format_results_table(result.rows, color=sys.stdout.isatty())}\n")
    if config.plot:
        print(f"picture  {result.directory.report}")
        print(f"report   {result.directory.page}")
    print(f"run      {result.directory.path}")


def evaluate(options: argparse.Namespace) -> None:
    """``dglcell evaluate``."""
    from dglcell.training.report import evaluate_run
    from dglcell.training.results_table import format_results_table

    rows = evaluate_run(options.run_directory, options.checkpoint)
    print(format_results_table(rows, color=sys.stdout.isatty()))


def report(options: argparse.Namespace) -> None:
    """``dglcell report``."""
    from dglcell.report.comparison_page import write_comparison
    from dglcell.report.run_page import write_report

    paths = options.run_directories
    print(write_comparison(paths, options.output) if len(paths) > 1 else write_report(paths[0], options.output))


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
        if not source.available and source.download is not None:
            size = f", {source.download / 1e6:,.0f} MB" if source.download else ""
            missing += f": `dglcell data fetch {source.name}`{size}"
        print(f"{source.name} ({source.size}{missing})")
        for text in (source.description, "; ".join(filter(None, (source.citation, f"licence: {source.licence}")))):
            print(textwrap.fill(text, 100, initial_indent="    ", subsequent_indent="    "))
    if options.folder.is_dir():
        print(f"\nstores in {options.folder}\n{format_listings(list_stores(options.folder))}")


def data_fetch(options: argparse.Namespace) -> None:
    """``dglcell data fetch``."""
    from dglcell.data.sources import fetch_source, source_addresses
    from dglcell.download import FIRST_USE, read_record
    from dglcell.files import sha256_file

    for name in options.sources:
        if options.addresses:
            for file in source_addresses(name):
                print(f"{file.name}\n    {file.url or 'no address: it was brought into this form by hand'}")
            continue
        for path in fetch_source(name, options.raw):
            record = read_record(path)
            trust = "not downloaded here" if record is None else "the declared hash"
            if record is not None and record.trust == FIRST_USE:
                trust = "no published hash is known: this one is recorded, later downloads have to agree with it"
            print(f"{path}\n    {path.stat().st_size:,} bytes, sha256 {sha256_file(path)}\n    {trust}")


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

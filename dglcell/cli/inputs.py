"""Implement the verbs for the inputs of trainings: ``init``, ``data``, ``graph`` and ``config``.

Heavy imports happen inside the verbs, so that ``dglcell --help`` answers at once.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import textwrap
from dataclasses import fields
from pathlib import Path

from dglcell.cli.arguments import add_overwrite, add_raw, check_outputs, load
from dglcell.errors import ConfigError, count, printable

INIT_HELP = "write the file of your own experiment"
INIT_EPILOG = """\
  dglcell init mine --table strains.csv --cell textbook
  dglcell init collins --screen collins2007 --split gene_disjoint
Without a table or a screen, the command asks for them. It chooses model, link, split, batch, epochs and warm-up, and
writes the reason for each above it. It reads the strains and compares them with the cell graph.
Columns of strengths, media, conditions, alleles and sequences of guides are found by their names.
Genes may have standard names, aliases, or the names that a metabolic model has for them. All faults of the table are
listed by line. With --write-clean FILE, a copy without them is written, and the experiment reads the copy. Files that
the cell graph needs are offered for download; --fetch downloads them without asking."""


def add_init(parser: argparse.ArgumentParser) -> None:
    """Add the options for the strains, the cell graph and the model of a new experiment."""
    parser.add_argument("file", type=Path, metavar="NAME", help="name of the experiment; writes NAME.yaml")
    strains = parser.add_mutually_exclusive_group()
    strains.add_argument("--table", type=Path, metavar="FILE", help="table (CSV, TSV, .xlsx, Parquet), a row a strain")
    strains.add_argument("--screen", metavar="NAME", help="published screen, named as in `dglcell data list`")
    parser.add_argument(
        "--cell", help="yeast (default), ecoli-core, ecoli, or a metabolic model by name or path", default="yeast"
    )
    parser.add_argument("--split", default="random", metavar="KIND", help="kind of split (default: random)")
    parser.add_argument(
        "--model", metavar="NAME", help="hetero_cell or set_operator, with settings for it (default: by the labels)"
    )
    parser.add_argument("--genes", nargs="+", default=[], metavar="COLUMN", help="columns of genes (default: by name)")
    parser.add_argument("--phenotypes", nargs="+", default=[], metavar="COLUMN", help="default: others with numbers")
    parser.add_argument(
        "--strengths", nargs="*", metavar="COLUMN", help="what is left of each gene (default: by name; none: no COLUMN)"
    )
    parser.add_argument(
        "--conditions", nargs="*", metavar="COLUMN", help="media, doses, alleles (default: by name; none: no COLUMN)"
    )
    parser.add_argument("--aliases", metavar="FILE", help="table of other names of genes, such as common ones")
    parser.add_argument(
        "--na-values",
        nargs="+",
        action="extend",
        default=[],
        metavar="WORD",
        help='cells that mean "not measured", such as ND; --na-values=-9 where a word begins with a minus sign',
    )
    parser.add_argument(
        "--keep-blank", action="store_true", help="rows with a blank gene are no faults, however few they are"
    )
    parser.add_argument(
        "--ignore",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="names in the place of a gene that stand for no deletion, as those of controls: ctrl, 'control_*'",
    )
    parser.add_argument(
        "--average", action="store_true", help="rows of the same strain are replicates, however much they differ"
    )
    parser.add_argument("--write-clean", type=Path, metavar="FILE", help="write a copy without faults, and read that")
    parser.add_argument("--fetch", action="store_true", help="download missing files of the cell graph without asking")
    add_overwrite(parser)
    add_raw(parser)


def init(options: argparse.Namespace) -> None:
    """Run ``dglcell init``."""
    from dglcell.new_experiment.cell import Wanted
    from dglcell.new_experiment.experiment import ask, write_experiment

    file = options.file.with_name(options.file.name.removesuffix(".yaml") + ".yaml")
    check_outputs(options, file, options.write_clean)
    confirm = _agree if options.fetch else _ask_to_download if sys.stdin.isatty() else None
    given = {one.name: getattr(options, one.name) for one in fields(Wanted) if one.name != "confirm"}
    wanted = Wanted(**{**given, "file": file, "confirm": confirm})
    if wanted.table is None and wanted.screen is None:
        if not sys.stdin.isatty():
            raise ConfigError("which strains?", expected="`--table FILE` or `--screen NAME`")
        wanted = ask(wanted, input)
    said = write_experiment(wanted)
    if not options.quiet:
        print(f"{said}\n\n{file} is written. Train with `dglcell train {shlex.quote(str(file))}`.")


def _agree(question: str) -> bool:
    print(question.partition(" Download?")[0], file=sys.stderr)
    return True


def _ask_to_download(question: str) -> bool:
    return input(question).strip().lower() in ("", "y", "yes")


def data_build(options: argparse.Namespace) -> None:
    """Run ``dglcell data build``."""
    config = load(options)
    from dglcell.data.report import describe_store
    from dglcell.training.prepare import build, compute_shard

    if options.shard is not None:
        compute_shard(config, options.shard)
        print("Computed. `dglcell data build` without `--shard` builds the store once all shards are there.")
        return
    print(describe_store(build(config, options.command, overwrite=options.overwrite)))


def data_stats(options: argparse.Namespace) -> None:
    """Run ``dglcell data stats``."""
    from dglcell.data.report import format_stats
    from dglcell.data.store import Store, verify_store

    if not options.verify:
        print(format_stats(Store(options.store)))
        return
    store = verify_store(options.store)
    print(f"{options.store}: {count(len(store), 'strain')}, all columns and hashes are right ({store.sha256[:12]})")


def data_list(options: argparse.Namespace) -> None:
    """Run ``dglcell data list``."""
    from dglcell.config.published import format_catalogue
    from dglcell.data.report import format_sources
    from dglcell.data.sources import list_sources

    print(f"{format_sources(list_sources(options.raw))}\n\n{format_catalogue(options.raw)}", end="")


def data_fetch(options: argparse.Namespace) -> None:
    """Run ``dglcell data fetch``."""
    from dglcell.config.published import fetch_all, format_addresses, named, needs
    from dglcell.files.atomic import raw_folder

    if bool(options.sources) == bool(options.config):
        raise ConfigError(
            "what shall be fetched?",
            got="names and an experiment" if options.config else "nothing",
            expected="names, or --all EXPERIMENT.yaml",
        )
    raw, wanted = options.raw, [need for name in options.sources for need in named(name)]
    if options.config:
        config = load(options)
        raw, wanted = config.paths.raw, needs(config)
        if not wanted:
            print(f"{options.config}: it needs no file that is published")
    if options.addresses:
        print(format_addresses(wanted))
        return
    for text in fetch_all(wanted, raw_folder(raw)):
        print(text, flush=True)


def graph_describe(options: argparse.Namespace) -> None:
    """Run ``dglcell graph describe``."""
    from dglcell.graph.cell import build_cell
    from dglcell.graph.describe import describe
    from dglcell.runs.directory import RunDirectory
    from dglcell.trained_models import cell_of_run, find_model

    run = options.config if options.config.exists() else find_model(str(options.config))
    if run is not None and run.is_dir():
        if options.overrides:
            raise ConfigError(
                f"run '{options.config}' has the cell graph it was trained on",
                got=" ".join(options.overrides),
                do="leave the overrides out, or describe an experiment's file",
            )
        cell = cell_of_run(RunDirectory(run))
    else:
        config = load(options)
        cell = build_cell(config.cell, config.paths.raw)
    print(printable(describe(cell, names=options.names)))


def config_show(options: argparse.Namespace) -> None:
    """Run ``dglcell config show``."""
    from dglcell.config.read import named_experiments, to_yaml

    if options.config is not None:
        print(to_yaml(load(options, look=True)), end="")
        return
    for name, description in named_experiments().items():
        print(name)
        if description:
            print(textwrap.fill(description, 80, initial_indent="    ", subsequent_indent="    "))


def config_validate(options: argparse.Namespace) -> None:
    """Run ``dglcell config validate``."""
    config = load(options)
    print(f"{options.config}: valid; the run directory will be {config.run_directory}")

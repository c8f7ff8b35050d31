"""Implement the verbs for the inputs of trainings: ``init``, ``data``, ``graph`` and ``config``.

Heavy imports happen inside the verbs, so that ``dglcell --help`` answers at once.
"""

from __future__ import annotations

import argparse
import shlex
import textwrap
from dataclasses import fields
from pathlib import Path

from dglcell.cli.arguments import (
    CONFIGURATION,
    FILE_HELP,
    OVERWRITE,
    RAW,
    Add,
    argument,
    check_outputs,
    either,
    load,
    overrides,
    verb,
)
from dglcell.errors import ConfigError, count, printable


def _words(name: str, metavar: str, text: str) -> Add:
    """Declare an option that takes several words and may be given again."""
    return argument(name, nargs="+", action="extend", default=[], metavar=metavar, help=text)


_CELL = "yeast (default), ecoli-core, ecoli, or a metabolic model by name or path"
_MODEL = "hetero_cell or set_operator, with settings for it (default: by the labels)"
_ACTIVITIES = "what is left of each gene (default: by name; none: no COLUMN)"
_COVARIATES = "media, doses, alleles (default: by name; none: no COLUMN)"
_ABSENT = 'cells that mean "not measured", such as ND; --na-values=-9 where a word begins with a minus sign'
_CONTROLS = "names in the place of a gene that stand for no deletion, as those of controls: ctrl, 'control_*'"


@verb(
    "init",
    argument("file", type=Path, metavar="NAME", help="name of the experiment; writes NAME.yaml"),
    either(
        argument("--table", type=Path, metavar="FILE", help="table (CSV, TSV, .xlsx, Parquet), a row a strain"),
        argument("--screen", metavar="NAME", help="published screen, named as in `dglcell data list`"),
    ),
    argument("--cell", default="yeast", help=_CELL),
    argument("--split", default="random", metavar="KIND", help="kind of split (default: random)"),
    argument("--model", metavar="NAME", help=_MODEL),
    argument("--genes", nargs="+", default=[], metavar="COLUMN", help="columns of genes (default: by name)"),
    argument("--phenotypes", nargs="+", default=[], metavar="COLUMN", help="default: others with numbers"),
    argument("--activities", nargs="*", metavar="COLUMN", help=_ACTIVITIES),
    argument("--covariates", nargs="*", metavar="COLUMN", help=_COVARIATES),
    argument("--aliases", metavar="FILE", help="table of other names of genes, such as common ones"),
    _words("--na-values", "WORD", _ABSENT),
    _words("--ignore", "NAME", _CONTROLS),
    argument("--write-clean", type=Path, metavar="FILE", help="write a copy without faults, and read that"),
    argument("--fetch", action="store_true", help="download missing files of the cell graph"),
    OVERWRITE,
    RAW,
)
def init(options: argparse.Namespace) -> None:
    """Write the file of your own experiment.

      dglcell init mine --table strains.csv --cell textbook
      dglcell init collins --screen collins2007 --split gene_disjoint
    The command reads the strains, compares them with the cell graph, chooses settings, and writes the reason for each
    above it. Columns of activities, media, covariates, alleles and guides are found by their names. Genes may have
    other names than systematic ones. All faults of the table are listed by line. With --write-clean FILE, a copy
    without them is written, and the experiment reads the copy.
    """
    from dglcell.new_experiment.experiment import write_experiment
    from dglcell.new_experiment.table import Wanted

    file = options.file.with_name(options.file.name.removesuffix(".yaml") + ".yaml")
    check_outputs(options, file, options.write_clean)
    if options.table is None and options.screen is None:
        raise ConfigError("which strains?", expected="`--table FILE` or `--screen NAME`")
    given = {one.name: getattr(options, one.name) for one in fields(Wanted)}
    said = write_experiment(Wanted(**{**given, "file": file}))
    if not options.quiet:
        print(f"{said}\n\n{file} is written. Train with `dglcell train {shlex.quote(str(file))}`.")


@verb("data build", *CONFIGURATION, argument("--overwrite", action="store_true", help="build it again if it exists"))
def data_build(options: argparse.Namespace) -> None:
    """Build the store of an experiment."""
    config = load(options)
    from dglcell.data.store import describe_store
    from dglcell.training.prepare import build

    print(describe_store(build(config, options.command, overwrite=options.overwrite)))


@verb(
    "data stats",
    argument("store", type=Path, metavar="STORE"),
    argument("--verify", action="store_true", help="only check every column of it against its hash"),
)
def data_stats(options: argparse.Namespace) -> None:
    """Describe a store: phenotypes, deletions, genes, provenance."""
    from dglcell.data.store import Store, format_stats, verify_store

    if not options.verify:
        print(format_stats(Store(options.store)))
        return
    store = verify_store(options.store)
    print(f"{options.store}: {count(len(store), 'strain')}, all columns and hashes are right ({store.sha256[:12]})")


@verb(
    "data fetch",
    argument("--all", type=Path, dest="config", metavar="FILE", help="experiment whose files to download"),
    argument("--addresses", action="store_true", help="only print the addresses of the files"),
    argument("sources", nargs="*", metavar="NAME", help="screen in `dglcell data list`, or path of a published file"),
    RAW,
)
def data_fetch(options: argparse.Namespace) -> None:
    """Download published files into the raw folder, and check them.

    --all downloads everything that an experiment reads: screens, networks, gene sets, models. A file is kept only if it
    is complete, with the right size and hash; one that exists is only checked. If no hash is published, the file's own
    is printed.

      dglcell data fetch --all conf/101-collins2007/set_operator_random.yaml
      dglcell data fetch kuzmin2018 genes/essential_genes_reference.txt.gz
    """
    from dglcell.config.published import fetch_all, format_addresses, named, needs
    from dglcell.files.atomic import raw_folder

    if bool(options.sources) == bool(options.config):
        got = "names and an experiment" if options.config else "nothing"
        raise ConfigError("what shall be fetched?", got=got, expected="names, or --all EXPERIMENT.yaml")
    raw, wanted = options.raw, [need for name in options.sources for need in named(name)]
    if options.config:
        config = load(argparse.Namespace(**vars(options), overrides=[]))
        raw, wanted = config.paths.raw, needs(config)
        if not wanted:
            print(f"{options.config}: it needs no file that is published")
    if options.addresses:
        print(format_addresses(wanted))
        return
    for text in fetch_all(wanted, raw_folder(raw)):
        print(text, flush=True)


@verb("data list", RAW)
def data_list(options: argparse.Namespace) -> None:
    """List screens, networks, gene sets and metabolic models by name."""
    from dglcell.config.published import format_catalogue

    print(format_catalogue(options.raw), end="")


@verb(
    "graph describe",
    argument("config", type=Path, metavar="FILE|RUN", help="experiment, run directory or trained model"),
    overrides("keys of an experiment, e.g. cell.metabolism=false"),
    RAW,
    argument("--names", action="store_true", help="also print all gene names"),
)
def graph_describe(options: argparse.Namespace) -> None:
    """Describe the cell graph of an experiment or a run."""
    from dglcell.graph.cell import build_cell, describe
    from dglcell.runs import RunDirectory
    from dglcell.trained_models import cell_of_run, find_model

    run = options.config if options.config.exists() else find_model(str(options.config))
    if run is not None and run.is_dir():
        if options.overrides:
            what, do = f"run '{options.config}' has the cell graph it was trained on", "leave the overrides out"
            raise ConfigError(what, got=" ".join(options.overrides), do=f"{do}, or describe an experiment's file")
        cell = cell_of_run(RunDirectory(run))
    else:
        config = load(options)
        cell = build_cell(config.cell, config.paths.raw)
    print(printable(describe(cell, names=options.names)))


@verb("config show", argument("config", type=Path, nargs="?", metavar="FILE", help=FILE_HELP), overrides(), RAW)
def config_show(options: argparse.Namespace) -> None:
    """Print an experiment with all defaults, or list the experiments that have names."""
    from dglcell.config.read import named_experiments, to_yaml

    if options.config is not None:
        print(to_yaml(load(options, look=True)), end="")
        return
    for name, description in named_experiments().items():
        print(name)
        if description:
            print(textwrap.fill(description, 80, initial_indent="    ", subsequent_indent="    "))


@verb("config validate", *CONFIGURATION)
def config_validate(options: argparse.Namespace) -> None:
    """Check an experiment without running it."""
    config = load(options)
    print(f"{options.config}: valid; the run directory will be {config.run_directory}")

"""The command line: verbs only; parse, call, print.

Heavy imports happen inside the verbs, so that ``dglcell --help`` answers at once.
"""

from __future__ import annotations

import argparse
import errno
import logging
import os
import shlex
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

from dglcell import __version__
from dglcell.errors import DglcellError

FILE_TROUBLE = {
    getattr(errno, name) for name in ("EACCES", "EPERM", "ENOENT", "EISDIR", "ENOTDIR", "EEXIST", "EROFS", "ENOSPC")
}

Verb = Callable[[argparse.Namespace], None]

EPILOG = """\
first steps:
  dglcell doctor                                 what works on this machine
  dglcell train conf/quickstart.yaml             compute a screen, train, compare with null models, draw
  dglcell train conf/quickstart.yaml model.hidden=64 trainer.epochs=30
  dglcell evaluate runs/quickstart/seed-0        the table again
  dglcell predict runs/quickstart/seed-0 genotypes.csv --output predictions.csv

Every key of a configuration can be given as key=value. `dglcell config show FILE` prints all of them.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        0, or 2 where the user can mend what went wrong (message on stderr, no traceback). Bugs keep their traceback.
    """
    parser = make_parser()
    options = parser.parse_args(arguments)
    options.command = shlex.join(["dglcell", *(sys.argv[1:] if arguments is None else arguments)])
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("dglcell").setLevel(logging.INFO)
    try:
        options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output has had enough, e.g. `| head`; nothing is left to be flushed at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except DglcellError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        # Files and folders that cannot be read or written are the user's to mend; anything else is a bug.
        if error.filename is None or error.errno not in FILE_TROUBLE:
            raise
        # A renamed file's temporary name says nothing; its target does.
        print(f"error: '{error.filename2 or error.filename}': {error.strerror}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


def make_parser() -> argparse.ArgumentParser:
    """All verbs with their options."""
    parser = argparse.ArgumentParser(
        prog="dglcell",
        description="Train graph neural networks on strains: one cell graph, many gene deletions.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"dglcell {__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    _add_train(verbs)
    _add_evaluate(verbs)
    _add_predict(verbs)
    _add_data(verbs)
    _add_graph(verbs)
    _add_config(verbs)
    _add_bench(verbs)
    _verb(verbs, "doctor", doctor, "say what works on this machine: versions, devices, kernels")
    return parser


def _verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, run: Verb, text: str, more: str = ""
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(
        name,
        help=text,
        description=f"{text[0].upper()}{text[1:]}.",
        epilog=more,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def _configured(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, metavar="FILE", help="experiment, e.g. conf/quickstart.yaml")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="e.g. model.hidden=32 seed=1")
    parser.add_argument("--raw", metavar="DIR", help="folder of raw files (default: $DGLCELL_RAW)")


def _add_train(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _verb(
        verbs,
        "train",
        train,
        "train an experiment, or continue it where it stopped",
        "Builds the store if it is not there. The run directory is RUNS/EXPERIMENT/seed-SEED: its last\n"
        "checkpoint is continued (resume=never refuses, resume=PATH continues another).",
    )
    _configured(parser)


def _add_evaluate(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _verb(verbs, "evaluate", evaluate, "evaluate a trained model and the null models on its split")
    parser.add_argument("run_directory", type=Path, metavar="RUN", help="run directory, as `train` printed it")
    parser.add_argument("--checkpoint", help="best_loss, best_pearson, last, or a path (default: as configured)")


def _add_predict(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _verb(
        verbs,
        "predict",
        predict,
        "predict phenotypes of the genotypes in a CSV",
        "Genes stand in columns gene_1, gene_2, … or in one column `genes` separated by `;`. The same rows come back\n"
        "in order, with a column predicted_PHENOTYPE each, in original units. A row that cannot be predicted is\n"
        "refused with its line number, and nothing is written.",
    )
    parser.add_argument("run_directory", type=Path, metavar="RUN", help="run directory, as `train` printed it")
    parser.add_argument("genotypes", type=Path, metavar="CSV", help="genotypes")
    parser.add_argument("--output", "-o", type=Path, required=True, metavar="CSV", help="where predictions go")
    parser.add_argument("--checkpoint", help="best_loss, best_pearson, last, or a path (default: as configured)")
    parser.add_argument(
        "--batch-size", type=_positive, default=256, metavar="N", help="strains per forward pass (default: 256)"
    )
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: cpu)")


def _positive(text: str) -> int:
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of 1 or more")
    return int(text)


def _add_data(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    data = verbs.add_parser("data", help="build and inspect stores of strains").add_subparsers(
        title="verbs", metavar="VERB", required=True
    )
    build = _verb(data, "build", data_build, "build the store of an experiment")
    _configured(build)
    build.add_argument("--overwrite", action="store_true", help="build it anew where it exists")
    for name, run, text in (
        ("stats", data_stats, "describe a store: phenotypes, deletions, genes, provenance"),
        ("verify", data_verify, "check every block of a store against its hashes"),
    ):
        _verb(data, name, run, text).add_argument("store", type=Path, metavar="STORE")
    listing = _verb(data, "list", data_list, "list data sources, and the stores of a folder")
    listing.add_argument("folder", nargs="?", type=Path, default=Path("data"), help="default: data")
    listing.add_argument("--raw", metavar="DIR", help="folder of raw files (default: $DGLCELL_RAW)")


def _add_graph(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    graph = verbs.add_parser("graph", help="inspect cell graphs").add_subparsers(
        title="verbs", metavar="VERB", required=True
    )
    parser = _verb(graph, "describe", graph_describe, "describe the cell graph of an experiment or a run")
    parser.add_argument("config", type=Path, metavar="FILE|RUN", help="experiment or run directory")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    parser.add_argument("--raw", metavar="DIR", help="folder of raw files (default: $DGLCELL_RAW)")
    parser.add_argument("--names", action="store_true", help="print the gene names")


def _add_config(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    config = verbs.add_parser("config", help="show and check experiments").add_subparsers(
        title="verbs", metavar="VERB", required=True
    )
    _configured(_verb(config, "show", config_show, "print an experiment with every default filled in"))
    _configured(_verb(config, "validate", config_validate, "check an experiment without running it"))


def _add_bench(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _verb(
        verbs,
        "bench",
        bench,
        "time a training step under every strategy, after checking that they agree",
        "All run in this process on the same strains and weights; ratios are to `edge_subgraph`.",
    )
    _configured(parser)
    parser.add_argument("--batch", type=int, default=32, help="strains per step (default: 32)")
    parser.add_argument("--steps", type=int, default=5, help="timed steps (default: 5)")
    parser.add_argument("--output", type=Path, metavar="JSON", help="also write environment and rows here")


def _load(options: argparse.Namespace):  # type: ignore[no-untyped-def]
    from dglcell.config_io import load_config

    raw = [f"paths.raw={options.raw}"] if options.raw else []
    return load_config(options.config, [*options.overrides, *raw])


def train(options: argparse.Namespace) -> None:
    """``dglcell train``."""
    config = _load(options)
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
    from dglcell.training.run import evaluate as run

    rows = run(options.run_directory, options.checkpoint)
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
    config = _load(options)
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
        cell = CellGraph.load(RunDirectory(options.config).cell)
    else:
        config = _load(options)
        cell = build_cell(config.cell, config.paths.raw)
    print(describe(cell, names=options.names))


def config_show(options: argparse.Namespace) -> None:
    """``dglcell config show``."""
    from dglcell.config_io import to_yaml

    print(to_yaml(_load(options)), end="")


def config_validate(options: argparse.Namespace) -> None:
    """``dglcell config validate``."""
    config = _load(options)
    print(f"{options.config}: valid; the run directory will be {config.run_directory}")


def bench(options: argparse.Namespace) -> None:
    """``dglcell bench``."""
    import dataclasses

    config = _load(options)
    from dglcell.files import write_json
    from dglcell.profiling.bench import bench as run
    from dglcell.profiling.bench import format_bench
    from dglcell.training.environment import environment
    from dglcell.training.prepare import prepare

    rows = run(config, prepare(config, command=options.command), batch=options.batch, steps=options.steps)
    print(format_bench(rows))
    if options.output:
        about = environment(options.command)
        write_json(options.output, {"environment": about, "rows": [dataclasses.asdict(row) for row in rows]})


def doctor(options: argparse.Namespace) -> None:
    """``dglcell doctor``."""
    from dglcell.doctor import examine, format_findings

    print(format_findings(examine()))

"""The command line's grammar: verbs, options and their help."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from dglcell import __version__
from dglcell.cli import job, predict, verbs
from dglcell.cli.arguments import add_insecure, add_raw, positive
from dglcell.errors import printable

if TYPE_CHECKING:
    Group = argparse._SubParsersAction["Parser"]

Verb = Callable[[argparse.Namespace], None]

EPILOG = """\
first steps:
  dglcell doctor                                 what works on this machine
  dglcell train quickstart                       compute a screen, train, compare with null models, draw
  dglcell train quickstart model.hidden=64 trainer.epochs=30
  dglcell evaluate runs/quickstart/seed-0        the table again
  dglcell baselines conf/quickstart.yaml         the null models alone
  dglcell predict runs/quickstart/seed-0 genotypes.csv --output predictions.csv
  dglcell report runs/*/seed-*                   several runs on one page

Every key of a configuration can be given as key=value. `dglcell config show FILE` prints all of them.
"""


COMPLETION = """\
  dglcell completion bash > ~/.local/share/bash-completion/completions/dglcell
  dglcell completion zsh > ~/.zfunc/_dglcell"""


class Parser(argparse.ArgumentParser):
    """argparse's, which suggests the verb or option that was nearly typed."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and leave with 2."""
        wrong = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)|unrecognized arguments: (--[\w-]+)", message)
        if wrong:
            known = re.findall(r"[\w-]+", wrong[2]) if wrong[2] else [*self._option_string_actions]
            close = difflib.get_close_matches(wrong[1] or wrong[3], known, n=1)
            message += f"; did you mean '{close[0]}'?" if close else ""
        super().error(printable(message))


def make_parser() -> argparse.ArgumentParser:
    """All verbs with their options."""
    parser = Parser(
        prog="dglcell",
        description="Train graph neural networks on strains: one cell graph, many gene deletions.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"dglcell {__version__}")
    group = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    _add_init(group)
    _add_train(group)
    _add_evaluate(group)
    _add_baselines(group)
    _add_predict(group)
    _add_report(group)
    _add_runs(group)
    _add_data(group)
    _add_graph(group)
    _add_config(group)
    _add_job(group)
    verbs.add_sync(_verb(group, "sync", verbs.sync, verbs.SYNC_HELP, verbs.SYNC_EPILOG))
    _add_profile(group)
    shell = _verb(group, "completion", completion, "print a script that completes words in a shell", COMPLETION)
    shell.add_argument("shell", choices=("bash", "zsh", "tcsh"))
    _verb(group, "doctor", verbs.doctor, "say what works on this machine: versions, devices, kernels")
    return parser


def completion(options: argparse.Namespace) -> None:
    """``dglcell completion``."""
    import shtab

    print(shtab.complete(make_parser(), options.shell))


def _verb(group: Group, name: str, run: Verb, text: str, more: str = "") -> argparse.ArgumentParser:
    parser = group.add_parser(
        name,
        help=text,
        description=f"{text[0].upper()}{text[1:]}.",
        epilog=more,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run, parser=parser)
    how_much = parser.add_mutually_exclusive_group()
    how_much.add_argument("-q", "--quiet", action="store_true", help="say warnings and errors only")
    how_much.add_argument("-v", "--verbose", action="store_true", help="say more")
    return parser


def _group(group: Group, name: str, text: str) -> Group:
    return group.add_parser(name, help=text).add_subparsers(title="verbs", metavar="VERB", required=True)


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_directory", type=Path, metavar="RUN", help="run directory, as `train` printed it")
    parser.add_argument(
        "--checkpoint",
        help="best_loss, best_pearson, best_average_precision, last, or a path (default: as configured)",
    )


def _add_configuration(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, metavar="FILE", help="experiment: a YAML file, or a name like quickstart")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="e.g. model.hidden=32 seed=1")
    add_raw(parser)


def _add_init(group: Group) -> None:
    parser = _verb(group, "init", verbs.init, "write the file of an experiment of your own", verbs.INIT_EPILOG)
    parser.add_argument("file", type=Path, metavar="NAME", help="of the experiment; NAME.yaml is written")
    strains = parser.add_mutually_exclusive_group()
    strains.add_argument("--table", type=Path, metavar="FILE", help="table of strains (CSV), a row for each")
    strains.add_argument("--screen", metavar="NAME", help="a published screen, as `dglcell data list` names it")
    parser.add_argument("--cell", help="metabolic model, or cell of this package (default: yeast)", default="yeast")
    parser.add_argument("--split", default="random", metavar="KIND", help="kind of split (default: random)")
    parser.add_argument("--genes", nargs="+", default=[], metavar="COLUMN", help="of genes (default: by their names)")
    parser.add_argument("--phenotypes", nargs="+", default=[], metavar="COLUMN", help="default: other numbers")


def _add_train(group: Group) -> None:
    parser = _verb(
        group,
        "train",
        verbs.train,
        "train an experiment, or continue it where it stopped",
        "Builds the store if it is not there. The run directory is RUNS/EXPERIMENT/seed-SEED: its last\n"
        "checkpoint is continued (resume=never refuses, resume=PATH continues another).",
    )
    _add_configuration(parser)


def _add_evaluate(group: Group) -> None:
    parser = _verb(group, "evaluate", verbs.evaluate, verbs.EVALUATE_HELP, verbs.EVALUATE_EPILOG)
    _add_run(parser)
    verbs.add_evaluate(parser)


def _add_baselines(group: Group) -> None:
    parser = _verb(group, "baselines", verbs.baselines, verbs.BASELINES_HELP, verbs.BASELINES_EPILOG)
    _add_configuration(parser)
    parser.add_argument(
        "--output", "-o", type=Path, metavar="FILE", help="results (default: RUNS/EXPERIMENT/baselines.json)"
    )


def _add_predict(group: Group) -> None:
    parser = _verb(group, "predict", predict.predict, predict.HELP, predict.EPILOG)
    _add_run(parser)
    predict.add_options(parser)


def _add_report(group: Group) -> None:
    parser = _verb(
        group,
        "report",
        verbs.report,
        "write the report of a finished run, or compare several, on one HTML page",
        "One run: its pictures (figures/ as PNG, SVG and CSV; report.png) and report.html, all in the run directory;\n"
        "with --output only that page. Several: a table of means and standard deviations over the runs of each\n"
        "experiment, and a CSV file with its numbers beside the page. Neither needs data nor a GPU.",
    )
    parser.add_argument("run_directories", nargs="+", type=Path, metavar="RUN", help="run directory of a finished run")
    parser.add_argument(
        "--output", "-o", type=Path, metavar="FILE", help="page (default: RUN/report.html; comparison.html for several)"
    )
    parser.add_argument("--open", action="store_true", help="open the page in a browser")


def _add_runs(group: Group) -> None:
    parser = _verb(group, "runs", verbs.runs, "list runs with their state, epochs and scores")
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs"), help="of runs (default: runs)")


def _add_data(group: Group) -> None:
    data = _group(group, "data", "build and inspect stores of strains")
    build = _verb(data, "build", verbs.data_build, "build the store of an experiment")
    _add_configuration(build)
    build.add_argument("--overwrite", action="store_true", help="build it anew where it exists")
    for name, run, text in (
        ("stats", verbs.data_stats, "describe a store: phenotypes, deletions, genes, provenance"),
        ("verify", verbs.data_verify, "check every block of a store against its hashes"),
    ):
        _verb(data, name, run, text).add_argument("store", type=Path, metavar="STORE")
    fetch = _verb(
        data,
        "fetch",
        verbs.data_fetch,
        "download published files into the raw folder, and check them",
        "With --all, everything that an experiment reads: screens, networks, gene sets, models. Tables that this\n"
        "project reads in a form of its own are made from the published files. What is there already is checked only.\n"
        "A file appears complete and with the right size and hash, or not at all; one that fails does not keep the\n"
        "others from being fetched. Where no hash is published, that of the first download is recorded, and later\n"
        "ones have to agree.\n\n"
        "  dglcell data fetch --all conf/101-collins2007/set_operator_random.yaml\n"
        "  dglcell data fetch kuzmin2018 genes/essential_genes_reference.txt.gz",
    )
    fetch.add_argument(
        "--all", type=Path, dest="config", metavar="FILE", help="experiment, all of whose files to fetch"
    )
    fetch.add_argument("--addresses", action="store_true", help="only print where the files can be had")
    add_insecure(fetch)
    fetch.add_argument(
        "sources", nargs="*", metavar="NAME", help="screen of `dglcell data list`, or path of a published file"
    )
    fetch.set_defaults(overrides=[])
    add_raw(fetch)
    listing = _verb(data, "list", verbs.data_list, "list data sources, and the stores of a folder")
    listing.add_argument("folder", nargs="?", type=Path, default=Path("data"), help="of stores (default: data)")
    add_raw(listing)


def _add_graph(group: Group) -> None:
    graph = _group(group, "graph", "inspect cell graphs and what they are made of")
    listing = _verb(graph, "list", verbs.graph_list, "list networks, gene sets and models of the catalogue")
    add_raw(listing)
    fetch = _verb(graph, "fetch", verbs.graph_fetch, verbs.FETCH_HELP, verbs.FETCH_EPILOG)
    _add_configuration(fetch)
    fetch.add_argument("--addresses", action="store_true", help="only print where the files can be had")
    add_insecure(fetch)
    parser = _verb(graph, "describe", verbs.graph_describe, "describe the cell graph of an experiment or a run")
    parser.add_argument("config", type=Path, metavar="FILE|RUN", help="experiment or run directory")
    parser.add_argument(
        "overrides", nargs="*", metavar="key=value", help="of an experiment, e.g. cell.metabolism=false"
    )
    add_raw(parser)
    parser.add_argument("--names", action="store_true", help="also print all gene names")


def _add_config(group: Group) -> None:
    config = _group(group, "config", "show and check experiments")
    _add_configuration(_verb(config, "show", verbs.config_show, "print an experiment with every default filled in"))
    _verb(config, "list", verbs.config_list, "list the experiments that have names")
    _add_configuration(_verb(config, "validate", verbs.config_validate, "check an experiment without running it"))


def _add_job(group: Group) -> None:
    jobs = _group(group, "job", "run an experiment as a job of SLURM")
    for name, run, text in (
        ("render", job.render, "print the batch script of an experiment"),
        ("check", job.check, "check an experiment and ask SLURM whether it would start it"),
        ("submit", job.submit, "check, then submit"),
    ):
        parser = _verb(jobs, name, run, text, job.EPILOG)
        _add_configuration(parser)
        job.add_sweep(parser)
        if name == "render":
            job.add_output(parser)
    status = _verb(jobs, "status", job.status, "show the jobs of an experiment, or all of yours")
    status.add_argument("config", type=Path, nargs="?", metavar="FILE", help="experiment")
    status.set_defaults(overrides=[], raw=None)
    for name, run, text in (
        ("cancel", job.cancel, "cancel the queued and running jobs of an experiment"),
        ("logs", job.logs, "print the end of the newest output of an experiment's jobs"),
    ):
        parser = _verb(jobs, name, run, text)
        _add_configuration(parser)
    parser.add_argument("--lines", "-n", type=positive, default=20, metavar="N", help="how many (default: 20)")
    parser.add_argument("--all", action="store_true", help="of all its output files, not of the newest only")


def _add_profile(group: Group) -> None:
    parser = _verb(group, "profile", verbs.profile, verbs.PROFILE_HELP, verbs.PROFILE_EPILOG)
    _add_configuration(parser)
    verbs.add_profile(parser)
    verbs.add_compare(_verb(group, "compare", verbs.compare, verbs.COMPARE_HELP, verbs.COMPARE_EPILOG))

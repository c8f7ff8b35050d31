"""Define the grammar of the command line: verbs, options and their help."""

from __future__ import annotations

import argparse
import difflib
import functools
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from dglcell import __version__
from dglcell.cli import benchmark, explain, inputs, job, predict, verbs
from dglcell.cli import next as next_verb
from dglcell.cli.arguments import add_insecure, add_raw, positive
from dglcell.errors import printable

if TYPE_CHECKING:
    Group = argparse._SubParsersAction["Parser"]

Verb = Callable[[argparse.Namespace], None]

EPILOG = """\
first steps:
  dglcell doctor                           check what works on this machine
  dglcell predict ecoli-core new.csv       use a trained model of this package
  dglcell train quickstart                 compute a screen, train, report
  dglcell train quickstart model.hidden=64 trainer.epochs=30
  dglcell evaluate runs/quickstart/seed-0  print the table of results again
  dglcell baselines conf/quickstart.yaml   fit only the null models
  dglcell predict runs/quickstart/seed-0 genotypes.csv --output predictions.csv
  dglcell explain runs/quickstart/seed-0 "b0008 b2464"
  dglcell next runs/quickstart/seed-0 --all-pairs --output next.csv
  dglcell report runs/*/seed-*             compare several runs on one page
  dglcell benchmark in-silico              train many experiments, one table

You can set every key of a configuration as key=value. `dglcell config show FILE` prints all of them.
"""


COMPLETION = """\
  dglcell completion bash > ~/.local/share/bash-completion/completions/dglcell
  dglcell completion zsh > ~/.zfunc/_dglcell"""


KEYS_FOR_OPTIONS = {
    "--gpu": "trainer.accelerator=gpu",
    "--gpus": "trainer.accelerator=gpu trainer.devices=N",
    "--cuda": "trainer.accelerator=gpu",
    "--device": "trainer.accelerator=gpu",
    "--epochs": "trainer.epochs=N",
    "--batch-size": "data.batch_size=N",
    "--lr": "optimizer.lr=X",
    "--seed": "seed=N",
}
"""This maps options of other programs to the keys that have the same effect here."""


class Parser(argparse.ArgumentParser):
    """This parser of argparse suggests verbs and options that are close to what was typed."""

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and exit with status 2."""
        wrong = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)|unrecognized arguments: (--?[\w-]+)", message)
        if wrong:
            known = re.findall(r"[\w-]+", wrong[2]) if wrong[2] else [*self._option_string_actions]
            close = difflib.get_close_matches(wrong[1] or wrong[3], known, n=1)
            if wrong[2] and "VERB" in message:
                # The nearest verb and the place where verbs are described replace argparse's list of all verbs.
                message = f"no verb is called '{wrong[1]}'"
                after = f"; did you mean '{close[0]}'?" if close else ""
                super().error(printable(f"{message}{after or ';'} `{self.prog} --help` lists them"))
            after_verb = wrong[3] in ("-q", "-v", "--quiet", "--verbose")
            key = KEYS_FOR_OPTIONS.get(wrong[3] or "") if "key=value" in self.format_usage() else None
            hint = "; give it after the verb" if after_verb else f"; did you mean '{close[0]}'?" if close else ""
            message += hint
            message += f"; set {key}" if key else ""
        message = message.removesuffix(", key=value")
        super().error(printable(message))


COMPUTING = ("train", "tune", "benchmark", "evaluate", "baselines", "predict", "explain", "next", "profile")
"""These are the verbs whose speed depends on how threads wait for each other."""


@functools.cache
def make_parser() -> argparse.ArgumentParser:
    """Make the parser of all verbs with their options."""
    parser = Parser(
        prog="dglcell",
        description=fit("Train graph neural networks that predict what happens to a cell when genes are deleted."),
        epilog=fit(EPILOG),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"dglcell {__version__}")
    group = parser.add_subparsers(title="verbs", metavar="VERB")
    parser.set_defaults(run=lambda _: _print_help(parser))
    _add_init(group)
    _add_train(group)
    _add_tune(group)
    benchmark.add_options(_verb(group, "benchmark", benchmark.benchmark, benchmark.HELP, benchmark.EPILOG))
    _add_evaluate(group)
    _add_baselines(group)
    _add_predict(group)
    _add_explain(group)
    _add_next(group)
    _add_models(group)
    _add_report(group)
    _add_runs(group)
    _add_data(group)
    _add_graph(group)
    _add_config(group)
    _add_job(group)
    verbs.add_sync(_verb(group, "sync", verbs.sync, verbs.SYNC_HELP, verbs.SYNC_EPILOG))
    _add_profile(group)
    shell = _verb(group, "completion", completion, "print a script for tab completion in a shell", COMPLETION)
    shell.add_argument("shell", choices=("bash", "zsh", "tcsh"))
    _verb(group, "doctor", verbs.doctor, "check what works on this machine: versions, devices, kernels")
    return parser


def _print_help(parser: argparse.ArgumentParser) -> NoReturn:
    """Print the whole help and exit, where no verb was given."""
    parser.print_help(sys.stderr)
    parser.exit(2, f"\n{parser.prog}: error: a verb is required\n")


def fit(text: str, width: int = 80) -> str:
    """Wrap text into lines of at most ``width`` letters.

    Indented lines are commands or examples and stay as they are.
    """
    blocks = []
    for block in text.split("\n\n"):
        plain, lines = list[str](), list[str]()
        for line in [*block.split("\n"), " "]:
            if line and not line.startswith(" "):
                plain.append(line)
                continue
            lines += textwrap.wrap(" ".join(plain), width, break_on_hyphens=False)
            lines, plain = [*lines, line], []
        blocks.append("\n".join(lines[:-1]))
    return "\n\n".join(blocks)


def completion(options: argparse.Namespace) -> None:
    """Run ``dglcell completion``."""
    import shtab

    print(shtab.complete(make_parser(), options.shell))


def _verb(group: Group, name: str, run: Verb, text: str, more: str = "") -> argparse.ArgumentParser:
    parser = group.add_parser(
        name,
        help=text,
        description=fit(f"{text[0].upper()}{text[1:]}."),
        epilog=fit(more),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run, parser=parser, computes=name in COMPUTING)
    how_much = parser.add_mutually_exclusive_group()
    how_much.add_argument("-q", "--quiet", action="store_true", help="print only results, warnings and errors")
    how_much.add_argument("-v", "--verbose", action="store_true", help="print more messages")
    return parser


def _group(group: Group, name: str, text: str) -> Group:
    return group.add_parser(name, help=text).add_subparsers(title="verbs", metavar="VERB", required=True)


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run_directory",
        type=Path,
        metavar="RUN",
        help="run directory, as printed by `train`, or a trained model's name",
    )
    parser.add_argument(
        "--checkpoint",
        help="best_loss, best_pearson, best_average_precision, last, or a path (default: trainer.checkpoint)",
    )


def _add_configuration(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, metavar="FILE", help="experiment: a YAML file, or a name like quickstart")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="e.g. model.hidden=32 seed=1")
    add_raw(parser)


def _add_init(group: Group) -> None:
    parser = _verb(group, "init", inputs.init, "write the file of your own experiment", inputs.INIT_EPILOG)
    parser.add_argument("file", type=Path, metavar="NAME", help="name of the experiment; writes NAME.yaml")
    strains = parser.add_mutually_exclusive_group()
    strains.add_argument("--table", type=Path, metavar="FILE", help="table of strains (CSV or .xlsx), a row for each")
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
        "--average", action="store_true", help="rows of the same strain are replicates, however much they differ"
    )
    parser.add_argument("--write-clean", type=Path, metavar="FILE", help="write a copy without faults, and read that")
    parser.add_argument("--fetch", action="store_true", help="download missing files of the cell graph without asking")
    parser.add_argument("--force", action="store_true", help="replace NAME.yaml if it exists")
    add_raw(parser)


def _add_train(group: Group) -> None:
    parser = _verb(
        group,
        "train",
        verbs.train,
        "train an experiment, or continue it where it stopped",
        "The command builds the store if it does not exist. The run directory is RUNS/EXPERIMENT/seed-SEED. If it\n"
        "exists, the run continues from its last checkpoint. With resume=never this is an error, and resume=PATH\n"
        "starts from another checkpoint.",
    )
    verbs.add_train(parser)
    _add_configuration(parser)


def _add_tune(group: Group) -> None:
    parser = _verb(group, "tune", verbs.tune, verbs.TUNE_HELP, verbs.TUNE_EPILOG)
    _add_configuration(parser)
    parser.add_argument("--space", type=Path, metavar="FILE", required=True, help="YAML file of keys and their values")
    parser.add_argument("--trials", type=positive, default=20, metavar="N", help="number of trials (default: 20)")


def _add_evaluate(group: Group) -> None:
    parser = _verb(group, "evaluate", verbs.evaluate, verbs.EVALUATE_HELP, verbs.EVALUATE_EPILOG)
    _add_run(parser)
    verbs.add_evaluate(parser)


def _add_baselines(group: Group) -> None:
    parser = _verb(group, "baselines", verbs.baselines, verbs.BASELINES_HELP, verbs.BASELINES_EPILOG)
    _add_configuration(parser)
    verbs.add_baselines(parser)


def _add_predict(group: Group) -> None:
    parser = _verb(group, "predict", predict.predict, predict.HELP, predict.EPILOG)
    _add_run(parser)
    predict.add_options(parser)


def _add_explain(group: Group) -> None:
    parser = _verb(group, "explain", explain.explain, explain.HELP, explain.EPILOG)
    _add_run(parser)
    explain.add_options(parser)


def _add_next(group: Group) -> None:
    parser = _verb(group, "next", next_verb.choose, next_verb.HELP, next_verb.EPILOG)
    _add_run(parser)
    next_verb.add_options(parser)


def _add_models(group: Group) -> None:
    listing = _verb(group, "models", verbs.models, verbs.MODELS_HELP, verbs.MODELS_EPILOG)
    listing.add_argument("name", nargs="?", metavar="NAME", help="a model's name, or the path of its folder or file")
    verbs.add_export(_verb(group, "export", verbs.export, verbs.EXPORT_HELP, verbs.EXPORT_EPILOG))


def _add_report(group: Group) -> None:
    parser = _verb(
        group,
        "report",
        verbs.report,
        "write the report of a finished run, or compare several, on one HTML page",
        "For one run, it writes report.html, report.png and figures/ (PNG, SVG and CSV) into the run directory.\n"
        "With --output it writes only the page. For several runs, the page shows means and standard deviations over\n"
        "the runs of each experiment, and a CSV file next to it has these numbers. This needs no data and no GPU.",
    )
    parser.add_argument("run_directories", nargs="+", type=Path, metavar="RUN", help="run directory of a finished run")
    parser.add_argument(
        "--output",
        "-o",
        type=Path,
        metavar="FILE",
        help="page (default: RUN/report.html; for several: comparison.html)",
    )
    parser.add_argument("--open", action="store_true", help="open the page in a browser")


def _add_runs(group: Group) -> None:
    parser = _verb(group, "runs", verbs.runs, "list runs with their state, epochs and scores")
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs"), help="folder of runs (default: runs)")


def _add_data(group: Group) -> None:
    data = _group(group, "data", "build and inspect stores of strains")
    build = _verb(data, "build", inputs.data_build, "build the store of an experiment")
    _add_configuration(build)
    build.add_argument("--overwrite", action="store_true", help="build it again if it exists")
    for name, run, text in (
        ("stats", inputs.data_stats, "describe a store: phenotypes, deletions, genes, provenance"),
        ("verify", inputs.data_verify, "check every column of a store against its hash"),
    ):
        _verb(data, name, run, text).add_argument("store", type=Path, metavar="STORE")
    fetch = _verb(
        data,
        "fetch",
        inputs.data_fetch,
        "download published files into the raw folder, and check them",
        "--all downloads everything that an experiment reads: screens, networks, gene sets, models. Some tables are\n"
        "converted from the published files. A file that exists is only checked. A file is kept only if it is\n"
        "complete, with the right size and hash. If one download fails, the others continue. If no hash is\n"
        "published, the hash of the first download is recorded, and later downloads must have the same one.\n\n"
        "  dglcell data fetch --all conf/101-collins2007/set_operator_random.yaml\n"
        "  dglcell data fetch kuzmin2018 genes/essential_genes_reference.txt.gz",
    )
    fetch.add_argument("--all", type=Path, dest="config", metavar="FILE", help="experiment whose files to download")
    fetch.add_argument("--addresses", action="store_true", help="only print the addresses of the files")
    add_insecure(fetch)
    fetch.add_argument(
        "sources", nargs="*", metavar="NAME", help="screen in `dglcell data list`, or path of a published file"
    )
    fetch.set_defaults(overrides=[])
    add_raw(fetch)
    listing = _verb(data, "list", inputs.data_list, "list data sources, and the stores of a folder")
    listing.add_argument("folder", nargs="?", type=Path, default=Path("data"), help="folder of stores (default: data)")
    add_raw(listing)


def _add_graph(group: Group) -> None:
    graph = _group(group, "graph", "inspect cell graphs, networks and models")
    listing = _verb(graph, "list", inputs.graph_list, "list networks, gene sets and models of the catalogue")
    add_raw(listing)
    fetch = _verb(graph, "fetch", inputs.graph_fetch, inputs.GRAPH_FETCH_HELP, inputs.GRAPH_FETCH_EPILOG)
    _add_configuration(fetch)
    fetch.add_argument("--addresses", action="store_true", help="only print the addresses of the files")
    add_insecure(fetch)
    parser = _verb(graph, "describe", inputs.graph_describe, "describe the cell graph of an experiment or a run")
    parser.add_argument("config", type=Path, metavar="FILE|RUN", help="experiment, run directory or trained model")
    parser.add_argument(
        "overrides", nargs="*", metavar="key=value", help="keys of an experiment, e.g. cell.metabolism=false"
    )
    add_raw(parser)
    parser.add_argument("--names", action="store_true", help="also print all gene names")


def _add_config(group: Group) -> None:
    config = _group(group, "config", "show and check experiments")
    _add_configuration(_verb(config, "show", inputs.config_show, "print an experiment with all defaults"))
    _verb(config, "list", inputs.config_list, "list the experiments that have names")
    _add_configuration(_verb(config, "validate", inputs.config_validate, "check an experiment without running it"))


def _add_job(group: Group) -> None:
    jobs = _group(group, "job", "run an experiment as a SLURM job")
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
        else:
            parser.add_argument("--pipeline", action="store_true", help=job.PIPELINE_HELP)
        if name == "submit":
            job.add_dry_run(parser)
    here = _verb(jobs, "run", job.run, "run on this machine what the job script would run", job.RUN_EPILOG)
    _add_configuration(here)
    job.add_sweep(here)
    here.add_argument("--local", action="store_true", required=True, help="without SLURM, which `job submit` is for")
    job.add_dry_run(here)
    status = _verb(jobs, "status", job.status, "show the jobs of an experiment, or all of yours")
    status.add_argument("config", type=Path, nargs="?", metavar="FILE", help="experiment")
    status.set_defaults(overrides=[], raw=None)
    for name, run, text in (
        ("retry", job.retry, "submit again what has not finished of an experiment's jobs"),
        ("cancel", job.cancel, "cancel the queued and running jobs of an experiment"),
        ("logs", job.logs, "print the end of the newest output of an experiment's jobs"),
    ):
        parser = _verb(jobs, name, run, text)
        _add_configuration(parser)
        if name != "logs":
            job.add_dry_run(parser)
    parser.add_argument("--lines", "-n", type=positive, default=20, metavar="N", help="how many (default: 20)")
    parser.add_argument("--all", action="store_true", help="of all its output files, not of the newest only")


def _add_profile(group: Group) -> None:
    parser = _verb(group, "profile", verbs.profile, verbs.PROFILE_HELP, verbs.PROFILE_EPILOG)
    _add_configuration(parser)
    verbs.add_profile(parser)
    verbs.add_compare(_verb(group, "compare", verbs.compare, verbs.COMPARE_HELP, verbs.COMPARE_EPILOG))

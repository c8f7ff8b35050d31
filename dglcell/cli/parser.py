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
from dglcell.cli import check, explain, inputs, job, predict, verbs
from dglcell.cli.arguments import add_configuration, add_raw, add_run
from dglcell.errors import printable, word_of_today

if TYPE_CHECKING:
    Group = argparse._SubParsersAction["Parser"]

Verb = Callable[[argparse.Namespace], int | None]
"""A verb may return an exit status of its own."""

EPILOG = """\
first steps:
  dglcell doctor                           check what works on this machine
  dglcell predict ecoli-core new.csv       use a trained model of this package
  dglcell train quickstart                 compute a screen, train, report
  dglcell train quickstart model.hidden=64 trainer.epochs=30
  dglcell evaluate runs/quickstart/seed-0  print the table of results again
  dglcell baselines conf/quickstart.yaml   fit only the baselines
  dglcell check runs/quickstart/seed-0     compare its predictions with DGL
  dglcell predict runs/quickstart/seed-0 genotypes.csv --output predictions.csv
  dglcell explain runs/quickstart/seed-0 "b0008 b2464"
  dglcell report runs/*/seed-*             compare several runs on one page

You can set every key of a configuration as key=value. `dglcell config show FILE` prints all of them.
"""


def _shard(text: str) -> tuple[int, int]:
    """Read ``2/8``, the second of eight shards, as (1, 8); jobs of a SLURM array can count from 1."""
    number, _, of = text.partition("/")
    if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise argparse.ArgumentTypeError(f"'{text}' is no shard: expected I/N with I from 1 to N, such as 1/8")
    return int(number) - 1, int(of)


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
        message = message.removesuffix(", key=value")
        wrong = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)|unrecognized arguments: (--?[\w-]+)", message)
        if wrong:
            known = re.findall(r"[\w-]+", wrong[2]) if wrong[2] else [*self._option_string_actions]
            close = difflib.get_close_matches(word_of_today(wrong[1] or wrong[3]), known, n=1)
            hint = f"; did you mean '{close[0]}'?" if close else ""
            if wrong[2] and "VERB" in message:
                # The nearest verb and the place where verbs are described replace argparse's list of all verbs.
                message = f"no verb is called '{wrong[1]}'{hint or ';'} `{self.prog} --help` lists them"
            else:
                after_verb = wrong[3] in ("-q", "-v", "--quiet", "--verbose")
                key = KEYS_FOR_OPTIONS.get(wrong[3] or "") if "key=value" in self.format_usage() else None
                message += "; give it after the verb" if after_verb else hint
                message += f"; set {key}" if key else ""
        super().error(printable(message))


COMPUTING = ("train", "tune", "evaluate", "baselines", "predict", "explain", "check")
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
    _verb(group, "init", inputs.init, inputs.INIT_HELP, inputs.INIT_EPILOG, inputs.add_init)
    _verb(group, "train", verbs.train, verbs.TRAIN_HELP, verbs.TRAIN_EPILOG, verbs.add_train, add_configuration)
    _verb(group, "tune", verbs.tune, verbs.TUNE_HELP, verbs.TUNE_EPILOG, add_configuration, verbs.add_tune)
    _verb(group, "evaluate", verbs.evaluate, verbs.EVALUATE_HELP, verbs.EVALUATE_EPILOG, add_run, verbs.add_evaluate)
    more = verbs.BASELINES_EPILOG
    _verb(group, "baselines", verbs.baselines, verbs.BASELINES_HELP, more, add_configuration, verbs.add_baselines)
    _verb(group, "predict", predict.predict, predict.HELP, predict.EPILOG, predict.add_options)
    _verb(group, "explain", explain.explain, explain.HELP, explain.EPILOG, explain.add_options)
    _verb(group, "check", check.check, check.HELP, check.EPILOG, check.add_options)
    _verb(group, "models", verbs.models, verbs.MODELS_HELP, verbs.MODELS_EPILOG, verbs.add_models)
    _verb(group, "report", verbs.report, verbs.REPORT_HELP, verbs.REPORT_EPILOG, verbs.add_report)
    _verb(group, "runs", verbs.runs, "list runs with their state, epochs and scores", "", verbs.add_runs)
    _add_data(group)
    _add_graph(group)
    _add_config(group)
    _add_job(group)
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


def _verb(
    group: Group, name: str, run: Verb, text: str, more: str = "", *adds: Callable[[argparse.ArgumentParser], None]
) -> argparse.ArgumentParser:
    """Add a verb with its function, help and epilog, and what ``adds`` add to its parser."""
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
    for add in adds:
        add(parser)
    return parser


def _group(group: Group, name: str, text: str) -> Group:
    return group.add_parser(name, help=text).add_subparsers(title="verbs", metavar="VERB", required=True)


def _add_data(group: Group) -> None:
    data = _group(group, "data", "build and inspect stores of strains")
    build = _verb(data, "build", inputs.data_build, "build the store of an experiment")
    add_configuration(build)
    build.add_argument("--overwrite", action="store_true", help="build it again if it exists")
    build.add_argument("--shard", type=_shard, metavar="I/N", help="compute only part I of N of `data.fba`, no store")
    stats = _verb(data, "stats", inputs.data_stats, "describe a store: phenotypes, deletions, genes, provenance")
    stats.add_argument("store", type=Path, metavar="STORE")
    stats.add_argument("--verify", action="store_true", help="only check every column of it against its hash")
    text = "download published files into the raw folder, and check them"
    fetch = _verb(data, "fetch", inputs.data_fetch, text, inputs.FETCH_EPILOG)
    fetch.add_argument("--all", type=Path, dest="config", metavar="FILE", help="experiment whose files to download")
    fetch.add_argument("--addresses", action="store_true", help="only print the addresses of the files")
    name = "screen in `dglcell data list`, or path of a published file"
    fetch.add_argument("sources", nargs="*", metavar="NAME", help=name)
    fetch.set_defaults(overrides=[])
    add_raw(fetch)
    add_raw(_verb(data, "list", inputs.data_list, "list screens, networks, gene sets and metabolic models by name"))


def _add_graph(group: Group) -> None:
    graph = _group(group, "graph", "inspect cell graphs, networks and models")
    parser = _verb(graph, "describe", inputs.graph_describe, "describe the cell graph of an experiment or a run")
    parser.add_argument("config", type=Path, metavar="FILE|RUN", help="experiment, run directory or trained model")
    keys = "keys of an experiment, e.g. cell.metabolism=false"
    parser.add_argument("overrides", nargs="*", metavar="key=value", help=keys)
    add_raw(parser)
    parser.add_argument("--names", action="store_true", help="also print all gene names")


def _add_config(group: Group) -> None:
    config = _group(group, "config", "show and check experiments")
    text = "print an experiment with all defaults, or list the experiments that have names"
    show = _verb(config, "show", inputs.config_show, text)
    add_configuration(show, optional=True)
    _verb(config, "validate", inputs.config_validate, "check an experiment without running it", "", add_configuration)


def _add_job(group: Group) -> None:
    jobs = _group(group, "job", "run an experiment as a SLURM job")
    render = _verb(jobs, "render", job.render, "print the batch script of an experiment", job.EPILOG)
    submit = _verb(jobs, "submit", job.submit, "ask SLURM whether it would take a job, then submit it", job.EPILOG)
    for parser in (render, submit):
        add_configuration(parser)
        job.add_sweep(parser)
    job.add_output(render)
    submit.add_argument("--pipeline", action="store_true", help=job.PIPELINE_HELP)
    submit.add_argument("--dry-run", action="store_true", help="only print what would be submitted")

"""Define the grammar of the command line: the parser of all verbs, their help, and suggestions for what is mistyped."""

from __future__ import annotations

import argparse
import difflib
import functools
import re
import sys
import textwrap
from typing import TYPE_CHECKING, NoReturn

from dglcell import __version__
from dglcell.cli import check, inputs, job, predict, verbs
from dglcell.cli.arguments import HOW_MUCH, Verb
from dglcell.errors import printable, word_of_today

if TYPE_CHECKING:
    Group = argparse._SubParsersAction["Parser"]

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

VERBS: tuple[Verb, ...] = (
    *(inputs.init, verbs.train, verbs.tune, verbs.evaluate, verbs.baselines, predict.predict, predict.explain),
    *(check.check, verbs.models, verbs.report, verbs.runs),
    *(inputs.data_build, inputs.data_stats, inputs.data_fetch, inputs.data_list, inputs.graph_describe),
    *(inputs.config_show, inputs.config_validate, job.render, job.submit, verbs.doctor),
)
"""All verbs, in the order in which the help has them."""

GROUPS = {
    "data": "build and inspect stores of strains",
    "graph": "inspect cell graphs, networks and models",
    "config": "show and check experiments",
    "job": "run an experiment as a SLURM job",
}

KEYS_FOR_OPTIONS = {
    **dict.fromkeys(("--gpu", "--cuda", "--device"), "trainer.accelerator=gpu"),
    "--gpus": "trainer.accelerator=gpu trainer.devices=N",
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
    groups: dict[str, Group] = {"": group}
    for verb in VERBS:
        above, _, name = verb.name.rpartition(" ")
        if above not in groups:
            below = group.add_parser(above, help=GROUPS[above])
            groups[above] = below.add_subparsers(title="verbs", metavar="VERB", required=True)
        _add(groups[above], name, verb)
    return parser


def _add(group: Group, name: str, verb: Verb) -> None:
    text, more = verb.help
    parser = group.add_parser(
        name,
        help=text[0].lower() + text[1:],
        description=fit(f"{text}."),
        epilog=fit(more),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=verb.run, parser=parser)
    for add in (HOW_MUCH, *verb.arguments):
        add(parser)


def _print_help(parser: argparse.ArgumentParser) -> NoReturn:
    """Print the whole help and exit, where no verb was given."""
    parser.print_help(sys.stderr)
    parser.exit(2, f"\n{parser.prog}: error: a verb is required\n")


def fit(text: str, width: int = 80) -> str:
    """Wrap text into lines of at most ``width`` letters; indented lines are commands or examples and stay."""
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

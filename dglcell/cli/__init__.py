"""Run the command line: parse the arguments, call the verb, print results and errors."""

from __future__ import annotations

import argparse
import errno
import functools
import io
import logging
import os
import re
import shlex
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from dglcell import __version__
from dglcell.cli import check, job, predict, verbs
from dglcell.cli.arguments import HOW_MUCH, Verb
from dglcell.errors import CLEAR_LINE, DglcellError, StoppedError, closest, printable, shorten
from dglcell.machine import is_out_of_memory, keep_freed_memory
from dglcell.training.signals import is_rank_zero

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
    *(verbs.init, verbs.train, verbs.tune, verbs.evaluate, verbs.baselines, predict.predict, predict.explain),
    *(check.check, verbs.models, verbs.report, verbs.runs),
    *(verbs.data_build, verbs.data_stats, verbs.data_fetch, verbs.data_list, verbs.graph_describe),
    *(verbs.config_show, verbs.config_validate, job.render, job.submit, check.doctor),
)
"""All verbs, in the order in which the help has them."""

GROUPS = {
    "data": "build and inspect stores of strains; list and fetch published data",
    "graph": "describe cell graphs",
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

TEMPORARY = re.compile(r"\.([^/\n]+?)\.partial-[0-9a-f]{10}-[0-9]+-[0-9]+-[0-9a-f]{8}")

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

REMEDIES = dict.fromkeys(FULL, "make room, or choose another disk")
REMEDIES |= dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "choose a place that you may read and write")


class Parser(argparse.ArgumentParser):
    """This parser of argparse suggests verbs and options that are close to what was typed."""

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and exit with status 2."""
        message = message.removesuffix(", key=value")
        wrong = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)|unrecognized arguments: (--?[\w-]+)", message)
        if wrong:
            known = re.findall(r"[\w-]+", wrong[2]) if wrong[2] else [*self._option_string_actions]
            close = closest(wrong[1] or wrong[3], known)[:1]
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

    def texts(description: str, more: str) -> dict[str, Any]:
        plain = argparse.RawDescriptionHelpFormatter
        return {"description": _fit(description), "epilog": _fit(more), "formatter_class": plain}

    about = "Train graph neural networks that predict what happens to a cell when genes are deleted."
    parser = Parser(prog="dglcell", **texts(about, EPILOG))
    parser.add_argument("--version", action="version", version=f"dglcell {__version__}")
    groups = {"": parser.add_subparsers(title="verbs", metavar="VERB")}
    parser.set_defaults(run=lambda _: _print_help(parser))
    for verb in VERBS:
        above, _, name = verb.name.rpartition(" ")
        if above not in groups:
            below = groups[""].add_parser(above, help=GROUPS[above])
            groups[above] = below.add_subparsers(title="verbs", metavar="VERB", required=True)
        text, more = verb.help
        own = groups[above].add_parser(name, help=text[0].lower() + text[1:], **texts(f"{text}.", more))
        own.set_defaults(run=verb.run, parser=own)
        for add in (HOW_MUCH, *verb.arguments):
            add(own)
    return parser


def _print_help(parser: argparse.ArgumentParser) -> NoReturn:
    """Print the whole help and exit, where no verb was given."""
    parser.print_help(sys.stderr)
    parser.exit(2, f"\n{parser.prog}: error: a verb is required\n")


def _fit(text: str) -> str:
    """Wrap text into lines of at most 80 letters; indented lines are commands or examples and stay."""
    blocks = []
    for block in text.split("\n\n"):
        plain, lines = list[str](), list[str]()
        for line in [*block.split("\n"), " "]:
            if line and not line.startswith(" "):
                plain.append(line)
                continue
            lines += textwrap.wrap(" ".join(plain), 80, break_on_hyphens=False)
            lines, plain = [*lines, line], []
        blocks.append("\n".join(lines[:-1]))
    return "\n\n".join(blocks)


class _Printable(logging.Formatter):
    """Messages may quote files of strangers, whose escape codes would control the terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return _cleared(printable(super().format(record)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command of ``dglcell``: parse its words and call the function of its verb.

    Args:
        arguments: the words of the command line; those of the process where None.

    Returns:
        0, a status that the verb gives, or an error's status, 2 mostly, where the user can mend what went wrong
        (message on stderr, no traceback). Bugs keep their traceback.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            # A shell has closed it. A file that is opened later would get its number, and what is printed would go
            # into it.
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "r" if name == "stdin" else "w"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Printed text has characters that the locale may lack. Python escapes them by itself only on standard error.
        sys.stdout.reconfigure(errors="backslashreplace")
    options = _parsed(make_parser(), arguments)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Printable("%(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    quiet, verbose = (getattr(options, name, False) for name in ("quiet", "verbose"))
    logging.getLogger("dglcell").setLevel(logging.WARNING if quiet else logging.DEBUG if verbose else logging.INFO)
    keep_freed_memory()
    try:
        status = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader closed the pipe, e.g. `| head`. The null device takes what Python flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except StoppedError as stop:
        if is_rank_zero():
            print("queued again" if stop.requeued else "stopped; the same command goes on from here", file=sys.stderr)
        # A launcher kills all processes when one of them fails, so only the first one returns a status.
        return 0 if stop.requeued or not is_rank_zero() else 128 + stop.signal
    except DglcellError as error:
        return _say(str(error), error.status)
    except OSError as error:
        # Files and folders that cannot be read or written are the user's to mend; anything else is a bug.
        if error.filename is None:
            if error.errno in FULL:
                return _say_full(error)
            raise
        # Where renaming a temporary file failed, its target is named.
        remedy = f"\n  do:       {REMEDIES[error.errno]}" if error.errno in REMEDIES else ""
        return _say(f"'{shorten(str(error.filename2 or error.filename))}': {error.strerror}{remedy}")
    except (MemoryError, RuntimeError, ImportError) as error:
        if not is_out_of_memory(error):
            raise
        remedy = "take a machine or a job with more, or a smaller model, batch or table"
        return _say(f"memory is not enough: {error or 'an allocation failed'}\n  do:       {remedy}")
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return status or 0


def _parsed(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line; ``command`` of the result is the line itself, without secrets."""
    options, rest = parser.parse_known_args(arguments)
    # argparse takes positional arguments from one place only, but a table and overrides may also stand behind options.
    if len(rest) == 1 and rest[0][:1] != "-" and getattr(options, "genotypes", "") is None:
        options.genotypes = Path(rest.pop())
    if rest and not (hasattr(options, "overrides") and all("=" in word and word[0] != "-" for word in rest)):
        getattr(options, "parser", parser).error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        options.overrides = [*options.overrides, *rest]
    words = list(sys.argv[1:] if arguments is None else arguments)
    if any(word.startswith("slurm") for word in words):
        from dglcell.config.read import hide_override

        words = [hide_override(word) for word in words]
    if arguments is None:
        sys.argv[1:] = words  # W&B records it
    options.command = shlex.join([*parser.prog.split(), *words])
    return options


def _say(text: str, status: int = 2) -> int:
    text = TEMPORARY.sub(r"\1", text)  # of a file that is written under a temporary name
    print(_cleared(f"error: {printable(text)}"), file=sys.stderr)
    return status


def _cleared(text: str) -> str:
    return f"{CLEAR_LINE}{text}" if sys.stderr.isatty() else text


def _say_full(error: OSError) -> int:
    """Report that a write found no room; Python does not say in which file."""
    try:
        sys.stdout.flush()
    except OSError:
        # Standard output itself is full; Python would try to flush it once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return _say(f"a file cannot be written: {error.strerror}\n  do:       make room in the working folder or in /tmp")

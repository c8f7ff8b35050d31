"""Declare verbs, and the arguments that several of them share."""

from __future__ import annotations

import argparse
import inspect
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from dglcell.errors import ConfigError, shorten

if TYPE_CHECKING:
    from dglcell.config.experiment import Config

Add = Callable[[argparse._ActionsContainer], object]
"""This adds an argument to a parser."""


class Verb(NamedTuple):
    """A verb of the command line calls a function with the parsed options.

    Its docstring is its help: the first line, and behind it what stands below the options.
    """

    name: str
    run: Callable[[argparse.Namespace], int | None]  #: it may return an exit status of its own
    arguments: tuple[Add, ...]

    @property
    def help(self) -> tuple[str, str]:
        """Return the first line of the help without its full stop, and the text below the options."""
        first, _, more = (inspect.getdoc(self.run) or "").partition("\n\n")
        return first.removesuffix("."), more


def verb(name: str, *arguments: Add) -> Callable[[Callable[[argparse.Namespace], int | None]], Verb]:
    """Declare the function below as a verb with these arguments."""
    return lambda run: Verb(name, run, arguments)


def argument(*names: str, **how: Any) -> Add:
    """Declare an argument, as ``add_argument`` of argparse takes it."""
    return lambda parser: parser.add_argument(*names, **how)


def either(*ways: Add) -> Add:
    """Declare arguments of which only one may be given."""

    def add(parser: argparse._ActionsContainer) -> None:
        group = parser.add_mutually_exclusive_group()
        for way in ways:
            way(group)

    return add


def load(options: argparse.Namespace, *, look: bool = False) -> Config:
    """Read the experiment that FILE and its overrides give; with ``look`` no own class is imported."""
    from dglcell.config.read import experiment_file, load_config

    return load_config(experiment_file(options.config), options.overrides, look=look)


def natural(text: str, least: int = 0) -> int:
    """Parse an integer of ``least`` or more that fits into 64 bits."""
    if not (re.fullmatch("[0-9]{1,18}", text) and int(text) >= least):
        raise argparse.ArgumentTypeError(f"'{shorten(text, 40)}' is not a number of {least} or more")
    return int(text)


def positive(text: str) -> int:
    """Parse an integer of 1 or more, as `natural` does."""
    return natural(text, 1)


def pair(text: str, form: str = "NAME=VALUE") -> tuple[str, str]:
    """Parse ``NAME=VALUE`` into the pair of both."""
    name, _, value = text.partition("=")
    if not name or not value:
        raise argparse.ArgumentTypeError(f"'{shorten(text, 40)}' is not {form}")
    return name, value


def overrides(text: str = "e.g. model.hidden=32 seed=1") -> Add:
    """Declare keys of an experiment."""
    return argument("overrides", nargs="*", metavar="key=value", help=text)


FILE_HELP = "experiment: a YAML file, or a name like quickstart"
CONFIGURATION = argument("config", type=Path, metavar="FILE", help=FILE_HELP), overrides()
"""These are the file of an experiment, and its overrides."""

_RUN = "run directory, as printed by `train`, or a trained model's name"
_CHECKPOINT = "best_loss, best_pearson, best_average_precision, last, or a path (default: trainer.checkpoint)"
RUN = argument("run_directory", type=Path, metavar="RUN", help=_RUN), argument("--checkpoint", help=_CHECKPOINT)

_SEEN = "a covariate of all strains, e.g. medium=glycerol; may be repeated"
READING = (
    argument("--covariate", type=pair, action="append", default=[], metavar="NAME=VALUE", help=_SEEN),
    argument("--columns", nargs="+", default=[], metavar="COLUMN", help="columns of genes, if not gene_1, … or genes"),
    argument("--aliases", metavar="FILE", help="table of other names of genes (default: as in training)"),
)
"""These say how a table of strains is read."""

HOW_MUCH = either(
    argument("-q", "--quiet", action="store_true", help="print only results, warnings and errors"),
    argument("-v", "--verbose", action="store_true", help="print more messages"),
)
DEVICE = argument("--device", default="cpu", help="cpu or cuda (default: cpu)")
OVERWRITE = argument("--overwrite", "--force", action="store_true", help="replace an output that exists")


def reporter(options: argparse.Namespace, *words: str, file: TextIO | None = None) -> Callable[[str], None]:
    """Return a function that prints progress lines, each behind ``words``; with ``--quiet`` it prints none."""
    return (lambda line: None) if options.quiet else partial(print, *words, flush=True, file=file)


def check_outputs(options: argparse.Namespace, *outputs: Path | None, folders: bool = False) -> None:
    """Refuse outputs that exist, before anything is computed: somebody may have filled in measurements since.

    ``options`` have ``--overwrite`` and all inputs; outputs are None where not asked for, and may be ``folders``.
    """
    named = [of for name, of in vars(options).items() if name not in ("output", "write_clean", "file")]
    given = [one for of in named for one in (of if isinstance(of, list) else [of])]
    paths = [Path(one) for one in given if isinstance(one, str | Path)]
    inputs = {os.path.join(os.path.realpath(path.parent), path.name) for path in paths}  # an output replaces a link
    inputs |= {os.path.realpath(path) for path in paths}
    for output in (one for one in outputs if one is not None and os.path.lexists(one)):
        if os.path.join(os.path.realpath(output.parent), output.name) in inputs:
            raise ConfigError(f"'{output}' is an input; nothing was written", do="name another file")
        if output.is_dir() and not folders:
            raise ConfigError(f"'{output}' is a folder; nothing was written", expected="a file", do="name another file")
        if not options.overwrite:
            do = "name another file, or replace it: `--overwrite`"
            raise ConfigError(f"'{output}' exists already; nothing was written", do=do)

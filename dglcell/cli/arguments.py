"""Add and parse arguments that several verbs share."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from dglcell.errors import shorten

if TYPE_CHECKING:
    from dglcell.config.experiment import Config


DIGITS = re.compile(r"[0-9]{1,18}")
"""This pattern matches numbers that fit into 64 bits."""


def add_raw(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--raw``."""
    parser.add_argument(
        "--raw", metavar="DIR", help="folder of raw files (default: $DGLCELL_RAW, else ~/.cache/dglcell/raw)"
    )


def reporter(options: argparse.Namespace, *words: str) -> Callable[[str], None]:
    """Return a function that prints progress lines, each behind ``words``; with ``--quiet`` it prints none."""
    return (lambda line: None) if options.quiet else partial(print, *words, flush=True)


def add_insecure(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--insecure``."""
    parser.add_argument(
        "--insecure", action="store_true", help="also download files over plain http that have no published hash"
    )


def load(options: argparse.Namespace) -> Config:
    """Read the experiment that FILE, its overrides and ``--raw`` give."""
    from dglcell.config.read import experiment_file, load_config

    raw = [f"paths.raw={options.raw}"] if options.raw else []
    return load_config(experiment_file(options.config), [*options.overrides, *raw])


def positive(text: str) -> int:
    """Parse an integer of 1 or more.

    Raises:
        argparse.ArgumentTypeError: the text is no such integer.
    """
    if not (DIGITS.fullmatch(text) and int(text) > 0):
        raise argparse.ArgumentTypeError(f"'{shorten(text, 40)}' is not a number of 1 or more")
    return int(text)


def natural(text: str) -> int:
    """Parse an integer of 0 or more.

    Raises:
        argparse.ArgumentTypeError: the text is no such integer.
    """
    if not DIGITS.fullmatch(text):
        raise argparse.ArgumentTypeError(f"'{shorten(text, 40)}' is not a number of 0 or more")
    return int(text)


def phenotype_pair(text: str) -> tuple[str, str]:
    """Parse ``A=B`` into the pair of A and B.

    Raises:
        argparse.ArgumentTypeError: A or B is missing.
    """
    first, _, second = text.partition("=")
    if not first or not second:
        raise argparse.ArgumentTypeError(f"'{shorten(text, 40)}' is not MODEL_PHENOTYPE=MEASURED_PHENOTYPE")
    return first, second


def strengths(text: str) -> tuple[float, ...]:
    """Parse numbers with commas between them, e.g. ``0.1,0.3``.

    Raises:
        argparse.ArgumentTypeError: a part of the text is no number.
    """
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{shorten(text, 40)}' is not numbers such as 0.1,0.3,0.5") from None


def condition(text: str) -> tuple[str, str]:
    """Parse ``NAME=VALUE`` into the pair of both.

    Raises:
        argparse.ArgumentTypeError: the name or the value is missing.
    """
    name, _, value = text.partition("=")
    if not name or not value:
        raise argparse.ArgumentTypeError(f"'{shorten(text, 40)}' is not NAME=VALUE")
    return name, value

"""Add and parse arguments that several verbs share."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from dglcell.errors import ConfigError, shorten

if TYPE_CHECKING:
    from dglcell.config.experiment import Config


DIGITS = re.compile(r"[0-9]{1,18}")
"""This pattern matches numbers that fit into 64 bits."""


def keys_of(options: argparse.Namespace) -> list[str]:
    """Return the overrides of an experiment, with ``--raw`` as one of them."""
    return [*options.overrides, *([f"paths.raw={options.raw}"] if options.raw else [])]


def load(options: argparse.Namespace, *, look: bool = False) -> Config:
    """Read the experiment that FILE, its overrides and ``--raw`` give; with ``look`` no own class is imported."""
    from dglcell.config.read import experiment_file, load_config

    return load_config(experiment_file(options.config), keys_of(options), look=look)


def natural(text: str, least: int = 0) -> int:
    """Parse an integer of ``least`` or more."""
    if not (DIGITS.fullmatch(text) and int(text) >= least):
        raise argparse.ArgumentTypeError(f"'{shorten(text, 40)}' is not a number of {least} or more")
    return int(text)


def positive(text: str) -> int:
    """Parse an integer of 1 or more, as `natural` does."""
    return natural(text, 1)


def covariate(text: str, form: str = "NAME=VALUE") -> tuple[str, str]:
    """Parse ``NAME=VALUE`` into the pair of both."""
    name, _, value = text.partition("=")
    if not name or not value:
        raise argparse.ArgumentTypeError(f"'{shorten(text, 40)}' is not {form}")
    return name, value


def phenotype_pair(text: str) -> tuple[str, str]:
    """Parse two phenotypes, as `covariate` parses a name and its value."""
    return covariate(text, "MODEL_PHENOTYPE=MEASURED_PHENOTYPE")


def activities(text: str) -> tuple[float, ...]:
    """Parse numbers with commas between them, e.g. ``0.1,0.3``."""
    if re.fullmatch(r"0,[0-9]{1,18}", text):
        point, two = text.replace(",", "."), f"0.0{text[1:]}"
        raise argparse.ArgumentTypeError(f"'{text}' has a decimal comma: write {point}, or {two} for two activities")
    try:
        if "_" in text:
            raise ValueError
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{shorten(text, 40)}' is not numbers such as 0.1,0.3,0.5") from None


def add_configuration(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """Add the file of an experiment, which may be optional, its overrides, and ``--raw``."""
    text, number = "experiment: a YAML file, or a name like quickstart", "?" if optional else None
    parser.add_argument("config", type=Path, nargs=number, metavar="FILE", help=text)
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="e.g. model.hidden=32 seed=1")
    add_raw(parser)


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add the run directory, and ``--checkpoint``."""
    run = "run directory, as printed by `train`, or a trained model's name"
    parser.add_argument("run_directory", type=Path, metavar="RUN", help=run)
    checkpoint = "best_loss, best_pearson, best_average_precision, last, or a path (default: trainer.checkpoint)"
    parser.add_argument("--checkpoint", help=checkpoint)


def add_raw(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--raw``."""
    folder = "folder of raw files (default: $DGLCELL_RAW, else ~/.cache/dglcell/raw)"
    parser.add_argument("--raw", metavar="DIR", help=folder)


def add_reading(parser: argparse.ArgumentParser) -> None:
    """Add the options for how a table of strains is read."""
    add, seen = parser.add_argument, "a covariate of all strains, e.g. medium=glycerol; may be repeated"
    add("--covariate", type=covariate, action="append", default=[], metavar="NAME=VALUE", help=seen)
    add("--columns", nargs="+", default=[], metavar="COLUMN", help="columns of genes, if not gene_1, … or genes")
    add("--aliases", metavar="FILE", help="table of other names of genes (default: as in training)")


def add_device(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--device``."""
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: cpu)")


def reporter(options: argparse.Namespace, *words: str, file: TextIO | None = None) -> Callable[[str], None]:
    """Return a function that prints progress lines, each behind ``words``; with ``--quiet`` it prints none."""
    return (lambda line: None) if options.quiet else partial(print, *words, flush=True, file=file)


def add_overwrite(parser: argparse._ActionsContainer) -> None:
    """Add the option ``--overwrite``."""
    parser.add_argument("--overwrite", "--force", action="store_true", help="replace an output that exists")


def check_outputs(options: argparse.Namespace, *outputs: Path | None, folders: bool = False) -> None:
    """Refuse outputs that exist, before anything is computed.

    What a file is cannot be told from its content: a table of predictions may have measurements filled in since.

    Args:
        options: as `add_overwrite` adds them.
        outputs: all that the command is to write; None for those that are not asked for.
        folders: whether they may be folders.
    """
    for output in outputs:
        if output is None or not os.path.lexists(output):
            continue
        if output.is_dir() and not folders:
            raise ConfigError(f"'{output}' is a folder; nothing was written", expected="a file", do="name another file")
        if not options.overwrite:
            do = "name another file, or replace it: `--overwrite`"
            raise ConfigError(f"'{output}' exists already; nothing was written", do=do)

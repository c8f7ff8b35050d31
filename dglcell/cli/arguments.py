"""Arguments that several verbs share."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from dglcell.errors import CheckpointError, did_you_mean, shorten

if TYPE_CHECKING:
    from dglcell.config import Config


DIGITS = re.compile(r"[0-9]{1,18}")
"""A number that 64 bits hold."""


def add_raw(parser: argparse.ArgumentParser) -> None:
    """``--raw``."""
    parser.add_argument(
        "--raw", metavar="DIR", help="folder of raw files (default: $DGLCELL_RAW, else ~/.cache/dglcell/raw)"
    )


def add_insecure(parser: argparse.ArgumentParser) -> None:
    """``--insecure``."""
    parser.add_argument(
        "--insecure", action="store_true", help="also download files over plain http that have no published hash"
    )


def load(options: argparse.Namespace) -> Config:
    """The experiment that FILE, its overrides and ``--raw`` make."""
    from dglcell.config_io import experiment_file, load_config

    raw = [f"paths.raw={options.raw}"] if options.raw else []
    return load_config(experiment_file(options.config), [*options.overrides, *raw])


def find_run(path: Path, folder: Path = Path("runs")) -> Path:
    """The directory of a run or an experiment, before anything is imported that takes seconds.

    Args:
        path: as it was given.
        folder: of runs, in which close names are looked for.

    Raises:
        CheckpointError: it is not there.
    """
    if path.exists():
        return path
    seeds = sorted((folder / path).glob("seed-*"))[:1]
    if seeds:
        do: str | None = f"did you mean {seeds[0]}?"
    else:
        there = [run.as_posix() for run in [*folder.glob("*"), *folder.glob("*/seed-*")]]
        otherwise = "give the path that `train` printed; `dglcell runs` lists runs"
        do = did_you_mean(path.as_posix(), there, None) or did_you_mean((folder / path).as_posix(), there, otherwise)
    raise CheckpointError(f"run directory '{path}' not found", do=do)


def positive(text: str) -> int:
    """An integer of 1 or more.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    if not (DIGITS.fullmatch(text) and int(text) > 0):
        raise argparse.ArgumentTypeError(f"'{shorten(text, 40)}' is not a number of 1 or more")
    return int(text)


def natural(text: str) -> int:
    """An integer of 0 or more.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    if not DIGITS.fullmatch(text):
        raise argparse.ArgumentTypeError(f"'{shorten(text, 40)}' is not a number of 0 or more")
    return int(text)


def phenotype_pair(text: str) -> tuple[str, str]:
    """``A=B``.

    Raises:
        argparse.ArgumentTypeError: one of them is missing.
    """
    first, _, second = text.partition("=")
    if not first or not second:
        raise argparse.ArgumentTypeError(f"'{shorten(text, 40)}' is not MODEL_PHENOTYPE=MEASURED_PHENOTYPE")
    return first, second

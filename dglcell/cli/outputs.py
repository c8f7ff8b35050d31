"""Refuse to replace what exists, unless the user says so."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from dglcell.errors import ConfigError


def add_overwrite(parser: argparse._ActionsContainer) -> None:
    """Add the option ``--overwrite``."""
    parser.add_argument("--overwrite", action="store_true", help="replace an output that exists")


def check_outputs(options: argparse.Namespace, *outputs: Path | None, folders: bool = False) -> None:
    """Refuse outputs that exist, before anything is computed.

    What a file is cannot be told from its content: a table of predictions may have measurements filled in since.

    Args:
        options: as `add_overwrite` adds them.
        outputs: all that the command is to write; None for those that are not asked for.
        folders: whether they may be folders.

    Raises:
        ConfigError: one exists and ``--overwrite`` is not given, or it is a folder.
    """
    for output in outputs:
        if output is None or not os.path.lexists(output):
            continue
        if output.is_dir() and not folders:
            raise ConfigError(f"'{output}' is a folder; nothing was written", expected="a file", do="name another file")
        if not options.overwrite:
            do = "name another file, or replace it: `--overwrite`"
            raise ConfigError(f"'{output}' exists already; nothing was written", do=do)

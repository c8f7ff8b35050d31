"""Run the command line: parse the arguments, call the verb, print results and errors."""

from __future__ import annotations

import argparse
import errno
import io
import logging
import os
import re
import shlex
import sys
from collections.abc import Sequence

from dglcell.cli.parser import make_parser
from dglcell.errors import CLEAR_LINE, DglcellError, StoppedError, printable, shorten
from dglcell.machine import is_out_of_memory, keep_freed_memory
from dglcell.training.signals import is_rank_zero

TEMPORARY = re.compile(r"\.([^/\n]+?)\.partial-[0-9a-f]{10}-[0-9]+-[0-9]+-[0-9a-f]{8}")

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

REMEDIES = dict.fromkeys(FULL, "make room, or choose another disk")
REMEDIES |= dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "choose a place that you may read and write")


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
    # argparse takes positional arguments from one place only, but overrides may also stand behind options.
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

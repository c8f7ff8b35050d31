"""Define the exceptions that a user can cause.

Every message answers four questions: what was wrong, what was got, what was expected, what to do. The command
line prints these without a traceback and exits with their status; any other exception is a bug and keeps its traceback.
"""

from __future__ import annotations

import difflib
import functools
import importlib
from collections.abc import Container, Iterable, Sequence
from typing import Any

CLEAR_LINE = "\x1b[K"  # before a line on a terminal, it removes the longer one of an epoch


class DglcellError(Exception):
    """This is the base of all errors that the user can mend.

    Args:
        what: what is wrong, naming the file, key, line or gene.
        got: the offending value.
        expected: what would have been accepted.
        do: the command, key or edit that fixes it.
    """

    status = 2  # exit status of the command line

    def __init__(self, what: str, *, got: object = None, expected: object = None, do: str | None = None) -> None:
        lines = [shorten(what)]
        for label, value in (("got", got), ("expected", expected), ("do", do)):
            if value is not None:
                lines.append(f"  {label + ':':<10}{shorten(str(value))}")
        super().__init__("\n".join(lines))


class ConfigError(DglcellError):
    """A configuration key or value is wrong, or two of them contradict each other."""


class OwnClassError(ConfigError):
    """A class of one's own is not where Python looks for it."""


class GraphError(DglcellError):
    """A metabolic model, edge table, vocabulary or cell graph is unusable."""


class DataError(DglcellError):
    """A strain table, store, data set or split is unusable."""


class GenotypeError(DglcellError):
    """A genotype names unknown genes, is empty, or deletes a gene twice."""


class CheckpointError(DglcellError):
    """A checkpoint is missing, torn, or does not fit the cell or the model."""


class OwnerError(DglcellError):
    """Another process writes what this one was to write, or has taken it over."""


class MissingDependencyError(DglcellError):
    """An optional package, kernel or device that was asked for by name is not there."""


class StoppedError(BaseException):
    """Training stopped because the process was told to; everything needed to continue is on disk. This is no failure.

    Like ``KeyboardInterrupt`` it may come from a signal handler, anywhere; ``except Exception`` must not swallow it.

    Attributes:
        signal: signal that this process or another one of the run received.
        requeued: whether SLURM will start the job again; None as long as it has not been asked to.
    """

    def __init__(self, number: int, requeued: bool | None = None) -> None:
        super().__init__(f"stopped by signal {number}")
        self.signal, self.requeued = number, requeued


def shorten(text: str, limit: int = 1_500) -> str:
    """Return a text; where it is longer than ``limit``, only its beginning and its length."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"


def printable(text: str) -> str:
    """Return a message that a terminal may show: control characters other than line ends are written out."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def listing(items: Iterable[object], limit: int = 10) -> str:
    """Join the first ``limit`` items for a message and say how many more there are."""
    shown = [str(item) for item in items]
    more = len(shown) - limit
    return ", ".join(shown[:limit]) + (f" … and {more:,} more" if more > 0 else "")


def aligned(rows: Sequence[Sequence[str]], left: Container[int], gap: str = "  ") -> list[str]:
    """Return the rows of a table as lines; columns are as wide as needed, and flush right except those in ``left``."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        gap.join(
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


RENAMED = {"strengths": "activities", "strength": "activity", "condition": "covariate", "null_models": "baselines"}
RENAMED |= {"--control": "--without-messages"}  # what keys and options were called before version 1.0


def closest(name: object, known: Iterable[str]) -> list[str]:
    """Return at most three known names that are close to a name, the closest first, whatever the case of letters."""
    spelled = {one.lower(): one for one in known}
    today = functools.reduce(lambda text, words: text.replace(*words), RENAMED.items(), str(name))
    # A word that is nearly right comes before one of an earlier version, and that before any that is alike.
    tried = ((str(name), 0.85), (today, 0.6), (str(name), 0.6))
    near = (difflib.get_close_matches(one.lower(), spelled, n=3, cutoff=cutoff) for one, cutoff in tried)
    return [spelled[one] for one in next(filter(None, near), [])]


def did_you_mean(name: object, known: Iterable[str], otherwise: str | None = None) -> str | None:
    """Return what to do about an unknown name: take the closest known names, or else ``otherwise``."""
    close = closest(name, known)
    return f"did you mean {' or '.join(close)}?" if close else otherwise


def count(number: int, thing: str) -> str:
    """Return a number with its noun, e.g. ``1 job``, ``2,000 jobs``."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def and_more(number: int, thing: str) -> str:
    """Return how many things there are beside the first, e.g. `` (and 2 more rows)``; an empty text for none."""
    return f" (and {count(number, f'more {thing}')})" if number else ""


def import_optional(name: str, purpose: str, do: str) -> Any:
    """Import a module of a package that not every installation has.

    ``purpose``, the subject of a sentence, needs it, and ``do`` says how it is installed.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise MissingDependencyError(f"{purpose} needs the package '{error.name}'", do=do) from error

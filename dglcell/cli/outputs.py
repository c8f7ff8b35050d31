"""Check that ``--output`` replaces nothing but an earlier output of the same command."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from dglcell.errors import ConfigError

HEAD = 1 << 16
"""So many bytes from either end of a file are read to tell its kind."""

STORE_FILES = ("data.mdb", "lock.mdb")

Ends = tuple[bytes, bytes]
"""These are the first and the last bytes of a file."""


def _begins(*texts: bytes) -> Callable[[Ends], bool]:
    return lambda ends: ends[0].lstrip().lower().startswith(texts)


def _is_predictions(ends: Ends) -> bool:
    # The footer of a Parquet file has the names of its columns.
    return b"predicted_" in (ends[1] if ends[0].startswith(b"PAR1") else ends[0].partition(b"\n")[0])


KINDS: dict[str, Callable[[Ends], bool]] = {
    "predictions": _is_predictions,
    "explanations": lambda ends: b"strain,genes,phenotype,subset" in ends[0].partition(b"\n")[0],
    "a page of a report": _begins(b"<!doctype html"),
    "a table of a comparison": lambda ends: b"metric,mean" in ends[0].partition(b"\n")[0],
    "a script of a job": _begins(b"#!"),
    "results of null models": lambda ends: _begins(b"{")(ends) and b'"left_out"' in ends[0] + ends[1],
    "a trained model": lambda ends: ends[0].startswith(b"PK") and b"card.json" in ends[1],
    "a profile": lambda ends: _begins(b"{")(ends) and b'"derived"' in ends[0] + ends[1],
    "a table of a suite": _begins(b"# suite "),
    "scores of a suite": lambda ends: _begins(b"{")(ends) and b'"suite"' in ends[0].partition(b",")[0],
    "a trace": lambda ends: b"traceEvents" in ends[0],
}
"""This maps each kind of output to a function that tells from its ends whether a file is of this kind."""


def check_output(output: Path, kind: str, inputs: Iterable[Path | str] = ()) -> None:
    """Refuse an output that would replace an input, a file of a run or store, or a file of another kind.

    Args:
        output: file that is to be written; it need not exist.
        kind: key of ``KINDS``.
        inputs: files that the command reads, by whatever name or link; those that do not exist are ignored.

    Raises:
        ConfigError: the output would replace such a file, which the message names.
    """
    if not os.path.lexists(output):
        if (output.parent / STORE_FILES[0]).exists():
            raise _refusal(output, f"'{output.parent}' is a store, in which nothing else may be written", kind)
        return
    for path in map(Path, inputs):
        if path.exists() and output.exists() and output.samefile(path):
            raise _refusal(output, f"{kind} would overwrite '{path}', which the command reads", kind)
    if output.name in STORE_FILES or (output.parent / STORE_FILES[0]).exists():
        raise _refusal(output, f"{kind} would overwrite '{output}', which is part of a store", kind)
    if _is_of_a_run(output):
        raise _refusal(output, f"{kind} would overwrite '{output}', which is part of a run", kind)
    if output.is_dir():
        raise _refusal(output, f"'{output}' is a folder", kind)
    if output.stat().st_size and not KINDS[kind](_ends(output)):
        raise _refusal(output, f"'{output}' is there and is something else than {kind}", kind)


def _refusal(output: Path, problem: str, kind: str) -> ConfigError:
    return ConfigError(
        problem,
        got=f"--output {output}",
        expected=f"a new file, or an earlier one with {kind}" if kind[:2] != "a " else f"a new file, or {kind}",
        do="choose another output",
    )


def _is_of_a_run(output: Path) -> bool:
    """Return whether the output is a file that a run wrote, or its cell graph or checkpoints."""
    from dglcell.runs.directory import RunDirectory

    folders = [folder for folder in output.resolve().parents[:3] if (folder / "metrics.jsonl").is_file()]
    of_runs = [path for folder in folders for path in RunDirectory(folder).files()]
    pages = [path for folder in folders for path in (RunDirectory(folder).page, RunDirectory(folder).report)]
    return any(output.samefile(path) for path in of_runs if path not in pages)


def _ends(path: Path) -> Ends:
    with open(path, "rb") as file:
        start = file.read(HEAD)
        file.seek(max(0, path.stat().st_size - HEAD))
        end = file.read()
    if start[:2] == b"\x1f\x8b":
        try:
            with gzip.open(path) as file:
                start = end = file.read(HEAD)
        except (OSError, EOFError):
            pass
    return start, end

"""Files and folders: hashes, atomic writes, and where raw files are found."""

from __future__ import annotations

import glob
import gzip
import hashlib
import json
import os
import re
import shutil
import socket
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from dglcell.errors import DataError

RAW_VARIABLE = "DGLCELL_RAW"

DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError)
"""What reading a file raises that is cut off, or is not text."""


CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]|\r(?!\n|$)")
"""What no line of a text table holds: control characters, and line ends of old systems in its middle."""


MOST_COLUMNS = 16_384
"""Of a table: what spreadsheets have. Reading more takes minutes, and none of them would be asked for."""


def parse_json(text: str | bytes) -> Any:
    """What a JSON text says.

    Raises:
        ValueError: it is none, or is nested too deep to be read.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def sha256_file(path: Path) -> str:
    """Hex sha256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def raw_folder(raw: str | None = None) -> Path | None:
    """The folder of raw files: ``raw``, or what ``DGLCELL_RAW`` says; None where neither is set."""
    folder = raw or os.environ.get(RAW_VARIABLE)
    return Path(folder) if folder else None


def find_raw(path: str, raw: str | None = None) -> Path:
    """The file at ``path``: absolute, relative to the working directory, or inside the raw folder.

    Args:
        path: as written in a configuration.
        raw: the raw folder; the environment variable ``DGLCELL_RAW`` where None or empty.

    Raises:
        DataError: it is in none of these places.
    """
    folder = raw_folder(raw)
    candidates = [Path(path)] + ([folder / path] if folder else [])
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise DataError(
        f"raw file '{path}' not found",
        got="looked at " + ", ".join(str(c) for c in candidates),
        expected="an existing file",
        do=f"set `{RAW_VARIABLE}` (or pass `--raw`) to the folder that holds it",
    )


def open_text(path: Path, errors: str = "strict") -> IO[str]:
    """A text file in UTF-8, plain or ``.gz``, for reading; line ends are kept, as the csv module wants them.

    Reading may raise one of ``DAMAGE``.

    Args:
        path: the file.
        errors: what becomes of bytes that are no UTF-8, as `open` has it.
    """
    if path.suffix == ".gz":
        return gzip.open(path, "rt", newline="", encoding="utf-8-sig", errors=errors)
    return open(path, newline="", encoding="utf-8-sig", errors=errors)


@contextmanager
def atomic_directory(target: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Write a directory so that it appears whole or not at all.

    Yields a temporary sibling; on a clean exit it is renamed to ``target`` (replacing the old one if
    ``overwrite``), on an exception it is removed. A killed process leaves only the temporary sibling, whose name
    starts with a dot, and the next build of the same target on that machine removes it; that of a process which is
    still building, or of another machine, is left alone.

    Raises:
        DataError: ``target`` exists and ``overwrite`` is false.
    """
    target = Path(target)
    if target.exists() and not overwrite:
        raise DataError(f"'{target}' exists already", do="pass `--overwrite` to build it anew")
    target.parent.mkdir(parents=True, exist_ok=True)
    for sibling in _abandoned(target):
        shutil.rmtree(sibling, ignore_errors=True)
    partial = Path(tempfile.mkdtemp(prefix=f"{_partial_prefix(target)}{os.getpid()}-", dir=target.parent))
    try:
        partial.chmod(0o755)
        yield partial
        if target.exists():
            old = partial.with_name(partial.name + ".old")
            os.replace(target, old)
            os.replace(partial, target)
            shutil.rmtree(old)
        else:
            os.replace(partial, target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _partial_prefix(target: Path) -> str:
    return f".{target.name}.partial-{socket.gethostname()}-"


def _abandoned(target: Path) -> list[Path]:
    """Temporary siblings of ``target`` whose processes, on this machine, have ended."""
    prefix = _partial_prefix(target)
    siblings = target.parent.glob(glob.escape(prefix) + "*")
    return [path for path in siblings if not _is_running(path.name.removeprefix(prefix).partition("-")[0])]


def _is_running(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:
        pass
    return True


@contextmanager
def atomic_file(target: Path) -> Iterator[Path]:
    """Write a file so that it appears whole or not at all: yields a temporary name, renamed on a clean exit.

    What a killed process left behind is removed by the next write of the same file on that machine.
    """
    target = Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    for sibling in _abandoned(target):
        sibling.unlink(missing_ok=True)
    partial = target.with_name(f"{_partial_prefix(target)}{os.getpid()}")
    try:
        yield partial
        os.replace(partial, target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_json(target: Path, value: Any) -> None:
    """Write ``value`` as indented JSON, atomically."""
    with atomic_file(target) as partial:
        partial.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def canonical_hash(value: Any) -> str:
    """sha256 of a JSON-serialisable value, independent of key order."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def user_cache(name: str) -> Path:
    """A folder for what may be made again: in `DGLCELL_CACHE`, else in the user's cache folder. It need not exist."""
    chosen = os.environ.get("DGLCELL_CACHE")
    if chosen:
        return Path(chosen) / name
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dglcell" / name

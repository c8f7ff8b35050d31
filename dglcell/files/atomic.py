"""Hash files, find raw files, write files and folders whole or not at all, and write the cells of tables."""

from __future__ import annotations

import ctypes
import errno
import glob
import gzip
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dglcell.errors import ConfigError, DataError, import_optional
from dglcell.files import abandoned, partial_of
from dglcell.files.owner import Lease, held, refuse_if_taken_over

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RAW_VARIABLE = "DGLCELL_RAW"

DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError)  # of a file that is cut off or is not text

# No line of a text table contains these: control characters, and line ends of old systems in its middle.
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]|\r(?!\n|$)")
MOST_COLUMNS = 16_384  # as spreadsheets have; reading more takes minutes, and none would be asked for


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def raw_folder(raw: str | Path | None = None) -> Path:
    """Return the folder of raw files: ``raw``, else ``DGLCELL_RAW``, else ``raw`` in the user's cache."""
    folder = raw or os.environ.get(RAW_VARIABLE)
    return Path(folder) if folder else user_cache("raw")


def find_raw(path: str, raw: str | Path | None = None) -> Path:
    """Find the file at ``path``, as it is written in a configuration: as it is, or inside the raw folder."""
    candidates = [Path(path), raw_folder(raw) / path]
    for candidate in candidates:
        if os.path.isfile(candidate):  # of a name that is too long, `Path.is_file` raises an error
            return candidate
    do = "check the path, which counts from the working folder, or "
    do += f"set `{RAW_VARIABLE}` to the folder that holds it"
    if path.startswith(("genes/", "interactions/", "metabolism/", "networks/")):
        do += f"; if it is a published file, `dglcell data fetch {path}` downloads it"
    got = f"looked at {', '.join(map(str, candidates))}"
    raise DataError(f"raw file '{path}' not found", got=got, expected="an existing file", do=do)


def read_text(path: Path, errors: str = "strict") -> str:
    """Read a text file, plain or gzipped, with its line ends; it may raise one of ``DAMAGE``.

    It is in UTF-8, or in UTF-16 with its mark at the beginning.
    """
    content = path.read_bytes()
    content = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
    return content.decode("utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig", errors)


@contextmanager
def atomic_directory(target: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Write a directory so that it appears whole or not at all.

    Yields a temporary sibling; on a clean exit it becomes ``target``, in exchange for the old one, and on an exception
    it is removed. A killed process leaves only the sibling, whose name contains the mark of the process. The next build
    of the same target removes it, unless its process may still be building.
    """
    target = Path(target)
    clear_abandoned(target)
    if target.exists() and not overwrite:
        raise DataError(f"'{target}' exists already", do="pass `--overwrite` to build it anew")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = partial_of(target)
    try:
        partial.mkdir()
        yield partial
        refuse_if_taken_over(target)
        _put_in_place(partial, target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


_OLD = ".old"  # ends the name of a folder that is being replaced


@contextmanager
def only_writer(target: Path) -> Iterator[None]:
    """Be the only process that builds ``target``; other processes that call this wait until this one is done.

    Files that a killed process has left are removed or put back first (`clear_abandoned`).
    """
    target = Path(target)
    with held(_lease_of(target), waits=True):
        clear_abandoned(target, alone=True)
        yield


def clear_abandoned(target: Path, *, alone: bool = False) -> None:
    """Remove the temporary folders that killed builds of a directory have left.

    If a build was killed while it replaced ``target``, before the new folder was in place, the old folder is put back.
    Where only this process may write ``target`` now (``alone``), those of other machines are removed as well.
    """
    left = abandoned(target, alone=alone)
    for old in [path for path in left if path.suffix == _OLD]:
        with suppress(FileNotFoundError):  # another process has just done it
            if not target.exists():
                os.rename(old, target)
    for path in left:
        shutil.rmtree(path, ignore_errors=True)
    if any(target.parent.glob(f"*{glob.escape(target.name)}.owner.json*")):  # also the lock and the next one
        lease = _lease_of(target)
        with suppress(OSError):  # of a folder that may only be read
            if lease.acquire():
                lease.release()


def _lease_of(target: Path) -> Lease:
    return Lease(target.parent / f".{target.name}.owner.json", target)


def _put_in_place(partial: Path, target: Path) -> None:
    """Rename ``partial`` to ``target`` and remove the old ``target``, even if another process does the same."""
    old = partial.with_name(partial.name + _OLD)
    while True:
        try:
            if not target.exists():
                return os.rename(partial, target)
            if exchange(partial, target):
                return shutil.rmtree(partial, ignore_errors=True)
            # If the process is killed between the two renames, `clear_abandoned` puts the old folder back.
            os.rename(target, old)
            return os.rename(partial, target)
        except OSError as error:
            another_was_faster = error.errno in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST) and partial.exists()
            if not another_was_faster:
                with suppress(OSError):  # the old folder is not there, or another one is
                    os.rename(old, target)
                raise
        finally:
            shutil.rmtree(old, ignore_errors=True)


def exchange(first: Path, second: Path) -> bool:
    """Exchange the names of two files or folders at once, and return whether system and file system can do that."""
    library = ctypes.CDLL(None, use_errno=True) if sys.platform.startswith("linux") else None
    if library is None or not hasattr(library, "renameat2"):
        return False
    here, rename_exchange = -100, 2  # AT_FDCWD: names without a slash in front start in the working directory
    if library.renameat2(here, os.fsencode(first), here, os.fsencode(second), rename_exchange) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
        return False
    raise OSError(number, os.strerror(number), str(first), None, str(second))


@contextmanager
def atomic_file(target: Path) -> Iterator[Path]:
    """Write a file so that it appears whole or not at all: yields a temporary name, renamed on a clean exit.

    The next write of the same file on that machine removes the temporary files of killed processes.
    """
    target = Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    for sibling in abandoned(target):
        sibling.unlink(missing_ok=True)
    partial = partial_of(target)
    try:
        yield partial
        refuse_if_taken_over(target)
        os.replace(partial, target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_json(target: Path, value: Any) -> None:
    """Write ``value`` as indented JSON, atomically."""
    with atomic_file(target) as partial:
        partial.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def no_formula(cell: str) -> str:
    """Put an apostrophe before a text that a spreadsheet would run as a formula; return other texts unchanged."""
    if not cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def shortest(values: NDArray[np.float32]) -> list[str]:
    """Return numbers as the shortest texts that give them back; a missing number becomes an empty text."""
    return ["" if text == "nan" else text.removesuffix(".0") for text in values.astype(str).tolist()]


def six_digits(values: NDArray[np.floating]) -> list[str]:
    """Return predictions with six significant digits, more than are sure; a missing one becomes an empty text."""
    return [f"{value:.6g}" if value == value else "" for value in values.tolist()]


def canonical_hash(value: Any) -> str:
    """Return the SHA-256 of a JSON-serialisable value, independent of key order."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def user_cache(name: str) -> Path:
    """Return a folder for files that can be made again, in `DGLCELL_CACHE` or else in the user's cache folder."""
    if chosen := os.environ.get("DGLCELL_CACHE"):
        return Path(chosen) / name
    try:
        home = Path.home()
    except RuntimeError:  # a user without one, as in some containers
        home = Path(tempfile.gettempdir())
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "dglcell" / name


# Parquet, for which pyarrow is imported only when such a file is used.

SUFFIXES = (".csv", ".parquet")


def check_output(path: Path, suffixes: Sequence[str] = SUFFIXES, *, may_be_folder: bool = False) -> None:
    """Refuse the name of an output file that is too long, or whose suffix names none of the formats that are known.

    A name without a suffix may be a folder of Parquet files (``may_be_folder``).
    """
    if path.suffix not in suffixes and (path.suffix or not may_be_folder):
        what, got = f"'{path}': the suffix does not say which format is wanted", path.suffix or "no suffix"
        expected = " or ".join(suffixes) + (", or no suffix for a folder of Parquet files" if may_be_folder else "")
        raise ConfigError(what, got=got, expected=expected, do="name the output accordingly")
    # The temporary name during writing is longer, and file systems take 255 bytes.
    if len(os.fsencode(path.name)) > 180:
        raise ConfigError(f"'{path}': the name is too long", expected="at most 180 bytes")
    if path.suffix == ".parquet":
        import_pyarrow()


def import_pyarrow() -> tuple[Any, Any]:
    """Return the modules ``pyarrow`` and ``pyarrow.parquet``."""
    names = "pyarrow", "pyarrow.parquet"
    pa, pq = (import_optional(name, "a Parquet file", "pip install 'dglcell[parquet]'") for name in names)
    return pa, pq


def named(indices: NDArray[np.integer], names: Sequence[str]) -> Any:
    """Return a dictionary-encoded column of ``names[indices]``."""
    pa, _ = import_pyarrow()
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), pa.array(names, pa.string()))


def open_writer(path: Path, schema: Any) -> Any:
    """Return a ``pyarrow.parquet.ParquetWriter`` that encodes names by dictionary and writes numbers plain."""
    pa, pq = import_pyarrow()
    encoded = [field.name for field in schema if not pa.types.is_floating(field.type)]
    return pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=encoded)

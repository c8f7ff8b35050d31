"""Read and write predictions as Parquet with pyarrow, which is imported only when such a file is used."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import ConfigError, import_optional

SUFFIXES = (".csv", ".parquet")


def check_output(path: Path, suffixes: Sequence[str] = SUFFIXES, *, may_be_folder: bool = False) -> None:
    """Refuse the name of an output file that is too long, or whose suffix names none of the formats that are known.

    Args:
        may_be_folder: whether a name without a suffix is a folder of Parquet files.

    Raises:
        ConfigError: it is one.
        MissingDependencyError: the format is Parquet and pyarrow is not installed.
    """
    folder = ", or no suffix for a folder of Parquet files" if may_be_folder else ""
    if path.suffix not in suffixes and (path.suffix or not may_be_folder):
        what, got = f"'{path}': the suffix does not say which format is wanted", path.suffix or "no suffix"
        expected = " or ".join(suffixes) + folder
        raise ConfigError(what, got=got, expected=expected, do="name the output accordingly")
    # The temporary name during writing is longer, and file systems take 255 bytes.
    if len(os.fsencode(path.name)) > 180:
        raise ConfigError(f"'{path}': the name is too long", expected="at most 180 bytes")
    if path.suffix == ".parquet":
        import_pyarrow()


def import_pyarrow() -> tuple[Any, Any]:
    """Return the modules ``pyarrow`` and ``pyarrow.parquet``.

    Raises:
        MissingDependencyError: pyarrow is not installed.
    """
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
    named = [field.name for field in schema if not pa.types.is_floating(field.type)]
    return pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=named)

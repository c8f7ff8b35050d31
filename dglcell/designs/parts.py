"""Finished parts of a long prediction, kept beside its output until they are joined, so that it can be continued."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dglcell.errors import DataError
from dglcell.files import atomic_file, write_json
from dglcell.parquet import import_pyarrow, open_writer

MANIFEST = "manifest.json"
METADATA = "dglcell"
FIRST = "dglcell.first"


class Parts:
    """The folder ``OUTPUT.parts``: ``manifest.json`` and ``part-00000.parquet``, ``part-00001.parquet`` and so on.

    A part appears whole or not at all, and its footer says with which row of the output it begins.

    Args:
        output: the file that they become, ``.parquet`` or ``.csv``.
        manifest: what the predictions are of; a folder that is there already has to agree.

    Attributes:
        folder: where the parts are.
        rows: how many rows are finished.

    Raises:
        DataError: the output exists, or the folder belongs to other predictions, or a part is damaged or missing.
        MissingDependencyError: pyarrow is not installed.
    """

    def __init__(self, output: Path, manifest: Mapping[str, Any]) -> None:
        import_pyarrow()
        if output.exists():
            raise DataError(f"'{output}' exists already", do="remove it, or choose another output")
        self.output, self.manifest = output, dict(manifest)
        self.folder = output.with_name(f"{output.name}.parts")
        self.rows = 0
        self._count = 0
        if (self.folder / MANIFEST).exists():
            self._compare()
        elif self.folder.exists() and any(self.folder.iterdir()):
            raise DataError(
                f"'{self.folder}' is in the way: it holds no {MANIFEST}", do="remove it, or choose another output"
            )
        else:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_json(self.folder / MANIFEST, self.manifest)
        for rows in self._check():
            self.rows += rows
            self._count += 1

    def append(self, table: Any) -> None:
        """Keep the next rows, a pyarrow table.

        Raises:
            DataError: there is no room; what was finished is kept.
        """
        about = {METADATA: json.dumps(self.manifest), FIRST: str(self.rows)}
        table = table.replace_schema_metadata(about)
        path = self._path(self._count)
        with self._writing(), atomic_file(path) as partial, open_writer(partial, table.schema) as writer:
            writer.write_table(table)
        self.rows += len(table)
        self._count += 1

    def join(self) -> None:
        """Write the output, row group by row group, under another name; rename it and remove the parts."""
        with self._writing(), atomic_file(self.output) as partial:
            (self._join_csv if self.output.suffix == ".csv" else self._join_parquet)(partial)
        shutil.rmtree(self.folder)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DataError(
                f"predictions cannot be written; the first {self.rows:,} are kept in '{self.folder}'",
                got=error.strerror or error,
                do="make room; the same command goes on from here",
            ) from error

    def _join_parquet(self, path: Path) -> None:
        about = {METADATA: json.dumps(self.manifest)}
        tables = (table.replace_schema_metadata(about) for table in self._tables())
        first = next(tables)
        with open_writer(path, first.schema) as writer:
            writer.write_table(first)
            for table in tables:
                writer.write_table(table)

    def _join_csv(self, path: Path) -> None:
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            for number, table in enumerate(self._tables()):
                if not number:
                    writer.writerow(table.column_names)
                columns = [column.to_pylist() for column in table.columns]
                for row in zip(*columns, strict=True):
                    writer.writerow([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in row])

    def _tables(self) -> Iterator[Any]:
        """Row groups of all parts, in order."""
        _, pq = import_pyarrow()
        for number in range(self._count):
            with pq.ParquetFile(self._path(number)) as file:
                for group in range(file.num_row_groups):
                    yield file.read_row_group(group)

    def _compare(self) -> None:
        """Refuse to mix predictions of two kinds."""
        try:
            found = json.loads((self.folder / MANIFEST).read_text())
        except ValueError:
            found = {}
        differ = [key for key, value in self.manifest.items() if found.get(key) != value]
        if differ:
            raise DataError(
                f"'{self.folder}' holds parts of other predictions: {', '.join(differ)} differ",
                got=", ".join(f"{key} {_short(self.manifest[key])}" for key in differ),
                expected=", ".join(f"{key} {_short(found.get(key))}" for key in differ),
                do="go on with what they were begun with, remove the folder to begin anew, or choose another output",
            )

    def _check(self) -> Iterator[int]:
        """Rows of each part, in order; all of them are checked."""
        pa, pq = import_pyarrow()
        begun, paths = 0, sorted(self.folder.glob("part-*.parquet"))
        for number, path in enumerate(paths):
            try:
                with pq.ParquetFile(path) as file:
                    rows, about = file.metadata.num_rows, file.metadata.metadata or {}
            except (pa.ArrowInvalid, OSError) as error:
                raise DataError(
                    f"'{path}' is damaged", got=str(error).splitlines()[0], do="remove it and all parts after it"
                ) from error
            if path != self._path(number) or about.get(FIRST.encode()) != str(begun).encode():
                raise DataError(
                    f"'{path}' does not follow the part before it",
                    got=f"a part that begins with row {about.get(FIRST.encode(), b'?').decode()}",
                    expected=f"row {begun}",
                    do="remove it and all parts after it",
                )
            begun += rows
            yield rows

    def _path(self, number: int) -> Path:
        return self.folder / f"part-{number:05d}.parquet"


def _short(value: Any) -> str:
    """A hash by its first digits, other values as they are."""
    return value[:12] if isinstance(value, str) and len(value) == 64 else str(value)

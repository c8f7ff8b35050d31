"""All combinations of some genes: strains by number, never the whole list, and finished parts of their predictions."""

from __future__ import annotations

import csv
import functools
import json
import math
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import DataError, GenotypeError, listing
from dglcell.files.atomic import (
    CONTROL,
    atomic_directory,
    atomic_file,
    canonical_hash,
    parse_json,
    shortest,
    write_json,
)
from dglcell.files.parquet import import_pyarrow, open_writer
from dglcell.graph.vocabulary import Vocabulary

# All combinations of some genes, in lexicographic order, by number: nothing but integers, and never the whole list.


MOST_STRAINS = 2**63 - 1
KINDS = {2: "pairs", 3: "triples"}


@dataclass(frozen=True)
class Design:
    """The strains ``start`` to ``stop`` of all combinations of ``size`` genes, as ``itertools.combinations`` has them.

    In this order neighbouring strains share their first genes.

    Attributes:
        genes: distinct indices of the cell graph's genes; combinations keep their order.
        size: K, deletions of each strain.
        start: number of the first strain, from 0.
        stop: number of the strain after the last.
    """

    genes: tuple[int, ...]
    size: int
    start: int
    stop: int

    @classmethod
    def of(cls, genes: Sequence[int], size: int, start: int = 0, limit: int | None = None) -> Design:
        """The combinations of ``genes``, or ``limit`` of them from number ``start``.

        Raises:
            GenotypeError: there are fewer genes than deletions, more combinations than 64 bits count, or ``start``
                lies behind the last of them.
        """
        kind = KINDS.get(size, f"sets of {size} genes")
        if len(genes) < size:
            raise GenotypeError(
                f"no {kind}: there are too few genes", got=len(genes), expected=f"{size} or more", do="list more genes"
            )
        total = math.comb(len(genes), size)
        if total > MOST_STRAINS:
            raise GenotypeError(f"too many {kind} to be numbered", got=f"{total:,}", do="list fewer genes")
        if start >= total:
            raise GenotypeError(
                f"`--start` lies behind the last of the {kind}",
                got=f"{start:,}",
                expected=f"0 … {total - 1:,}",
                do="start earlier, or list more genes",
            )
        return cls(tuple(genes), size, start, total if limit is None else min(total, start + limit))

    def __len__(self) -> int:
        return self.stop - self.start

    def part(self, first: int, last: int) -> Design:
        """The strains ``first`` to ``last``, counted from the design's own first."""
        return replace(self, start=self.start + first, stop=self.start + last)

    @property
    def sha256(self) -> str:
        """Hash of the strains and their order, given the cell graph."""
        return canonical_hash([self.genes, self.size, self.start, self.stop])

    def strains(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """[n, K] gene indices of the combinations of these numbers, counted from 0 over all combinations."""
        return np.asarray(self.genes, np.int64)[self._positions(numbers)]

    def _positions(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """[n, K] positions in the list of genes.

        Of the combinations of m genes out of those from position p on, in lexicographic order, C(N − p, m) −
        C(N − q, m) come before the first that begins at position q. So the first gene of the combination of number r
        is at the q with the smallest x = N − q for which C(x, m) ≥ C(N − p, m) − r.
        """
        count = len(self.genes)
        positions = np.empty((len(numbers), self.size), np.int64)
        rest = numbers.astype(np.int64)
        left = np.full(len(numbers), count, np.int64)
        for column in range(self.size):
            tails = _binomials(count, self.size - column)
            behind = tails[left] - rest
            found = np.searchsorted(tails, behind, side="left")
            positions[:, column] = count - found
            rest = tails[found] - behind
            left = found - 1
        return positions

    def blocks(self, size: int, skip: int = 0) -> Iterator[NDArray[np.int64]]:
        """The strains in order, ``size`` at a time, as [n, K] gene indices.

        Args:
            size: most strains in a block.
            skip: how many strains to leave out at the beginning.
        """
        for first in range(self.start + skip, self.stop, size):
            yield self.strains(np.arange(first, min(first + size, self.stop)))

    def shared_blocks(
        self, size: int, least: int, skip: int = 0
    ) -> Iterator[tuple[NDArray[np.int64], tuple[int, ...]]]:
        """The strains in order, in blocks that have as many first genes in common as may be.

        Where a block ends, and what its strains share, depends on where it begins alone.

        Args:
            size: most strains in a block.
            least: blocks are not cut for the sake of genes that fewer strains have in common.
            skip: how many strains to leave out at the beginning.

        Yields:
            [n, K] gene indices, and the genes that all of them have in common; of K − 1 genes at most.
        """
        first = self.start + skip
        while first < self.stop:
            number, shared = self._next_block(first, size, least)
            yield self.strains(np.arange(first, first + number)), shared
            first += number

    def _next_block(self, first: int, size: int, least: int) -> tuple[int, tuple[int, ...]]:
        """How many strains the block that begins with number ``first`` has, and what they share."""
        positions = self._positions(np.array([first]))[0].tolist()
        count = len(self.genes)
        for length in range(self.size - 1, 0, -1):
            if math.comb(count - 1 - positions[length - 1], self.size - length) >= least:
                # Combinations behind the last one that begins with these genes.
                behind = sum(math.comb(count - 1 - p, self.size - i) for i, p in enumerate(positions[:length]))
                rest = min(self.stop, math.comb(count, self.size) - behind) - first
                return _even(rest, size), tuple(self.genes[p] for p in positions[:length])
        return min(size, self.stop - first), ()


def _even(number: int, most: int) -> int:
    """Size of the first of as few portions as may be, of about the same size."""
    return math.ceil(number / math.ceil(number / most))


@functools.lru_cache(maxsize=8)
def _binomials(count: int, size: int) -> NDArray[np.int64]:
    """[count + 1] C(x, size) for x from 0; not decreasing."""
    return np.array([math.comb(x, size) for x in range(count + 1)], np.int64)


def read_genes(path: Path, vocabulary: Vocabulary) -> list[int]:
    """Gene indices of a list of names, one a line, in its order; blank lines and what follows ``#`` are left out.

    Args:
        path: the text file.
        vocabulary: gene vocabulary of the model's cell graph.

    Raises:
        GenotypeError: the file is missing or no text, or names are unknown or listed twice; all of them are counted.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (FileNotFoundError, IsADirectoryError) as error:
        raise GenotypeError(f"gene list '{path}' not found", expected="a text file, one gene name a line") from error
    except UnicodeDecodeError as error:
        raise GenotypeError(f"gene list '{path}' is not a text file", got=error) from error
    names = [name for line in lines if (name := line.partition("#")[0].strip())]
    strange = [name for name in names if CONTROL.search(name)]
    if strange:
        raise GenotypeError(f"gene list '{path}': a name has a control character", got=ascii(strange[0]))
    names = [vocabulary.find(name) for name in names]
    unknown = [name for name in dict.fromkeys(names) if name not in vocabulary]
    if unknown:
        raise GenotypeError(
            f"gene list '{path}': the model does not know {len(unknown):,} of {len(names):,} genes",
            got=listing([unknown[0] + vocabulary.suggestion(unknown[0]), *unknown[1:]]),
            do="mend or remove them; `dglcell graph describe RUN --names` lists the genes of the model",
        )
    if len(set(names)) < len(names):
        twice = [name for name, times in Counter(names).items() if times > 1]
        raise GenotypeError(f"gene list '{path}': genes are listed twice", got=listing(twice), do="list each once")
    return [vocabulary.index(name) for name in names]


# Finished parts of a long prediction, kept beside its output until they are joined, so that it can be continued.


MANIFEST = "manifest.json"
METADATA = "dglcell"
FIRST = "dglcell.first"


class Parts:
    """The folder ``OUTPUT.parts``: ``manifest.json`` and ``part-00000.parquet``, ``part-00001.parquet`` and so on.

    The folder appears with its manifest. A part appears whole or not at all, and its footer says with which row of the
    output it begins. When all are joined the folder gets another name before it is removed, so that what is left of it
    is never taken for parts of an unfinished output.

    Args:
        output: the file that they become, ``.parquet`` or ``.csv``.
        manifest: what the predictions are of; a folder or an output that is there already has to agree.
        strains: how many rows the output has in the end.

    Attributes:
        folder: where the parts are.
        rows: how many rows are finished.
        joined: whether the output was complete before, so that nothing is left to do.

    Raises:
        DataError: another output exists, or the folder belongs to other predictions, or a part is damaged or missing.
        MissingDependencyError: pyarrow is not installed.
    """

    def __init__(self, output: Path, manifest: Mapping[str, Any], strains: int) -> None:
        import_pyarrow()
        self.output, self.manifest = output, dict(manifest)
        self.folder = output.with_name(f"{output.name}.parts")
        self._leaving = output.with_name(f"{output.name}.parts.joined")
        self._count = 0
        self.joined = output.exists()
        if self.joined:
            if not self._made(strains):
                raise DataError(f"'{output}' exists already", do="remove it, or choose another output")
            self.rows = strains
            self._remove()
            return
        self._open()
        finished = list(self._check())
        self.rows, self._count = sum(finished), len(finished)

    def _made(self, strains: int) -> bool:
        """Whether the output that is there was made of parts like these."""
        if self._leaving.exists():
            return True
        if self.output.suffix == ".parquet":
            return footer(self.output) == self.manifest
        # A CSV says nothing of itself; its parts do, where a process was killed before it renamed them.
        return self._found() == self.manifest and sum(self._check()) == strains

    def _open(self) -> None:
        """Find the folder, or make it."""
        shutil.rmtree(self._leaving, ignore_errors=True)  # of an output that has been removed since
        if (self.folder / MANIFEST).exists():
            self._compare()
            return
        try:
            if self.folder.exists():
                self.folder.rmdir()
        except OSError as error:
            raise DataError(
                f"'{self.folder}' is in the way: it holds no {MANIFEST}", do="remove it, or choose another output"
            ) from error
        with atomic_directory(self.folder) as partial:
            write_json(partial / MANIFEST, self.manifest)

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

    def join(self, chosen: Callable[[Iterator[Any]], Iterator[Any]] = iter) -> None:
        """Write the output, row group by row group, under another name; rename it and remove the parts.

        Args:
            chosen: what is written of all row groups.
        """
        with self._writing(), atomic_file(self.output) as partial:
            write_tables(partial, self.output.suffix, chosen(self._tables()), self.manifest)
        self._remove()

    def _remove(self) -> None:
        if self.folder.exists():
            self.folder.replace(self._leaving)
        if self._leaving.exists():
            shutil.rmtree(self._leaving)

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

    def _tables(self) -> Iterator[Any]:
        """Row groups of all parts, in order."""
        return row_groups([self._path(number) for number in range(self._count)])

    def _compare(self) -> None:
        """Refuse to mix predictions of two kinds."""
        found = self._found()
        differ = [key for key, value in self.manifest.items() if found.get(key) != value]
        if differ:
            raise DataError(
                f"'{self.folder}' holds parts of other predictions: {', '.join(differ)} differ",
                got=", ".join(f"{key} {_short(self.manifest[key])}" for key in differ),
                expected=", ".join(f"{key} {_short(found.get(key))}" for key in differ),
                do="go on with what they were begun with, remove the folder to begin anew, or choose another output",
            )

    def _found(self) -> dict[str, Any]:
        """The manifest in the folder; nothing where there is none, or it is torn."""
        try:
            found = parse_json((self.folder / MANIFEST).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _check(self) -> Iterator[int]:
        """Rows of each part, in order; all of them are checked."""
        pa, pq = import_pyarrow()
        begun, paths = 0, in_order(self.folder.glob("part-*.parquet"))
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


def in_order(parts: Iterable[Path]) -> list[Path]:
    """Files of parts by their numbers, of which the hundred-thousandth has a digit more."""
    return sorted(parts, key=lambda path: (len(path.name), path.name))


def row_groups(paths: Iterable[Path]) -> Iterator[Any]:
    """Row groups of Parquet files as pyarrow tables, in order."""
    _, pq = import_pyarrow()
    for path in paths:
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                yield file.read_row_group(group)


def write_tables(path: Path, suffix: str, tables: Iterator[Any], manifest: Mapping[str, Any]) -> None:
    """Write pyarrow tables one after the other, as CSV or as Parquet with a manifest in its footer."""
    if suffix == ".csv":
        _write_csv(path, tables)
        return
    about = {METADATA: json.dumps(dict(manifest))}
    first = next(tables).replace_schema_metadata(about)
    with open_writer(path, first.schema) as writer:
        writer.write_table(first)
        for table in tables:
            writer.write_table(table.replace_schema_metadata(about))


def _write_csv(path: Path, tables: Iterator[Any]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        for number, table in enumerate(tables):
            if not number:
                writer.writerow(table.column_names)
            columns = [
                shortest(column.to_numpy()) if str(column.type) == "float" else column.to_pylist()
                for column in table.columns
            ]
            writer.writerows(zip(*columns, strict=True))


def footer(path: Path) -> Any:
    """The manifest in the footer of a Parquet file; None where there is none."""
    pa, pq = import_pyarrow()
    try:
        about = pq.read_metadata(path).metadata or {}
        return json.loads(about.get(METADATA.encode(), b"null"))
    except (pa.ArrowInvalid, OSError, ValueError):
        return None


def _short(value: Any) -> str:
    """Hashes by their first digits, other values as they are."""
    if isinstance(value, list):
        return " ".join(map(_short, value))
    return value[:12] if isinstance(value, str) and len(value) == 64 else str(value)

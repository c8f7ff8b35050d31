"""Build a store: every strain is checked once, on its way into an LMDB file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
from numpy.typing import NDArray

import dglcell
from dglcell.data.columns import CONDITION, COUNTS, P_VALUE, PHENOTYPE, REPLICATES, SD, STRENGTHS, TARGETS, hashed
from dglcell.data.store import DATA_FILE, HASH_FILE, META_KEY, Store, StoreMeta, value_key
from dglcell.data.strains import Strains
from dglcell.errors import DataError, GenotypeError
from dglcell.files.atomic import atomic_directory, sha256_file
from dglcell.graph.vocabulary import Vocabulary

VALUE_STRAINS = 2**18
"""Strains of one value of a column; as many are checked and written at a time."""

MOST_TARGETS = 255
"""Most targets of a strain, because their number is stored in a byte."""


def build_store(strains: Strains, path: str | Path, *, command: str, overwrite: bool = False) -> Store:
    """Write strains as a store at ``path``, and open it; the order of strains and of each one's genes is kept.

    Until the store is whole, and if the process is killed, what was at ``path`` before stays.

    Args:
        strains: all of them.
        path: directory of the store to be.
        command: the command that builds the store, for the record.
        overwrite: replace the store at ``path``.

    Raises:
        DataError: a strain or column is unusable, or ``path`` exists; nothing is left behind.
        GenotypeError: a strain deletes no gene, too many, or one gene twice.
    """
    path = Path(path)
    _check(strains)
    json.dumps(asdict(strains.provenance))
    if overwrite:
        _refuse_to_replace(path)
    with atomic_directory(path, overwrite=overwrite) as directory, _writing(path):
        _write(strains, directory, command)
        (directory / HASH_FILE).write_text(f"{sha256_file(directory / DATA_FILE)}\n", encoding="utf-8")
    return Store(path)


def _write(strains: Strains, directory: Path, command: str) -> None:
    names, sizes = Vocabulary.of(strains.names), list[int]()
    arrays = (strains.offsets, strains.targets, strains.left(), *strains.columns.values())
    # Twice the room: pages that are not full, and copies of those the tree rewrites. The file grows as needed. The
    # description, which has the names of all genes, takes less than the rest.
    room = 2 * sum(array.nbytes for array in arrays) + 2**28
    with lmdb.open(str(directory), room, mode=0o666, lock=False, sync=False, meminit=False) as environment:
        transaction = environment.begin(write=True)

        def written() -> Iterator[Mapping[tuple[str, ...], NDArray[Any]]]:
            nonlocal transaction
            for piece in strains.stored(VALUE_STRAINS):
                if sizes:  # so that a build needs little memory
                    transaction.commit()
                    transaction = environment.begin(write=True)
                _check_piece(piece, names, sum(sizes))
                counts = piece[COUNTS]
                kept = {**piece, COUNTS: counts[:1] if (counts == counts[0]).all() else counts}
                for number, values in enumerate(kept.values()):
                    transaction.put(value_key(len(sizes), number), values.tobytes(), append=True)
                sizes.append(len(counts))
                yield piece

        meta = StoreMeta(
            columns=tuple(hashed(written())),
            values=tuple(sizes),
            deletions=len(strains.targets),
            names=names.names,
            vocabulary_sha256=names.sha256,
            units={name: strains.units.get(name, "") for name in strains.phenotypes},
            provenance=strains.provenance,
            command=command,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            version=dglcell.__version__,
        )
        transaction.put(META_KEY, meta.to_bytes(), append=True)
        transaction.commit()
        environment.sync(True)


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    try:
        yield
    except (lmdb.Error, OSError) as error:
        raise DataError(
            f"store '{target}' cannot be written; nothing of it is left behind",
            # Where a write ends halfway LMDB speaks of an input/output error, and not of a full disk.
            got=f"{error}; {shutil.disk_usage(target.parent).free:,} bytes are free there",
            do="make room, or choose another path",
        ) from None


def _refuse_to_replace(path: Path) -> None:
    """Refuse to replace anything but a store, because replacing a directory removes everything in it."""
    if not path.exists():
        return
    others = ["a file"]
    if path.is_dir():
        names = sorted(entry.name for entry in path.iterdir())
        others = [name for name in names if name not in (DATA_FILE, HASH_FILE)]
    if others:
        raise DataError(
            f"'{path}' will not be replaced: it is not a store",
            got=", ".join(others[:5]),
            expected=f"a directory with nothing but {DATA_FILE}",
            do="choose another path",
        )


# The checks of strains that enter a store, made once so that nothing downstream has to make them. Conditions have been
# checked with their source.


def _check(strains: Strains) -> None:
    """Refuse strains without phenotypes or targets, or with more targets than a byte can count."""
    phenotypes, counts = strains.phenotypes, strains.num_deletions
    if not phenotypes:
        raise DataError("no phenotype: a store needs at least one", do="name a phenotype column of the source")
    if not len(strains):
        raise DataError("no strains: a store needs at least one", do="check the source and its filters")
    of_phenotypes = {P_VALUE: "p-values", SD: "standard deviations", REPLICATES: "numbers of measurements"}
    for kind, said in of_phenotypes.items():
        stray = [name for name in strains.of_kind(kind) if name not in phenotypes]
        if stray:
            raise DataError(
                f"{said} of a phenotype that is not there",
                got=", ".join(stray),
                expected=f"some of {', '.join(phenotypes)}",
            )
    # With conditions, a strain without deletions is the wild type in some condition.
    if not strains.conditions and (counts == 0).any():
        raise GenotypeError(
            f"strain {int(np.argmax(counts == 0)) + 1:,} deletes no gene",
            expected="at least one gene in every strain",
            do="drop the row",
        )
    if (counts > MOST_TARGETS).any():
        strain = int(np.argmax(counts > MOST_TARGETS))
        raise GenotypeError(
            f"strain {strain + 1:,} deletes too many genes",
            got=int(counts[strain]),
            expected=f"at most {MOST_TARGETS}",
            do="drop the row",
        )


def _check_piece(piece: Mapping[tuple[str, ...], NDArray[Any]], names: Vocabulary, before: int) -> None:
    """Refuse a gene that a strain has twice, and labels that cannot be.

    Args:
        piece: columns of a part of the strains, as `Strains.stored` has them.
        names: the names of all genes.
        before: number of strains before these.
    """
    strain_of = np.repeat(np.arange(len(piece[COUNTS])), piece[COUNTS])
    keys = np.sort(strain_of * len(names) + piece[TARGETS])
    twice = keys[1:] == keys[:-1]
    if twice.any():
        strain, gene = divmod(int(keys[int(np.argmax(twice))]), len(names))
        raise GenotypeError(
            f"strain {before + strain + 1:,} deletes gene '{names.names[gene]}' twice",
            expected="distinct genes in every strain",
            do="drop the row, or leave out the repeated gene",
        )
    columns = {label: values for label, values in piece.items() if label not in (COUNTS, TARGETS, STRENGTHS)}
    for (kind, name, *categories), values in columns.items():
        wrong, expected = np.isinf(values), "a finite number, or nothing where it was not measured"
        if kind == CONDITION:
            wrong, expected = ~np.isfinite(values), "a finite number for every strain"
            if categories:
                wrong, expected = ~np.isin(values, np.arange(len(categories))), "the number of a category"
        elif kind == P_VALUE:
            wrong, expected = (values < 0) | (values > 1), "a number from 0 to 1, or nothing"
        elif kind == SD:
            wrong, expected = wrong | (values < 0), "a finite number, 0 or more, or nothing"
        elif kind == REPLICATES:
            wrong, expected = ~((values >= 0) & (values % 1 == 0)), "a whole number, 0 or more"
        if wrong.any():
            strain = int(np.argmax(wrong))
            raise DataError(
                f"strain {before + strain + 1:,} has an unusable {kind} of '{name}'",
                got=float(values[strain]),
                expected=expected,
                do="mend or drop the row",
            )
    phenotypes = {name: values for (kind, name, *_), values in columns.items() if kind == PHENOTYPE}
    missing = np.logical_and.reduce([np.isnan(values) for values in phenotypes.values()])
    if missing.any():
        raise DataError(
            f"strain {before + int(np.argmax(missing)) + 1:,} has no label at all",
            got=f"{int(missing.sum()):,} such strains so far",
            expected=f"a value of at least one of {', '.join(phenotypes)}",
            do="drop the rows without a measurement",
        )

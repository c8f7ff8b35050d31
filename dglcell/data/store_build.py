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
from dglcell.data.columns import COUNTS, COVARIATE, P_VALUE, PHENOTYPE, REPLICATES, SD, TARGETS, hashes
from dglcell.data.store import DATA_FILE, HASH_FILE, META_KEY, Store, StoreMeta, value_key
from dglcell.data.strains import Strains
from dglcell.errors import DataError, GenotypeError
from dglcell.files.atomic import atomic_directory, sha256_file
from dglcell.graph.vocabulary import Vocabulary

MOST_TARGETS = 255
"""Most targets of a strain, because their number is stored in a byte."""


def build_store(strains: Strains, path: str | Path, *, command: str, overwrite: bool = False) -> Store:
    """Write strains as a store at ``path``, and open it; the order of strains and of each one's genes is kept.

    Until the store is whole, and if the process is killed, what was at ``path`` before stays.

    Args:
        strains: all of them.
        path: directory of the store to be.
        command: the command that builds it, for the record.
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
    stored, names = strains.stored(), Vocabulary.of(strains.names)
    _check_stored(stored, names)
    meta = StoreMeta(
        columns=hashes(stored),
        values=(len(strains),),
        deletions=len(strains.targets),
        names=names.names,
        vocabulary_sha256=names.sha256,
        units={name: strains.units.get(name, "") for name in strains.phenotypes},
        provenance=strains.provenance,
        command=command,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        version=dglcell.__version__,
    )
    # Twice the room: pages that are not full, and copies of those the tree rewrites. The file grows as needed. The
    # description, which has the names of all genes, takes less than the rest.
    room = 2 * sum(values.nbytes for values in stored.values()) + 2**28
    with lmdb.open(str(directory), room, mode=0o666, lock=False, sync=False, meminit=False) as environment:
        with environment.begin(write=True) as transaction:
            for number, (label, values) in enumerate(stored.items()):
                of_all = label == COUNTS and (values == values[0]).all()
                transaction.put(value_key(0, number), (values[:1] if of_all else values).tobytes(), append=True)
            transaction.put(META_KEY, meta.to_bytes(), append=True)
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
    names = sorted(entry.name for entry in path.iterdir()) if path.is_dir() else ["a file"]
    if others := [name for name in names if name not in (DATA_FILE, HASH_FILE)]:
        raise DataError(
            f"'{path}' will not be replaced: it is not a store",
            got=", ".join(others[:5]),
            expected=f"a directory with nothing but {DATA_FILE}",
            do="choose another path",
        )


# The checks of strains that enter a store, made once so that nothing downstream has to make them. Covariates have been
# checked with their source.


EXPECTED = {
    PHENOTYPE: "a finite number, or nothing where it was not measured",
    P_VALUE: "a number from 0 to 1, or nothing",
    SD: "a finite number, 0 or more, or nothing",
    REPLICATES: "a whole number, 0 or more",
    COVARIATE: "a finite number for every strain",
}


def _check(strains: Strains) -> None:
    """Refuse strains without phenotypes or targets, or with more targets than a byte can count."""
    phenotypes, counts = strains.phenotypes, strains.num_deletions
    if not phenotypes:
        raise DataError("no phenotype: a store needs at least one", do="name a phenotype column of the source")
    if not len(strains):
        raise DataError("no strains: a store needs at least one", do="check the source and its filters")
    stray = [c.label for c in strains.columns if c.kind in (P_VALUE, SD, REPLICATES) and c.name not in phenotypes]
    if stray:
        what = f"a column belongs to a phenotype that is not there: {' of '.join(stray[0])}"
        raise DataError(what, expected=f"some of {', '.join(phenotypes)}")
    # With covariates, a strain without deletions is the wild type with some covariate.
    few, many = (counts == 0) & (not strains.covariates), counts > MOST_TARGETS
    for what, wrong in (("deletes no gene", few), ("deletes too many genes", many)):
        if wrong.any():
            strain = int(np.argmax(wrong))
            raise GenotypeError(
                f"strain {strain + 1:,} {what}",
                got=int(counts[strain]),
                expected=f"1 to {MOST_TARGETS} genes in every strain",
                do="drop the row",
            )


def _check_stored(stored: Mapping[tuple[str, ...], NDArray[Any]], names: Vocabulary) -> None:
    """Refuse a gene that a strain has twice, and labels that cannot be, in the columns of `Strains.stored`."""
    keys = np.sort(np.repeat(np.arange(len(stored[COUNTS])), stored[COUNTS]) * len(names) + stored[TARGETS])
    twice = keys[1:] == keys[:-1]
    if twice.any():
        strain, gene = divmod(int(keys[int(np.argmax(twice))]), len(names))
        raise GenotypeError(
            f"strain {strain + 1:,} deletes gene '{names.names[gene]}' twice",
            expected="distinct genes in every strain",
            do="drop the row, or leave out the repeated gene",
        )
    unlabelled = np.ones(len(stored[COUNTS]), bool)
    for (kind, *rest), values in stored.items():
        if kind not in EXPECTED:
            continue
        wrong = ~np.isfinite(values) if kind == COVARIATE else np.isinf(values)
        if kind == COVARIATE and rest[1:]:
            wrong = ~np.isin(values, np.arange(len(rest) - 1))
        elif kind == P_VALUE:
            wrong = (values < 0) | (values > 1)
        elif kind == SD:
            wrong |= values < 0
        elif kind == REPLICATES:
            wrong = ~((values >= 0) & (values % 1 == 0))
        elif kind == PHENOTYPE:
            unlabelled &= np.isnan(values)
        if wrong.any():
            strain = int(np.argmax(wrong))
            raise DataError(
                f"strain {strain + 1:,} has an unusable {kind} of '{rest[0]}'",
                got=float(values[strain]),
                expected=EXPECTED[kind],
                do="mend or drop the row",
            )
    if unlabelled.any():
        raise DataError(
            f"strain {int(np.argmax(unlabelled)) + 1:,} has no label at all",
            got=f"{int(unlabelled.sum()):,} such strains",
            expected=f"a value of at least one of {', '.join(of[1] for of in stored if of[0] == PHENOTYPE)}",
            do="drop the rows without a measurement",
        )
